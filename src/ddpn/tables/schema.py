"""`Schema`: the names and kinds of the columns in fit, to which new tables are converted."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from ddpn.rows.checks import RowError, TableLike, label_row_errors
from ddpn.runtime.errors import InputError
from ddpn.storage.contents import JsonObject
from ddpn.tables.columns import Column, ColumnTable, Kind
from ddpn.tables.levels import canonical_number, parse_boolean_level, parse_number_level
from ddpn.tables.reading import check_names, name_levels, read_later_table, set_names

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator


@dataclass(frozen=True)
class Schema:
    """The names and kinds of the columns in fit. New tables are converted to this schema.

    Parameters
    ----------
    names : tuple of str
        The names of the columns; x0, x1, ... if the table has no names.
    kinds : tuple of Kind
        The kind of values in each column.
    is_named : bool
        True if the names are those of a data frame. False if the table had no names, so that they are x0, x1, ...

    Examples
    --------
    >>> from ddpn.tables.reading import read_table
    >>> table = read_table([[31.0, "B"], [67.0, "A"]])
    >>> schema = Schema.from_table(table)
    >>> schema.names, schema.kinds
    (('x0', 'x1'), ('number', 'category'))
    >>> schema.parse([["31", None]])[0].values.tolist()
    [31.0]
    """

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    is_named: bool = True

    @classmethod
    def from_table(cls, table: ColumnTable) -> Self:
        """Make the schema of a table."""
        return cls(tuple(table.names), tuple(table.kinds), table.is_named)

    def parse(self, X: TableLike) -> ColumnTable:
        """Convert a new table: put its columns in the order of fit, and convert each to the kind it had in fit.

        Only conversions without doubt are made, for example of the text "31" to a number. Otherwise an `InputError`
        names the column and the rows.

        Parameters
        ----------
        X : table
            An array, a data frame, a sparse matrix or lists, with the columns of fit. A `ColumnTable` with the same
            names and kinds is returned unchanged.
        """
        if not isinstance(X, ColumnTable):
            X = read_later_table(X, self.names, self.is_named)
        elif X.names != list(self.names):
            check_names(X.names, self.names)
            X = ColumnTable([X.column(name) for name in self.names], X.is_named, X.index)
        if X.kinds == list(self.kinds):
            return X
        with label_row_errors(X.index):
            columns = [_convert_to_kind(column, kind) for column, kind in zip(X, self.kinds, strict=True)]
        return ColumnTable(columns, X.is_named, X.index)

    def set_names(self, estimator: "BaseEstimator") -> None:
        """Set `n_features_in_` of an estimator and, if columns are named, `feature_names_in_`, as scikit-learn does."""
        set_names(estimator, self.names, self.is_named)

    def as_dict(self) -> JsonObject:
        """Return the fields as a dict that can be saved as JSON."""
        return {"names": self.names, "kinds": self.kinds, "is_named": self.is_named}

    @classmethod
    def from_dict(cls, fields: JsonObject) -> Self:
        """Rebuild a schema from the result of `as_dict`."""
        names, kinds = tuple(fields["names"]), tuple(map(Kind, fields["kinds"]))
        if not all(isinstance(name, str) for name in names) or len(names) != len(kinds):
            raise TypeError("a schema must have a name, which is text, and a kind for each column")
        return cls(names, kinds, bool(fields["is_named"]))


def _convert_to_kind(column: Column, kind: Kind) -> Column:
    """Convert a column to the kind it had in fit; raise an `InputError` if its values do not fit that kind."""
    if column.kind == kind:
        return column
    if column.kind == Kind.BOOLEAN and kind == Kind.NUMBER:
        return column._replace(kind=kind)
    if column.is_missing.all():  # a column without values fits any kind
        rows = len(column.values)
        return Column(column.name, kind, np.full(rows, -1) if kind.is_category else np.full(rows, np.nan))
    if kind == Kind.NUMBER_CATEGORY:
        return _convert_to_number_levels(column)
    if kind == Kind.CATEGORY:
        if column.is_category:
            return column._replace(kind=kind)
        must = f"X must hold text in column {column.name!r}, as when fitted"
        raise InputError(f"{must}, got {column.kind.words}. Convert the column to text.")
    return _convert_to_numbers(column, kind)


def _convert_to_number_levels(column: Column) -> Column:
    """Convert a column to a category in which 1, 1.0 and "01" are the same level."""
    codes = column.values
    if column.is_category:
        positions, names = column.levels.compute_once(
            canonical_number, lambda levels: name_levels(levels, canonical_number)
        )
    else:
        has_value, codes = ~column.is_missing, np.full(len(column.values), -1)
        unique, codes[has_value] = np.unique(column.values[has_value], return_inverse=True)
        positions, names = name_levels(unique.tolist(), canonical_number)
    return Column(column.name, Kind.NUMBER_CATEGORY, np.append(positions, -1)[codes], names)


def _convert_to_numbers(column: Column, kind: Kind) -> Column:
    """Convert a column to the kind `NUMBER` or `BOOLEAN`.

    Text may spell numbers or booleans, and the numbers 0 and 1 may stand for booleans. Other cells raise a `RowError`.
    """
    if column.is_category:
        spell = parse_number_level if kind == Kind.NUMBER else parse_boolean_level
        values = column.compute_per_level(
            spell, lambda levels: np.array([*map(spell, levels)], dtype=np.float64), np.nan
        )
        is_unreadable = np.isnan(values) & ~column.is_missing
        got = repr(column.levels[column.values[is_unreadable][0]]) if is_unreadable.any() else ""
    else:
        values = column.values
        is_unreadable = ~column.is_missing & (values != 0) & (values != 1)
        got = f"{values[is_unreadable][0]:g}" if is_unreadable.any() else ""
    if is_unreadable.any():
        raise RowError(f"column {column.name!r} must hold {kind.words} as in fit, got {got}", is_unreadable)
    return Column(column.name, kind, values)
