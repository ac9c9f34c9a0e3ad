"""Detect what a column holds from its type and cells, and read the same column of later tables as that kind."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

import numpy as np
import polars as pl

from ddpn.runtime.errors import Argument, InputError, format_argument
from ddpn.storage.contents import JsonObject
from ddpn.tables.cells import (
    LOOKS_MISSING,
    MISSING,
    clean_text,
    format_examples,
    is_text,
    looks_missing,
    parse_missing_numbers,
)
from ddpn.tables.columns import Column, Kind, Levels
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
    OPEN_ENDED,
    PLAIN,
    NumberFormat,
    are_codes,
    describe_number_format,
    find_number_format,
    has_grouped_points,
    parse_numbers,
)

#: Text is read as numbers or dates if at least this share of its present cells can be; above the lower share, a
#: sentence says why it is not.
_MIN_PARSED_SHARE, _MIN_SHARE_TO_MENTION = 0.9, 0.5
#: Rows up to which cells are read one by one.
_MAX_ROWS_CELL_BY_CELL = 8
#: With at most this many distinct cells, unreadable ones must be rarer than this: they may well be levels.
_MAX_LEVELS_FOR_DOUBT, _MAX_UNREAD_SHARE = 50, 0.01
_BOOLEAN_WORDS = ("true", "false")


@dataclass(frozen=True)
class TableColumn:
    """A column of a raw table: its kind, how its cells are read, and notes for the user.

    A date has `parts`. `left_out` says why a column is not used. `number` and `date` are the formats of text, and
    `notes` are sentences about how cells were read.
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
        """The names of the columns that the model sees."""
        return [f"{self.name} {part}" for part in self.parts] if self.kind == Kind.DATE else [self.name]

    @classmethod
    def from_dict(cls, plain: JsonObject) -> "TableColumn":
        """Rebuild a column from the result of `asdict`."""
        read = {**plain, **{name: tuple(plain.get(name, ())) for name in ("parts", "notes")}}
        read["kind"] = Kind(plain["kind"])
        read["number"] = NumberFormat(**plain.get("number", {}))
        read["date"] = DateFormat(**plain.get("date", {}))
        return cls(**read)

    def parse(self, series: pl.Series, missing: Sequence[str]) -> "ParsedColumn":
        """Parse a column of a later table into the columns that the model sees; a date becomes its parts."""
        if self.kind.is_category:
            return _parse_levels(self, series, missing)
        values, odd, notes = self.convert(series, missing)
        if self.kind == Kind.DATE:
            parts = zip(self.inputs, extract_date_parts(values, self.parts, self.inputs), strict=True)
            return ParsedColumn([Column(name, Kind.NUMBER, _to_floats(part)) for name, part in parts], odd, notes)
        return ParsedColumn([Column(self.name, self.kind, _to_floats(values))], odd, notes)

    def convert(self, series: pl.Series, missing: Sequence[str]) -> "ConvertedColumn":
        """Convert a column of a later table to this kind; a date becomes datetimes, not its parts."""
        what = f"column {self.name!r}"
        if self.kind == Kind.NUMBER:
            return to_numbers(series, self.number, missing, what)
        if self.kind == Kind.BOOLEAN:
            return to_booleans(series, missing, what)
        if self.kind == Kind.DATE:
            return to_times(series, self.date, missing, what)
        return to_levels(series, self.kind, missing, what)


def detect_column(series: pl.Series, missing: tuple[str, ...], as_category: bool) -> TableColumn:
    """Detect the kind of a column; with `as_category`, numbers become categories."""
    dtype = series.dtype
    if dtype in (pl.Date, pl.Datetime):
        zone = getattr(dtype, "time_zone", None)
        return TableColumn(series.name, Kind.DATE, date=DateFormat(zone=zone or ""))
    if is_text(series):
        text = clean_text(series, missing)
        cells = text.filter(~looks_missing(text))
        if not as_category:
            return _detect_text_kind(text, cells)
        if len(cells) and cells.str.to_lowercase().is_in(_BOOLEAN_WORDS).all():
            return TableColumn(series.name, Kind.BOOLEAN_CATEGORY)
        return _classify_category(cells)
    if dtype == pl.Boolean:
        return TableColumn(series.name, Kind.BOOLEAN_CATEGORY if as_category else Kind.BOOLEAN)
    if dtype.is_numeric():
        return TableColumn(series.name, Kind.NUMBER_CATEGORY if as_category else Kind.NUMBER)
    return TableColumn(series.name, Kind.UNSUPPORTED)


