"""Parse dates in text, and derive numbers such as the month. Several orders and separators are recognised."""

from dataclasses import dataclass

import polars as pl

from ddpn.tables.cells import read_distinct_cells

#: The parts of a date. The day (since 1970) is an input only if the model need not predict later dates.
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
#: Cells that the order of a date is guessed from, and the least share of them that must look like dates.
_MAX_GUESSED_CELLS, _MIN_DATE_SHARE = 1000, 0.4


@dataclass(frozen=True)
class DateFormat:
    """How dates are written in a text column.

    Attributes
    ----------
    order : str
        The order of day, month and year: `YEAR_FIRST`, `DAY_FIRST`, `MONTH_FIRST`, or `NAMED` for names of months. If
        it is "", because the column was not text in fit, the order in new text is guessed from that text.
    zone : str
        The time zone to which times are converted; "" if they are kept as written.
    ambiguous : str
        An example such as "03/04/2021" if no cell shows which number is the day; otherwise "".
    """

    order: str = ""
    zone: str = ""
    ambiguous: str = ""


def parse_dates(text: pl.Series, date_format: DateFormat) -> pl.Series:
    """Convert text to datetimes without a time zone; cells that are not dates become null.

    `text` is a result of `clean_text`. Dates with the year first are always read, whatever the format.

    >>> parse_dates(pl.Series(["31.01.2021 12:30", "2021-02-01", "soon"]), DateFormat(DAY_FIRST)).to_list()
    [datetime.datetime(2021, 1, 31, 12, 30), datetime.datetime(2021, 2, 1, 0, 0), None]
    """
    return read_distinct_cells(text, lambda cells: _parse_dates_as(cells, date_format))


def _parse_dates_as(text: pl.Series, date_format: DateFormat) -> pl.Series:
    times = _parse_ordered_dates(text, YEAR_FIRST, date_format.zone)
    is_unread = times.is_null() & text.is_not_null()
    if is_unread.any() and date_format.order not in ("", YEAR_FIRST):
        return times.scatter(
            is_unread.arg_true(), _parse_ordered_dates(text.filter(is_unread), date_format.order, date_format.zone)
        )
    return times


def _parse_ordered_dates(text: pl.Series, order: str, zone: str) -> pl.Series:
    if order == NAMED:
        text, order = _replace_month_names(text), YEAR_FIRST
    elif order != YEAR_FIRST:
        short = text.str.extract(_SHORT_YEAR, 2)
        if short.is_not_null().any():
            century = pl.select(pl.when(short >= "70").then(pl.lit("19")).otherwise(pl.lit("20")))
            full = text.str.extract(_SHORT_YEAR, 1) + century.to_series() + short + text.str.extract(_SHORT_YEAR, 3)
            text = full.zip_with(short.is_not_null(), text)
    pattern, rewritten = _ORDERS[order]
    parts = text.str.extract_groups(pattern + _CLOCK_PATTERN).struct.unnest()
    one, two, three, clock, half, offset = parts.get_columns()
    groups = {"$1": one, "$2": two, "$3": three}
    year, month, day = (groups[name] for name in rewritten.split("-"))
    days = (year + "-" + month + "-" + day).str.to_date("%Y-%m-%d", strict=False)
    times = _parse_clock_times(clock, half)
    local = days.cast(pl.Datetime("us")) + times
    return _move_to_zone(local, offset, zone)


def _replace_month_names(text: pl.Series) -> pl.Series:
    """Rewrite dates with month names: 5 March 2021 and March 5, 2021 become 2021-3-5."""
    for number, name in enumerate(_MONTHS, start=1):
        text = text.str.replace(_NAMED_MONTH_PATTERNS[0].replace("|".join(_MONTHS), name), f"${{3}}-{number}-${{1}}")
        text = text.str.replace(_NAMED_MONTH_PATTERNS[1].replace("|".join(_MONTHS), name), f"${{3}}-{number}-${{2}}")
    return text


