"""Cells of text: which are missing, and which are numbers or dates, in the many ways that these are written."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

#: What stands for "no value" in any column; the option `missing` adds to it. An empty cell is always missing.
MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None", "?")
#: Further words, in lower case, that say so in a column of numbers or dates. In a text column they may be levels.
LOOKS_MISSING = (
    "-", "--", "---", ".", "..", "*", "n/a", "na", "n.a.", "n.a", "#n/a", "nan", "null", "nil", "none", "missing",
    "unknown", "not available", "no data", "undefined", "#value!", "#ref!", "#div/0!", "#num!", "#name?", "#null!",
    "nat", "<na>",
)  # fmt: skip
#: Examples of cells that a sentence shows.
_SHOWN = 3


@cache
def import_polars() -> Any:
    """The polars library, imported on first use: help texts and wrong options need no table."""
    return import_module("polars")


def is_text(series: "pl.Series") -> bool:
    """Whether the column holds text of any sort."""
    library = import_polars()
    return series.dtype in (library.String, library.Categorical, library.Enum)


def clean_text(series: "pl.Series", missing: Sequence[str]) -> "pl.Series":
    """The text without blanks around it; null where it is one of `missing`."""
    text = series.cast(import_polars().String).str.strip_chars()
    # A null in a membership test is null, which the mask below must not be.
    is_missing = text.is_in([word.strip() for word in missing]).fill_null(True)
    return text.set(is_missing, None) if is_missing.any() else text


def looks_missing(text: "pl.Series") -> "pl.Series":
    """A mask of cleaned cells that are missing or say so in words."""
    return text.str.to_lowercase().is_in(LOOKS_MISSING).fill_null(True)


def read_distinct_cells(text: "pl.Series", read: Callable[["pl.Series"], "pl.Series"]) -> "pl.Series":
    """`read` of every cell, called with each spelling once: values come again and again."""
    library = import_polars()
    cells = library.DataFrame({"text": text})
    unique = cells["text"].unique()
    found = library.DataFrame({"text": unique, "value": read(unique)})
    joined = cells.join(found, on="text", how="left", nulls_equal=True, maintain_order="left")
    return joined["value"].alias(text.name)


@cache
def parse_missing_numbers(missing: tuple[str, ...]) -> list[float]:
    """The numbers among the words for "no value", such as -999."""
    found = []
    for word in missing:
        try:
            found.append(float(word))
        except ValueError:
            continue
    return [value for value in found if value == value]


def format_examples(cells: "pl.Series") -> str:
    """Some different cells, as they are written, for a sentence.

    >>> import polars
    >>> format_examples(polars.Series(["n/a", "x", "n/a"]))
    "'n/a', 'x'"
    """
    known = cells.drop_nulls().unique(maintain_order=True).to_list()
    words = (str(value) for value in known[:_SHOWN])
    shown = ", ".join(repr(word if len(word) <= 30 else f"{word[:27]}...") for word in words)
    return shown if len(known) <= _SHOWN else f"{shown} and {len(known) - _SHOWN:,} more"


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
#: Cells that a format is found from, and the share of them that has to look like numbers, or dates, to go on with all.
_NUMBERS_SAMPLED, _HOPEFUL = 2000, 0.4
#: The share of leading zeros above which digits are codes such as zip codes, whatever their lengths.
_CODES = 0.05


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of a column are written: the decimal sign, and the unit that they may have.

    Without a decimal sign they were not text in fit, and a later table that has text says itself how it is written.
    `ambiguous` is a cell such as "1,234" if no cell of the column says whether its comma is a decimal sign. `integers`
    is whether all values of the fit were integers: the points of a later 31.287 are then thousands separators.
    """

    decimal: str = ""
    unit: str = ""
    ambiguous: str = ""
    integers: bool = False


#: What programs write.
PLAIN = NumberFormat(".")


def _pattern(decimal: str, unit: str) -> str:
    """A whole cell: with a sign in front, in brackets, or with a minus at its end."""
    before, after = (rf"(?:{unit}\s*)?", rf"(?:\s*{unit})?") if unit else ("", "")
    number = _DIGITS[decimal] + _EXPONENT
    return (
        rf"^(?:(?:[+-]\s*{before}|{before}[+-]?){number}{after}|"
        rf"\(\s*{before}{number}{after}\s*\)|{before}{number}{after}\s*-)$"
    )