def detect_dates(series: pl.Series) -> TableColumn | None:
    """Return how the dates of a column are written; None if it does not hold dates."""
    dtype = series.dtype
    if dtype in (pl.Date, pl.Datetime):
        return detect_column(series, MISSING, as_category=False)
    text = clean_text(series, MISSING)
    cells = text.filter(~looks_missing(text))
    order = None if cells.is_empty() else find_date_format(cells)
    if order is None or parse_dates(cells, order).is_not_null().sum() < _MIN_PARSED_SHARE * len(cells):
        return None
    return TableColumn(series.name, Kind.DATE, date=order, notes=describe_date_format(series.name, order))


def _classify_category(cells: pl.Series, notes: tuple[str, ...] = ()) -> TableColumn:
    """Describe a category by its levels: one with numbers has 1.0 equal to 1, unless leading zeros matter."""
    numbers = cells.filter(cells.cast(pl.Float64, strict=False).is_not_null())
    is_number = len(numbers) and not are_codes(cells)
    return TableColumn(cells.name, Kind.NUMBER_CATEGORY if is_number else Kind.CATEGORY, notes=notes)


def _detect_text_kind(text: pl.Series, cells: pl.Series) -> TableColumn:
    """Detect the kind of text; `cells` are those that do not stand for a missing value."""
    if cells.is_empty() or are_codes(cells):
        return TableColumn(cells.name, Kind.CATEGORY)
    if cells[0].lower() in _BOOLEAN_WORDS and cells.str.to_lowercase().is_in(_BOOLEAN_WORDS).all():
        return TableColumn(
            cells.name, Kind.BOOLEAN, notes=_describe_unread_cells(text, cells, cells.is_not_null(), "booleans")
        )
    written, order, none = find_number_format(cells), find_date_format(cells), cells.is_null()
    numbers = none if written is None else parse_numbers(cells, written).is_not_null()
    share = numbers.sum() / len(cells)
    is_number = share >= 1.0 - _MAX_UNREAD_SHARE or (
        share >= _MIN_PARSED_SHARE and cells.n_unique() > _MAX_LEVELS_FOR_DOUBT
    )
    if written is not None and is_number:
        notes = _describe_unread_cells(text, cells, numbers, "numbers")
        return TableColumn(
            cells.name, Kind.NUMBER, number=written, notes=(*notes, *_describe_number_text(text, cells, written))
        )
    dates = none if order is None else parse_dates(cells, order).is_not_null()
    if order is not None and dates.sum() >= _MIN_PARSED_SHARE * len(cells):
        notes = _describe_unread_cells(text, cells, dates, "dates")
        return TableColumn(cells.name, Kind.DATE, date=order, notes=(*notes, *describe_date_format(text.name, order)))
    for what, read in (("dates", dates), ("numbers", numbers)):
        if read.sum() >= _MIN_SHARE_TO_MENTION * len(cells):
            mixed = (
                f"Column {text.name}: {read.sum():,} of {len(text) - text.null_count():,} values are {what}, but the "
                f"others ({format_examples(cells.filter(~read))}) are too many to be treated as missing, so the column "
                f"is categorical. If they mean that a value is missing, name them with `missing`."
            )
            return _classify_category(cells, (mixed,))
    return _classify_category(cells)


def _describe_unread_cells(text: pl.Series, cells: pl.Series, is_read: pl.Series, what: str) -> tuple[str, ...]:
    """Describe the cells that cannot be read, if there are any; `is_read` is a mask of `cells`."""
    present, count = text.drop_nulls(), int(is_read.sum())
    lost = len(present) - count
    if not lost:
        return ()
    words = present.filter(looks_missing(present))
    odd = format_examples(pl.concat([words, cells.filter(~is_read)]))
    verb = "is" if lost == 1 else "are"
    statement = f"{count:,} of {len(present):,} values are {what}; {lost:,} ({odd}) {verb} treated as missing."
    return (f"Column {text.name}: {statement}",)


def _describe_number_text(text: pl.Series, cells: pl.Series, written: NumberFormat) -> tuple[str, ...]:
    notes = describe_number_format(text.name, written)
    more = cells.filter(cells.str.contains(OPEN_ENDED))
    if len(more):
        notes = (*notes, f"Column {text.name}: values such as {more[0]!r} are read as {more[0].rstrip(' +')}.")
    is_plain = not notes and len(cells) == len(text) - text.null_count()
    if is_plain and not cells.cast(pl.Float64, strict=False).null_count():
        option = format_argument("category", [text.name])
        return (f"Column {text.name}: its text is read as numbers; {option} keeps it categorical.",)
    return notes


# Columns of later tables: cells that cannot be read become missing and are counted ------------------------------------

#: Words for true and false, in lower case.
TRUE, FALSE = ("true", "t", "yes", "y", "1", "1.0"), ("false", "f", "no", "n", "0", "0.0")


class ConvertedColumn(NamedTuple):
    """Values of one kind, the cells that could not be read (`odd`), and sentences about assumptions."""

    values: pl.Series
    odd: pl.Series
    notes: tuple[str, ...] = ()


