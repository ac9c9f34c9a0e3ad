"""Dates and times: as text in several orders and with several separators, and the numbers that a model sees of them."""

from dataclasses import dataclass
from typing import Any

from ddpn.tables.cells import polars, read_once

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
_SAMPLE, _HOPEFUL = 1000, 0.4


@dataclass(frozen=True)
class DateFormat:
    """The order of day, month and year in text, and the time zone whose clock counts ("" for the one as written).

    Without an order they were no text in fit, and a later table that has text says itself how it is written.
    `ambiguous` is a cell such as "03/04/2021" if no cell of the column says which of the two is the day.
    """

    order: str = ""
    zone: str = ""
    ambiguous: str = ""


def parse_dates(text: Any, written: DateFormat) -> Any:
    """Cleaned text as datetimes without a zone, null where a cell is no date; the year may always come first.

    >>> import polars
    >>> parse_dates(polars.Series(["31.01.2021 12:30", "2021-02-01", "soon"]), DateFormat(DAY_FIRST)).to_list()
    [datetime.datetime(2021, 1, 31, 12, 30), datetime.datetime(2021, 2, 1, 0, 0), None]
    """
    return read_once(text, lambda cells: _parsed_by(cells, written))


def _parsed_by(text: Any, written: DateFormat) -> Any:
    found = _parsed(text, YEAR_FIRST, written.zone)
    rest = found.is_null() & text.is_not_null()
    if rest.any() and written.order not in ("", YEAR_FIRST):
        return found.scatter(rest.arg_true(), _parsed(text.filter(rest), written.order, written.zone))
    return found


def _parsed(text: Any, order: str, zone: str) -> Any:
    library = polars()
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


def _without_names(text: Any) -> Any:
    """5 March 2021 and March 5, 2021 as 2021-3-5."""
    for number, name in enumerate(_NAMES, start=1):
        text = text.str.replace(_NAMED[0].replace("|".join(_NAMES), name), f"${{3}}-{number}-${{1}}")
        text = text.str.replace(_NAMED[1].replace("|".join(_NAMES), name), f"${{3}}-{number}-${{2}}")
    return text


def _clock(clock: Any, half: Any) -> Any:
    """The time of day as a duration; none is midnight, and an impossible one is null."""
    library = polars()
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


def _in_zone(times: Any, offset: Any, zone: str) -> Any:
    """Times with an offset by the clock of `zone`; as written where there is no zone or no offset."""
    if not zone or not offset.is_not_null().any():
        return times
    library = polars()
    parts = offset.str.extract_groups(r"^([+-])(\d{2}):?(\d{2})$").struct.unnest()
    sign, hours, minutes = parts.get_columns()
    size = (hours.cast(library.Int64).fill_null(0) * 60 + minutes.cast(library.Int64).fill_null(0)) * 60_000_000
    east = library.select(library.when(sign == "-").then(-size).otherwise(size)).to_series()
    moved = (times - east.cast(library.Duration("us"))).dt.replace_time_zone("UTC")
    local = moved.dt.convert_time_zone(zone).dt.replace_time_zone(None)
    return local.zip_with(offset.is_not_null(), times)


def find_date_format(text: Any) -> DateFormat | None:
    """The order that most cells of cleaned text agree with; None if few look like dates."""
    known = text.drop_nulls().unique(maintain_order=True)
    if known.is_empty():
        return None
    some = known.gather_every(max(1, len(known) // _SAMPLE))
    if some.str.contains(_SHAPE).sum() < _HOPEFUL * len(some):
        return None
    found = _format_of(some)
    # One decisive date is enough, wherever it stands.
    return _format_of(known) if found.ambiguous else found


def _format_of(known: Any) -> DateFormat:
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


def about_dates(name: str, written: DateFormat) -> tuple[str, ...]:
    """A sentence about what was assumed to read the dates of a column, if anything was."""
    if not written.ambiguous:
        return ()
    other = "day" if written.order == MONTH_FIRST else "month"
    return (
        f"Column {name}: dates such as {written.ambiguous!r} are read with the {written.order}, as no date of the "
        f"column excludes it; write them as 2024-12-31 if the {other} comes first.",
    )


def local_times(series: Any, zone: str) -> Any:
    """Dates or datetimes as datetimes without a zone: by the clock of `zone`, or by their own if it is empty."""
    library = polars()
    if series.dtype == library.Datetime and series.dtype.time_zone is not None:
        series = (series.dt.convert_time_zone(zone) if zone else series).dt.replace_time_zone(None)
    return series.cast(library.Datetime("us"))


def date_parts(times: Any, parts: tuple[str, ...], names: list[str]) -> list[Any]:
    """Numbers from datetimes: the day (since 1970), the month, the weekday (1 is Monday), the hour."""
    library = polars()
    found = {
        DAY: lambda: times.dt.epoch("us") / 86_400e6,
        MONTH: times.dt.month,
        WEEKDAY: times.dt.weekday,
        HOUR: lambda: times.dt.hour() + times.dt.minute() / 60,
    }
    return [found[part]().cast(library.Float64).alias(name) for part, name in zip(parts, names, strict=True)]
