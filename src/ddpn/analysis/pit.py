"""`Pit`: the histogram of the probability integral transform of counts, and what its shape means."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ddpn.distributions import CountDistribution
from ddpn.metrics import pit_histogram
from ddpn.metrics.predictive import Predicted
from ddpn.statistics import Z, bonferroni_z, effective_rows

#: The meaning of each shape of a PIT histogram.
_MEANINGS = {
    "flat": "uniform up to chance",
    "up": "counts higher than predicted",
    "down": "counts lower than predicted",
    "U": "predictions too narrow",
    "hump": "predictions too wide",
    "uneven": "uneven",
}


class Pit(NamedTuple):
    """A PIT histogram of predictions, which is flat if they are calibrated, and what its shape means.

    `heights` are those of the bars, 1 on average, and `chance` is how far chance moves one bar in 95% of samples. It is
    computed for a continuous distribution and is an upper limit for counts.
    """

    heights: np.ndarray
    chance: float

    @classmethod
    def from_counts(cls, dist: Predicted, y: ArrayLike, weight: np.ndarray, bins: int = 10) -> "Pit":
        """Compute the PIT histogram of counts y under their predicted distributions; `weight` is that of each row."""
        return cls(pit_histogram(dist, y, bins, weight).numpy(), Z * math.sqrt((bins - 1) / effective_rows(weight)))

    @classmethod
    def from_blocks(cls, dists: Sequence[CountDistribution], y: np.ndarray, weight: np.ndarray) -> "Pit":
        """Compute the PIT histogram of all rows; `dists` are the distributions of consecutive blocks of these rows."""
        ends = np.cumsum([dist.batch_shape[0] for dist in dists])[:-1]
        parts = [cls.from_counts(*part) for part in zip(dists, np.split(y, ends), np.split(weight, ends), strict=True)]
        heights = np.average([part.heights for part in parts], 0, [part.sum() for part in np.split(weight, ends)])
        return cls(heights, Z * math.sqrt((len(heights) - 1) / effective_rows(weight)))

    @property
    def shape(self) -> str:
        """The shape of the histogram: "flat" up to chance, "up", "down", "U", "hump" or else "uneven"."""
        h, half = self.heights, len(self.heights) // 2
        ends, slope = 0.5 * (h[0] + h[-1]) - 1.0, float(h[half:].mean() - h[:half].mean())
        # In at least 95% of samples, chance moves no bar farther than this (Bonferroni).
        if np.abs(h - 1.0).max() <= self.chance * bonferroni_z(len(h)) / Z:
            return "flat"
        # Relative to one bar, chance moves a difference of halves by sqrt(2 / 5), and the mean of two bars by sqrt(1 /
        # 2).
        if abs(slope) > 0.63 * self.chance and abs(slope) > abs(ends):
            return "up" if slope > 0 else "down"
        return "U" if ends > 0.71 * self.chance else "hump" if ends < -0.71 * self.chance else "uneven"

    @property
    def meaning(self) -> str:
        """The meaning of the shape, in a few words."""
        return _MEANINGS[self.shape]
