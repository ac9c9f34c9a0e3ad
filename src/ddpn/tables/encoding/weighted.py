"""Statistics of a weighted column.

All of them go through `distinct`: sorted values, each with its summed weight. So a row of weight 3 gives, bit for bit,
what three such rows give, in any order.
"""

from typing import NamedTuple

import numpy as np


class Distinct(NamedTuple):
    """The distinct values of a column in ascending order, each with its weight."""

    values: np.ndarray
    weights: np.ndarray


def distinct(x: np.ndarray, weights: np.ndarray) -> Distinct:
    """Distinct values of x, which has no NaN, and the weight of each."""
    values, inverse = np.unique(x, return_inverse=True)
    return Distinct(values, np.bincount(inverse, weights, minlength=len(values)))


def quantiles(column: Distinct, levels: np.ndarray) -> np.ndarray:
    """For each level the smallest value with at least that share of the weight at or below it: a value of the column.

    >>> quantiles(Distinct(np.array([1.0, 5.0, 9.0]), np.array([1.0, 1.0, 8.0])), np.array([0.1, 0.5]))
    array([1., 9.])
    """
    reached = np.cumsum(column.weights)
    position = np.searchsorted(reached, levels * reached[-1])
    return column.values[np.minimum(position, len(column.values) - 1)]


def center_and_scale(column: Distinct) -> tuple[float, float]:
    """Mean and standard deviation; the scale is inf if all values are equal, so that dividing gives zeros.

    Deviations are halved, so that values of both signs near the largest float do not overflow, taken from a value of
    the column, so that a large common offset does not cancel, and divided by the largest before they are squared.
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


def midpoints(values: np.ndarray) -> np.ndarray:
    """A threshold t between each two neighbours a < b: a <= t < b, so that `x > t` separates them.

    >>> midpoints(np.array([0.0, 1.0, 4.0]))
    array([0.5, 2.5])
    """
    below, above = values[:-1], values[1:]
    middle = 0.5 * below + 0.5 * above
    # Between neighbouring floats the middle rounds to one of them.
    return np.where((middle >= below) & (middle < above), middle, below)