def _parse_clock_times(clock: pl.Series, half: pl.Series) -> pl.Series:
    """Convert times of day to durations since midnight.

    `clock` has text such as "12:30", and `half` has "am", "pm" or null. A null in `clock` means midnight. Impossible
    times, such as "25:00", become null.
    """
    parts = clock.str.extract_groups(r"^(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?$").struct.unnest()
    hour, minute, second = (part.cast(pl.Int64).fill_null(0) for part in parts.get_columns()[:3])
    fraction = ("0." + parts.get_columns()[3]).cast(pl.Float64, strict=False).fill_null(0.0)
    afternoon = half.str.to_lowercase()
    twelve = pl.select(
        pl.when(afternoon == "pm").then(hour % 12 + 12).when(afternoon == "am").then(hour % 12).otherwise(hour)
    ).to_series()
    micros = ((twelve * 60 + minute) * 60 + second) * 1_000_000 + (fraction * 1e6).round().cast(pl.Int64)
    possible = (twelve < 24) & (minute < 60) & (second < 61)
    return pl.select(pl.when(possible).then(micros)).to_series().cast(pl.Duration("us"))


def _move_to_zone(times: pl.Series, offset: pl.Series, zone: str) -> pl.Series:
    """Convert times to the local time of `zone`.

    `offset` has the UTC offset that was written beside each time, such as "+02:00", or null. Times without an offset
    stay unchanged. If `zone` is "", all times stay unchanged.
    """
    if not zone or not offset.is_not_null().any():
        return times
    parts = offset.str.extract_groups(r"^([+-])(\d{2}):?(\d{2})$").struct.unnest()
    sign, hours, minutes = parts.get_columns()
    size = (hours.cast(pl.Int64).fill_null(0) * 60 + minutes.cast(pl.Int64).fill_null(0)) * 60_000_000
    east = pl.select(pl.when(sign == "-").then(-size).otherwise(size)).to_series()
    moved = (times - east.cast(pl.Duration("us"))).dt.replace_time_zone("UTC")
    local = moved.dt.convert_time_zone(zone).dt.replace_time_zone(None)
    return local.zip_with(offset.is_not_null(), times)


def find_date_format(text: pl.Series) -> DateFormat | None:
    """Return the date format that fits most cells of a text column; return None if few cells look like dates.

    `text` is a result of `clean_text`.
    """
    cells = text.drop_nulls().unique(maintain_order=True)
    if cells.is_empty():
        return None
    sample = cells.gather_every(max(1, len(cells) // _MAX_GUESSED_CELLS))
    if sample.str.contains(_DATE_SHAPE).sum() < _MIN_DATE_SHARE * len(sample):
        return None
    guess = _guess_date_format(sample)
    # A single unambiguous date anywhere in the column decides the order.
    return _guess_date_format(cells) if guess.ambiguous else guess


def _guess_date_format(cells: pl.Series) -> DateFormat:
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


def describe_date_format(name: str, date_format: DateFormat) -> tuple[str, ...]:
    """Describe in a sentence how the ambiguous dates of a column are read.

    Return a tuple of this sentence, or an empty tuple if no date is ambiguous. `name` is the name of the column.
    """
    if not date_format.ambiguous:
        return ()
    other = "day" if date_format.order == MONTH_FIRST else "month"
    return (
        f"Column {name}: dates such as {date_format.ambiguous!r} are read with the {date_format.order}, as no date of "
        f"the column excludes it; write them as 2024-12-31 if the {other} comes first.",
    )


def to_local_times(series: pl.Series, zone: str) -> pl.Series:
    """Convert a column of dates or datetimes to datetimes without a time zone.

    Datetimes with a time zone are converted to the local time of `zone` or, if `zone` is "", keep their own local time.
    """
    if getattr(series.dtype, "time_zone", None) is not None:
        series = (series.dt.convert_time_zone(zone) if zone else series).dt.replace_time_zone(None)
    return series.cast(pl.Datetime("us"))


def extract_date_parts(times: pl.Series, parts: tuple[str, ...], names: list[str]) -> list[pl.Series]:
    """Compute numbers from datetimes: days since 1970, the month, the weekday (1 is Monday) or the hour.

    `parts` says which numbers to compute: `DAY`, `MONTH`, `WEEKDAY` or `HOUR`. `names` has the name of the series that
    is returned for each part.
    """
    compute = {
        DAY: lambda: times.dt.epoch("us") / 86_400e6,
        MONTH: times.dt.month,
        WEEKDAY: times.dt.weekday,
        HOUR: lambda: times.dt.hour() + times.dt.minute() / 60,
    }
    return [compute[part]().cast(pl.Float64).alias(name) for part, name in zip(parts, names, strict=True)]
