"""How far out in a tail a number lies: surprises, that is -log of tail probabilities, also beyond what was seen."""

from typing import NamedTuple, Self

import numpy as np

#: Order statistics that are kept of a tail: three per doubling of the rank.
_PER_DOUBLING = 3
#: The share of the values whose mean excess is the scale of a tail, and the least number of them.
_EXCESS_SHARE, _EXCESS_ROWS = 0.02, 10
#: A tail in which all values are equal has no scale of its own: it gets this share of the range of the column.
_LEAST_SCALE = 1e-3
#: Surprises beyond this are all the same; it keeps sums finite.
LARGEST = 1e6


class Counted(NamedTuple):
    """Distinct values in ascending order and how often each occurred."""

    values: np.ndarray
    counts: np.ndarray

    @property
    def total(self) -> float:
        return float(self.counts.sum())


def counted(x: np.ndarray, counts: np.ndarray) -> Counted:
    """The distinct values of x, which has no NaN; a row counts `counts` times."""
    order = np.argsort(x) if (counts != 1.0).any() else None
    values = np.sort(x + 0.0) if order is None else x[order] + 0.0
    first = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    each = np.diff(np.r_[first, len(values)]) if order is None else np.add.reduceat(counts[order], first)
    return Counted(values[first], each.astype(np.float64))


def mean_excess(column: Counted) -> float:
    """How far the largest values lie above where they begin, on average: the scale of an exponential tail."""
    values, counts = column
    above = np.cumsum(counts[::-1])[::-1]
    wanted = max(_EXCESS_SHARE * column.total, min(_EXCESS_ROWS, column.total / 4.0))
    start = int(np.flatnonzero(above >= wanted)[-1])
    # Halves, so that values of both signs near the largest float do not overflow.
    part = 0.5 * values[start:] - 0.5 * values[start]
    width = 0.5 * values[-1] - 0.5 * values[0]
    excess = float(np.average(part, weights=counts[start:]))
    floor = _LEAST_SCALE * (width if width > 0.0 else max(abs(values[0]), 1.0))
    largest = np.finfo(float).max / 4.0
    return 2.0 * min(max(excess, floor, np.finfo(float).tiny), largest)


def tail_edges(column: Counted) -> np.ndarray:
    """Values at ranks that double towards the middle from both ends: indices into the distinct values."""
    half = max(1.0, column.total / 2.0)
    ranks = 2.0 ** (np.arange(int(_PER_DOUBLING * np.log2(half)) + 1) / _PER_DOUBLING)
    upto = np.cumsum(column.counts)
    low = np.searchsorted(upto, ranks)
    high = np.searchsorted(upto, column.total - ranks, side="right")
    last = len(column.values) - 1
    return np.unique(np.r_[0, np.minimum(low, last), np.minimum(high, last), last])


def beyond(x: np.ndarray, edge: float, scale: float) -> np.ndarray:
    """Surprise of values above `edge` on top of that of being above: by an exponential tail."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.nan_to_num(np.clip((x - edge) / scale, 0.0, LARGEST), nan=0.0)


class UpperTail(NamedTuple):
    """-log P(S >= s) of a score, from scores of training rows; linear beyond the largest of them."""

    edges: np.ndarray
    surprise: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(cls, scores: np.ndarray, least_scale: float = 0.0) -> Self:
        column = counted(scores, np.ones(len(scores)))
        kept = tail_edges(column)
        as_high = np.cumsum(column.counts[::-1])[::-1]
        surprise = -np.log(as_high / (column.total + 1.0))
        return cls(column.values[kept], surprise[kept], np.array([max(mean_excess(column), least_scale)]))

    def of(self, scores: np.ndarray) -> np.ndarray:
        """The surprise of each score."""
        inside = np.interp(scores, self.edges, self.surprise)
        return inside + beyond(scores, self.edges[-1], self.scale[0])
