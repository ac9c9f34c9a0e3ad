"""The columns that a served model needs: how each cell of JSON is read, checked and turned into what the model sees."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ddpn.features.canonical import canonical_level, canonical_number
from ddpn.workflow.cells import missing_numbers
from ddpn.workflow.dates import DAY, HOUR, MONTH, WEEKDAY
from ddpn.workflow.roles import Column

#: ISO 8601, as JSON Schema's formats "date" and "date-time" have it; seconds and the zone may be left out.
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[Tt ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:[Zz]|[+-]\d{2}:\d{2})?)?")
_NAN = float("nan")
_EPOCH = datetime(1970, 1, 1)
#: What a message calls the values of JSON, by their type in Python.
_FOUND = {str: "text", bool: "a boolean", int: "an integer", float: "a number", list: "a list", dict: "an object"}


class CellError(ValueError):
    """A cell that a column cannot have; the message goes after "must be"."""


@dataclass(frozen=True)
class ServedColumn:
    """A column of the requests.

    `kind` is "number", "boolean", "date", "category", "exposure", "upper", "group" or "ignored"; `parts` are the names
    of the model's columns that it becomes. `read` turns a cell into a value per part: a float (NaN where missing), or
    the name of a level (None where missing).
    """

    name: str
    kind: str
    schema: dict[str, Any]
    read: Callable[[Any], tuple[Any, ...]]
    parts: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    range: tuple[float, float] | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def is_required(self) -> bool:
        return self.kind != "ignored"


def shown(cell: Any) -> str:
    """A cell for a message: its type, and its value where that is short."""
    if cell is None:
        return "null"
    kind = _FOUND.get(type(cell), "a value")
    if isinstance(cell, list | dict):
        return kind
    words = repr(cell) if not isinstance(cell, bool) else str(cell).lower()
    return f"{kind} {words if len(words) <= 40 else words[:37] + '...'}" if isinstance(cell, str) else words[:40]


def number(cell: Any, absent: frozenset[float] = frozenset()) -> float:
    """A finite number, or NaN for null."""
    if cell is None:
        return _NAN
    if type(cell) is not float and type(cell) is not int:
        raise CellError(f"a number, or null where it is missing, got {shown(cell)}")
    try:
        value = float(cell)
    except OverflowError:
        raise CellError("a number that fits into 64 bits, got a larger one") from None
    if not math.isfinite(value):
        raise CellError(f"a finite number, got {value}")
    return _NAN if value in absent else value


def positive(cell: Any) -> float:
    """A finite number above 0."""
    value = _NAN if cell is None else number(cell)
    if not value > 0.0:
        raise CellError(f"a number above 0, got {shown(cell)}")
    return value


def bound(least: int) -> Callable[[Any], float]:
    """A reader of integers of at least `least`."""

    def read(cell: Any) -> float:
        value = _NAN if cell is None else number(cell)
        if not (value >= least and value == math.floor(value)):
            raise CellError(f"an integer of at least {least}, got {shown(cell)}")
        return value

    return read


def flag(cell: Any) -> float:
    """1 for true, 0 for false, NaN for null."""
    if cell is None:
        return _NAN
    if cell is not True and cell is not False:
        raise CellError(f"true or false, or null where it is missing, got {shown(cell)}")
    return float(cell)


def scalar(cell: Any) -> Any:
    """Text, a finite number, a boolean or null."""
    if cell is not None and type(cell) not in (str, bool, int, float):
        raise CellError(f"text, or null where it is missing, got {shown(cell)}")
    if type(cell) is float and not math.isfinite(cell):
        raise CellError(f"text or a finite number, got {cell}")
    return cell


def moment(cell: Any, zone: ZoneInfo | None) -> datetime | None:
    """A date or time by the clock of `zone`, or as it is written where there is none; None for null."""
    if cell is None:
        return None
    example = "a date such as 2024-12-31 or 2024-12-31T18:30:00"
    if not isinstance(cell, str) or _ISO.fullmatch(cell) is None:
        raise CellError(f"{example}, or null where it is missing, got {shown(cell)}")
    try:
        found = datetime.fromisoformat(cell.upper())
        if found.tzinfo is not None:
            found = (found if zone is None else found.astimezone(zone)).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise CellError(f"{example} that exists, got {shown(cell)}") from None
    return found


def date_numbers(found: datetime | None, parts: Iterable[str]) -> tuple[float, ...]:
    """The numbers that a model sees of a date, as `ddpn.workflow.dates.date_parts` has them."""
    if found is None:
        return tuple(_NAN for _ in parts)
    known = {
        DAY: (found - _EPOCH).total_seconds() / 86_400.0,
        MONTH: float(found.month),
        WEEKDAY: float(found.isoweekday()),
        HOUR: found.hour + found.minute / 60,
    }
    return tuple(known[part] for part in parts)


def level_reader(level_kind: str, missing: Iterable[str]) -> Callable[[Any], str | None]:
    """A reader of levels: their one name (`ddpn.features.canonical`), None for null and words that stand for it."""
    canonical = canonical_number if level_kind == "number" else canonical_level
    words = list(missing)
    absent = {word.strip() for word in words} | {canonical_number(word) for word in words} | {"nan"}

    def read(cell: Any) -> str | None:
        if scalar(cell) is None:
            return None
        try:
            name = canonical(cell)
        except OverflowError:
            raise CellError("text or a number that fits into 64 bits, got a larger one") from None
        return None if name in absent else name

    return read


def reader_of(column: Column, missing: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """How the cells of a column of the fit are read."""
    if column.kind == "number":
        absent = frozenset(missing_numbers(missing))
        return lambda cell: (number(cell, absent),)
    if column.kind == "boolean":
        return lambda cell: (flag(cell),)
    if column.kind == "date":
        zone = ZoneInfo(column.date.zone) if column.date.zone else None
        return lambda cell: date_numbers(moment(cell, zone), column.parts)
    if column.level_kind == "boolean":
        return lambda cell: (None if cell is None else str(bool(flag(cell))).lower(),)
    read = level_reader(column.level_kind, missing)
    return lambda cell: (read(cell),)
