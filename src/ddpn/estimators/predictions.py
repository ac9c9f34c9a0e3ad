"""What every fitted estimator of counts can say: laws, points, intervals, probabilities, scores."""

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ddpn.calibration.intervals import CalibratedIntervals
from ddpn.calibration.ood import OutsideDetection
from ddpn.distributions import CountDistribution, Mixture, discretized
from ddpn.errors import InputError
from ddpn.estimators import saving
from ddpn.estimators.inputs import Targets, counts, row_count, targets, vector
from ddpn.heads import Head
from ddpn.metrics import crps, nll, point

#: Rows predicted at a time: bounds memory, whatever the table's length.
BLOCK = 65536


class CountPredictions(OutsideDetection, CalibratedIntervals, RegressorMixin):
    """The predictions of an estimator that says what its raw outputs are (`_outputs`) and which head reads them."""

    head_: Head
    needs_exposure_: bool
    #: What a head's location is the rate of: near the usual exposure, so that rates stay where clamps do not reach.
    exposure_unit_: float = 1.0
    fractional: str
    _kind: str  # what a saved model is called

    def _outputs(self, X: Any) -> Tensor:
        """Raw outputs of every member. Shape: (rows, M, P)."""
        raise NotImplementedError

    # Predicting --------------------------------------------------------------------------------------------------

    def _raw(self, X: Any, exposure: Any) -> tuple[Tensor, Tensor | None]:
        """Every member's raw outputs (rows, M, P), and exposures (rows, 1)."""
        check_is_fitted(self)
        raw = self._outputs(X)
        known = vector("exposure", exposure, len(raw), zero=False)
        if self.needs_exposure_ and known is None:
            raise InputError("exposure must be given as in fit, got None. Pass exposure=1 for the rate per unit.")
        return raw, None if known is None else torch.from_numpy(known / self.exposure_unit_).unsqueeze(1)

    def _blocks(self, X: Any, exposure: Any) -> Iterator[Mixture]:
        """The laws of `BLOCK` rows at a time."""
        raw, scale = self._raw(X, exposure)
        for first in range(0, len(raw), BLOCK):
            part = slice(first, first + BLOCK)
            yield Mixture(self.head_(raw[part], None if scale is None else scale[part]))

    def predict_distribution(self, X: Any, exposure: Any = None) -> Mixture:
        """The whole predictive law of every row, with its `aleatoric` and `epistemic` variance."""
        raw, scale = self._raw(X, exposure)
        return Mixture(self.head_(raw, scale))

    def predict(self, X: Any, exposure: Any = None, statistic: str = "mean") -> np.ndarray:
        """A single number a row: the predictive "mean", "median" or "mode"."""
        return _joined([point(block, statistic) for block in self._blocks(X, exposure)])

    def predict_interval(
        self, X: Any, coverage: float = 0.9, exposure: Any = None, kind: str = "central"
    ) -> np.ndarray:
        """Counts (low, high), both included. Shape: (rows, 2).

        By each row's law they hold at least `coverage`: "central" leaves at most half of the rest on either side,
        "highest" is the shortest. "calibrated" ones hold it over all rows together: see `fit_intervals`.
        """
        if kind == "calibrated":
            found = [self._calibrated_interval(block, coverage) for block in self._blocks(X, exposure)]
            return _joined([torch.stack(ends, dim=1) for ends in found]).astype(np.int64)
        return _joined([_interval(block, coverage, kind) for block in self._blocks(X, exposure)]).astype(np.int64)

    def predict_quantiles(self, X: Any, q: Any, exposure: Any = None) -> np.ndarray:
        """Quantiles at every level of `q`. Shape: (rows, len(q))."""
        levels = torch.as_tensor(np.atleast_1d(np.asarray(q, dtype=np.float64)))
        return _joined([torch.stack([b.icdf(level) for level in levels], dim=1) for b in self._blocks(X, exposure)])

    def predict_uncertainty(self, X: Any, exposure: Any = None) -> dict[str, np.ndarray]:
        """Variance of every row, and its parts: what more data would not remove, and what it would."""
        blocks = [(b.aleatoric, b.epistemic) for b in self._blocks(X, exposure)]
        aleatoric, epistemic = (_joined(list(column)) for column in zip(*blocks, strict=True))
        return {"aleatoric": aleatoric, "epistemic": epistemic, "total": aleatoric + epistemic}

    def predict_proba_of(self, X: Any, counts: Any, exposure: Any = None) -> np.ndarray:
        """Probability of each of `counts`; for Gaussians that of rounding to it. Shape: (rows, counts)."""
        values = torch.from_numpy(_listed_counts(counts))
        laws = (_as_counts(block) for block in self._blocks(X, exposure))
        return _joined([torch.stack([law.log_prob(v) for v in values], dim=1).exp() for law in laws])

    # Judging -----------------------------------------------------------------------------------------------------

    def score(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None) -> float:
        """D^2, the share of the Poisson deviance that the predicted means explain; 1 is best, 0 a constant's."""
        found = targets(X, y, sample_weight, exposure, self.fractional)
        mean = np.maximum(self.predict(X, exposure), np.finfo(np.float64).tiny)
        scale = np.ones_like(mean) if found.exposure is None else found.exposure
        weight = np.ones_like(mean) if found.weight is None else found.weight
        constant = (weight @ found.y) / (weight @ scale) * scale
        null = weight @ _deviance(found.y, constant)
        explained = weight @ _deviance(found.y, mean)
        return float(1.0 - explained / null) if null > 0 else float(explained < 1e-6)

    def crps(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None) -> float:
        """Mean continuous ranked probability score; smaller is better."""
        return self._mean_of(crps, X, y, sample_weight, exposure)

    def nll(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None) -> float:
        """Mean negative log-likelihood; smaller is better."""
        return self._mean_of(nll, X, y, sample_weight, exposure)

    def _mean_of(self, score: Any, X: Any, y: Any, sample_weight: Any, exposure: Any) -> float:
        found: Targets = targets(X, y, sample_weight, exposure, self.fractional)
        observed = torch.from_numpy(found.y).split(BLOCK)
        each = _joined([score(b, part) for b, part in zip(self._blocks(X, exposure), observed, strict=True)])
        return float(np.average(each, weights=found.weight))

    # Keeping -----------------------------------------------------------------------------------------------------

    def _forget_calibration(self) -> None:
        """What was learnt of another fit's laws."""
        self._forget_ood()
        self._forget_intervals()

    def save(self, path: str | PathLike[str], overwrite: bool = False) -> None:
        """Write the fitted model to a folder: weights, encoder and a manifest; whole or not at all."""
        check_is_fitted(self)
        saving.save(self, Path(path), overwrite)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """The model that `save` wrote; nothing in its files is executed, and a damaged one is refused."""
        return saving.load(cls, Path(path))


def _as_counts(law: Mixture) -> Mixture:
    return law if isinstance(law, CountDistribution) else discretized(law)


def _joined(parts: list[Tensor]) -> np.ndarray:
    return torch.cat(parts).double().numpy()


def _interval(law: Any, coverage: float, kind: str) -> Tensor:
    """Counts; the ends of a law on the line are rounded outward, and none lies below 0."""
    low, high = law.interval(coverage, kind=kind)
    return torch.stack([low.floor().clamp(min=0.0), high.ceil().clamp(min=0.0)], dim=1)


def _deviance(y: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Poisson deviance; a count of 0 has no logarithm, and neither has the mean of counts that are all 0."""
    log_mean = np.log(np.maximum(mean, np.finfo(np.float64).tiny))
    return 2.0 * (mean - y + np.where(y > 0, y * (np.log(np.maximum(y, 1.0)) - log_mean), 0.0))


def _listed_counts(values: Any) -> np.ndarray:
    plain = np.atleast_1d(np.asarray(values))
    return counts(plain, row_count(plain), name="counts")
