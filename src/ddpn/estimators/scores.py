"""Scores of fitted estimators: explained deviance, CRPS and negative log-likelihood."""

from typing import Any

import numpy as np
import torch

from ddpn.metrics import crps, nll
from ddpn.predictor import Predictor
from ddpn.sample import Sample, checked_sample
from ddpn.threads import single_thread


class CountScores:
    """Scores of an estimator's predictions on rows with known counts."""

    fractional: str

    @property
    def _fitted(self) -> Predictor:
        raise NotImplementedError

    def predict(self, X: Any, exposure: Any = None, statistic: str = "mean", upper: Any = None) -> np.ndarray:
        """One number per row, from the predicted distribution."""
        raise NotImplementedError

    def _sample(self, X: Any, y: Any, sample_weight: Any, exposure: Any, upper: Any, censored: Any) -> Sample:
        sample = checked_sample(X, y, sample_weight, exposure, self.fractional)
        return self._fitted.counts.of(sample, upper, censored)

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        exposure: Any = None,
        upper: Any = None,
        censored: Any = None,
    ) -> float:
        """D^2, the share of the Poisson deviance that the predicted means explain: 1 is best, 0 is that of a constant.

        Parameters
        ----------
        X : array-like or data frame
            Rows with the columns that `fit` was given.
        y : array-like
            Their counts.
        sample_weight : array-like, optional
            How many times each row counts.
        exposure, upper : array-like, optional
            As for `predict_distribution`.
        censored : array-like of bool, optional
            Rows whose count stands for that many or more.
        """
        from sklearn.metrics import mean_poisson_deviance  # slow to import

        sample = self._sample(X, y, sample_weight, exposure, upper, censored)
        # A Gaussian's mean may be negative; no count divided by this bound overflows.
        mean = np.maximum(self.predict(X, exposure, upper=upper), 1e-290)
        scale = np.ones_like(mean) if sample.exposure is None else sample.exposure
        # Of rates weighted by exposure, which is the deviance of the counts.
        rate, weight = sample.y / scale, sample.weight_or_ones * scale
        constant = np.full_like(rate, np.average(rate, weights=weight))
        null = mean_poisson_deviance(rate, constant, sample_weight=weight) if constant[0] > 0 else 0.0
        left = mean_poisson_deviance(rate, mean / scale, sample_weight=weight)
        return float(1.0 - left / null) if null > 0 else float(left < 1e-6)

    def crps(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        exposure: Any = None,
        upper: Any = None,
        censored: Any = None,
    ) -> float:
        """Mean continuous ranked probability score (CRPS), in units of the counts; smaller is better.

        Parameters
        ----------
        X, y, sample_weight, exposure, upper, censored
            As for `score`. Censored counts are scored with the distribution of what is recorded, see
            `ddpn.distributions.Censored`.
        """
        return self._mean_score(crps, self._sample(X, y, sample_weight, exposure, upper, censored))

    def nll(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        exposure: Any = None,
        upper: Any = None,
        censored: Any = None,
    ) -> float:
        """Mean negative log-likelihood, in nats; smaller is better.

        Parameters
        ----------
        X, y, sample_weight, exposure, upper, censored
            As for `score`. A censored count has -log of P(that many or more).
        """
        return self._mean_score(nll, self._sample(X, y, sample_weight, exposure, upper, censored))

    def _mean_score(self, score: Any, sample: Sample) -> float:
        with torch.no_grad():
            parts = zip(self._fitted.recorded_blocks(sample), sample.blocks(), strict=True)
            each = [self._scored(score, block, part.y) for block, part in parts]
        return float(np.average(np.concatenate(each), weights=sample.weight))

    @staticmethod
    def _scored(score: Any, dist: Any, y: np.ndarray) -> np.ndarray:
        with single_thread():
            return score(dist, torch.from_numpy(y)).numpy()