def parse_numbers(text: "pl.Series", written: NumberFormat) -> "pl.Series":
    """Cleaned text as float64; null where a cell is not a finite number in this format.

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
    rest = numbers.is_null() & text.is_not_null()
    if rest.any():
        others = read_distinct_cells(text.filter(rest), lambda cells: _formatted(cells, written))
        numbers = numbers.scatter(rest.arg_true(), others)
    return numbers.set(~numbers.is_finite().fill_null(True), None).alias(text.name)


def _formatted(text: "pl.Series", written: NumberFormat) -> "pl.Series":
    """Cells that polars cannot read as numbers."""
    library = import_polars()
    plain = _ascii(text).str.replace(OPEN_ENDED, "${1}")
    is_valid = plain.str.contains(_pattern(written.decimal, re.escape(written.unit)))
    core = plain.set(~is_valid, None).str.extract(_CORE, 1).str.replace_all("[ ']", "")
    if written.decimal == ",":
        core = core.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    else:
        core = core.str.replace_all(",", "", literal=True)
    values = core.cast(library.Float64, strict=False)
    return values.zip_with(~plain.str.contains(_NEGATIVE), -values)


def _ascii(text: "pl.Series") -> "pl.Series":
    """Blanks and minus signs of typesetters as those of a keyboard."""
    if not text.str.contains(_BLANKS).any():
        return text
    return text.str.replace_all("\u2212", "-", literal=True).str.replace_all(_BLANKS, " ")


def find_number_format(text: "pl.Series") -> NumberFormat | None:
    """The format that most cells of cleaned text agree with; None if few look like numbers."""
    library = import_polars()
    known = text.drop_nulls()
    if known.is_empty() or not known.cast(library.Float64, strict=False).null_count():
        return PLAIN
    found = _number_format_of(_ascii(known.gather_every(max(1, len(known) // _NUMBERS_SAMPLED))))
    # One decisive cell is enough, wherever it stands.
    return _number_format_of(_ascii(known)) if found is not None and found.ambiguous else found


def _number_format_of(some: "pl.Series") -> NumberFormat | None:
    fits = {decimal: some.str.contains(_pattern(decimal, _UNIT)) for decimal in _DIGITS}
    counts = {decimal: int(fit.sum()) for decimal, fit in fits.items()}
    decimal = "," if counts[","] > counts["."] else "."
    if counts[decimal] < _HOPEFUL * len(some):
        return None
    read = some.filter(fits[decimal])
    ends = (rf"^[(+-]*\s*({_CURRENCY})", rf"({_UNIT})[) -]*$")
    units = import_polars().concat([read.str.extract(end, 1) for end in ends]).drop_nulls()
    unit = units.mode().sort().first() if len(units) else ""
    unsure = read.filter(read.str.contains(r"^[^0-9]*[0-9]{1,3},[0-9]{3}(?:[^0-9].*)?$"))
    is_ambiguous = len(unsure) and counts["."] == counts[","]
    return NumberFormat(decimal, unit, unsure[0] if is_ambiguous else "")


def describe_number_format(name: str, written: NumberFormat) -> tuple[str, ...]:
    """A sentence about what was assumed to read the numbers of a column, if anything was."""
    if written.ambiguous:
        meaning = "a decimal comma" if written.decimal == "," else "a thousands separator"
        return (f"Column {name}: the comma in values such as {written.ambiguous!r} is read as {meaning}.",)
    if written.unit:
        return (f"Column {name}: values with {written.unit!r} are read as numbers without it.",)
    return ()


def has_grouped_points(text: "pl.Series") -> bool:
    """Whether cleaned text holds integers whose thousands are separated by points: every point before three digits.

    >>> import polars
    >>> has_grouped_points(polars.Series(["31.287", "-4", None])), has_grouped_points(polars.Series(["31.287", "4.5"]))
    (True, False)
    """
    known = text.drop_nulls()
    is_dotted = known.str.contains(".", literal=True)
    return bool(is_dotted.any() and known.str.contains(r"^[+-]?[0-9]{1,3}(?:\.[0-9]{3})*$").all())


def are_codes(text: "pl.Series") -> bool:
    """Whether cleaned text holds digits with leading zeros that matter, such as zip codes: 007 is not 7."""
    zeros = text.str.contains("^0[0-9]+$").fill_null(False)
    if not zeros.any():
        return False
    digits = text.filter(text.str.contains("^[0-9]+$").fill_null(False))
    present = len(text) - text.null_count()
    return digits.str.len_chars().n_unique() == 1 or int(zeros.sum()) > _CODES * present


# Dates and times in several orders and with several separators, and the numbers that a model sees of them -------------

#: What a date becomes; the day itself only where later dates are not asked for.
DAY, MONTH, WEEKDAY, HOUR = "day", "month", "weekday", "hour"
YEAR_FIRST, DAY_FIRST, MONTH_FIRST, NAMED = "year first", "day first", "month first", "named month"
_CLOCK = r"(?:[T ]\s*(\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?)\s*([AaPp][Mm])?\s*(Z|UTC|[+-]\d{2}:?\d{2})?)?$"
#: The date part of a cell in each order, and how it is rewritten with the year first.
_ORDERS = {
    YEAR_FIRST: (r"^(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})", "$1-$2-$3"),
    DAY_FIRST: (r"^(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})", "$3-$2-$1"),
    MONTH_FIRST: (r"^(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})", "$3-$1-$2"),
}
_NAMES = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_NAMED = (
    r"(?i)^(\d{1,2})[- .]+(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[- .,]+(\d{4})",
    r"(?i)^(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[- .]+(\d{1,2})[ ,.-]+(\d{4})",
)
#: Two digits of a year: 70 to 99 are of the last century, as in POSIX.
_SHORT_YEAR = r"^(\d{1,2}[-/.]\d{1,2}[-/.])(\d{2})((?:[T ].*)?)$"
_SHAPE = r"^\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|(?i)(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[- .,]+\d"
#: Cells that the order is found from.
_DATES_SAMPLED = 1000


@dataclass(frozen=True)
class DateFormat:
    """The order of day, month and year in text, and the time zone whose clock counts ("" for the one as written).

    Without an order they were not text in fit, and a later table that has text says itself how it is written.
    `ambiguous` is a cell such as "03/04/2021" if no cell of the column says which of the two is the day.
    """

    order: str = ""
    zone: str = ""
    ambiguous: str = ""


def parse_dates(text: "pl.Series", written: DateFormat) -> "pl.Series":
    """Cleaned text as datetimes without a zone, null where a cell is no date; the year may always come first.

    >>> import polars
    >>> parse_dates(polars.Series(["31.01.2021 12:30", "2021-02-01", "soon"]), DateFormat(DAY_FIRST)).to_list()
    [datetime.datetime(2021, 1, 31, 12, 30), datetime.datetime(2021, 2, 1, 0, 0), None]
    """
    return read_distinct_cells(text, lambda cells: _parsed_by(cells, written))


def _parsed_by(text: "pl.Series", written: DateFormat) -> "pl.Series":
    found = _parsed(text, YEAR_FIRST, written.zone)
    rest = found.is_null() & text.is_not_null()
    if rest.any() and written.order not in ("", YEAR_FIRST):
        return found.scatter(rest.arg_true(), _parsed(text.filter(rest), written.order, written.zone))
    return found


def _parsed(text: "pl.Series", order: str, zone: str) -> "pl.Series":
    library = import_polars()
    if order == NAMED:
        text, order = _without_names(text), YEAR_FIRST
    elif order != YEAR_FIRST:
        short = text.str.extract(_SHORT_YEAR, 2)
        if short.is_not_null().any():
            century = library.select(library.when(short >= "70").then(library.lit("19")).otherwise(library.lit("20")))
            full = text.str.extract(_SHORT_YEAR, 1) + century.to_series() + short + text.str.extract(_SHORT_YEAR, 3)
            text = full.zip_with(short.is_not_null(), text)
    pattern, rewritten = _ORDERS[order]
    parts = text.str.extract_groups(pattern + _CLOCK).struct.unnest()
    one, two, three, clock, half, offset = parts.get_columns()
    groups = {"$1": one, "$2": two, "$3": three}
    year, month, day = (groups[name] for name in rewritten.split("-"))
    days = (year + "-" + month + "-" + day).str.to_date("%Y-%m-%d", strict=False)
    times = _clock(clock, half)
    found = days.cast(library.Datetime("us")) + times
    return _in_zone(found, offset, zone)


def _without_names(text: "pl.Series") -> "pl.Series":
    """5 March 2021 and March 5, 2021 as 2021-3-5."""
    for number, name in enumerate(_NAMES, start=1):
        text = text.str.replace(_NAMED[0].replace("|".join(_NAMES), name), f"${{3}}-{number}-${{1}}")
        text = text.str.replace(_NAMED[1].replace("|".join(_NAMES), name), f"${{3}}-{number}-${{2}}")
    return text


def _clock(clock: "pl.Series", half: "pl.Series") -> "pl.Series":
    """The time of day as a duration; none is midnight, and an impossible one is null."""
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


def _in_zone(times: "pl.Series", offset: "pl.Series", zone: str) -> "pl.Series":
    """Times with an offset by the clock of `zone`; as written where there is no zone or no offset."""
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
    """The order that most cells of cleaned text agree with; None if few look like dates."""
    known = text.drop_nulls().unique(maintain_order=True)
    if known.is_empty():
        return None
    some = known.gather_every(max(1, len(known) // _DATES_SAMPLED))
    if some.str.contains(_SHAPE).sum() < _HOPEFUL * len(some):
        return None
    found = _date_format_of(some)
    # One decisive date is enough, wherever it stands.
    return _date_format_of(known) if found.ambiguous else found


def _date_format_of(known: "pl.Series") -> DateFormat:
    read = {order: _parsed(known, order, "") for order in (*_ORDERS, NAMED)}
    counts = {order: int(times.is_not_null().sum()) for order, times in read.items()}
    order = max(counts, key=lambda each: counts[each])
    ambiguous = ""
    if order in (DAY_FIRST, MONTH_FIRST) and counts[DAY_FIRST] == counts[MONTH_FIRST]:
        is_unsure = read[DAY_FIRST].is_not_null()
        # Points and hyphens are usual where the day comes first; slashes are more often American.
        slashes = known.filter(is_unsure).str.contains("/", literal=True).any()
        order = MONTH_FIRST if slashes else DAY_FIRST
        differs = known.filter((read[DAY_FIRST] != read[MONTH_FIRST]).fill_null(False))
        ambiguous = differs[0] if len(differs) else ""
    offsets = set(known.str.extract(r"\d:\d{2}(?:[.,]\d+)?\s*(Z|UTC|[+-]\d{2}:?\d{2})$", 1).drop_nulls())
    is_utc = bool(offsets) and offsets <= {"Z", "UTC", "+00:00", "+0000"}
    return DateFormat(order, "UTC" if is_utc else "", ambiguous)


def describe_date_format(name: str, written: DateFormat) -> tuple[str, ...]:
    """A sentence about what was assumed to read the dates of a column, if anything was."""
    if not written.ambiguous:
        return ()
    other = "day" if written.order == MONTH_FIRST else "month"
    return (
        f"Column {name}: dates such as {written.ambiguous!r} are read with the {written.order}, as no date of the "
        f"column excludes it; write them as 2024-12-31 if the {other} comes first.",
    )


def to_local_times(series: "pl.Series", zone: str) -> "pl.Series":
    """Dates or datetimes as datetimes without a zone: by the clock of `zone`, or by their own if it is empty."""
    library = import_polars()
    if getattr(series.dtype, "time_zone", None) is not None:
        series = (series.dt.convert_time_zone(zone) if zone else series).dt.replace_time_zone(None)
    return series.cast(library.Datetime("us"))


def extract_date_parts(times: "pl.Series", parts: tuple[str, ...], names: list[str]) -> "list[pl.Series]":
    """Numbers from datetimes: the day (since 1970), the month, the weekday (1 is Monday), the hour."""
    library = import_polars()
    found = {
        DAY: lambda: times.dt.epoch("us") / 86_400e6,
        MONTH: times.dt.month,
        WEEKDAY: times.dt.weekday,
        HOUR: lambda: times.dt.hour() + times.dt.minute() / 60,
    }
    return [found[part]().cast(library.Float64).alias(name) for part, name in zip(parts, names, strict=True)]
