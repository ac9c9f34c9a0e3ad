"""Detect what a column of a raw table holds, from its type and its cells."""

import polars as pl

from ddpn.runtime.errors import format_argument
from ddpn.tables.cells import MISSING, clean_text, format_examples, is_text, looks_missing
from ddpn.tables.columns import Kind
from ddpn.tables.conversion import BOOLEAN_WORDS, TableColumn
from ddpn.tables.dates import DateFormat, describe_date_format, find_date_format, parse_dates
from ddpn.tables.numbers import (
    OPEN_ENDED,
    NumberFormat,
    are_codes,
    describe_number_format,
    find_number_format,
    parse_numbers,
)

#: Text is read as numbers or dates if at least the first share of its present cells can be parsed. Above the second
#: share, a message explains why the column stays text.
_MIN_PARSED_SHARE, _MIN_SHARE_TO_MENTION = 0.9, 0.5
#: In a column of few distinct cells, unreadable cells may be levels, so they must be rarer than this share.
_MAX_LEVELS_FOR_DOUBT, _MAX_UNREAD_SHARE = 50, 0.01


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
        if len(cells) and cells.str.to_lowercase().is_in(BOOLEAN_WORDS).all():
            return TableColumn(series.name, Kind.BOOLEAN_CATEGORY)
        return _classify_category(cells)
    if dtype == pl.Boolean:
        return TableColumn(series.name, Kind.BOOLEAN_CATEGORY if as_category else Kind.BOOLEAN)
    if dtype.is_numeric():
        return TableColumn(series.name, Kind.NUMBER_CATEGORY if as_category else Kind.NUMBER)
    return TableColumn(series.name, Kind.UNSUPPORTED)


def detect_dates(series: pl.Series) -> TableColumn | None:
    """Return the format of the dates in a column; None if it does not hold dates."""
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
    """Describe a category. If its levels are numbers, 1.0 and 1 are the same level, unless leading zeros matter."""
    numbers = cells.filter(cells.cast(pl.Float64, strict=False).is_not_null())
    is_number = len(numbers) and not are_codes(cells)
    return TableColumn(cells.name, Kind.NUMBER_CATEGORY if is_number else Kind.CATEGORY, notes=notes)


def _detect_text_kind(text: pl.Series, cells: pl.Series) -> TableColumn:
    """Detect the kind of a text column; `cells` are its present (not missing) cells."""
    if cells.is_empty() or are_codes(cells):
        return TableColumn(cells.name, Kind.CATEGORY)
    if cells[0].lower() in BOOLEAN_WORDS and cells.str.to_lowercase().is_in(BOOLEAN_WORDS).all():
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
    """Describe the unreadable cells, if any; `is_read` is a mask of the readable ones among `cells`."""
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
