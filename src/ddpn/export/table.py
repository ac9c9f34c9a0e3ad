"""From the raw columns of a table to numbers and codes of levels, inside the graph."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ddpn.export.graph import ML, Graph, Value
from ddpn.export.schema import InputColumn
from ddpn.tables.cells import DAY, HOUR, MONTH, WEEKDAY
from ddpn.tables.kinds import NUMBER, number_of

_DAY_MICROSECONDS = 86_400e6


class Table(NamedTuple):
    """The columns that a model sees.

    `numbers` has a column per number, date part and boolean, NaN where missing, in the order of `number_names`. `codes`
    has a column per category, in the order of `levels`: the position of the level, after these one for levels that are
    unknown, and one for missing values. Shape: (rows, columns) each; None without columns of that sort.
    """

    names: tuple[str, ...]
    numbers: Value | None
    number_names: tuple[str, ...]
    codes: Value | None
    levels: dict[str, tuple[str, ...]]


def read_columns(graph: Graph, columns: Sequence[InputColumn], levels: Mapping[str, tuple[str, ...]]) -> Table:
    """Inputs for the raw columns, and what the model sees of them; `levels` are those of each category."""
    numbers: list[Value] = []
    codes: list[Value] = []
    number_names: list[str] = []
    for column in columns:
        cells = graph.input(column.name, column.element)
        if column.kind == "category":
            codes.append(level_codes(graph, cells, column, levels[column.names[0]]))
        else:
            numbers += _numbers(graph, cells, column)
            number_names += column.names
    names = tuple(name for column in columns for name in column.names)
    return Table(names, _side_by_side(numbers), tuple(number_names), _side_by_side(codes), dict(levels))


def _side_by_side(columns: list[Value]) -> Value | None:
    """One matrix of columns that have one element per row."""
    return columns[0].graph.concat([each.unsqueezed(1) for each in columns]) if columns else None


def _numbers(graph: Graph, cells: Value, column: InputColumn) -> list[Value]:
    """What a column of numbers, booleans or dates becomes; infinite values and markers are missing."""
    missing = cells.op("IsInf", kind="b")
    for marker in column.markers:
        missing = missing | cells.equals(marker)
    if column.kind == "boolean":
        missing = missing | ~(cells.equals(0.0) | cells.equals(1.0))
    known = graph.where(missing, np.nan, cells)
    return _date_parts(graph, known, column.parts) if column.kind == "date" else [known]


def _date_parts(graph: Graph, seconds: Value, parts: Sequence[str]) -> list[Value]:
    """Numbers from seconds since 1970, as `ddpn.tables.cells.date_parts` has them."""
    time = (seconds * 1e6).op("Round")
    days = (time / _DAY_MICROSECONDS).floor()
    rest = time - days * _DAY_MICROSECONDS
    hours = (rest / 3600e6).floor()
    minutes = ((rest - hours * 3600e6) / 60e6).floor()
    week = days + 3.0
    found = {
        DAY: lambda: time / _DAY_MICROSECONDS,
        MONTH: lambda: _month(graph, days),
        WEEKDAY: lambda: week - (week / 7.0).floor() * 7.0 + 1.0,
        HOUR: lambda: hours + minutes / 60.0,
    }
    return [found[part]() for part in parts]


def _month(graph: Graph, days: Value) -> Value:
    """The month of the Gregorian calendar, by years that start in March (Hinnant, 2013)."""
    z = days + 719468.0
    day = z - (z / 146097.0).floor() * 146097.0
    leap = (day / 1460.0).floor() - (day / 36524.0).floor() + (day / 146096.0).floor()
    year = ((day - leap) / 365.0).floor()
    day = day - (year * 365.0 + (year / 4.0).floor() - (year / 100.0).floor())
    month = ((day * 5.0 + 2.0) / 153.0).floor()
    return graph.where(month < 10.0, month + 3.0, month - 9.0)


def level_codes(graph: Graph, cells: Value, column: InputColumn, levels: Sequence[str]) -> Value:
    """The position of each row's level; len(levels) for unknown ones and len(levels) + 1 where it is missing."""
    trimmed = _trimmed(graph, cells)
    unknown, absent = len(levels), len(levels) + 1
    keys = {level: code for code, level in enumerate(levels)}
    keys |= {alias: keys[level] for alias, level in column.aliases if level in keys}
    keys = {word: absent for word in column.words if word not in keys} | keys
    # Blanks around a single word are removed above.
    blanks = {f"{a}{key}{b}": code for key, code in keys.items() if " " in key for a in ("", " ") for b in ("", " ")}
    keys = blanks | keys
    codes = trimmed.op(
        "LabelEncoder", kind="i", domain=ML, keys_strings=list(keys), values_int64s=list(keys.values()),
        default_int64=unknown,
    )  # fmt: skip
    values = [(number_of(level), code) for code, level in enumerate(levels)]
    values += [(marker, absent) for marker in column.markers]
    known = {value: code for value, code in reversed(values) if value is not None}
    return _by_value(graph, trimmed, codes, known) if column.by_value and known else codes


def _by_value(graph: Graph, text: Value, codes: Value, known: Mapping[float, int]) -> Value:
    """Codes of text that is a number by its value: 7, 7.0 and 007 are the same level."""
    is_number = text.op("RegexFullMatch", kind="b", pattern=NUMBER.pattern)
    values = graph.where(is_number, text, "nan").cast("f")
    same = values.unsqueezed(1).equals(np.array(list(known))).cast("i")
    place = same.op("ArgMax", axis=1, keepdims=0)
    found = same.max(1).reshaped(-1).cast("b")
    return graph.where(found, graph.constant(list(known.values())).take(place, axis=0), codes)


def _trimmed(graph: Graph, cells: Value) -> Value:
    """Text without blanks around it where it is a single word, and empty where there is none."""
    # One more word, so that there is always one.
    words, count = graph.ops("StringSplit", cells.op("StringConcat", " ."), kinds=("s", "i"))
    single = graph.where(count.equals(2), words.take(0), cells)
    return graph.where(count.equals(1), "", single)
