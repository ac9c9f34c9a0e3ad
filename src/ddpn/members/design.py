"""The columns of a generalised linear model: numbers as they are, categories as differences from a reference level."""

from typing import Any, NamedTuple

import numpy as np

from ddpn.errors import InputError
from ddpn.features.table import Column


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

    def matrix(self, table: list[Column]) -> np.ndarray:
        """Shape: (rows, coefficients), float64."""
        parts = [
            _number(column) if levels is None else _dummies(column, levels)
            for column, levels in zip(table, self.levels, strict=True)
        ]
        return np.concatenate(parts, axis=1)


def design_of(table: list[Column]) -> Design:
    """The design of these columns, with the levels that occur in them."""
    levels = tuple(_levels(column) if column.kind == "category" else None for column in table)
    return Design(tuple(column.name for column in table), levels)


def check_complete(table: list[Column]) -> list[Column]:
    """The same columns; an error where a cell is empty, as no coefficient can speak for it."""
    for column in table:
        is_category = column.kind == "category"
        missing = np.flatnonzero(column.values < 0 if is_category else np.isnan(column.values))
        if len(missing):
            what = "none" if is_category else "NaN"
            raise InputError(
                f"X must hold a value in every cell, got {what} in column '{column.name}' at row {missing[0]}. "
                "Fill or drop such rows, or use CountRegressor, which takes them."
            )
    return table


def _levels(column: Column) -> tuple[str, ...]:
    return tuple(sorted({column.levels[code] for code in np.unique(column.values).tolist()}))


def _number(column: Column) -> np.ndarray:
    if column.kind == "category":
        raise InputError(f"X must hold numbers in column '{column.name}' as in fit, got text. Convert it.")
    return column.values.astype(np.float64)[:, None]


def _dummies(column: Column, levels: tuple[str, ...]) -> np.ndarray:
    if column.kind != "category":
        raise InputError(f"X must hold text in column '{column.name}' as in fit, got numbers. Convert it.")
    place = {level: j for j, level in enumerate(levels)}
    target = np.array([place.get(level, -1) for level in column.levels])[column.values]
    unseen = np.flatnonzero(target < 0)
    if len(unseen):
        row = int(unseen[0])
        raise InputError(
            f"X must hold levels that fit has seen in column '{column.name}', got "
            f"{column.levels[column.values[row]]!r} at row {row}. Recode or drop such rows."
        )
    return np.eye(len(levels))[target][:, 1:]
