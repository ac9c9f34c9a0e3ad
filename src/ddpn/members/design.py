"""The design matrix of a `CountGLM`, with one column per coefficient except the intercept."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ddpn.rows.checks import Labels, RowError
from ddpn.runtime.errors import join_words
from ddpn.tables.columns import Column, ColumnTable
from ddpn.tables.schema import Schema


@dataclass
class Design:
    """Converts tables to the design matrix of a `CountGLM`, with treatment coding of categorical columns.

    Numeric columns are used unchanged. A categorical column becomes one indicator column per level, except for the
    reference level, which is the first in alphabetical order. Attributes and methods have the same names as those of
    `TableEncoder`.

    Parameters
    ----------
    schema_ : Schema
        The columns of the table.
    levels : dict of str to tuple of str
        The levels of each categorical column, with the reference level first.

    Examples
    --------
    >>> from ddpn.tables.reading import read_table
    >>> table = read_table([[31.0, "B"], [67.0, "A"]])
    >>> design = Design.from_table(table)
    >>> design.list_input_names(), design.matrix(table).tolist()
    (['x0', 'x1 = B'], [[31.0, 1.0], [67.0, 0.0]])
    """

    schema_: Schema
    levels: dict[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        self._codes = {name: {level: code for code, level in enumerate(levels)} for name, levels in self.levels.items()}

    @classmethod
    def from_table(cls, table: ColumnTable) -> Self:
        """Create the design of a training table from its columns and the levels that occur in them.

        The table must not contain missing values (see `check_complete`).
        """
        levels = {
            column.name: tuple(sorted(column.levels[code] for code in np.unique(column.values).tolist()))
            for column in table
            if column.is_category
        }
        return cls(Schema.from_table(table), levels)

    def list_input_names(self) -> list[str]:
        """List the names of the matrix columns, such as "age" or "ward = B"."""
        return [
            named
            for name in self.schema_.names
            for named in ([f"{name} = {level}" for level in self.levels[name][1:]] if name in self.levels else [name])
        ]

    def encode(self, X: Any) -> np.ndarray:
        """Parse a new table and return its design matrix, of shape (rows, columns of the matrix).

        Raise an `InputError` for missing values and for levels that did not occur in the training table.
        """
        table = self.schema_.parse(X)
        check_complete(table, table.index, "Fill or drop such rows, or use CountRegressor, which accepts them")
        return self.matrix(table)

    def matrix(self, table: ColumnTable) -> np.ndarray:
        """Return the float64 design matrix of a parsed table, of shape (rows, columns of the matrix).

        The table must not contain missing values. Raise an `InputError` for levels that did not occur in the training
        table.
        """
        parts = [
            _encode_levels(column, self._codes[column.name], table.index)
            if column.is_category
            else column.values.astype(np.float64)[:, None]
            for column in table
        ]
        return np.concatenate(parts, axis=1)

    def as_dict(self) -> dict[str, Any]:
        """Return the schema and the levels as a dictionary that can be written as JSON."""
        return {"schema": self.schema_.as_dict(), "levels": self.levels}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Recreate a design from the dictionary that `as_dict` returned."""
        levels = {name: tuple(map(str, column_levels)) for name, column_levels in fields["levels"].items()}
        return cls(Schema.from_dict(fields["schema"]), levels)


def check_complete(table: ColumnTable, labels: Labels, remedy: str) -> None:
    """Raise an `InputError` if the table has missing values, which a design matrix cannot represent.

    The message names the columns and rows. `labels` has the names of the rows, or is None to name them by their
    positions. `remedy` is a phrase that says what to do.
    """
    missing = {column.name: column.is_missing for column in table}
    missing = {name: mask for name, mask in missing.items() if mask.any()}
    if missing:
        first, mask = next(iter(missing.items()))
        counts = join_words([f"'{name}' ({int(column_mask.sum()):,})" for name, column_mask in missing.items()])
        after = (
            f". Rows with missing values: {table.is_missing().sum():,} of {len(mask):,}; by column: {counts}. {remedy}."
        )
        raise RowError(f"X must have no missing values, got NaN in column '{first}'", mask, after, labels)


def _encode_levels(column: Column, codes: Mapping[str, int], labels: Labels) -> np.ndarray:
    code = column.map_levels(codes, other=-1, missing=-1)
    if (code < 0).any():
        level = column.levels[column.values[code < 0][0]]
        words = f"X must hold levels of column '{column.name}' that occur in the training rows, got {level!r}"
        raise RowError(words, code < 0, ". Recode or drop such rows.", labels)
    return np.eye(len(codes))[code][:, 1:]
