"""Tables as trees read them: one matrix with numbers as they are and codes of categories, in folds."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from ddpn.members.member import NotApplicableError
from ddpn.members.reader import TableReader
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.sample import Sample
from ddpn.tables.encoding.steps import screened
from ddpn.tables.encoding.table import Column
from ddpn.tables.splits import FOLDS, fold_numbers

#: Levels of a category that get a code of their own: trees have 255 bins.
LEVELS = 254
#: Columns that a split is chosen from, and that are kept of wider tables with few rows; with more, large trees are not
#: tried.
MAX_COLUMNS = 500
#: Rows from which trees are larger, in larger steps.
MANY_ROWS = 5000


class TreeTable:
    """Knows the columns of `fit`, and reads every later table as a matrix with the same meaning."""

    reader: TableReader
    levels: list[tuple[str, ...] | None]

    def fit(self, X: Any) -> np.ndarray:
        """The matrix of a table, whose columns and levels are remembered."""
        self.reader = TableReader()
        columns = self.reader.fit(X)
        self.levels = [_frequent(column) if column.kind == "category" else None for column in columns]
        self.names = [column.name for column in columns]
        return _matrix(columns, self.levels)

    def read(self, X: Any) -> np.ndarray:
        """The matrix of another table. A level without a code is missing."""
        return _matrix(self.reader.read(X), self.levels)

    @property
    def width(self) -> int:
        """How many columns the matrix has."""
        return len(self.levels)

    @property
    def is_category(self) -> np.ndarray:
        """Mask of the columns of the matrix that hold codes of levels."""
        return np.array([known is not None for known in self.levels])

    def directions(self, monotone: Mapping[str, int]) -> np.ndarray | None:
        """One direction per column: 1 where the mean must not fall, -1 where it must not rise, 0 for no constraint."""
        if not monotone:
            return None
        found = np.zeros(self.width, dtype=np.int64)
        for name, sign in monotone.items():
            if name not in self.names:
                raise InputError(f"monotone must name columns of X, got {name!r}, which is not there.")
            place = self.names.index(name)
            if self.levels[place] is not None:
                raise ConfigError(f"monotone must name columns of numbers, got {name!r}, which holds categories.")
            found[place] = sign
        return found

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"reader": self.reader.as_dict(), "levels": self.levels}

    @classmethod
    def from_dict(cls, known: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`, which may be among other entries."""
        table = cls()
        table.reader = TableReader.from_dict(known["reader"])
        table.levels = [None if levels is None else tuple(levels) for levels in known["levels"]]
        if len(table.levels) != len(table.reader.kinds_):
            raise InputError("The levels of a saved model must be those of its columns.")
        return table


class Fold(NamedTuple):
    """Rows that a booster is fitted to, rows that it predicts, and the columns that it takes (None for all)."""

    inner: np.ndarray
    outer: np.ndarray
    chosen: np.ndarray | None = None


class TreeRows(NamedTuple):
    """What boosters of the mean are fitted to: inputs, counts per exposure, and weights times exposure, in folds."""

    matrix: np.ndarray
    is_category: np.ndarray
    directions: np.ndarray | None
    rate: np.ndarray
    weight: np.ndarray
    folds: list[Fold]

    def with_column(self, values: np.ndarray) -> "TreeRows":
        """The same rows with one more column of numbers, which every fold takes and which has no direction."""
        last = self.matrix.shape[1]
        return self._replace(
            matrix=np.column_stack([self.matrix, values]),
            is_category=np.append(self.is_category, False),
            directions=None if self.directions is None else np.append(self.directions, 0),
            folds=[f if f.chosen is None else f._replace(chosen=np.append(f.chosen, last)) for f in self.folds],
        )


def used_rows(train: Sample, least: int = 1) -> Sample:
    """The rows with a weight, or a `NotApplicableError` where trees have nothing to fit."""
    used = train.rows(train.is_used)
    if not used.y.any():
        raise NotApplicableError("it has no count above 0 to fit")
    if len(used) < least:
        raise NotApplicableError(f"it needs {least} rows or more")
    return used


def rates(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Counts per exposure and weights times exposure: fitted to these, a Poisson has the likelihood of the counts."""
    scale = np.ones_like(sample.y) if sample.exposure is None else sample.exposure
    return sample.y / scale, scale * sample.weight_or_ones


def folds_of(y: np.ndarray, seed: int, group: np.ndarray | None = None, folds: int = FOLDS) -> list[Fold]:
    """Rows to fit and rows to predict, groups kept whole; the former must have a count above 0."""
    number = fold_numbers(len(y), folds, seed, group)
    if number.max(initial=0) < 1:
        raise NotApplicableError("it needs two rows, or two groups of rows, or more")
    found = [Fold(np.flatnonzero(number != k), np.flatnonzero(number == k)) for k in range(number.max() + 1)]
    if not all(y[fold.inner].any() for fold in found):
        raise NotApplicableError("it has too few counts above 0 to leave some of them out")
    return found


def with_columns(
    folds: list[Fold], matrix: np.ndarray, rate: np.ndarray, weight: np.ndarray, most: int = MAX_COLUMNS
) -> list[Fold]:
    """Folds with their columns, chosen inside: otherwise out-of-fold means would know the rows they predict."""
    return [f._replace(chosen=screened(matrix[f.inner], rate[f.inner], weight[f.inner], most)) for f in folds]


def columns_of(matrix: np.ndarray, chosen: np.ndarray | None) -> np.ndarray:
    """The chosen columns; all of them for None."""
    return matrix if chosen is None else matrix[:, chosen]


def least_in_leaf(rows: int) -> int:
    """Rows that a leaf must have: 20, or fewer where there are few."""
    return min(20, max(1, rows // 20))


def _frequent(column: Column) -> tuple[str, ...]:
    """Levels that occur, most frequent first; equal ones in alphabetical order."""
    found = np.bincount(column.values[column.values >= 0], minlength=len(column.levels))
    order = sorted(range(len(found)), key=lambda code: (-found[code], column.levels[code]))
    return tuple(column.levels[code] for code in order if found[code])[:LEVELS]


def _matrix(columns: list[Column], levels: list[tuple[str, ...] | None]) -> np.ndarray:
    """Numbers as they are and codes of levels; a level without a code is missing."""
    parts = zip(columns, levels, strict=True)
    return np.column_stack([column.values if known is None else _codes(column, known) for column, known in parts])


def _codes(column: Column, known: tuple[str, ...]) -> np.ndarray:
    place = {level: float(code) for code, level in enumerate(known)}
    # The last entry serves code -1.
    target = np.array([*(place.get(level, np.nan) for level in column.levels), np.nan])
    return target[column.values]
