"""`Pit`: the histogram of the probability integral transform (PIT) of counts, and the meaning of its shape."""

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
    """PIT histogram of predictions, which is flat if the predictions are calibrated.

    Attributes
    ----------
    heights : array, shape (bins,)
        The heights of the bars, 1 on average.
    chance : float
        The half-width of the 95% range of the height of a bar, around 1, if predictions are calibrated. It is computed
        for continuous distributions; for counts, the range is narrower.
    """

    heights: np.ndarray
    chance: float

    @classmethod
    def from_counts(cls, dist: Predicted, y: ArrayLike, weight: np.ndarray, bins: int = 10) -> "Pit":
        """Compute the PIT histogram of the counts `y` by their predicted distributions `dist`.

        `weight` has the weight of each row. `bins` is the number of bars.
        """
        return cls(pit_histogram(dist, y, bins, weight).numpy(), Z * math.sqrt((bins - 1) / effective_rows(weight)))

    @classmethod
    def from_blocks(cls, dists: Sequence[CountDistribution], y: np.ndarray, weight: np.ndarray) -> "Pit":
        """Compute one PIT histogram for rows that were predicted in consecutive blocks.

        `dists` has the distributions of each block; `y` and `weight` have one value per row of all blocks.
        """
        ends = np.cumsum([dist.batch_shape[0] for dist in dists])[:-1]
        parts = [cls.from_counts(*part) for part in zip(dists, np.split(y, ends), np.split(weight, ends), strict=True)]
        heights = np.average([part.heights for part in parts], 0, [part.sum() for part in np.split(weight, ends)])
        return cls(heights, Z * math.sqrt((len(heights) - 1) / effective_rows(weight)))

    @property
    def shape(self) -> str:
        """The shape of the histogram: "flat", "up", "down", "U", "hump" or "uneven".

        "flat" means that all deviations from a uniform histogram may be chance. "up" and "down" are slopes: from left
        to right, the bars rise or fall. "uneven" is any other shape.
        """
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
        """The meaning of the shape in a few words, such as "predictions too narrow"."""
        return _MEANINGS[self.shape]
