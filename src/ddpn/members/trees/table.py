"""`TreeTable`: converts tables to the numeric matrix that boosted trees use."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_column
from ddpn.tables.encoding.categories import weigh_levels
from ddpn.tables.reading import read_table
from ddpn.tables.schema import Schema

#: The most levels of a category that get a code, because trees have 255 bins.
MAX_LEVELS = 254


class TreeTable:
    """Converts tables to the numeric matrix of the trees.

    Numbers are unchanged, and booleans become 0 or 1. A frequent level of a category becomes an integer code, its
    position in `levels`. All other cells become NaN: missing values, rarer levels, and levels that did not occur in
    training.

    Parameters
    ----------
    schema : Schema
        The columns of the training rows.
    levels : dict of str to tuple of str
        For each categorical column, the levels that have a code, most frequent first.
    """

    def __init__(self, schema: Schema, levels: Mapping[str, Sequence[str]]) -> None:
        self.schema, self.levels = schema, {name: tuple(names) for name, names in levels.items()}
        self._codes = {
            name: {level: float(code) for code, level in enumerate(names)} for name, names in self.levels.items()
        }

    @classmethod
    def fit(cls, X: Any) -> tuple[Self, np.ndarray]:
        """Learn the columns and the frequent levels of a table; return a `TreeTable` and the matrix of this table.

        At most 254 levels per category get a code: those with the most rows.
        """
        columns = read_table(X)
        levels = {
            column.name: tuple(weigh_levels(column, np.ones(len(columns))))[:MAX_LEVELS]
            for column in columns
            if column.is_category
        }
        table = cls(Schema.from_table(columns), levels)
        return table, table.read(columns)

    def read(self, X: Any) -> np.ndarray:
        """Convert a table to a float64 matrix of shape (rows, width).

        Missing values become NaN, and so do levels without a code, such as levels that did not occur in training.
        """
        return np.column_stack(
            [
                column.map_levels(self._codes[column.name], np.nan, np.nan) if column.is_category else column.values
                for column in self.schema.parse(X)
            ]
        )

    @property
    def width(self) -> int:
        """The number of columns of the matrix."""
        return len(self.schema.names)

    @property
    def is_category(self) -> np.ndarray:
        """A mask of the matrix columns, of shape (width,), True for those with codes of levels."""
        return np.array([kind.is_category for kind in self.schema.kinds])

    def get_directions(self, monotone: Mapping[str, int] | None) -> np.ndarray | None:
        """Return the monotone constraint of each matrix column, or None if `monotone` is None.

        A constraint is 1 if the mean must not decrease with the column, and -1 if it must not increase. 0 means that
        there is no constraint. The result has shape (width,). `monotone` maps names of columns of numbers or booleans
        to 1 or -1; a column without an entry has no constraint. Raise an error if `monotone` names other columns or has
        other values.
        """
        if monotone is None:
            return None
        if not isinstance(monotone, Mapping) or not all(sign in (1, -1) for sign in monotone.values()):
            must = 'map columns to 1 or -1, such as {"age": 1}'
            raise ConfigError(argument="monotone", must=must, got=repr(monotone))
        numbers = [name for name in self.schema.names if name not in self.levels]
        for name in monotone:
            check_column(name, numbers, "a numeric column in monotone")
        return np.array([monotone.get(name, 0) for name in self.schema.names])

    def as_dict(self) -> dict[str, Any]:
        """Return the schema and the levels as a dictionary that can be written as JSON."""
        return {"schema": self.schema.as_dict(), "levels": self.levels}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Recreate a converter from the dictionary that `as_dict` returned; additional keys are ignored."""
        return cls(Schema.from_dict(fields["schema"]), fields["levels"])
