"""Cells of text: which are missing, and which are numbers or dates, in the many ways that these are written."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

#: Words for "no value" in any column; the option `missing` adds to them. An empty cell is always missing.
MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None", "?")
#: Further words for "no value" in columns of numbers or dates, in lower case. In a text column they may be levels.
LOOKS_MISSING = (
    "-", "--", "---", ".", "..", "*", "n/a", "na", "n.a.", "n.a", "#n/a", "nan", "null", "nil", "none", "missing",
    "unknown", "not available", "no data", "undefined", "#value!", "#ref!", "#div/0!", "#num!", "#name?", "#null!",
    "nat", "<na>",
)  # fmt: skip
#: The most examples of cells in a sentence.
_MAX_EXAMPLES = 3


@cache
def import_polars() -> Any:
    """Import polars on first use: help texts and wrong options need no table."""
    return import_module("polars")


def is_text(series: "pl.Series") -> bool:
    """Return True if the column holds text of any type."""
    library = import_polars()
    return series.dtype in (library.String, library.Categorical, library.Enum)


def clean_text(series: "pl.Series", missing: Sequence[str]) -> "pl.Series":
    """Strip blanks around text, and set cells that are one of `missing` to null."""
    text = series.cast(import_polars().String).str.strip_chars()
    # A null in a membership test is null, which the mask below must not be.
    is_missing = text.is_in([word.strip() for word in missing]).fill_null(True)
    return text.set(is_missing, None) if is_missing.any() else text


def looks_missing(text: "pl.Series") -> "pl.Series":
    """Return a mask of cleaned cells that are null or a word for "no value"."""
    return text.str.to_lowercase().is_in(LOOKS_MISSING).fill_null(True)


def read_distinct_cells(text: "pl.Series", read: Callable[["pl.Series"], "pl.Series"]) -> "pl.Series":
    """Apply `read` to the distinct cells only, because values repeat, and return the result of every cell."""
    library = import_polars()
    cells = library.DataFrame({"text": text})
    unique = cells["text"].unique()
    values = library.DataFrame({"text": unique, "value": read(unique)})
    joined = cells.join(values, on="text", how="left", nulls_equal=True, maintain_order="left")
    return joined["value"].alias(text.name)


@cache
def parse_missing_numbers(missing: tuple[str, ...]) -> list[float]:
    """Return the numbers among the words for "no value", such as -999."""
    numbers = []
    for word in missing:
        try:
            numbers.append(float(word))
        except ValueError:
            continue
    return [value for value in numbers if value == value]


def format_examples(cells: "pl.Series") -> str:
    """List a few distinct cells for a sentence, as they are written.

    >>> import polars
    >>> format_examples(polars.Series(["n/a", "x", "n/a"]))
    "'n/a', 'x'"
    """
    distinct = cells.drop_nulls().unique(maintain_order=True).to_list()
    words = (str(value) for value in distinct[:_MAX_EXAMPLES])
    shown = ", ".join(repr(word if len(word) <= 30 else f"{word[:27]}...") for word in words)
    return shown if len(distinct) <= _MAX_EXAMPLES else f"{shown} and {len(distinct) - _MAX_EXAMPLES:,} more"


# Numbers: thousands separators, decimal commas, currencies, units, brackets, "5+" for 5 or more -----------------------

_CURRENCY = r"(?:US\$|[$€£¥₹₩₪₽฿]|EUR|USD|GBP|CHF|JPY)"
#: What may follow a number. Letters in front of a number make a name: p12.
_UNIT = rf"(?:%|‰|{_CURRENCY}|[A-Za-zµμ°][A-Za-zµμ°²³/]{{0,9}})"
#: Digits with their separators, if the decimal sign is a point and if it is a comma.
_DIGITS = {
    ".": r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}|[0-9]{1,3}(?: [0-9]{3})+|"
    r"[0-9]{1,3}(?:'[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)",
    ",": r"(?:(?:[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]{1,3}(?: [0-9]{3})+|[0-9]{1,3}(?:'[0-9]{3})+|[0-9]+)(?:,[0-9]*)?|"
    r",[0-9]+)",
}
_EXPONENT = r"(?:[eE][+-]?[0-9]{1,3})?"
#: The plus of "5+": that many or more.
OPEN_ENDED = r"([0-9])\s*\+$"
_NEGATIVE = r"^\(|-$|^[^0-9.,]*-"
_CORE = rf"([0-9.,](?:[0-9., ']*[0-9.,])?{_EXPONENT})"
_BLANKS = r"[\u{00A0}\u{2009}\u{202F}\u{2212}]"
#: Cells that a number format is guessed from, and the least share of them that must look like numbers, or dates.
_NUMBERS_SAMPLED, _MIN_PARSED_SHARE = 2000, 0.4
#: The share of leading zeros above which digits are codes such as zip codes, whatever their lengths.
_MIN_LEADING_ZERO_SHARE = 0.05


@dataclass(frozen=True)
class NumberFormat:
    """The format in which the numbers of a column are written: the decimal sign, and a unit.

    `decimal` is "" if the column was not text in fit; the format of later text is then guessed again. `ambiguous` is a
    cell such as "1,234" if no cell shows whether its comma is a decimal sign. `integers` is True if all values in fit
    were integers: the points of a later 31.287 are then thousands separators.
    """

    decimal: str = ""
    unit: str = ""
    ambiguous: str = ""
    integers: bool = False


#: The format that programs write.
PLAIN = NumberFormat(".")


def _build_number_pattern(decimal: str, unit: str) -> str:
    """Build the regular expression of a whole cell: signed, in brackets, or with a minus at its end."""
    before, after = (rf"(?:{unit}\s*)?", rf"(?:\s*{unit})?") if unit else ("", "")
    number = _DIGITS[decimal] + _EXPONENT
    return (
        rf"^(?:(?:[+-]\s*{before}|{before}[+-]?){number}{after}|"
        rf"\(\s*{before}{number}{after}\s*\)|{before}{number}{after}\s*-)$"
    )


def parse_numbers(text: "pl.Series", written: NumberFormat) -> "pl.Series":
    """Convert cleaned text to float64; null where a cell is not a finite number in this format.

    >>> import polars
    >>> parse_numbers(polars.Series(["1,234", "(5)", "3 kg", "4 lb"]), NumberFormat(".", unit="kg")).to_list()
    [1234.0, -5.0, 3.0, None]
    >>> parse_numbers(polars.Series(["4", "5+"]), PLAIN).to_list()
    [4.0, 5.0]
    """
    library = import_polars()
    numbers = text.cast(library.Float64, strict=False)
    if written.decimal == ",":
        # 1.234 is 1234 here, so that the plain reading serves digits alone.
        numbers = numbers.set(~text.str.contains(r"^[+-]?[0-9]+$").fill_null(False), None)
    is_unread = numbers.is_null() & text.is_not_null()
    if is_unread.any():
        others = read_distinct_cells(text.filter(is_unread), lambda cells: _parse_formatted_numbers(cells, written))
        numbers = numbers.scatter(is_unread.arg_true(), others)
    return numbers.set(~numbers.is_finite().fill_null(True), None).alias(text.name)


def _parse_formatted_numbers(text: "pl.Series", written: NumberFormat) -> "pl.Series":
    """Convert cells that polars cannot read as numbers, such as "1,234" or "(5)"."""
    library = import_polars()
    plain = _to_ascii(text).str.replace(OPEN_ENDED, "${1}")
    is_valid = plain.str.contains(_build_number_pattern(written.decimal, re.escape(written.unit)))
    core = plain.set(~is_valid, None).str.extract(_CORE, 1).str.replace_all("[ ']", "")
    if written.decimal == ",":
        core = core.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    else:
        core = core.str.replace_all(",", "", literal=True)
    values = core.cast(library.Float64, strict=False)
    return values.zip_with(~plain.str.contains(_NEGATIVE), -values)


def _to_ascii(text: "pl.Series") -> "pl.Series":
    """Replace typographic blanks and minus signs by those of a keyboard."""
    if not text.str.contains(_BLANKS).any():
        return text
    return text.str.replace_all("\u2212", "-", literal=True).str.replace_all(_BLANKS, " ")


def find_number_format(text: "pl.Series") -> NumberFormat | None:
    """Return the number format that most cells of cleaned text agree with; None if few look like numbers."""
    library = import_polars()
    cells = text.drop_nulls()
    if cells.is_empty() or not cells.cast(library.Float64, strict=False).null_count():
        return PLAIN
    guess = _guess_number_format(_to_ascii(cells.gather_every(max(1, len(cells) // _NUMBERS_SAMPLED))))
    # One decisive cell is enough, wherever it stands.
    return _guess_number_format(_to_ascii(cells)) if guess is not None and guess.ambiguous else guess


def _guess_number_format(some: "pl.Series") -> NumberFormat | None:
    fits = {decimal: some.str.contains(_build_number_pattern(decimal, _UNIT)) for decimal in _DIGITS}
    counts = {decimal: int(fit.sum()) for decimal, fit in fits.items()}
    decimal = "," if counts[","] > counts["."] else "."
    if counts[decimal] < _MIN_PARSED_SHARE * len(some):
        return None
    read = some.filter(fits[decimal])
    ends = (rf"^[(+-]*\s*({_CURRENCY})", rf"({_UNIT})[) -]*$")
    units = import_polars().concat([read.str.extract(end, 1) for end in ends]).drop_nulls()
    unit = units.mode().sort().first() if len(units) else ""
    unsure = read.filter(read.str.contains(r"^[^0-9]*[0-9]{1,3},[0-9]{3}(?:[^0-9].*)?$"))
    is_ambiguous = len(unsure) and counts["."] == counts[","]
    return NumberFormat(decimal, unit, unsure[0] if is_ambiguous else "")


def describe_number_format(name: str, written: NumberFormat) -> tuple[str, ...]:
    """Describe assumptions made to read the numbers of a column, in one sentence; empty if there are none."""
    if written.ambiguous:
        meaning = "a decimal comma" if written.decimal == "," else "a thousands separator"
        return (f"Column {name}: the comma in values such as {written.ambiguous!r} is read as {meaning}.",)
    if written.unit:
        return (f"Column {name}: values with {written.unit!r} are read as numbers without it.",)
    return ()


def has_grouped_points(text: "pl.Series") -> bool:
    """Return True if cleaned text holds integers with points as thousands separators, before three digits each.

    >>> import polars
    >>> has_grouped_points(polars.Series(["31.287", "-4", None])), has_grouped_points(polars.Series(["31.287", "4.5"]))
    (True, False)
    """
    cells = text.drop_nulls()
    is_dotted = cells.str.contains(".", literal=True)
    return bool(is_dotted.any() and cells.str.contains(r"^[+-]?[0-9]{1,3}(?:\.[0-9]{3})*$").all())


def are_codes(text: "pl.Series") -> bool:
    """Return True if cleaned text holds digits with leading zeros that matter, such as zip codes: 007 is not 7."""
    zeros = text.str.contains("^0[0-9]+$").fill_null(False)
    if not zeros.any():
        return False
    digits = text.filter(text.str.contains("^[0-9]+$").fill_null(False))
    present = len(text) - text.null_count()
    return digits.str.len_chars().n_unique() == 1 or int(zeros.sum()) > _MIN_LEADING_ZERO_SHARE * present


# Dates and times in several orders and with several separators, and the numbers that a model sees of them -------------

#: Parts of a date. The day itself is used only if later dates are not predicted.
DAY, MONTH, WEEKDAY, HOUR = "day", "month", "weekday", "hour"
YEAR_FIRST, DAY_FIRST, MONTH_FIRST, NAMED = "year first", "day first", "month first", "named month"
_CLOCK_PATTERN = r"(?:[T ]\s*(\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?)\s*([AaPp][Mm])?\s*(Z|UTC|[+-]\d{2}:?\d{2})?)?$"
#: The date part of a cell in each order, and how it is rewritten with the year first.
_ORDERS = {
    YEAR_FIRST: (r"^(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})", "$1-$2-$3"),
    DAY_FIRST: (r"^(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})", "$3-$2-$1"),
    MONTH_FIRST: (r"^(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})", "$3-$1-$2"),
}
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_NAMED_MONTH_PATTERNS = (
    r"(?i)^(\d{1,2})[- .]+(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[- .,]+(\d{4})",
    r"(?i)^(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[- .]+(\d{1,2})[ ,.-]+(\d{4})",
)
#: Two digits of a year: 70 to 99 are of the last century, as in POSIX.
_SHORT_YEAR = r"^(\d{1,2}[-/.]\d{1,2}[-/.])(\d{2})((?:[T ].*)?)$"
_DATE_SHAPE = r"^\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|(?i)(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[- .,]+\d"
#: Cells that the order of a date is guessed from.
_DATES_SAMPLED = 1000


@dataclass(frozen=True)
class DateFormat:
    """The order of day, month and year in text, and the time zone whose clock counts ("" for the clock as written).

    `order` is "" if the column was not text in fit; the order of later text is then guessed again. `ambiguous` is a
    cell such as "03/04/2021" if no cell shows which number is the day.

    Without an order they were not text in fit, and a later table that has text says itself how it is written.
    `ambiguous` is a cell such as "03/04/2021" if no cell of the column says which of the two is the day.
    """

    order: str = ""
    zone: str = ""
    ambiguous: str = ""


def parse_dates(text: "pl.Series", written: DateFormat) -> "pl.Series":
    """Convert cleaned text to datetimes without a zone; null for cells that are not dates.

    Cells with the year first are read whatever the format.

    >>> import polars
    >>> parse_dates(polars.Series(["31.01.2021 12:30", "2021-02-01", "soon"]), DateFormat(DAY_FIRST)).to_list()
    [datetime.datetime(2021, 1, 31, 12, 30), datetime.datetime(2021, 2, 1, 0, 0), None]
    """
    return read_distinct_cells(text, lambda cells: _parse_dates_as(cells, written))


def _parse_dates_as(text: "pl.Series", written: DateFormat) -> "pl.Series":
    times = _parse_ordered_dates(text, YEAR_FIRST, written.zone)
    is_unread = times.is_null() & text.is_not_null()
    if is_unread.any() and written.order not in ("", YEAR_FIRST):
        return times.scatter(
            is_unread.arg_true(), _parse_ordered_dates(text.filter(is_unread), written.order, written.zone)
        )
    return times


def _parse_ordered_dates(text: "pl.Series", order: str, zone: str) -> "pl.Series":
    library = import_polars()
    if order == NAMED:
        text, order = _replace_month_names(text), YEAR_FIRST
    elif order != YEAR_FIRST:
        short = text.str.extract(_SHORT_YEAR, 2)
        if short.is_not_null().any():
            century = library.select(library.when(short >= "70").then(library.lit("19")).otherwise(library.lit("20")))
            full = text.str.extract(_SHORT_YEAR, 1) + century.to_series() + short + text.str.extract(_SHORT_YEAR, 3)
            text = full.zip_with(short.is_not_null(), text)
    pattern, rewritten = _ORDERS[order]
    parts = text.str.extract_groups(pattern + _CLOCK_PATTERN).struct.unnest()
    one, two, three, clock, half, offset = parts.get_columns()
    groups = {"$1": one, "$2": two, "$3": three}
    year, month, day = (groups[name] for name in rewritten.split("-"))
    days = (year + "-" + month + "-" + day).str.to_date("%Y-%m-%d", strict=False)
    times = _parse_clock_times(clock, half)
    local = days.cast(library.Datetime("us")) + times
    return _move_to_zone(local, offset, zone)


def _replace_month_names(text: "pl.Series") -> "pl.Series":
    """Replace month names: 5 March 2021 and March 5, 2021 become 2021-3-5."""
    for number, name in enumerate(_MONTHS, start=1):
        text = text.str.replace(_NAMED_MONTH_PATTERNS[0].replace("|".join(_MONTHS), name), f"${{3}}-{number}-${{1}}")
        text = text.str.replace(_NAMED_MONTH_PATTERNS[1].replace("|".join(_MONTHS), name), f"${{3}}-{number}-${{2}}")
    return text


def _parse_clock_times(clock: "pl.Series", half: "pl.Series") -> "pl.Series":
    """Convert the time of day to a duration; without a time it is midnight, and an impossible time is null."""
    library = import_polars()
    parts = clock.str.extract_groups(r"^(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?$").struct.unnest()
    hour, minute, second = (part.cast(library.Int64).fill_null(0) for part in parts.get_columns()[:3])
    fraction = ("0." + parts.get_columns()[3]).cast(library.Float64, strict=False).fill_null(0.0)
    afternoon = half.str.to_lowercase()
    twelve = library.select(
        library.when(afternoon == "pm").then(hour % 12 + 12).when(afternoon == "am").then(hour % 12).otherwise(hour)
    ).to_series()
    micros = ((twelve * 60 + minute) * 60 + second) * 1_000_000 + (fraction * 1e6).round().cast(library.Int64)
    possible = (twelve < 24) & (minute < 60) & (second < 61)
    return library.select(library.when(possible).then(micros)).to_series().cast(library.Duration("us"))


def _move_to_zone(times: "pl.Series", offset: "pl.Series", zone: str) -> "pl.Series":
    """Convert times with an offset to the clock of `zone`; leave them unchanged without a zone or an offset."""
    if not zone or not offset.is_not_null().any():
        return times
    library = import_polars()
    parts = offset.str.extract_groups(r"^([+-])(\d{2}):?(\d{2})$").struct.unnest()
    sign, hours, minutes = parts.get_columns()
    size = (hours.cast(library.Int64).fill_null(0) * 60 + minutes.cast(library.Int64).fill_null(0)) * 60_000_000
    east = library.select(library.when(sign == "-").then(-size).otherwise(size)).to_series()
    moved = (times - east.cast(library.Duration("us"))).dt.replace_time_zone("UTC")
    local = moved.dt.convert_time_zone(zone).dt.replace_time_zone(None)
    return local.zip_with(offset.is_not_null(), times)


def find_date_format(text: "pl.Series") -> DateFormat | None:
    """Return the date format that most cells of cleaned text agree with; None if few look like dates."""
    cells = text.drop_nulls().unique(maintain_order=True)
    if cells.is_empty():
        return None
    some = cells.gather_every(max(1, len(cells) // _DATES_SAMPLED))
    if some.str.contains(_DATE_SHAPE).sum() < _MIN_PARSED_SHARE * len(some):
        return None
    guess = _guess_date_format(some)
    # One decisive date is enough, wherever it stands.
    return _guess_date_format(cells) if guess.ambiguous else guess


def _guess_date_format(cells: "pl.Series") -> DateFormat:
    read = {order: _parse_ordered_dates(cells, order, "") for order in (*_ORDERS, NAMED)}
    counts = {order: int(times.is_not_null().sum()) for order, times in read.items()}
    order = max(counts, key=lambda name: counts[name])
    ambiguous = ""
    if order in (DAY_FIRST, MONTH_FIRST) and counts[DAY_FIRST] == counts[MONTH_FIRST]:
        is_unsure = read[DAY_FIRST].is_not_null()
        # Points and hyphens are usual where the day comes first; slashes are more often American.
        slashes = cells.filter(is_unsure).str.contains("/", literal=True).any()
        order = MONTH_FIRST if slashes else DAY_FIRST
        differs = cells.filter((read[DAY_FIRST] != read[MONTH_FIRST]).fill_null(False))
        ambiguous = differs[0] if len(differs) else ""
    offsets = set(cells.str.extract(r"\d:\d{2}(?:[.,]\d+)?\s*(Z|UTC|[+-]\d{2}:?\d{2})$", 1).drop_nulls())
    is_utc = bool(offsets) and offsets <= {"Z", "UTC", "+00:00", "+0000"}
    return DateFormat(order, "UTC" if is_utc else "", ambiguous)


def describe_date_format(name: str, written: DateFormat) -> tuple[str, ...]:
    """Describe assumptions made to read the dates of a column, in one sentence; empty if there are none."""
    if not written.ambiguous:
        return ()
    other = "day" if written.order == MONTH_FIRST else "month"
    return (
        f"Column {name}: dates such as {written.ambiguous!r} are read with the {written.order}, as no date of the "
        f"column excludes it; write them as 2024-12-31 if the {other} comes first.",
    )


def to_local_times(series: "pl.Series", zone: str) -> "pl.Series":
    """Convert dates or datetimes to datetimes without a zone, by the clock of `zone` (their own if it is empty)."""
    library = import_polars()
    if getattr(series.dtype, "time_zone", None) is not None:
        series = (series.dt.convert_time_zone(zone) if zone else series).dt.replace_time_zone(None)
    return series.cast(library.Datetime("us"))


def extract_date_parts(times: "pl.Series", parts: tuple[str, ...], names: list[str]) -> "list[pl.Series]":
    """Convert datetimes to numbers: the day (since 1970), the month, the weekday (1 is Monday), the hour."""
    library = import_polars()
    compute = {
        DAY: lambda: times.dt.epoch("us") / 86_400e6,
        MONTH: times.dt.month,
        WEEKDAY: times.dt.weekday,
        HOUR: lambda: times.dt.hour() + times.dt.minute() / 60,
    }
    return [compute[part]().cast(library.Float64).alias(name) for part, name in zip(parts, names, strict=True)]
