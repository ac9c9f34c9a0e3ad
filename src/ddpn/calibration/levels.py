"""Calibrated intervals of a predictor: the level of each, and its ends."""

from typing import Any

import numpy as np
from torch import Tensor

from ddpn.calibration.groups import IntervalGroups
from ddpn.calibration.intervals import IntervalLevels, interval_at
from ddpn.distributions.arguments import check_coverage

_MIXTURE = "mixture"


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
