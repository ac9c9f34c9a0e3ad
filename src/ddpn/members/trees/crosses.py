"""Pairs of columns whose joint effect is more than the sum of two effects, as further inputs of boosted trees."""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

#: Values that a column of a pair may have: as many as an hour or a day of a month has.
MAX_VALUES = 32
#: Columns that pairs are formed from, the ones with the largest effects; pairs that are used; rows that are looked at.
_COLUMNS, _PAIRS, _ROWS = 24, 8, 50_000
#: Standard errors by which the joint effect must exceed what chance gives.
_CLEAR = 4.0


class Cross(NamedTuple):
    """Two columns as one: rows in the order of the values of the outer column, then in that of the inner one.

    A tree that splits it finds, say, the evening hours of working days in two splits, wherever these hours begin.
    """

    outer: int
    inner: int
    outer_values: tuple[float, ...]
    inner_values: tuple[float, ...]

    @classmethod
    def of(cls, matrix: np.ndarray, outer: int, inner: int) -> "Cross":
        """The cross of two columns with the values that occur in a matrix."""
        return cls(outer, inner, *(tuple(_values(matrix[:, place]).tolist()) for place in (outer, inner)))

    def codes(self, matrix: np.ndarray) -> np.ndarray:
        """Numbers 0, 1, ... of the pairs of values; NaN where one is missing. A new value is the next smaller known."""
        outer, inner = matrix[:, self.outer], matrix[:, self.inner]
        ranks = [np.searchsorted(known[1:], x, side="right") for known, x in self._both(outer, inner)]
        codes = ranks[0] * float(len(self.inner_values)) + ranks[1]
        return np.where(np.isnan(outer) | np.isnan(inner), np.nan, codes)

    def _both(self, outer: np.ndarray, inner: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        return (np.array(self.outer_values), outer), (np.array(self.inner_values), inner)


def with_crosses(matrix: np.ndarray, crosses: Sequence[Cross]) -> np.ndarray:
    """A matrix with the codes of crosses as its last columns."""
    return np.column_stack([matrix, *(cross.codes(matrix) for cross in crosses)]) if crosses else matrix


def find_crosses(
    matrix: np.ndarray,
    is_category: np.ndarray,
    rate: np.ndarray,
    weight: np.ndarray,
    log_rate: np.ndarray,
    excluded: Sequence[int] = (),
) -> tuple[Cross, ...]:
    """Pairs of columns with few values that an additive model explains badly, the worst first.

    For every pair the residuals of the additive model are summed over rows with the same two values. Where the effects
    of both columns are additive, the squared sums over their variances, less those of each column, are chi-squared.
    This is the search for interactions of Lou, Caruana, Gehrke and Hooker (2013), with the residuals of counts.

    Parameters
    ----------
    matrix, is_category : array
        Inputs, and which columns hold codes of categories. These have no order, so that they can only be outer columns.
    rate, weight : array
        Counts per exposure, and weights times exposure.
    log_rate : array
        Out-of-fold log rates of an additive model.
    excluded : sequence of int
        Columns that no pair may have.
    """
    some = slice(None, None, max(1, -(-len(rate) // _ROWS)))
    matrix, weight, mean = matrix[some], weight[some], np.exp(log_rate[some])
    residual, variance = weight * (rate[some] - mean), weight * mean
    spread = float(np.square(residual) @ (1.0 / variance)) / len(mean)
    if not 0.0 < spread < np.inf:
        return ()
    known = {}
    for column in range(matrix.shape[1]):
        values = _values(matrix[:, column]) if column not in excluded else np.empty(0)
        if 2 <= len(values) <= MAX_VALUES:
            known[column] = _Levels.of(matrix[:, column], len(values))
    overall = float(weight @ rate[some]) / float(weight.sum())
    effects = {k: _excess(v, weight * (rate[some] - overall), weight * overall)[0] for k, v in known.items()}
    largest = sorted(sorted(effects, key=lambda column: -effects[column])[:_COLUMNS])
    alone = {column: _excess(known[column], residual, variance)[0] for column in largest}
    found = []
    for pair in combinations(largest, 2):
        outer, inner = _ordered(pair, is_category, {column: known[column].number for column in pair})
        if is_category[inner] or known[inner].number < 3:
            continue
        joint, cells = _excess(known[outer].crossed(known[inner]), residual, variance)
        excess = (joint - alone[outer] - alone[inner]) / spread - cells
        if excess > _CLEAR * np.sqrt(2.0 * cells):
            found.append((-excess, outer, inner))
    return tuple(Cross.of(matrix, outer, inner) for _, outer, inner in sorted(found)[:_PAIRS])


class _Levels(NamedTuple):
    """The number of each row's value, from 0, with missing ones as a further value."""

    codes: np.ndarray
    number: int

    @classmethod
    def of(cls, values: np.ndarray, number: int) -> "_Levels":
        return cls(np.unique(values, return_inverse=True)[1].ravel(), number)

    def crossed(self, other: "_Levels") -> "_Levels":
        # Missing values need a place of their own.
        return _Levels(self.codes * (other.number + 1) + other.codes, self.number * other.number)


def _excess(levels: _Levels, residual: np.ndarray, variance: np.ndarray) -> tuple[float, int]:
    """The sum over levels of the squared residual sum over its variance, and how many levels occur."""
    sums, scales = np.bincount(levels.codes, residual), np.bincount(levels.codes, variance)
    occurs = scales > 0
    return float(np.square(sums[occurs]) @ (1.0 / scales[occurs])), int(occurs.sum())


def _ordered(pair: tuple[int, int], is_category: np.ndarray, numbers: dict[int, int]) -> tuple[int, int]:
    """Outer and inner column: a category or the one with fewer values, and the other."""
    outer, inner = sorted(pair, key=lambda column: (not is_category[column], numbers[column]))
    return outer, inner


def _values(column: np.ndarray) -> np.ndarray:
    found = np.unique(column)
    return found[~np.isnan(found)]
