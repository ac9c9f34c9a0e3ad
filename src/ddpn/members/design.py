"""The columns of a generalised linear model: numbers as they are, categories as differences from a reference level."""

from typing import Any, NamedTuple

import numpy as np

from ddpn.sample import RowError
from ddpn.tables.encoding.table import Column


class Design(NamedTuple):
    """Each column's name, and its levels where it is a category; the first, in alphabetical order, is the reference.

    >>> ward = Column("ward", "category", np.array([1, 0]), ("B", "A"))
    >>> table = [Column("age", "number", np.array([31.0, 67.0])), ward]
    >>> design = design_of(table)
    >>> design.names, design.matrix(table).tolist()
    (['age', 'ward = B'], [[31.0, 0.0], [67.0, 1.0]])
    """

    columns: tuple[str, ...]
    levels: tuple[tuple[str, ...] | None, ...]

    @property
    def names(self) -> list[str]:
        """One per coefficient."""
        return [
            name if levels is None else f"{name} = {level}"
            for name, levels in zip(self.columns, self.levels, strict=True)
            for level in ((name,) if levels is None else levels[1:])
        ]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"columns": list(map(str, self.columns)), "levels": self.levels}

    @classmethod
    def from_dict(cls, known: dict[str, Any]) -> "Design":
        """The inverse of `as_dict`."""
        levels = (None if each is None else tuple(each) for each in known["levels"])
        return cls(tuple(known["columns"]), tuple(levels))

    def matrix(self, table: list[Column], labels: Any = None) -> np.ndarray:
        """Columns of numbers; `labels` are what messages call the rows. Shape: (rows, coefficients), float64."""
        parts = [
            column.values.astype(np.float64)[:, None] if levels is None else _dummies(column, levels, labels)
            for column, levels in zip(table, self.levels, strict=True)
        ]
        return np.concatenate(parts, axis=1)


def design_of(table: list[Column]) -> Design:
    """The design of these columns, with the levels that occur in them."""
    levels = tuple(_levels(column) if column.kind == "category" else None for column in table)
    return Design(tuple(column.name for column in table), levels)


def check_complete(table: list[Column], labels: Any = None) -> list[Column]:
    """The same columns; raises an `InputError` where a value is missing, for which there is no coefficient."""
    for column in table:
        missing = column.values < 0 if column.kind == "category" else np.isnan(column.values)
        if missing.any():
            remedy = ". Fill or drop such rows, or use CountRegressor, which accepts them."
            raise RowError(f"X must have no missing values, got NaN in column '{column.name}'", missing, remedy, labels)
    return table


def _levels(column: Column) -> tuple[str, ...]:
    return tuple(sorted({column.levels[code] for code in np.unique(column.values).tolist()}))


def _dummies(column: Column, levels: tuple[str, ...], labels: Any) -> np.ndarray:
    place = {level: j for j, level in enumerate(levels)}
    target = np.array([place.get(level, -1) for level in column.levels])[column.values]
    unseen = target < 0
    if unseen.any():
        level = column.levels[column.values[unseen][0]]
        words = f"X must hold levels that fit has seen in column '{column.name}', got {level!r}"
        raise RowError(words, unseen, ". Recode or drop such rows.", labels)
    return np.eye(len(levels))[target][:, 1:]
