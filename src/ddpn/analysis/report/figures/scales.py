"""Axes with their ticks, and bins of counts."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch

#: The largest number of ticks of an axis.
_TICKS = 7


class Axis(NamedTuple):
    """A range of data. `log`: in log(1 + x), which is defined at 0; `integers`: ticks at integers only."""

    label: str
    low: float
    high: float
    log: bool = False
    integers: bool = False
    percent: bool = False

    def share(self, values: np.ndarray | float) -> np.ndarray:
        """Position of values between the ends, 0 to 1; values beyond an end are put there."""
        low, high, at = (_log(v) if self.log else v for v in (self.low, self.high, values))
        return np.clip((np.asarray(at, dtype=float) - low) / (high - low), 0.0, 1.0)

    @property
    def ticks(self) -> list[float]:
        """Round numbers within the range."""
        return _log_ticks(self.low, self.high) if self.log else _even_ticks(self.low, self.high, self.integers)

    def tick_label(self, value: float) -> str:
        return f"{100 * value:.6g}%" if self.percent else short(value)


def _log(values: np.ndarray | float) -> np.ndarray:
    """log(1 + x). The left end of the bar of 0 is at -0.5, so values a little below 0 are allowed."""
    return np.log1p(np.maximum(values, -0.75))


def short(value: float) -> str:
    """A number as the label of a tick.

    >>> [short(v) for v in (0.25, 5000.0, 20_000.0, 3e6)]
    ['0.25', '5,000', '20k', '3M']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= max(size, 1e4):
            return f"{value / size:.6g}{letter}"
    return f"{value:,.0f}" if value == round(value) else f"{value:.6g}"


def _even_ticks(low: float, high: float, integers: bool) -> list[float]:
    rough = (high - low) / _TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= rough * (1 - 1e-9))
    step = max(step, 1.0) if integers else step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # Rounded to the step's digits: 3 * 0.1 is not 0.3.
    digits = max(0, -math.floor(math.log10(step)))
    return [round(i * step, digits) for i in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """0 and powers of ten, with multiples of 3 or of 2 and 5 between them as far as there is room."""
    top = math.ceil(math.log10(max(high, 10.0)))
    for parts in ((1, 2, 5), (1, 3), (1,)):
        ticks = [0.0, *(float(part * 10**power) for power in range(top + 1) for part in parts)]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= _TICKS + 1:
            return ticks
    return ticks[:: math.ceil(len(ticks) / _TICKS)]


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

    def axis(self, label: str) -> Axis:
        return Axis(label, float(self.ends[0]), float(self.ends[-1]), self.log, integers=True)

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
