"""How unusual large values are: the upper tail of a distribution, by its mean excess."""

from typing import NamedTuple, Self

import numpy as np

#: The share of values that form a tail, and the smallest size of a tail. Their mean excess is the scale of the tail.
_TAIL_SHARE, _MIN_TAIL_ROWS = 0.02, 10
#: The smallest scale of a tail, as a share of the column's range; needed if all values of the tail are equal.
_MIN_SCALE_SHARE = 1e-3
#: Order statistics that are kept of a tail, per doubling of the rank.
_RANKS_PER_DOUBLING = 3
#: The largest surprise. Larger ones are clipped to keep sums finite.
MAX_SURPRISE = 1e6


def measure_mean_excess(values: np.ndarray, counts: np.ndarray) -> float:
    """Estimate the scale of an exponential upper tail by its mean excess (mean minus minimum).

    `values` are the distinct values of a column in ascending order, and `counts` has the number of rows with each
    value. The tail consists of the largest values: about 2% of the rows, but at least ten rows or, if the column has
    fewer than 40 rows, a quarter of them.
    """
    above = np.cumsum(counts[::-1])[::-1]
    min_rows = max(_TAIL_SHARE * above[0], min(_MIN_TAIL_ROWS, above[0] / 4.0))
    start = int(np.flatnonzero(above >= min_rows)[-1])
    # Halved before the subtraction, so that the difference of very large values does not overflow.
    part = 0.5 * values[start:] - 0.5 * values[start]
    width = 0.5 * values[-1] - 0.5 * values[0]
    excess = float(np.average(part, weights=counts[start:]))
    floor = _MIN_SCALE_SHARE * (width if width > 0.0 else max(abs(values[0]), 1.0))
    largest = np.finfo(float).max / 4.0
    return 2.0 * min(max(excess, floor, np.finfo(float).tiny), largest)


def choose_tail_edges(counts: np.ndarray) -> np.ndarray:
    """Choose which distinct values of a column its summary keeps, and return their positions.

    Many values are kept in both tails and few in the middle: counted from the nearer end, the ranks of the kept values
    grow geometrically. `counts` has the number of rows with each distinct value, in ascending order of the values.
    """
    upto, last = np.cumsum(counts), len(counts) - 1
    half = max(1.0, upto[-1] / 2.0)
    ranks = 2.0 ** (np.arange(int(_RANKS_PER_DOUBLING * np.log2(half)) + 1) / _RANKS_PER_DOUBLING)
    low = np.searchsorted(upto, ranks)
    high = np.searchsorted(upto, upto[-1] - ranks, side="right")
    return np.unique(np.r_[0, np.minimum(low, last), np.minimum(high, last), last])


def measure_tail_surprise(x: np.ndarray, edge: float, scale: float) -> np.ndarray:
    """Return how much more surprising each value in `x` is than the largest training value, in an exponential tail.

    The surprise of a value is -log of the probability of a value at least as large. The difference is (x - edge) /
    scale, clipped to the range from 0 to `MAX_SURPRISE`. `edge` is the largest training value, and `scale` is the scale
    of the tail.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return np.nan_to_num(np.clip((x - edge) / scale, 0.0, MAX_SURPRISE), nan=0.0)


class UpperTail(NamedTuple):
    """Upper tail of the distribution of a score among ordinary rows, estimated from training rows.

    The surprise of a score s is -log P(S >= s), where S is the score of an ordinary row. Between selected scores, it is
    interpolated. Above the largest of them, it grows linearly with slope 1 / `scale`.

    Attributes
    ----------
    edges : array, shape (edges,)
        The selected scores, ascending.
    surprise : array, shape (edges,)
        The surprise of each of the selected scores.
    scale : array, shape (1,)
        The scale of the exponential tail above the largest selected score.
    """

    edges: np.ndarray
    surprise: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(cls, scores: np.ndarray, min_scale: float = 0.0) -> Self:
        values, counts = np.unique(scores + 0.0, return_counts=True)
        kept, as_high = choose_tail_edges(counts), np.cumsum(counts[::-1])[::-1]
        surprise = -np.log(as_high / (as_high[0] + 1.0))
        return cls(values[kept], surprise[kept], np.array([max(measure_mean_excess(values, counts), min_scale)]))

    def measure_surprise(self, scores: np.ndarray) -> np.ndarray:
        """Return the surprise of each score: -log of the probability that an ordinary row scores at least as high."""
        inside = np.interp(scores, self.edges, self.surprise)
        return inside + measure_tail_surprise(scores, self.edges[-1], self.scale[0])
