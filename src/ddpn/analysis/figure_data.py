"""The numbers that `ddpn.analysis.plots` draws: PIT histograms, tenths of the rows, bins of counts."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from ddpn.analysis.gains import Z, effective_rows, mean_and_error, z_of
from ddpn.metrics import pit_histogram

#: Nominal coverages of a curve.
COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_TENTHS = 10


#: What the shape of a PIT histogram says about predictions.
_MEANINGS = {
    "flat": "uniform up to chance",
    "up": "counts higher than predicted",
    "down": "counts lower than predicted",
    "U": "predictions too narrow",
    "hump": "predictions too wide",
    "uneven": "uneven",
}


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
    def shape(self) -> str:
        """How it looks: "flat" up to chance, sloped "up" or "down", "U", "hump" or, if none of these, "uneven"."""
        h, half = self.heights, len(self.heights) // 2
        ends, slope = 0.5 * (h[0] + h[-1]) - 1.0, float(h[half:].mean() - h[:half].mean())
        if np.abs(h - 1.0).max() <= self.chance_of_all:
            return "flat"
        # Chance moves a difference of halves by sqrt(2 / 5) of what it moves one bar, the mean of two by sqrt(1 / 2).
        if abs(slope) > 0.63 * self.chance and abs(slope) > abs(ends):
            return "up" if slope > 0 else "down"
        return "U" if ends > 0.71 * self.chance else "hump" if ends < -0.71 * self.chance else "uneven"

    @property
    def meaning(self) -> str:
        """What its shape says about predictions, in a few words."""
        return _MEANINGS[self.shape]

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


# Bins of counts ------------------------------------------------------------------------------------------------------


def wants_log(values: np.ndarray) -> bool:
    """Whether the largest counts are so far from the median that an even axis would crowd most of them at one end."""
    return bool(values.max() > 60 and values.max() > 12 * (np.median(values) + 1))


class Bins(NamedTuple):
    """Integer edges: bin i has the counts from edges[i] to edges[i + 1] - 1."""

    edges: np.ndarray
    log: bool = False

    @property
    def unit(self) -> bool:
        """Whether each bin is a single count."""
        return bool(np.all(np.diff(self.edges) == 1))

    @property
    def ends(self) -> np.ndarray:
        """Where the bars of neighbouring bins meet: halfway between their counts."""
        return self.edges - 0.5

    @property
    def middles(self) -> np.ndarray:
        """The middles of the bars; on a log axis that of a wide bar is the geometric one."""
        left, right = self.ends[:-1], self.ends[1:]
        if not self.log:
            return 0.5 * (left + right)
        return np.where(np.diff(self.edges) == 1, self.edges[:-1], np.sqrt((left + 1) * (right + 1)) - 1)

    def shares(self, values: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """The share of the weight in each bin."""
        return np.histogram(values, self.ends, weights=weight)[0] / weight.sum()


def count_bins(values: np.ndarray, most: int = 40) -> Bins:
    """A bin per count where there are few; else ranges of equal width or, for a long tail, of increasing width."""
    low, high = float(values.min()), float(values.max()) + 1.0
    if wants_log(values):
        edges = np.expm1(np.linspace(np.log1p(low), np.log1p(high), most + 1))
        return Bins(np.unique(np.append(np.floor(edges[:-1]), high)), True)
    low = low if high - low <= most or low > 0.2 * high else 0.0
    return even_bins(low, high, most)


def even_bins(low: float, high: float, most: int) -> Bins:
    """At most about so many bins of equal width, from `low` to at least `high`."""
    step = max(1.0, math.ceil((high - low) / most))
    return Bins(low + step * np.arange(math.ceil((high - low) / step) + 1))


def bin_probabilities(dist: Any, edges: np.ndarray) -> np.ndarray:
    """Probability of the counts from edges[i] to edges[i + 1] - 1. Shape: (bins, rows)."""
    upto = torch.from_numpy(edges - 1.0).unsqueeze(1)
    return np.diff(torch.where(upto < 0, 0.0, dist.cdf(upto.clamp(min=0.0))).numpy(), axis=0)
