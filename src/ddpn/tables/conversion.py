"""One column of a later table as the kind it had in fit: cells that cannot be read become missing and are counted."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ddpn.runtime.errors import Argument, InputError
from ddpn.tables.cells import cleaned, is_text, looks_missing, missing_numbers, polars
from ddpn.tables.dates import YEAR_FIRST, DateFormat, about_dates, find_date_format, local_times, parse_dates
from ddpn.tables.numbers import (
    PLAIN,
    NumberFormat,
    about_numbers,
    find_number_format,
    has_grouped_points,
    parse_numbers,
)

#: Words for true and false, in lower case.
TRUE, FALSE = ("true", "t", "yes", "y", "1", "1.0"), ("false", "f", "no", "n", "0", "0.0")


class Converted(NamedTuple):
    """Values of one kind, the cells that could not be read as they are written, and sentences about assumptions."""

    values: Any
    odd: Any
    notes: tuple[str, ...] = ()


def to_numbers(series: Any, written: NumberFormat, missing: Sequence[str], what: str | Argument) -> Converted:
    """Float64, null where missing; `what` names the column in errors."""
    library = polars()
    notes: tuple[str, ...] = ()
    if is_text(series):
        text = cleaned(series, missing)
        numbers = _flags_as_numbers(text)
        if numbers is None:
            present = text.filter(~looks_missing(text))
            if written.integers and written.decimal != "," and has_grouped_points(present):
                written = replace(written, decimal=",")
                notes = (f"Column {series.name}: points are read as thousands separators, as fit had integers only.",)
            elif not written.decimal:
                written = find_number_format(present) or PLAIN
                notes = about_numbers(series.name, written)
            numbers = parse_numbers(text, written)
        odd = text.filter(numbers.is_null() & text.is_not_null())
    elif series.dtype.is_numeric() or series.dtype in (library.Boolean, library.Null):
        numbers, odd = _finite(series.cast(library.Float64))
    else:
        raise InputError(argument=what, must="hold numbers", got=str(series.dtype))
    return Converted(_without(numbers, missing_numbers(missing)).alias(series.name), odd, notes)


def _finite(numbers: Any) -> tuple[Any, Any]:
    """Numbers with null for NaN and infinity, and the infinite ones as text.

    By numpy: a table may have thousands of columns, and a call of polars takes as long as a thousand rows.
    """
    library, values = polars(), numbers.to_numpy()
    if np.isfinite(values).all():
        return numbers, library.Series([], dtype=library.String)
    infinite = np.isinf(values)
    odd = library.Series(values[infinite]).cast(library.String)
    return library.Series(np.where(infinite, np.nan, values), nan_to_null=True), odd


def _without(numbers: Any, markers: list[float]) -> Any:
    """Numbers with null for those that stand for a missing value."""
    found = np.isin(numbers.to_numpy(), markers) if markers else np.zeros(1, dtype=bool)
    return numbers.set(polars().Series(found), None) if found.any() else numbers


def _flags_as_numbers(text: Any) -> Any:
    """1 and 0 if every known cell is true or false: a number that another program has written as a boolean."""
    library = polars()
    first = text.drop_nulls().head(1).str.to_lowercase().to_list()
    if not first or first[0] not in ("true", "false"):
        return None
    lower = text.str.to_lowercase()
    if not lower.drop_nulls().is_in(["true", "false"]).all():
        return None
    return (lower == "true").cast(library.Float64)


def to_booleans(series: Any, missing: Sequence[str], what: str | Argument) -> Converted:
    """Booleans; also from 1 and 0, and from words."""
    library = polars()
    if series.dtype == library.Boolean:
        return Converted(series, series.head(0).cast(library.String))
    if series.dtype.is_numeric() or series.dtype == library.Null:
        numbers, odd, _ = to_numbers(series, PLAIN, missing, what)
        known = numbers.is_in([0.0, 1.0]).fill_null(False)
        odd = library.concat([odd, numbers.filter(~known & numbers.is_not_null()).cast(library.String)])
        return Converted(numbers.set(~known, None).cast(library.Boolean), odd)
    if not is_text(series):
        raise InputError(argument=what, must="hold booleans", got=str(series.dtype))
    text = cleaned(series, missing)
    lower = text.str.to_lowercase()
    word = library.when(lower.is_in(TRUE)).then(True).when(lower.is_in(FALSE)).then(False)
    flags = library.select(word).to_series().alias(series.name)
    return Converted(flags, text.filter(flags.is_null() & text.is_not_null()))


def to_times(series: Any, written: DateFormat, missing: Sequence[str], what: str) -> Converted:
    """Datetimes without a zone."""
    library = polars()
    if is_text(series):
        text = cleaned(series, missing)
        notes: tuple[str, ...] = ()
        if written.order in ("", YEAR_FIRST):
            # Neither says whether the day or the month comes first where the year does not.
            found = find_date_format(text.filter(~looks_missing(text))) or DateFormat(YEAR_FIRST)
            notes, written = about_dates(series.name, found), replace(found, zone=written.zone)
        times = parse_dates(text, written)
        return Converted(times, text.filter(times.is_null() & text.is_not_null()), notes)
    if series.dtype in (library.Date, library.Datetime):
        return Converted(local_times(series, written.zone), series.head(0).cast(library.String))
    if series.null_count() == len(series):
        empty = library.Series(series.name, [None] * len(series), dtype=library.Datetime("us"))
        return Converted(empty, series.head(0).cast(library.String))
    raise InputError(f"{what} must hold dates such as 2024-12-31, got {series.dtype}.")


def to_levels(series: Any, level_kind: str, missing: Sequence[str], what: str) -> Converted:
    """Text in the one form that every file type and data frame gives (`ddpn.tables.encoding.canonical`)."""
    # Imported here, as the package imports scikit-learn, which commands that only show a model do without.
    from ddpn.tables.encoding.canonical import canonical_level, canonical_number

    library = polars()
    none = library.Series([], dtype=library.String)
    if not (is_text(series) or series.dtype.is_numeric() or series.dtype in (library.Boolean, library.Null)):
        if series.dtype not in (library.Date, library.Datetime, library.Time):
            raise InputError(f"{what} must hold text, got {series.dtype}.")
        series = series.cast(library.String)
    if level_kind == "boolean":
        flags, odd, _ = to_booleans(series, missing, what)
        return Converted(flags.cast(library.String), odd)
    if series.dtype == library.Float32:
        series, level_kind = series.cast(library.String), "number"
    text = cleaned(series, missing) if is_text(series) else series
    if level_kind == "number" and is_text(series):
        # Among numbers a word such as n/a is missing, as it is where the column has a type.
        absent_words = looks_missing(text)
        none = text.filter(absent_words & text.is_not_null())
        text = text.set(absent_words, None)
    canonical = canonical_number if level_kind == "number" else canonical_level
    levels = text.unique().drop_nulls().to_list()
    absent = {word.strip() for word in missing} | {canonical_number(word) for word in missing}
    names = [canonical(level) for level in levels]
    known = [None if name in absent or name == "nan" else name for name in names]
    if all(name == level for name, level in zip(known, levels, strict=True)):
        return Converted(text.cast(library.String), none)
    return Converted(text.replace_strict(levels, known, default=None, return_dtype=library.String), none)