def to_numbers(
    series: pl.Series, written: NumberFormat, missing: Sequence[str], what: str | Argument
) -> ConvertedColumn:
    """Convert a column to float64, null where missing; `what` names it in errors."""
    notes: tuple[str, ...] = ()
    if is_text(series):
        text = clean_text(series, missing)
        lower = text.str.to_lowercase()
        if (words := lower.drop_nulls()).len() and words.is_in(_BOOLEAN_WORDS).all():
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


def to_booleans(series: pl.Series, missing: Sequence[str], what: str | Argument) -> ConvertedColumn:
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


def to_times(series: pl.Series, written: DateFormat, missing: Sequence[str], what: str) -> ConvertedColumn:
    """Convert a column to datetimes without a zone."""
    if is_text(series):
        text = clean_text(series, missing)
        notes: tuple[str, ...] = ()
        if written.order in ("", YEAR_FIRST):
            # Neither says whether the day or the month comes first where the year does not.
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


class ParsedColumn(NamedTuple):
    """The columns that the model sees, the cells that could not be read (`odd`), and sentences about assumptions."""

    columns: list[Column]
    odd: pl.Series
    notes: tuple[str, ...] = ()


def _to_floats(series: pl.Series) -> np.ndarray:
    """Convert numbers or booleans to float64, with NaN for null."""
    return np.asarray(series.cast(pl.Float64).to_numpy(), dtype=np.float64)


class NamedLevels(NamedTuple):
    """The raw cells of a category, the level name of each distinct cell (None if missing), and unreadable cells."""

    cells: pl.Series
    names: dict[object, str | None]
    odd: pl.Series


def to_levels(series: pl.Series, kind: Kind, missing: Sequence[str], what: str) -> ConvertedColumn:
    """Convert a column to level names, the same for every file type and data frame (see `ddpn.tables.levels`)."""
    cells, names, odd = _name_levels(series, kind, missing, what)
    if all(level == name for level, name in names.items()):
        return ConvertedColumn(cells.cast(pl.String), odd)
    replaced = cells.replace_strict([*names], [*names.values()], default=None, return_dtype=pl.String)
    return ConvertedColumn(replaced, odd)


def _parse_levels(column: TableColumn, series: pl.Series, missing: Sequence[str]) -> ParsedColumn:
    cells, names, odd = _name_levels(series, column.kind, missing, f"column {column.name!r}")
    index: dict[str, int] = {}
    codes = {level: -1 if name is None else index.setdefault(name, len(index)) for level, name in names.items()}
    if len(cells) <= _MAX_ROWS_CELL_BY_CELL:  # calls of polars take longer than all the rest of a few rows
        values = np.array([codes.get(cell, -1) for cell in cells.to_list()])
    elif codes:
        replaced = cells.replace_strict([*codes], [*codes.values()], default=-1, return_dtype=pl.Int64)
        values = replaced.fill_null(-1).to_numpy()
    else:
        values = np.full(len(cells), -1)
    kind = Kind.NUMBER_CATEGORY if column.kind == Kind.NUMBER_CATEGORY else Kind.CATEGORY
    return ParsedColumn([Column(column.name, kind, values, Levels(index))], odd)


def _name_levels(series: pl.Series, kind: Kind, missing: Sequence[str], what: str) -> NamedLevels:
    none = pl.Series([], dtype=pl.String)
    if not (is_text(series) or series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null)):
        if series.dtype not in (pl.Date, pl.Datetime, pl.Time):
            raise InputError(f"{what} must hold text, got {series.dtype}.")
        series = series.cast(pl.String)
    if kind == Kind.BOOLEAN_CATEGORY:
        flags, odd, _ = to_booleans(series, missing, what)
        return NamedLevels(flags, {True: "true", False: "false"}, odd)
    if series.dtype == pl.Float32:
        series, kind = series.cast(pl.String), Kind.NUMBER_CATEGORY
    text = series.cast(pl.String) if is_text(series) else series
    # Each level is read once, in Python: calls of polars take longer than all the rest of a few rows.
    levels = [level for level in text.unique(maintain_order=True).to_list() if level is not None]
    canonical = canonical_number if kind == Kind.NUMBER_CATEGORY else canonical_level
    named = {level: canonical(level) for level in levels}
    absent = name_missing_levels(tuple(missing))
    if kind == Kind.NUMBER_CATEGORY and is_text(series):
        # Among numbers a word such as n/a is missing, as it is where the column has a type.
        words = {name for name in named.values() if name.lower() in LOOKS_MISSING} - absent
        if words:
            none = text.filter(text.is_in([level for level, name in named.items() if name in words])).str.strip_chars()
            absent = absent | words
    names = {level: None if name in absent or name == "nan" else name for level, name in named.items()}
    return NamedLevels(text, names, none)
