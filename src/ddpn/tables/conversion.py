"""Convert a column of a later table to the kind it had in fit. Unreadable cells become missing and are counted."""

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
    """A column of a raw table: its kind, how its cells are read, and notes for the user.

    `parts` names the numbers derived from a date. `left_out` is the reason why a column is not used, if any. `number`
    and `date` are the formats in which text is read, and `notes` are sentences about how cells were read.
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
        """The names of the model inputs made from the column."""
        return [f"{self.name} {part}" for part in self.parts] if self.kind == Kind.DATE else [self.name]

    @classmethod
    def from_dict(cls, plain: JsonObject) -> "TableColumn":
        """Rebuild a column from the result of `asdict`."""
        read = {**plain, **{name: tuple(plain.get(name, ())) for name in ("parts", "notes")}}
        read["kind"] = Kind(plain["kind"])
        read["number"] = NumberFormat(**plain.get("number", {}))
        read["date"] = DateFormat(**plain.get("date", {}))
        return cls(**read)

    def parse(self, series: pl.Series, missing: Sequence[str]) -> "ConvertedColumn[list[Column]]":
        """Convert a column of a later table to model inputs; a date becomes its parts."""
        if self.kind.is_category:
            return _parse_levels(self, series, missing)
        values, odd, notes = self.convert(series, missing)
        if self.kind == Kind.DATE:
            parts = zip(self.inputs, extract_date_parts(values, self.parts, self.inputs), strict=True)
            return ConvertedColumn([Column(name, Kind.NUMBER, _to_floats(part)) for name, part in parts], odd, notes)
        return ConvertedColumn([Column(self.name, self.kind, _to_floats(values))], odd, notes)

    def convert(self, series: pl.Series, missing: Sequence[str]) -> "ConvertedColumn[pl.Series]":
        """Convert a column of a later table to this kind; a date becomes datetimes, not its parts."""
        what = f"column {self.name!r}"
        if self.kind == Kind.NUMBER:
            return to_numbers(series, self.number, missing, what)
        if self.kind == Kind.BOOLEAN:
            return to_booleans(series, missing, what)
        if self.kind == Kind.DATE:
            return to_times(series, self.date, missing, what)
        columns, odd, _ = _parse_levels(self, series, missing)
        return ConvertedColumn(columns[0].to_polars(), odd)


#: Words for true and false, in lower case.
TRUE, FALSE = ("true", "t", "yes", "y", "1", "1.0"), ("false", "f", "no", "n", "0", "0.0")


class ConvertedColumn(NamedTuple, Generic[_Values]):
    """A column converted to one kind, its unreadable cells (`odd`), and sentences about assumptions.

    `values` is a polars series, or the model inputs.
    """

    values: _Values
    odd: pl.Series
    notes: tuple[str, ...] = ()


def to_numbers(
    series: pl.Series, written: NumberFormat, missing: Sequence[str], what: str | Argument
) -> ConvertedColumn[pl.Series]:
    """Convert a column to float64, null where missing; `what` names it in errors."""
    notes: tuple[str, ...] = ()
    if is_text(series):
        text = clean_text(series, missing)
        lower = text.str.to_lowercase()
        if (words := lower.drop_nulls()).len() and words.is_in(BOOLEAN_WORDS).all():
            # A number that another program has written as a boolean.
            numbers = (lower == "true").cast(pl.Float64)
        else:
            present = text.filter(~looks_missing(text))
            if written.integers and written.decimal != "," and has_grouped_points(present):
                written = replace(written, decimal=",")
                notes = (f"Column {series.name}: points are read as thousands separators, as fit had integers only.",)
            elif not written.decimal:
                written = find_number_format(present) or PLAIN
                notes = describe_number_format(series.name, written)
            numbers = parse_numbers(text, written)
        odd = text.filter(numbers.is_null() & text.is_not_null())
    elif series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null):
        # By numpy: a table may have thousands of columns, and a call of polars takes as long as a thousand rows.
        numbers, odd = series.cast(pl.Float64), pl.Series([], dtype=pl.String)
        values = numbers.to_numpy()
        if not np.isfinite(values).all():
            infinite = np.isinf(values)
            odd = pl.Series(values[infinite]).cast(pl.String)
            numbers = pl.Series(np.where(infinite, np.nan, values), nan_to_null=True)
    else:
        raise InputError(argument=what, must="hold numbers", got=str(series.dtype))
    markers = parse_missing_numbers(tuple(missing))
    if markers and (marked := np.isin(numbers.to_numpy(), markers)).any():
        numbers = numbers.set(pl.Series(marked), None)
    return ConvertedColumn(numbers.alias(series.name), odd, notes)


def to_booleans(series: pl.Series, missing: Sequence[str], what: str | Argument) -> ConvertedColumn[pl.Series]:
    """Convert a column to booleans; 1 and 0 and words such as "yes" are accepted."""
    if series.dtype == pl.Boolean:
        return ConvertedColumn(series, series.head(0).cast(pl.String))
    if series.dtype.is_numeric() or series.dtype == pl.Null:
        numbers, odd, _ = to_numbers(series, PLAIN, missing, what)
        is_boolean = numbers.is_in([0.0, 1.0]).fill_null(False)
        odd = pl.concat([odd, numbers.filter(~is_boolean & numbers.is_not_null()).cast(pl.String)])
        return ConvertedColumn(numbers.set(~is_boolean, None).cast(pl.Boolean), odd)
    if not is_text(series):
        raise InputError(argument=what, must="hold booleans", got=str(series.dtype))
    text = clean_text(series, missing)
    lower = text.str.to_lowercase()
    word = pl.when(lower.is_in(TRUE)).then(True).when(lower.is_in(FALSE)).then(False)
    flags = pl.select(word).to_series().alias(series.name)
    return ConvertedColumn(flags, text.filter(flags.is_null() & text.is_not_null()))


def to_times(series: pl.Series, written: DateFormat, missing: Sequence[str], what: str) -> ConvertedColumn[pl.Series]:
    """Convert a column to datetimes without a zone."""
    if is_text(series):
        text = clean_text(series, missing)
        notes: tuple[str, ...] = ()
        if written.order in ("", YEAR_FIRST):
            # If the year is not first, neither format says whether the day or the month comes first.
            guess = find_date_format(text.filter(~looks_missing(text))) or DateFormat(YEAR_FIRST)
            notes, written = describe_date_format(series.name, guess), replace(guess, zone=written.zone)
        times = parse_dates(text, written)
        return ConvertedColumn(times, text.filter(times.is_null() & text.is_not_null()), notes)
    if series.dtype in (pl.Date, pl.Datetime):
        return ConvertedColumn(to_local_times(series, written.zone), series.head(0).cast(pl.String))
    if series.null_count() == len(series):
        empty = pl.Series(series.name, [None] * len(series), dtype=pl.Datetime("us"))
        return ConvertedColumn(empty, series.head(0).cast(pl.String))
    raise InputError(f"{what} must hold dates such as 2024-12-31, got {series.dtype}.")


@cache
def name_missing_levels(missing: tuple[str, ...]) -> frozenset[str]:
    """Return the level names of the words for "no value"."""
    return frozenset(word.strip() for word in missing) | frozenset(map(canonical_number, missing))


def _to_floats(series: pl.Series) -> np.ndarray:
    """Convert numbers or booleans to float64, with NaN for null."""
    return np.asarray(series.cast(pl.Float64).to_numpy(), dtype=np.float64)


def _parse_levels(column: TableColumn, series: pl.Series, missing: Sequence[str]) -> ConvertedColumn[list[Column]]:
    cells, names, odd = _name_levels(series, column.kind, missing, f"column {column.name!r}")
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
    return ConvertedColumn([Column(column.name, kind, values, Levels(index))], odd)


def _name_levels(
    series: pl.Series, kind: Kind, missing: Sequence[str], what: str
) -> tuple[pl.Series, dict[object, str | None], pl.Series]:
    """Return the cells of a category, the level (or None) of each distinct cell, and the unreadable cells."""
    none = pl.Series([], dtype=pl.String)
    if not (is_text(series) or series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null)):
        if series.dtype not in (pl.Date, pl.Datetime, pl.Time):
            raise InputError(f"{what} must hold text, got {series.dtype}.")
        series = series.cast(pl.String)
    if kind == Kind.BOOLEAN_CATEGORY:
        flags, odd, _ = to_booleans(series, missing, what)
        return flags, {True: "true", False: "false"}, odd
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
            none = text.filter(text.is_in([level for level, name in named.items() if name in words])).str.strip_chars()
            absent = absent | words
    names = {level: None if name in absent or name == "nan" else name for level, name in named.items()}
    return text, names, none
