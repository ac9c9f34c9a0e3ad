"""What figures show of calibration: numbers that the report draws as SVG and `ddpn.analysis.plots` by matplotlib."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from ddpn.analysis.gains import Z, effective_rows, mean_and_error, z_of
from ddpn.metrics import pit_histogram

#: Nominal coverages of a curve.
COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_TENTHS = 10


class Pit(NamedTuple):
    """Heights of the non-randomised PIT histogram, and how far chance moves one of them in 95% of samples.

    `chance` is that of a continuous distribution, an upper bound for counts.
    """

    heights: np.ndarray
    chance: float

    @classmethod
    def of(cls, dist: Any, y: Any, weight: np.ndarray, bins: int = 10) -> "Pit":
        """That of counts and their predicted distributions."""
        return cls.of_heights(pit_histogram(dist, y, bins, weight).numpy(), effective_rows(weight))

    @classmethod
    def of_heights(cls, heights: np.ndarray, rows: float) -> "Pit":
        """That of so many rows whose histogram is known."""
        return cls(heights, Z * math.sqrt((len(heights) - 1) / rows))

    @property
    def edges(self) -> np.ndarray:
        """The ends of the bars."""
        return np.linspace(0.0, 1.0, len(self.heights) + 1)

    @property
    def top(self) -> float:
        """The upper end of an axis of heights."""
        return max(1.6, 1.1 * float(self.heights.max()), 1.05 * (1 + self.chance))

    @property
    def chance_of_all(self) -> float:
        """How far chance moves the one that it moves farthest, in at most 5% of samples (Bonferroni)."""
        return self.chance * z_of(len(self.heights)) / Z


class Tenths(NamedTuple):
    """Mean predictions and mean counts of tenths of the rows, by predicted means, and the reach of 95% intervals."""

    predicted: np.ndarray
    observed: np.ndarray
    reach: np.ndarray

    @classmethod
    def of(cls, mean: np.ndarray, y: np.ndarray, weight: np.ndarray) -> "Tenths":
        """That of the rows that have a weight."""
        order = np.argsort(mean, kind="stable")
        order = order[weight[order] > 0]
        parts = np.array_split(order, min(_TENTHS, len(order)))
        found = np.array([mean_and_error(y[part], weight[part]) for part in parts])
        predicted = np.array([np.average(mean[part], weights=weight[part]) for part in parts])
        return cls(predicted, found[:, 0], Z * found[:, 1])


def bin_probabilities(dist: Any, edges: np.ndarray) -> np.ndarray:
    """Probability of the counts from edges[i] to edges[i + 1] - 1. Shape: (bins, rows)."""
    upto = torch.from_numpy(edges - 1.0).unsqueeze(1)
    return np.diff(torch.where(upto < 0, 0.0, dist.cdf(upto.clamp(min=0.0))).numpy(), axis=0)
