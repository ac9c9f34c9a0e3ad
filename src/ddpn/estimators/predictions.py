"""What every fitted estimator offers: distributions, points, intervals, probabilities, scores, calibration, saving."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ddpn.distributions import Mixture, discretized
from ddpn.distributions.arguments import check_coverage
from ddpn.estimators.calibrated import Calibrated
from ddpn.estimators.explained import Explained
from ddpn.estimators.saving import Saved
from ddpn.members.reader import TableReader
from ddpn.metrics import crps, nll, point
from ddpn.predictor import MIXTURE, Predictor
from ddpn.runtime.errors import InputError
from ddpn.runtime.threads import single_thread
from ddpn.runtime.validation import check_choice
from ddpn.sample import Sample, check_counts, checked_sample, row_count


class CountPredictions(Saved, Calibrated, Explained, RegressorMixin):
    """Predictions, scores, calibration and saving of an estimator that keeps a `Predictor` as `predictor_`."""

    fractional: str

    def _set_fitted(self, reader: TableReader, predictor: Predictor) -> None:
        """Replace what an earlier fit left, all at once: a fit that fails or is interrupted changes nothing."""
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.__dict__.update({name: value for name, value in vars(reader).items() if name.endswith("_in_")})
        self.feature_kinds_, self.predictor_, self._roles = reader.kinds_, predictor, None

    @property
    def _fitted(self) -> Predictor:
        check_is_fitted(self)
        return self.predictor_

    def _over_blocks(self, f: Callable[[Mixture], Tensor], X: Any, exposure: Any, upper: Any) -> np.ndarray:
        """f of the predicted distributions, a block of rows at a time."""
        parts = []
        with torch.no_grad():
            # Members choose their threads themselves.
            for block in self._fitted.blocks(self._features(X), exposure, upper=upper):
                with single_thread():
                    parts.append(f(block).double())
        return torch.cat(parts).numpy()

    # Predicting --------------------------------------------------------------------------------------------------

    def predict_distribution(self, X: Any, exposure: Any = None, upper: Any = None) -> Any:
        """Predict the whole distribution of every row.

        Parameters
        ----------
        X : array-like or data frame
            Rows with the columns that `fit` was given.
        exposure : array-like or float, optional
            The known scale of each row; required if `fit` was given exposures. 1 predicts rates per unit.
        upper : array-like, optional
            The largest possible count of each row; required if `fit` was given one per row.

        Returns
        -------
        Mixture or Recalibrated
            With batch shape (rows,), and with `aleatoric` and `epistemic` variance. It is a `Recalibrated`, whose
            `base` is the mixture, where `fit_recalibration` is in use.
        """
        return self._fitted.distribution(self._features(X), exposure, upper=upper)

    def predict(self, X: Any, exposure: Any = None, statistic: str = "mean", upper: Any = None) -> np.ndarray:
        """Predict one number per row.

        Parameters
        ----------
        X, exposure, upper
            As for `predict_distribution`.
        statistic : {"mean", "median", "mode"}
            What to take from the predicted distribution. Median and mode are counts; those of a Gaussian are of its
            rounded values.

        Returns
        -------
        array of float, shape (rows,)
        """
        return self._over_blocks(
            lambda dist: point(dist if statistic == "mean" else discretized(dist), statistic), X, exposure, upper
        )

    def predict_interval(
        self,
        X: Any,
        coverage: float = 0.9,
        exposure: Any = None,
        kind: str = "auto",
        groups: Any = None,
        upper: Any = None,
    ) -> np.ndarray:
        """Predict an interval of counts per row, both ends included.

        Parameters
        ----------
        X, exposure, upper
            As for `predict_distribution`.
        coverage : float
            The share of counts that the intervals should contain.
        kind : {"auto", "central", "highest", "calibrated"}
            "central" leaves at most half of the rest on either side, "highest" is the shortest: both cover at least
            `coverage` by each row's distribution. "calibrated" intervals are central ones that cover it over all rows
            together: see `fit_intervals`. "auto" is "calibrated" after `fit_intervals` (and for models of `ddpn fit`,
            which calibrates), else "central".
        groups : array-like, optional
            The label of each row's group, where `fit_intervals` was given labels. Rows of a group that it did not have
            get the level of all rows, with a warning.

        Returns
        -------
        array of int, shape (rows, 2)
            The lowest and the highest count of each interval.
        """
        check_choice("kind", kind, ("auto", "central", "highest", "calibrated"))
        if kind == "calibrated" and MIXTURE not in self._fitted.intervals:
            raise InputError('kind="calibrated" needs fit_intervals with rows that fit was not trained on.')
        if kind in ("central", "highest"):
            level = check_coverage(coverage)

            def plain(dist: Any) -> Tensor:
                return torch.stack(discretized(dist).interval(level, kind), 1)

            found = self._over_blocks(plain, X, exposure, upper)
        else:
            found = self._calibrated_intervals(X, coverage, exposure, self._group_labels(X, groups), upper)
        return found.astype(np.int64)

    def _calibrated_intervals(
        self, X: Any, coverage: float, exposure: Any, labels: np.ndarray | None, upper: Any
    ) -> np.ndarray:
        predictor, done = self._fitted, 0

        def of_block(dist: Any) -> Tensor:
            nonlocal done
            part = None if labels is None else labels[done : done + dist.batch_shape[0]]
            done += dist.batch_shape[0]
            return torch.stack(predictor.interval(dist, coverage, labels=part), dim=1)

        return self._over_blocks(of_block, X, exposure, upper)

    def _group_labels(self, X: Any, groups: Any) -> np.ndarray | None:
        """The groups of rows by which intervals are calibrated, with a warning about those that are unknown."""
        known = self._fitted.groups
        if known is None:
            if groups is not None:
                raise InputError("groups must be None: fit_intervals was not given groups.")
            return None
        labels = known.labels(X, groups)
        if sentence := known.unseen(labels):
            warnings.warn(sentence, UserWarning, stacklevel=3)
        return labels

    def predict_quantiles(self, X: Any, q: Any, exposure: Any = None, upper: Any = None) -> np.ndarray:
        """Predict quantiles, which are counts.

        Parameters
        ----------
        X, exposure, upper
            As for `predict_distribution`.
        q : float or array-like
            One or more levels from 0 to 1, such as [0.1, 0.5, 0.9].

        Returns
        -------
        array of float, shape (rows, levels)
        """
        levels = torch.from_numpy(_checked_levels(q)).unsqueeze(1)
        return self._over_blocks(lambda dist: discretized(dist).icdf(levels).T, X, exposure, upper)

    def predict_uncertainty(self, X: Any, exposure: Any = None, upper: Any = None) -> dict[str, np.ndarray]:
        """Predict the variance of every row and its two parts.

        Parameters
        ----------
        X, exposure, upper
            As for `predict_distribution`.

        Returns
        -------
        dict of arrays, each of shape (rows,)
            "total" is the variance, the sum of "aleatoric", which more data would not remove, and "epistemic", the
            disagreement of the mixture's components. After recalibration, the total is that of the recalibrated
            distribution, divided in the mixture's proportions.
        """
        parts = self._over_blocks(lambda dist: torch.stack([dist.aleatoric, dist.epistemic], dim=1), X, exposure, upper)
        return {"aleatoric": parts[:, 0], "epistemic": parts[:, 1], "total": parts.sum(1)}

    def predict_proba_of(self, X: Any, counts: Any, exposure: Any = None, upper: Any = None) -> np.ndarray:
        """Predict the probability of given counts.

        Parameters
        ----------
        X, exposure, upper
            As for `predict_distribution`.
        counts : int or array-like of int
            The counts whose probability is wanted. For Gaussians it is the probability of rounding to them.

        Returns
        -------
        array of float, shape (rows, counts)
        """
        plain = np.atleast_1d(np.asarray(counts))
        values = torch.from_numpy(check_counts(plain, row_count(plain), name="counts"))

        def probabilities(dist: Mixture) -> Tensor:
            of_counts = discretized(dist)
            return torch.stack([of_counts.log_prob(value) for value in values], dim=1).exp()

        return self._over_blocks(probabilities, X, exposure, upper)

    # Scores ------------------------------------------------------------------------------------------------------

    def _sample(self, X: Any, y: Any, sample_weight: Any, exposure: Any, upper: Any, censored: Any) -> Sample:
        sample = checked_sample(self._features(X), y, sample_weight, exposure, self.fractional)
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
            Rows whose count stands for that many or more; means are then those of counts as they are recorded.
        """
        from sklearn.metrics import mean_poisson_deviance  # slow to import

        sample = self._sample(X, y, sample_weight, exposure, upper, censored)
        # A Gaussian's mean may be negative; no count divided by this bound overflows.
        mean = np.maximum(self._recorded_means(sample), 1e-290)
        scale = np.ones_like(mean) if sample.exposure is None else sample.exposure
        # Of rates weighted by exposure, which is the deviance of the counts.
        rate, weight = sample.y / scale, sample.weight_or_ones * scale
        constant = np.full_like(rate, np.average(rate, weights=weight))
        null = mean_poisson_deviance(rate, constant, sample_weight=weight) if constant[0] > 0 else 0.0
        left = mean_poisson_deviance(rate, mean / scale, sample_weight=weight)
        return float(1.0 - left / null) if null > 0 else float(left < 1e-6)

    def _recorded_means(self, sample: Sample) -> np.ndarray:
        with torch.no_grad():
            blocks = self._fitted.recorded_blocks(sample)
            return np.concatenate([dist.mean.double().numpy() for dist, _ in blocks])

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
            each = [self._scored(score, dist, part.y) for dist, part in self._fitted.recorded_blocks(sample)]
        return float(np.average(np.concatenate(each), weights=sample.weight))

    @staticmethod
    def _scored(score: Any, dist: Any, y: np.ndarray) -> np.ndarray:
        with single_thread():
            return score(dist, torch.from_numpy(y)).numpy()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "predictor_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        tags.target_tags.positive_only = True
        return tags


def _checked_levels(q: Any) -> np.ndarray:
    try:
        levels = np.atleast_1d(np.asarray(q, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError(f"q must hold numbers, got {q!r:.60}.") from None
    if levels.ndim != 1:
        raise InputError(f"q must be a number or a list of numbers, got shape {levels.shape}.")
    bad = levels[~((levels >= 0.0) & (levels <= 1.0))]
    if len(bad):
        raise InputError(f"q must lie in [0, 1], got {bad[0]:g}.")
    return levels
