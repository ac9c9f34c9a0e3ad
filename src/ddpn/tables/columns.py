"""`ColumnTable`, the package's own table: named columns of numbers, booleans and categories, stored as NumPy arrays."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeVar

import numpy as np
import polars as pl

from ddpn.rows.checks import RowIndex

_Result = TypeVar("_Result")
_Value = TypeVar("_Value")
#: Size of the cache of `Levels`: enough for a mixture of cross-fitted members, and bounded in a search of settings.
_MAX_RESULTS = 64
#: Up to this many rows, cells are read one by one in Python, which is faster than calls of a data frame library.
MAX_ROWS_CELL_BY_CELL = 8


class Kind(StrEnum):
    """The kind of values that a column holds.

    In a `NUMBER_CATEGORY`, 1, 1.0 and "01" are the same level. In a `BOOLEAN_CATEGORY`, "yes" and true are the same
    level. Only raw tables have columns of kind `DATE`. A `ColumnTable` has columns of numbers instead, such as the
    month.
    """

    NUMBER = "number"
    BOOLEAN = "boolean"
    DATE = "date"
    CATEGORY = "category"
    NUMBER_CATEGORY = "category of numbers"
    BOOLEAN_CATEGORY = "category of booleans"
    UNSUPPORTED = "unsupported"

    def __repr__(self) -> str:
        return repr(self.value)  # messages list kinds as plain text

    @property
    def is_category(self) -> bool:
        """True if the column is categorical."""
        return self in _CATEGORIES

    @property
    def words(self) -> str:
        """What the cells are called in messages: a plural noun such as "numbers"."""
        return _WORDS[self]


_CATEGORIES = frozenset((Kind.CATEGORY, Kind.NUMBER_CATEGORY, Kind.BOOLEAN_CATEGORY))
_WORDS = {
    Kind.NUMBER: "numbers",
    Kind.BOOLEAN: "booleans",
    Kind.DATE: "dates",
    Kind.CATEGORY: "text",
    Kind.NUMBER_CATEGORY: "numbers",
    Kind.BOOLEAN_CATEGORY: "booleans",
    Kind.UNSUPPORTED: "values of an unsupported type",
}


class Levels(tuple[str, ...]):
    """The names of a categorical column's levels, with a cache of results that were computed per level.

    All selections of rows of a table share the same `Levels`. So a model looks up each level once per table, and not
    once per block of rows.
    """

    def compute_once(self, key: object, compute: Callable[["Levels"], _Result]) -> _Result:
        """Return `compute(self)`. Later calls with the same `key` object return the cached result.

        Keys are compared by identity (`is`), so `key` may be unhashable, such as a dict.
        """
        results: dict[int, tuple[object, _Result]] = self.__dict__.setdefault("_results", {})
        if (kept := results.get(id(key))) is None:
            kept = results[id(key)] = key, compute(self)  # the key is kept, so that no other object gets its id
            if len(results) > _MAX_RESULTS:
                results.pop(next(iter(results)), None)
        return kept[1]

    def __reduce__(self) -> tuple[type["Levels"], tuple[tuple[str, ...]]]:
        return Levels, (tuple(self),)


class Column(NamedTuple):
    """One column of a table as an array: numbers (NaN where missing), or codes of levels (-1 where missing).

    The levels of a category have canonical names (`ddpn.tables.levels`), so a level has the same name in a CSV file, a
    pandas frame or an array.

    Attributes
    ----------
    name : str
        The name in the table.
    kind : Kind
        Whether the column holds numbers, booleans or levels.
    values : array, shape (rows,)
        Numbers, booleans as 0.0 and 1.0, or codes: the position of each row's level in `levels`.
    levels : Levels
        The names of the levels of a category. Empty for numbers and booleans.

    Examples
    --------
    >>> ward = Column("ward", Kind.CATEGORY, np.array([0, -1, 1]), Levels(("A", "B")))
    >>> ward.is_missing.tolist(), ward.map_levels({"A": 10.0}, other=0.0, missing=-1.0).tolist()
    ([False, True, False], [10.0, -1.0, 0.0])
    """

    name: str
    kind: Kind
    values: np.ndarray
    levels: Levels = Levels()

    @property
    def is_category(self) -> bool:
        """True if the column is categorical, so that its values are codes of levels."""
        return self.kind.is_category

    @property
    def is_missing(self) -> np.ndarray:
        """A mask of the rows without a value."""
        return self.values < 0 if self.is_category else np.isnan(self.values)

    def map_levels(self, mapping: Mapping[str, _Value], other: _Value, missing: _Value) -> np.ndarray:
        """Map the level of each row to its value in `mapping`.

        Results are cached per table and mapping. So every call with the same `mapping` object must pass the same
        `other` and `missing`.

        Parameters
        ----------
        mapping : dict
            The value of each level.
        other
            The value of rows whose level is not in `mapping`.
        missing
            The value of rows without a level.
        """
        return self.compute_per_level(mapping, lambda levels: [mapping.get(level, other) for level in levels], missing)

    def compute_per_level(
        self, key: object, compute: Callable[[Levels], Iterable[object]], missing: object
    ) -> np.ndarray:
        """Compute a value for each level of a category, and return the value of each row's level.

        Parameters
        ----------
        key : object
            Identifies the computation: a second call with the same object, for any rows of the table, uses the cached
            values.
        compute : callable
            Takes the names of the levels, and returns one value per level in the same order.
        missing
            The value of rows without a level.

        Returns
        -------
        array, shape (rows,)
        """
        results = self.levels.compute_once(key, lambda levels: np.array([*compute(levels), missing]))
        return results[self.values]  # the last result serves code -1

    def count_levels(self) -> np.ndarray:
        """Return the number of rows with each level of a categorical column."""
        return np.bincount(self.values[self.values >= 0], minlength=len(self.levels))

    def to_polars(self) -> pl.Series:
        """Return the column as a polars series of numbers, booleans or text, with null for missing values."""
        if self.is_category:
            levels = pl.Series(self.name, [*self.levels, None], dtype=pl.String)
            return levels.gather(np.where(self.is_missing, len(self.levels), self.values))
        numbers = pl.Series(self.name, np.asarray(self.values, dtype=np.float64), nan_to_null=True)
        return numbers.cast(pl.Boolean) if self.kind == Kind.BOOLEAN else numbers

    def rows(self, index: RowIndex) -> "Column":
        """Return the column with only the selected rows.

        Parameters
        ----------
        index : array or slice
            A mask, a slice or positions.
        """
        return self._replace(values=self.values[index])

    def cells(self, missing: object = None) -> np.ndarray:
        """Return the cells as an array of Python objects: text, numbers or booleans.

        Parameters
        ----------
        missing
            The object that stands for a missing cell.
        """
        if self.is_category:
            return np.array([*self.levels, missing], dtype=object)[self.values]  # the last serves code -1
        cells = np.full(len(self.values), missing, dtype=object)
        is_known = ~self.is_missing
        cells[is_known] = self.values[is_known].astype(bool if self.kind == Kind.BOOLEAN else float)
        return cells


class ColumnTable:
    """A table whose columns have been read and checked. All members of a mixture take their inputs in this form.

    Parameters
    ----------
    columns : sequence of Column
        The columns, in the order that they had in fit.
    is_named : bool
        True if the names are those of a data frame. False if the table had no names, so that they are x0, x1, ...
    index : array, shape (rows,), optional
        The labels of the rows in messages, such as the index of a pandas frame.
    """

    def __init__(self, columns: Sequence[Column], is_named: bool = True, index: np.ndarray | None = None) -> None:
        self.columns, self.is_named, self.index = list(columns), is_named, index
        self.shape = len(columns[0].values) if columns else 0, len(columns)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __getitem__(self, position: int) -> Column:
        return self.columns[position]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of the columns."""
        return [column.kind for column in self.columns]

    def column(self, name: str) -> Column:
        """Return the column with this name.

        Parameters
        ----------
        name : str
            The name.
        """
        return self.columns[self.names.index(name)]

    def rows(self, index: RowIndex) -> "ColumnTable":
        """Return the table with only the selected rows.

        Parameters
        ----------
        index : array or slice
            A mask, a slice or positions.
        """
        columns = [column.rows(index) for column in self.columns]
        return ColumnTable(columns, self.is_named, None if self.index is None else self.index[index])

    def is_missing(self) -> np.ndarray:
        """Return a mask of the rows with a missing value in any column."""
        return np.logical_or.reduce([column.is_missing for column in self.columns])

    def to_polars(self) -> pl.DataFrame:
        """Return the table as a polars frame of numbers, booleans and text, with null for missing values."""
        return pl.DataFrame([column.to_polars() for column in self.columns])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the values and the levels of every column as a dict of arrays, from which a digest can be computed."""
        values = {column.name: column.values for column in self.columns}
        return values | {f"levels of {column.name}": np.array(column.levels, dtype=object) for column in self.columns}
