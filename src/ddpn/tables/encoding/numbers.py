"""Encode a column of numbers: its standardised value, and optionally bins, steps and one-hot codes.

All statistics are computed from sorted distinct values with summed weights (`weigh_distinct`). So a row of weight 3 has
the same effect, bit for bit, as three equal rows in any order.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

#: The largest standardised value, whose square still fits in float32.
LARGEST = 1e18
#: Standard deviations up to which a standardised number is linear; beyond, it is logarithmic.
SOFT_CLIP_LIMIT = 10.0
#: Integer columns (hour, weekday, month) with at most this many distinct values also get one input per value.
MAX_CODES = 32
#: An array that all columns share, so that a file holds it once.
_EMPTY = np.empty(0)


def _make_empty() -> np.ndarray:
    return _EMPTY


@dataclass(frozen=True)
class NumberEncoding:
    """The encoding of a column of numbers as several inputs.

    A value x has these inputs, in this order:

    - the standardised value: `soft_clip` of (x - `center`) / `scale`, where missing values are replaced by `fill`
    - an indicator of missing values, if `has_missing` is True
    - for each bin between neighbouring `edges`, where x lies in it: 0 below the bin, 1 above, and linear within
    - for each of the `steps`, an indicator of values above it
    - for each of the `codes`, an indicator of values equal to it
    """

    fill: float = 0.0
    center: float = 0.0
    scale: float = 1.0
    has_missing: bool = False
    edges: np.ndarray = field(default_factory=_make_empty)
    steps: np.ndarray = field(default_factory=_make_empty)
    codes: np.ndarray = field(default_factory=_make_empty)

    @property
    def width(self) -> int:
        """The number of inputs."""
        return 1 + self.has_missing + max(len(self.edges) - 1, 0) + len(self.steps) + len(self.codes)

    def list_input_names(self, name: str) -> list[str]:
        """List the names of the inputs of the column `name`, such as "age > 64.5"."""
        edges = self.edges.tolist()
        return [
            name,
            *([f"{name} is missing"] if self.has_missing else []),
            *(f"{name} in {low:.12g}..{high:.12g}" for low, high in pairwise(edges)),
            *(f"{name} > {step:.12g}" for step in self.steps.tolist()),
            *(f"{name} = {code:.12g}" for code in self.codes.tolist()),
        ]


def soft_clip(z: np.ndarray) -> np.ndarray:
    """Clip numbers softly: return z up to 10 in absolute value, and let it grow logarithmically beyond.

    This limits the influence of outliers on a network.

    >>> soft_clip(np.array([-3.0, 10.0, 1e12])).round(2).tolist()
    [-3.0, 10.0, 37.63]
    """
    far = np.abs(z) > SOFT_CLIP_LIMIT
    if far.any():
        z = np.clip(z, -LARGEST, LARGEST)
        z[far] = np.sign(z[far]) * (SOFT_CLIP_LIMIT + np.log1p(np.abs(z[far]) - SOFT_CLIP_LIMIT))
    return z


class Distinct(NamedTuple):
    """The distinct values of a column in ascending order (`values`), and the total weight of the rows with each value.

    Shape: (distinct values,) each. Missing values are left out.
    """

    values: np.ndarray
    weights: np.ndarray


def weigh_distinct(x: np.ndarray, weights: np.ndarray) -> Distinct:
    """Return the distinct values of x and their total weights. x must not contain NaN."""
    values, inverse = np.unique(x, return_inverse=True)
    return Distinct(values, np.bincount(inverse, weights, minlength=len(values)))


def quantiles(column: Distinct, levels: np.ndarray) -> np.ndarray:
    """Return weighted quantiles: for each level, the smallest value at which the cumulative weight reaches this share.

    `levels` are probabilities between 0 and 1.

    >>> quantiles(Distinct(np.array([1.0, 5.0, 9.0]), np.array([1.0, 1.0, 8.0])), np.array([0.1, 0.5]))
    array([1., 9.])
    """
    reached = np.cumsum(column.weights)
    position = np.searchsorted(reached, levels * reached[-1])
    return column.values[np.minimum(position, len(column.values) - 1)]


def center_and_scale(column: Distinct) -> tuple[float, float]:
    """Return the weighted mean and standard deviation of a column.

    If all values are equal, the standard deviation is returned as inf, so that standardised values are 0.

    The computation is safe for extreme values. Deviations are taken from the median, so that a large offset does not
    cost digits. They are halved, so that they do not overflow if values of both signs are near the largest float. They
    are divided by their maximum before they are squared.
    """
    values, weights = column
    shift = quantiles(column, np.array([0.5]))[0]
    deviation = 0.5 * values - 0.5 * shift
    largest = np.abs(deviation).max()
    if largest == 0.0:
        return float(shift), np.inf
    deviation = deviation / largest
    share = weights / weights.sum()
    mean = share @ deviation
    spread = np.sqrt(share @ np.square(deviation - mean))
    scale = float(2.0 * (largest * spread))
    return float(shift + 2.0 * (largest * mean)), scale if scale > 0.0 else np.inf


def find_midpoints(values: np.ndarray) -> np.ndarray:
    """Return a threshold between each pair of neighbouring values. `values` must be sorted and distinct.

    For neighbours a < b, the threshold is a number t with a <= t < b, so that `x > t` separates them.

    >>> find_midpoints(np.array([0.0, 1.0, 4.0]))
    array([0.5, 2.5])
    """
    below, above = values[:-1], values[1:]
    middle = 0.5 * below + 0.5 * above
    # The midpoint of adjacent floats rounds to one of the two.
    return np.where((middle >= below) & (middle < above), middle, below)


def fit_number(x: np.ndarray, weights: np.ndarray) -> tuple[NumberEncoding, Distinct]:
    """Fit the standardised value of a column of numbers, with the median for missing values.

    Return the encoding, and the distinct values of the column. Bins, steps and codes can be added to the encoding
    later. If some values of x are missing, the encoding has an indicator of missing values. If all are missing, its
    only input is always 0.
    """
    is_known = ~np.isnan(x)
    if not is_known.any():
        return NumberEncoding(scale=np.inf), Distinct(np.zeros(1), np.ones(1))
    column = weigh_distinct(x[is_known], weights[is_known])
    fill = float(quantiles(column, np.array([0.5]))[0])
    some_missing = not is_known.all()
    filled = column
    if some_missing:
        extra_weights = np.where(column.values == fill, weights[~is_known].sum(), 0.0)
        filled = Distinct(column.values, column.weights + extra_weights)
    center, scale = center_and_scale(filled)
    return NumberEncoding(fill, center, scale, some_missing), column


def fit_boolean(x: np.ndarray, weights: np.ndarray) -> NumberEncoding:
    """Fit the encoding of a boolean column. Booleans stay 0 or 1, and missing values become the more frequent value.

    If both values are equally frequent, or if all values are missing, missing values become 0. If some values of x are
    missing, but not all, the encoding has an indicator of missing values.
    """
    is_known = ~np.isnan(x)
    if not is_known.any():
        return NumberEncoding()
    fill = quantiles(weigh_distinct(x[is_known], weights[is_known]), np.array([0.5]))[0]
    return NumberEncoding(float(fill), has_missing=not is_known.all())


def find_bin_edges(column: Distinct, bins: int) -> np.ndarray:
    """Return the edges of at most `bins` bins between weighted quantiles, in ascending order.

    The smallest and the largest value are the outermost edges. In a column of at most `bins` + 1 distinct values, every
    value is an edge. The result is empty if there would be fewer than two bins.
    """
    values = column.values
    if len(values) > bins + 1:
        values = np.unique(quantiles(column, np.linspace(0.0, 1.0, bins + 1)))
    # Half the width of a bin must be representable, so that values within the bin have shares between 0 and 1.
    wide = np.append(True, 0.5 * values[1:] > 0.5 * values[:-1])
    return values[wide] if wide.sum() > 2 else _make_empty()


def find_integer_codes(column: Distinct, max_codes: int = MAX_CODES) -> np.ndarray:
    """Return the values that get a one-hot code: all distinct values, if they are 3 to `max_codes` integers.

    Otherwise the result is empty.
    """
    values = column.values
    is_code = 3 <= len(values) <= max_codes and np.array_equal(values, np.floor(values))
    return values if is_code else _make_empty()
