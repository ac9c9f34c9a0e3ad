"""Detect the kind of a column of a raw table (numbers, booleans, dates or categories) from its type and its cells."""

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
    """Detect the kind of a column and, for text, the format in which its numbers or dates are written.

    Parameters
    ----------
    series : polars.Series
        The column.
    missing : tuple of str
        The words for missing values.
    as_category : bool
        Whether columns of numbers and booleans become categories.
    """
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
    """Return a description of a column of dates or of text that spells dates; return None for any other column."""
    dtype = series.dtype
    if dtype in (pl.Date, pl.Datetime):
        return detect_column(series, MISSING, as_category=False)
    text = clean_text(series, MISSING)
    cells = text.filter(~looks_missing(text))
    date_format = None if cells.is_empty() else find_date_format(cells)
    if date_format is None or parse_dates(cells, date_format).is_not_null().sum() < _MIN_PARSED_SHARE * len(cells):
        return None
    return TableColumn(series.name, Kind.DATE, date=date_format, notes=describe_date_format(series.name, date_format))


def _classify_category(cells: pl.Series, notes: tuple[str, ...] = ()) -> TableColumn:
    """Describe a categorical text column. Its kind is `NUMBER_CATEGORY` if some cells spell numbers.

    In a `NUMBER_CATEGORY`, 1.0 and 1 are the same level. Codes such as zip codes, in which leading zeros matter, become
    a `CATEGORY` instead. `cells` are the cells that are not missing, and `notes` are copied to the result.
    """
    numbers = cells.filter(cells.cast(pl.Float64, strict=False).is_not_null())
    is_number = len(numbers) and not are_codes(cells)
    return TableColumn(cells.name, Kind.NUMBER_CATEGORY if is_number else Kind.CATEGORY, notes=notes)


def _detect_text_kind(text: pl.Series, cells: pl.Series) -> TableColumn:
    """Detect the kind of a text column.

    `text` has all cells of the column, after `clean_text`. `cells` has only those that do not look missing.
    """
    if cells.is_empty() or are_codes(cells):
        return TableColumn(cells.name, Kind.CATEGORY)
    if cells[0].lower() in BOOLEAN_WORDS and cells.str.to_lowercase().is_in(BOOLEAN_WORDS).all():
        return TableColumn(
            cells.name, Kind.BOOLEAN, notes=_describe_unread_cells(text, cells, cells.is_not_null(), "booleans")
        )
    number_format, date_format, none = find_number_format(cells), find_date_format(cells), cells.is_null()
    numbers = none if number_format is None else parse_numbers(cells, number_format).is_not_null()
    share = numbers.sum() / len(cells)
    is_number = share >= 1.0 - _MAX_UNREAD_SHARE or (
        share >= _MIN_PARSED_SHARE and cells.n_unique() > _MAX_LEVELS_FOR_DOUBT
    )
    if number_format is not None and is_number:
        notes = _describe_unread_cells(text, cells, numbers, "numbers")
        return TableColumn(
            cells.name,
            Kind.NUMBER,
            number=number_format,
            notes=(*notes, *_describe_number_text(text, cells, number_format)),
        )
    dates = none if date_format is None else parse_dates(cells, date_format).is_not_null()
    if date_format is not None and dates.sum() >= _MIN_PARSED_SHARE * len(cells):
        notes = _describe_unread_cells(text, cells, dates, "dates")
        return TableColumn(
            cells.name, Kind.DATE, date=date_format, notes=(*notes, *describe_date_format(text.name, date_format))
        )
    for kind_words, is_readable in (("dates", dates), ("numbers", numbers)):
        if is_readable.sum() >= _MIN_SHARE_TO_MENTION * len(cells):
            mixed = (
                f"Column {text.name}: {is_readable.sum():,} of {len(text) - text.null_count():,} values are "
                f"{kind_words}, but the others ({format_examples(cells.filter(~is_readable))}) are too many to be "
                f"treated as missing, so the column is categorical. If they mean that a value is missing, name them "
                f"with `missing`."
            )
            return _classify_category(cells, (mixed,))
    return _classify_category(cells)


def _describe_unread_cells(
    text: pl.Series, cells: pl.Series, is_readable: pl.Series, kind_words: str
) -> tuple[str, ...]:
    """Describe in a sentence which cells of a text column cannot be converted.

    Return a tuple of this sentence, or an empty tuple if all cells can be converted.

    `text` has all cells of the column. `cells` has only those that do not look missing, and the mask `is_readable` says
    which of these can be converted to values that are called `kind_words`, such as "numbers".
    """
    present, count = text.drop_nulls(), int(is_readable.sum())
    lost = len(present) - count
    if not lost:
        return ()
    words = present.filter(looks_missing(present))
    examples = format_examples(pl.concat([words, cells.filter(~is_readable)]))
    verb = "is" if lost == 1 else "are"
    statement = (
        f"{count:,} of {len(present):,} values are {kind_words}; {lost:,} ({examples}) {verb} treated as missing."
    )
    return (f"Column {text.name}: {statement}",)


def _describe_number_text(text: pl.Series, cells: pl.Series, number_format: NumberFormat) -> tuple[str, ...]:
    """Describe in sentences how the text of a column is read as numbers, as far as the user should know it.

    `text` has all cells of the column, and `cells` has only those that do not look missing.
    """
    notes = describe_number_format(text.name, number_format)
    open_ended = cells.filter(cells.str.contains(OPEN_ENDED))
    if len(open_ended):
        notes = (
            *notes,
            f"Column {text.name}: values such as {open_ended[0]!r} are read as {open_ended[0].rstrip(' +')}.",
        )
    is_plain = not notes and len(cells) == len(text) - text.null_count()
    if is_plain and not cells.cast(pl.Float64, strict=False).null_count():
        option = format_argument("category", [text.name])
        return (f"Column {text.name}: its text is read as numbers; {option} keeps it categorical.",)
    return notes
