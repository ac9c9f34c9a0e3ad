"""Convert columns of new tables to the kinds that they had in fit. Cells that cannot be converted become missing."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import polars as pl

from ddpn.runtime.errors import Argument, InputError
from ddpn.storage.contents import JsonObject
from ddpn.tables.cells import LOOKS_MISSING, clean_text, is_text, looks_missing, parse_missing_numbers
from ddpn.tables.columns import MAX_ROWS_CELL_BY_CELL, Column, Kind, Levels
from ddpn.tables.dates import (
    YEAR_FIRST,
    DateFormat,
    describe_date_format,
    extract_date_parts,
    find_date_format,
    parse_dates,
    to_local_times,
)
from ddpn.tables.levels import canonical_level, canonical_number
from ddpn.tables.numbers import (
    PLAIN,
    NumberFormat,
    describe_number_format,
    find_number_format,
    has_grouped_points,
    parse_numbers,
)

_Values = TypeVar("_Values")
#: Words that programs write for true and false, in lower case.
BOOLEAN_WORDS = ("true", "false")


@dataclass(frozen=True)
class TableColumn:
    """A column of a raw table, as it was in fit: its kind, and the format of its cells if they are text.

    Attributes
    ----------
    name : str
        The name of the column.
    kind : Kind
        Numbers, booleans, dates or a category.
    missing : int
        The number of missing cells.
    distinct : int
        The number of distinct values.
    parts : tuple of str
        The numbers that are derived from a date, such as "month". Empty for other kinds.
    left_out : str
        The reason why the model does not use the column; "" if it does.
    number : NumberFormat
        The format in which text is read as numbers.
    date : DateFormat
        The format in which text is read as dates.
    notes : tuple of str
        Sentences for the user about how cells were read.
    """

    name: str
    kind: Kind
    missing: int = 0
    distinct: int = 0
    parts: tuple[str, ...] = ()
    left_out: str = ""
    number: NumberFormat = field(default_factory=NumberFormat)
    date: DateFormat = field(default_factory=DateFormat)
    notes: tuple[str, ...] = ()

    @property
    def inputs(self) -> list[str]:
        """The names of the model inputs that are made from the column.

        It is the name of the column or, for a date, one name per part, such as "start month".
        """
        return [f"{self.name} {part}" for part in self.parts] if self.kind == Kind.DATE else [self.name]

    @classmethod
    def from_dict(cls, document: JsonObject) -> "TableColumn":
        """Rebuild a column from the result of `dataclasses.asdict`."""
        fields = {**document, **{name: tuple(document.get(name, ())) for name in ("parts", "notes")}}
        fields["kind"] = Kind(document["kind"])
        fields["number"] = NumberFormat(**document.get("number", {}))
        fields["date"] = DateFormat(**document.get("date", {}))
        return cls(**fields)

    def parse(self, series: pl.Series, missing: Sequence[str]) -> "ConvertedColumn[list[Column]]":
        """Convert this column of a new table to model inputs. A date becomes several inputs, such as the month.

        `missing` are the words for missing values.
        """
        if self.kind.is_category:
            return _parse_levels(self, series, missing)
        values, unreadable, notes = self.convert(series, missing)
        if self.kind == Kind.DATE:
            parts = zip(self.inputs, extract_date_parts(values, self.parts, self.inputs), strict=True)
            return ConvertedColumn(
                [Column(name, Kind.NUMBER, _to_floats(part)) for name, part in parts], unreadable, notes
            )
        return ConvertedColumn([Column(self.name, self.kind, _to_floats(values))], unreadable, notes)

    def convert(self, series: pl.Series, missing: Sequence[str]) -> "ConvertedColumn[pl.Series]":
        """Convert this column of a new table to a polars series of the kind it had in fit. Dates become datetimes.

        `missing` are the words for missing values.
        """
        name = f"column {self.name!r}"
        if self.kind == Kind.NUMBER:
            return to_numbers(series, self.number, missing, name)
        if self.kind == Kind.BOOLEAN:
            return to_booleans(series, missing, name)
        if self.kind == Kind.DATE:
            return to_times(series, self.date, missing, name)
        columns, unreadable, _ = _parse_levels(self, series, missing)
        return ConvertedColumn(columns[0].to_polars(), unreadable)


#: Words for true and false, in lower case.
TRUE, FALSE = ("true", "t", "yes", "y", "1", "1.0"), ("false", "f", "no", "n", "0", "0.0")


class ConvertedColumn(NamedTuple, Generic[_Values]):
    """A column that was converted to a kind.

    Attributes
    ----------
    values : polars.Series or list of Column
        The converted values, or the model inputs that were made from them.
    unreadable : polars.Series
        The text of the cells that could not be converted and became missing.
    notes : tuple of str
        Sentences for the user about assumptions, for example about decimal commas.
    """

    values: _Values
    unreadable: pl.Series
    notes: tuple[str, ...] = ()


def to_numbers(
    series: pl.Series, number_format: NumberFormat, missing: Sequence[str], name: str | Argument
) -> ConvertedColumn[pl.Series]:
    """Convert a column to float64, with null for missing and unreadable cells.

    Parameters
    ----------
    series : polars.Series
        The column: text, numbers or booleans.
    number_format : NumberFormat
        The format that the text of the column had in fit.
    missing : sequence of str
        The words for missing values.
    name : str or Argument
        What errors call the column.
    """
    notes: tuple[str, ...] = ()
    if is_text(series):
        text = clean_text(series, missing)
        lower = text.str.to_lowercase()
        if (words := lower.drop_nulls()).len() and words.is_in(BOOLEAN_WORDS).all():
            # A number that another program has written as a boolean.
            numbers = (lower == "true").cast(pl.Float64)
        else:
            present = text.filter(~looks_missing(text))
            if number_format.integers and number_format.decimal != "," and has_grouped_points(present):
                number_format = replace(number_format, decimal=",")
                notes = (f"Column {series.name}: points are read as thousands separators, as fit had integers only.",)
            elif not number_format.decimal:
                number_format = find_number_format(present) or PLAIN
                notes = describe_number_format(series.name, number_format)
            numbers = parse_numbers(text, number_format)
        unreadable = text.filter(numbers.is_null() & text.is_not_null())
    elif series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null):
        # By numpy: a table may have thousands of columns, and a call of polars takes as long as a thousand rows.
        numbers, unreadable = series.cast(pl.Float64), pl.Series([], dtype=pl.String)
        values = numbers.to_numpy()
        if not np.isfinite(values).all():
            infinite = np.isinf(values)
            unreadable = pl.Series(values[infinite]).cast(pl.String)
            numbers = pl.Series(np.where(infinite, np.nan, values), nan_to_null=True)
    else:
        raise InputError(argument=name, must="hold numbers", got=str(series.dtype))
    markers = parse_missing_numbers(tuple(missing))
    if markers and (marked := np.isin(numbers.to_numpy(), markers)).any():
        numbers = numbers.set(pl.Series(marked), None)
    return ConvertedColumn(numbers.alias(series.name), unreadable, notes)


def to_booleans(series: pl.Series, missing: Sequence[str], name: str | Argument) -> ConvertedColumn[pl.Series]:
    """Convert a column to booleans. 1, 0 and words such as "yes" are accepted; other cells become null.

    `missing` are the words for missing values. Errors call the column `name`.
    """
    if series.dtype == pl.Boolean:
        return ConvertedColumn(series, series.head(0).cast(pl.String))
    if series.dtype.is_numeric() or series.dtype == pl.Null:
        numbers, unreadable, _ = to_numbers(series, PLAIN, missing, name)
        is_boolean = numbers.is_in([0.0, 1.0]).fill_null(False)
        unreadable = pl.concat([unreadable, numbers.filter(~is_boolean & numbers.is_not_null()).cast(pl.String)])
        return ConvertedColumn(numbers.set(~is_boolean, None).cast(pl.Boolean), unreadable)
    if not is_text(series):
        raise InputError(argument=name, must="hold booleans", got=str(series.dtype))
    text = clean_text(series, missing)
    lower = text.str.to_lowercase()
    word = pl.when(lower.is_in(TRUE)).then(True).when(lower.is_in(FALSE)).then(False)
    flags = pl.select(word).to_series().alias(series.name)
    return ConvertedColumn(flags, text.filter(flags.is_null() & text.is_not_null()))


def to_times(
    series: pl.Series, date_format: DateFormat, missing: Sequence[str], name: str
) -> ConvertedColumn[pl.Series]:
    """Convert a column to datetimes without a time zone, with null for missing and unreadable cells.

    Parameters
    ----------
    series : polars.Series
        The column: text, dates or datetimes.
    date_format : DateFormat
        The format that the column had in fit.
    missing : sequence of str
        The words for missing values.
    name : str
        What errors call the column.
    """
    if is_text(series):
        text = clean_text(series, missing)
        notes: tuple[str, ...] = ()
        if date_format.order in ("", YEAR_FIRST):
            # If the year is not first, neither format says whether the day or the month comes first.
            guess = find_date_format(text.filter(~looks_missing(text))) or DateFormat(YEAR_FIRST)
            notes, date_format = describe_date_format(series.name, guess), replace(guess, zone=date_format.zone)
        times = parse_dates(text, date_format)
        return ConvertedColumn(times, text.filter(times.is_null() & text.is_not_null()), notes)
    if series.dtype in (pl.Date, pl.Datetime):
        return ConvertedColumn(to_local_times(series, date_format.zone), series.head(0).cast(pl.String))
    if series.null_count() == len(series):
        empty = pl.Series(series.name, [None] * len(series), dtype=pl.Datetime("us"))
        return ConvertedColumn(empty, series.head(0).cast(pl.String))
    raise InputError(f"{name} must hold dates such as 2024-12-31, got {series.dtype}.")


@cache
def name_missing_levels(missing: tuple[str, ...]) -> frozenset[str]:
    """Return the names of levels that stand for missing values: the words themselves, and their spelling as numbers.

    For example, "-9.0" gives both "-9.0" and "-9".
    """
    return frozenset(word.strip() for word in missing) | frozenset(map(canonical_number, missing))


def _to_floats(series: pl.Series) -> np.ndarray:
    """Convert numbers or booleans to a float64 array, with NaN for null."""
    return np.asarray(series.cast(pl.Float64).to_numpy(), dtype=np.float64)


def _parse_levels(column: TableColumn, series: pl.Series, missing: Sequence[str]) -> ConvertedColumn[list[Column]]:
    """Convert a column of a new table to a categorical input. `missing` are the words for missing values."""
    cells, names, unreadable = _name_levels(series, column.kind, missing, f"column {column.name!r}")
    index: dict[str, int] = {}
    codes = {level: -1 if name is None else index.setdefault(name, len(index)) for level, name in names.items()}
    if len(cells) <= MAX_ROWS_CELL_BY_CELL:  # calls of polars take longer than all the rest of a few rows
        values = np.array([codes.get(cell, -1) for cell in cells.to_list()])
    elif codes:
        replaced = cells.replace_strict([*codes], [*codes.values()], default=-1, return_dtype=pl.Int64)
        values = replaced.fill_null(-1).to_numpy()
    else:
        values = np.full(len(cells), -1)
    kind = Kind.NUMBER_CATEGORY if column.kind == Kind.NUMBER_CATEGORY else Kind.CATEGORY
    return ConvertedColumn([Column(column.name, kind, values, Levels(index))], unreadable)


def _name_levels(
    series: pl.Series, kind: Kind, missing: Sequence[str], label: str
) -> tuple[pl.Series, dict[object, str | None], pl.Series]:
    """Find the name of the level of each distinct cell of a categorical column.

    Errors call the column `label`.

    Returns
    -------
    cells : polars.Series
        The column, with cells in the form of the keys of `names`.
    names : dict
        The name of the level of each distinct cell; None if the cell is missing.
    unreadable : polars.Series
        The text of the cells that do not fit the kind.
    """
    unreadable = pl.Series([], dtype=pl.String)
    if not (is_text(series) or series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null)):
        if series.dtype not in (pl.Date, pl.Datetime, pl.Time):
            raise InputError(f"{label} must hold text, got {series.dtype}.")
        series = series.cast(pl.String)
    if kind == Kind.BOOLEAN_CATEGORY:
        flags, unreadable, _ = to_booleans(series, missing, label)
        return flags, {True: "true", False: "false"}, unreadable
    if series.dtype == pl.Float32:
        series, kind = series.cast(pl.String), Kind.NUMBER_CATEGORY
    text = series.cast(pl.String) if is_text(series) else series
    # Each level is read once, in Python: calls of polars take longer than all the rest of a few rows.
    levels = [level for level in text.unique(maintain_order=True).to_list() if level is not None]
    canonical = canonical_number if kind == Kind.NUMBER_CATEGORY else canonical_level
    named = {level: canonical(level) for level in levels}
    absent = name_missing_levels(tuple(missing))
    if kind == Kind.NUMBER_CATEGORY and is_text(series):
        # Among numbers, a word such as n/a is missing, as in columns of a numeric type.
        words = {name for name in named.values() if name.lower() in LOOKS_MISSING} - absent
        if words:
            is_unreadable = text.is_in([level for level, name in named.items() if name in words])
            unreadable = text.filter(is_unreadable).str.strip_chars()
            absent = absent | words
    names = {level: None if name in absent or name == "nan" else name for level, name in named.items()}
    return text, names, unreadable
