"""What a column holds: numbers, dates, booleans or categories, by its type and, where it is text, by its cells."""

from typing import Any, NamedTuple

from ddpn.tables.cells import cleaned, examples, is_text, looks_missing, polars
from ddpn.tables.dates import DateFormat, about_dates, find_date_format, parse_dates
from ddpn.tables.numbers import OPEN_ENDED, NumberFormat, about_numbers, are_codes, find_number_format, parse_numbers

#: Text is read as numbers or dates if so large a share of the cells that are not missing can be; above the lower share
#: it is worth a sentence that it is not.
_NEARLY_ALL, _MANY = 0.9, 0.5
#: With at most so many different cells, the others have to be rarer than this: they may well be levels.
_FEW_LEVELS, _RARE = 50, 0.01
_FLAGS = ("true", "false")


class Detected(NamedTuple):
    """The kind of a column ("" if unsupported), how its text is read, and sentences about that."""

    kind: str
    number: NumberFormat = NumberFormat()
    date: DateFormat = DateFormat()
    level_kind: str = "text"
    notes: tuple[str, ...] = ()


def detect(series: Any, missing: tuple[str, ...], as_category: bool) -> Detected:
    """The kind of a column; `as_category` if the user wants its numbers as categories."""
    library, dtype = polars(), series.dtype
    if dtype in (library.Date, library.Datetime):
        zone = dtype.time_zone if dtype == library.Datetime else None
        return Detected("date", date=DateFormat(zone=zone or ""))
    if is_text(series):
        text = cleaned(series, missing)
        known = text.filter(~looks_missing(text))
        return _category(known) if as_category else _text(text, known)
    if dtype == library.Boolean:
        return Detected("category", level_kind="boolean") if as_category else Detected("boolean")
    if not dtype.is_numeric():
        return Detected("")
    return Detected("category", level_kind="number") if as_category else Detected("number")


def _category(known: Any) -> Detected:
    """A category by the user's wish: whether its levels are numbers, booleans or names."""
    if known.is_empty():
        return Detected("category")
    if known.str.to_lowercase().is_in(_FLAGS).all():
        return Detected("category", level_kind="boolean")
    return _named(known)


def _named(known: Any, notes: tuple[str, ...] = ()) -> Detected:
    """A category by its levels: with numbers among them, 1.0 is 1, unless leading zeros matter."""
    library = polars()
    numbers = known.filter(known.cast(library.Float64, strict=False).is_not_null())
    is_number = len(numbers) and not are_codes(known)
    return Detected("category", level_kind="number" if is_number else "text", notes=notes)


def _text(text: Any, known: Any) -> Detected:
    """Text by its cells; `known` are those that do not stand for a missing value."""
    if known.is_empty() or are_codes(known):
        return Detected("category")
    if known[0].lower() in _FLAGS and known.str.to_lowercase().is_in(_FLAGS).all():
        return Detected("boolean", notes=_lost(text, known, known.is_not_null(), "booleans"))
    written = find_number_format(known)
    numbers: Any = None if written is None else parse_numbers(known, written).is_not_null()
    if written is not None and _are_nearly_all(numbers, known):
        notes = _lost(text, known, numbers, "numbers")
        return Detected("number", number=written, notes=(*notes, *_about_text(text, known, written)))
    order = find_date_format(known)
    dates: Any = None if order is None else parse_dates(known, order).is_not_null()
    if order is not None and dates.sum() >= _NEARLY_ALL * len(known):
        notes = _lost(text, known, dates, "dates")
        return Detected("date", date=order, notes=(*notes, *about_dates(text.name, order)))
    for what, read in (("dates", dates), ("numbers", numbers)):
        if read is not None and read.sum() >= _MANY * len(known):
            return _named(known, (_mixed(text, known.filter(~read), int(read.sum()), what),))
    return _named(known)


def _are_nearly_all(read: Any, known: Any) -> bool:
    """Whether so many cells are read that the others may be taken as missing."""
    share = read.sum() / len(known)
    return bool(share >= 1.0 - _RARE or (share >= _NEARLY_ALL and known.n_unique() > _FEW_LEVELS))


def _lost(text: Any, known: Any, read: Any, what: str) -> tuple[str, ...]:
    """About the cells that cannot be read, if there are any; `read` is a mask of `known`."""
    present, count = text.drop_nulls(), int(read.sum())
    lost = len(present) - count
    if not lost:
        return ()
    words = present.filter(looks_missing(present))
    odd = examples(polars().concat([words, known.filter(~read)]))
    verb = "is" if lost == 1 else "are"
    found = f"{count:,} of {len(present):,} values are {what}; {lost:,} ({odd}) {verb} treated as missing."
    return (f"Column {text.name}: {found}",)


def _mixed(text: Any, others: Any, count: int, what: str) -> str:
    present = len(text.drop_nulls())
    return (
        f"Column {text.name}: {count:,} of {present:,} values are {what}, but the others ({examples(others)}) are too "
        f"many to be treated as missing, so the column is categorical. If they mean that a value is missing, name them "
        f"with --missing."
    )


def _about_text(text: Any, known: Any, written: NumberFormat) -> tuple[str, ...]:
    notes = about_numbers(text.name, written)
    more = known.filter(known.str.contains(OPEN_ENDED))
    if len(more):
        notes = (*notes, f"Column {text.name}: values such as {more[0]!r} are read as {more[0].rstrip(' +')}.")
    is_plain = not notes and len(known) == len(text) - text.null_count()
    if is_plain and not known.cast(polars().Float64, strict=False).null_count():
        return (f"Column {text.name}: its text is read as numbers; --category {text.name} keeps it categorical.",)
    return notes
