"""Calibrated intervals of a predictor: the level of each, its ends, and the description of predictions with them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.calibration.groups import IntervalGroups
from ddpn.calibration.intervals import IntervalLevels, interval_at, interval_quantiles, widened
from ddpn.distributions import discretized
from ddpn.distributions.arguments import check_coverage

_MIXTURE = "mixture"


class PredictionSummary(NamedTuple):
    """What `CalibratedLevels.described` returns, (rows,) each: moments, counts, and more quantiles (rows, levels)."""

    mean: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    median: Tensor
    mode: Tensor
    low: Tensor
    high: Tensor
    quantiles: Tensor


class CalibratedLevels:
    """The part of a `Predictor` that takes intervals at the levels that calibration found."""

    intervals: dict[str, IntervalLevels]
    groups: IntervalGroups | None

    def interval_level(self, coverage: float, of: str = _MIXTURE) -> float:
        """The level of the predicted intervals that cover `coverage`; the coverage itself before calibration.

        It is that of all rows together, also where intervals are calibrated by group.

        Parameters
        ----------
        coverage : float
            The share of counts that intervals should contain.
        of : str
            "mixture", or the name of one member.
        """
        return self.intervals[of].at(coverage) if of in self.intervals else check_coverage(coverage)

    def interval(
        self, dist: Any, coverage: float, of: str = _MIXTURE, labels: np.ndarray | None = None
    ) -> tuple[Tensor, Tensor]:
        """Calibrated intervals of predicted distributions, both ends included.

        Parameters
        ----------
        dist : Distribution
            What `distribution` returned, of batch shape (rows,).
        coverage, of
            As for `interval_level`; `of` is whose distributions these are.
        labels : array, optional
            The groups of the rows. Without them, rows have the level of all rows, unless groups are ranges of the
            predicted mean.
        """
        return interval_at(dist, self.row_levels(dist, coverage, of, labels))

    def row_levels(
        self, dist: Any, coverage: float, of: str = _MIXTURE, labels: np.ndarray | None = None
    ) -> float | np.ndarray:
        """The level of the intervals of predicted distributions: one for all rows, or one per row by groups.

        Parameters
        ----------
        dist, coverage, of, labels
            As for `interval`.
        """
        if self.groups is None or of not in self.groups.levels or (self.groups.by and labels is None):
            return self.interval_level(coverage, of)
        codes = self.groups.codes(labels, None if self.groups.by else dist.mean.detach().numpy())
        return self.groups.at(check_coverage(coverage), of, self.intervals[of], codes)

    @torch.no_grad()
    def described(
        self,
        dist: Any,
        coverage: float,
        of: str = _MIXTURE,
        labels: np.ndarray | None = None,
        quantiles: Sequence[float] = (),
    ) -> PredictionSummary:
        """Mean, variance, median, mode, calibrated interval and quantiles of predicted distributions, asked for once.

        Moments are those of the distributions themselves, counts those of rounded values where they are Gaussian.

        Parameters
        ----------
        dist, coverage, of, labels
            As for `interval`.
        quantiles : sequence of float
            Levels of further quantiles, in (0, 1).
        """
        counts = discretized(dist)
        level, rows = self.row_levels(counts, coverage, of, labels), counts.batch_shape[0]
        levels = torch.tensor([0.5, *quantiles], dtype=torch.float64).expand(rows, -1)
        found = counts.summary(torch.cat([interval_quantiles(level, rows), levels], dim=1))
        low, high, median = found.quantiles[:, :3].unbind(1)
        moments = found if counts is dist else dist
        ends = widened(low, high, level)
        return PredictionSummary(
            moments.mean, moments.aleatoric, moments.epistemic, median, found.mode, *ends, found.quantiles[:, 3:]
        )
