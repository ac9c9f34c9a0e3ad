"""Encoded rows as few lookups in sums of a layer's weights, instead of one product per input.

The inputs of a column's bins are ones up to the bin of the value, a share of that bin, and zeros: what a linear layer
makes of them lies between two running sums of its weights. Steps, codes and levels take one lookup each.
Values and shares are rounded to float32 as the inputs of `FeatureEncoder` are.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ddpn.features.categorical import CategoricalColumn
from ddpn.features.numeric import NumericColumn, bin_and_share, bounded
from ddpn.features.table import Column


class Lookups(NamedTuple):
    """Rows: inputs that are multiplied, with a 1 at the end (rows, V + 1), and places (rows, m) with their shares."""

    values: np.ndarray
    places: np.ndarray
    shares: np.ndarray


class LookupPlan:
    """How the inputs of all columns are looked up.

    Parameters
    ----------
    columns : sequence of NumericColumn or CategoricalColumn
        The encoding of each column.
    limit : float
        As in `FeatureEncoder`.
    """

    def __init__(self, columns: Sequence[NumericColumn | CategoricalColumn], limit: float) -> None:
        self._columns, self._limit = columns, limit
        self._values: list[int] = []
        self._parts: list[Callable[[np.ndarray], np.ndarray]] = [_nothing]
        self._starts: list[list[int]] = []
        self.lookups, self._size = 0, 1
        first = 0
        for column in columns:
            if isinstance(column, CategoricalColumn):
                self._starts.append([self._add(first, first + column.indicators, _each_or_nothing)])
                self._values += range(first + column.indicators, first + column.width)
            else:
                self._starts.append(self._numbers(column, first))
            first += column.width
        self.inputs, self.values = first, len(self._values)

    def _numbers(self, column: NumericColumn, first: int) -> list[int]:
        """Keep where the inputs of a column go; the places of its bins, steps and codes."""
        ends = np.cumsum([1 + column.has_missing, max(len(column.edges) - 1, 0), len(column.steps), len(column.codes)])
        values, bins, steps, codes = (first + ends).tolist()
        self._values += range(first, values)
        self.lookups += bins > values  # a bin takes two, of sums on both its sides
        pairs = ((values, bins, _upto), (bins, steps, _upto), (steps, codes, _each_or_nothing))
        return [self._add(low, high, sums) if high > low else -1 for low, high, sums in pairs]

    def _add(self, low: int, high: int, sums: Callable[[np.ndarray], np.ndarray]) -> int:
        start, rows = self._size, len(sums(np.empty((high - low, 0))))
        self._parts.append(lambda weight: sums(weight[low:high]))
        self._size, self.lookups = start + rows, self.lookups + 1
        return start

    def sums(self, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights of the inputs that are multiplied, then the bias; and what is looked up.

        Shape: (inputs, H), (H,) -> (V + 1, H), (n, H).
        """
        return np.vstack([weight[self._values], bias]), np.concatenate([part(weight) for part in self._parts])

    def of(self, table: Sequence[Column], rows: slice | np.ndarray, dtype: type = np.float64) -> Lookups:
        """The lookups of some rows of a table."""
        count = len(table[0].values[rows])
        found = Lookups(
            np.ones((count, self.values + 1), dtype=dtype),
            np.empty((count, self.lookups), dtype=np.int64),
            np.ones((count, self.lookups), dtype=dtype),
        )
        value = at = 0
        for (_, _, cells, levels), column, starts in zip(table, self._columns, self._starts, strict=True):
            if isinstance(column, CategoricalColumn):
                np.add(column.places(cells[rows], levels), starts[0], out=found.places[:, at])
                at += 1
                if column.effects is not None:
                    found.values[:, value] = column.effects.of(cells[rows], levels)
                    value += 1
            else:
                value, at = self._write(cells[rows].astype(np.float64), column, starts, found, value, at)
        return found

    def _write(
        self, x: np.ndarray, column: NumericColumn, starts: list[int], found: Lookups, value: int, at: int
    ) -> tuple[int, int]:
        """Write a column of numbers; returns where the next one is written."""
        missing = np.isnan(x)
        if missing.any():
            x = np.where(missing, column.fill, x)
        found.values[:, value] = bounded(column.standardised(x), self._limit).astype(np.float32)
        value += 1
        if column.has_missing:
            found.values[:, value] = missing
            value += 1
        if starts[0] >= 0:
            place, share = bin_and_share(x, column.edges)
            place += starts[0]
            found.places[:, at] = place
            place += 1
            found.places[:, at + 1] = place
            found.shares[:, at + 1] = share.astype(np.float32)
            np.subtract(1.0, found.shares[:, at + 1], out=found.shares[:, at])
            at += 2
        if starts[1] >= 0:
            np.add(np.searchsorted(column.steps, x), starts[1], out=found.places[:, at])
            at += 1
        if starts[2] >= 0:
            np.add(column.code_of(x), starts[2], out=found.places[:, at])
            at += 1
        return value, at


def _nothing(weight: np.ndarray) -> np.ndarray:
    return np.zeros_like(weight[:1])


def _each_or_nothing(weight: np.ndarray) -> np.ndarray:
    return np.concatenate([weight, np.zeros((1, weight.shape[1]))])


def _upto(weight: np.ndarray) -> np.ndarray:
    """Sums of the first 0, 1, ... weights."""
    return np.concatenate([np.zeros((1, weight.shape[1])), weight.cumsum(axis=0)])
