"""From the raw columns of a table to the matrices that members read, inside the graph.

These are the inputs of networks, the columns of trees, and the designs of GLMs.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ddpn.export.graph import ML, Graph, Value
from ddpn.export.source import InputColumn
from ddpn.members.glm import Design
from ddpn.members.trees.member import MAX_LEVELS, TreeTable
from ddpn.storage.contents import JsonObject
from ddpn.tables.cells import DAY, HOUR, MONTH, WEEKDAY
from ddpn.tables.columns import Kind
from ddpn.tables.encoding import FeatureEncoder
from ddpn.tables.encoding.columns import LARGEST, SOFT_CLIP_LIMIT, CategoryEncoding, NumberEncoding
from ddpn.tables.levels import NUMBER, parse_number_level

_DAY_MICROSECONDS = 86_400e6


class TableNodes(NamedTuple):
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


def read_columns(
    graph: Graph, cells: Mapping[str, Value], columns: Sequence[InputColumn], levels: Mapping[str, tuple[str, ...]]
) -> TableNodes:
    """What the model sees of the cells of raw columns; `levels` are those of each category."""
    numbers: list[Value] = []
    codes: list[Value] = []
    number_names: list[str] = []
    for column in columns:
        own = cells[column.name]
        if column.kind == Kind.CATEGORY:
            codes.append(level_codes(graph, own, column, levels[column.names[0]]))
        else:
            numbers += _numbers(graph, own, column)
            number_names += column.names
    names = tuple(name for column in columns for name in column.names)
    return TableNodes(names, _side_by_side(numbers), tuple(number_names), _side_by_side(codes), dict(levels))


def _side_by_side(columns: list[Value]) -> Value | None:
    """One matrix of columns that have one element per row."""
    return columns[0].graph.concat([each.unsqueezed(1) for each in columns]) if columns else None


def _numbers(graph: Graph, cells: Value, column: InputColumn) -> list[Value]:
    """What a column of numbers, booleans or dates becomes; infinite values and markers are missing."""
    missing = cells.op("IsInf", kind="b")
    for marker in column.markers:
        missing = missing | cells.equals(marker)
    if column.kind == Kind.BOOLEAN:
        missing = missing | ~(cells.equals(0.0) | cells.equals(1.0))
    known = graph.where(missing, np.nan, cells)
    return _date_parts(graph, known, column.parts) if column.kind == Kind.DATE else [known]


def _date_parts(graph: Graph, seconds: Value, parts: Sequence[str]) -> list[Value]:
    """Numbers from seconds since 1970, as `ddpn.tables.cells.extract_date_parts` has them."""
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
    # Without blanks around a single word, and empty where there is none; one more word, so that there is always one.
    words, count = graph.ops("StringSplit", cells.op("StringConcat", " ."), kinds=("s", "i"))
    trimmed = graph.where(count.equals(1), "", graph.where(count.equals(2), words.take(0), cells))
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
    values = [(parse_number_level(level), code) for code, level in enumerate(levels)]
    values += [(marker, absent) for marker in column.markers]
    known = {value: code for value, code in reversed(values) if value is not None}
    if not column.by_value or not known:
        return codes
    # Text that is a number is a level by its value: 7, 7.0 and 007 are the same.
    is_number = trimmed.op("RegexFullMatch", kind="b", pattern=NUMBER.pattern)
    numbers = graph.where(is_number, trimmed, "nan").cast("f")
    same = numbers.unsqueezed(1).equals(np.array(list(known))).cast("i")
    place = same.op("ArgMax", axis=1, keepdims=0)
    found = same.max(1).reshaped(-1).cast("b")
    return graph.where(found, graph.constant(list(known.values())).take(place, axis=0), codes)


class _Placed(NamedTuple):
    """Some inputs as one matrix, and the position of each in the encoder's order."""

    inputs: Value
    places: list[int]


def encoded(graph: Graph, table: TableNodes, encoder: FeatureEncoder, chosen: np.ndarray | None = None) -> Value:
    """The encoder's inputs, or some of them; float64 with the values of float32. Shape: (rows, inputs)."""
    ends = np.cumsum([column.width for column in encoder.columns_])
    starts = dict(zip(table.names, (ends - [column.width for column in encoder.columns_]).tolist(), strict=True))
    own: JsonObject = dict(zip(table.names, encoder.columns_, strict=True))
    parts = _numeric_parts(graph, table, own, starts) if table.numbers is not None else []
    if table.codes is not None:
        parts += _category_parts(table.codes, table, own, starts)
    order = np.argsort(np.concatenate([part.places for part in parts]))
    order = order if chosen is None else order[chosen]
    return graph.concat([part.inputs for part in parts]).take(order).rounded_to_float32()


def _numeric_parts(
    graph: Graph, table: TableNodes, own: dict[str, NumberEncoding], starts: dict[str, int]
) -> list[_Placed]:
    """Values, indicators of missing values, bins, steps and codes of all columns of numbers."""
    assert table.numbers is not None
    names = table.number_names
    fields = {key: np.array([getattr(own[name], key) for name in names]) for key in ("fill", "center", "scale")}
    missing = table.numbers.is_nan()
    x = graph.where(missing, fields["fill"][None], table.numbers)
    z = ((x * 0.5 - 0.5 * fields["center"]) / (0.5 * fields["scale"])).clip(-LARGEST, LARGEST)
    # As `ddpn.tables.encoding.columns.soft_clip`.
    size = z.op("Abs")
    far = z.op("Sign") * ((size.clip(SOFT_CLIP_LIMIT, LARGEST) - (SOFT_CLIP_LIMIT - 1.0)).log() + SOFT_CLIP_LIMIT)
    z = graph.where(size > SOFT_CLIP_LIMIT, far, z)
    parts = [_Placed(z, [starts[name] for name in names])]
    flags = [j for j, name in enumerate(names) if own[name].has_missing]
    if flags:
        parts.append(_Placed(missing.take(flags).cast("f"), [starts[names[j]] + 1 for j in flags]))
    at = {name: starts[name] + 1 + own[name].has_missing for name in names}
    for key in ("edges", "steps", "codes"):
        each = [getattr(own[name], key) for name in names]
        widths = [max(0, len(values) - (key == "edges")) for values in each]
        places = [at[name] + i for name, width in zip(names, widths, strict=True) for i in range(width)]
        at = {name: at[name] + width for name, width in zip(names, widths, strict=True)}
        if not places:
            continue
        column, every = x.take(np.repeat(np.arange(len(names)), widths)), np.concatenate(each)[None]
        if key == "edges":  # how far bins are filled
            ends = ([edges[part] for edges in each] for part in (slice(None, -1), slice(1, None)))
            low, high = (0.5 * np.concatenate(side) for side in ends)
            parts.append(_Placed(((column * 0.5 - low) / (high - low)).clip(0.0, 1.0), places))
        else:  # which steps are passed, or which code a value is
            parts.append(_Placed((column > every if key == "steps" else column.equals(every)).cast("f"), places))
    return parts


def _category_parts(
    codes: Value, table: TableNodes, own: dict[str, CategoryEncoding], starts: dict[str, int]
) -> list[_Placed]:
    """One input per level, rare levels and missing values of all categories, and the effects of levels, if any."""
    targets, columns, inputs, places = [], [], [], []
    effects, with_effects, effect_places = [], [], []
    for j, (name, levels) in enumerate(table.levels.items()):
        column = own[name]
        other = len(column.levels) if column.has_other else column.indicators
        missing = len(column.levels) + column.has_other if column.has_missing else other
        place = {level: i for i, level in enumerate(column.levels)}
        targets.append([*(place.get(level, other) for level in levels), other, missing])
        columns += [j] * column.indicators
        inputs += list(range(column.indicators))
        places += [starts[name] + i for i in range(column.indicators)]
        if column.effects is not None:
            values = (column.effects.values.get(level, 0.0) for level in levels)
            effects.append([*values, 0.0, column.effects.missing])
            with_effects.append(j)
            effect_places.append(starts[name] + column.indicators)
    indicators = _looked_up(codes, targets).take(columns).equals(np.array([inputs])).cast("f")
    parts = [_Placed(indicators, places)]
    return [*parts, _Placed(_looked_up(codes.take(with_effects), effects), effect_places)] if effects else parts


def _looked_up(codes: Value, targets: Sequence[Sequence[float]]) -> Value:
    """What each code of each column stands for. Shape: (rows, columns)."""
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in targets])[:-1]])
    return codes.graph.constant(np.concatenate([np.asarray(each) for each in targets])).take(
        codes + offsets[None], axis=0
    )


def tree_matrix(graph: Graph, table: TableNodes, known: TreeTable) -> Value:
    """Numbers as they are and codes of levels, `MAX_LEVELS` for a missing one. Shape: (rows, columns)."""
    levels = known.levels
    parts = (
        [] if table.numbers is None else [_Placed(table.numbers, [table.names.index(n) for n in table.number_names])]
    )
    if table.codes is not None:
        targets = []
        for name, every in table.levels.items():
            place = {level: float(code) for code, level in enumerate(levels[name])}
            missing = float(MAX_LEVELS)
            targets.append([*(place.get(level, missing) for level in every), missing, missing])
        parts.append(_Placed(_looked_up(table.codes, targets), [table.names.index(name) for name in table.levels]))
    order = np.argsort(np.concatenate([part.places for part in parts]))
    return graph.concat([part.inputs for part in parts]).take(order)


def design_matrix(graph: Graph, table: TableNodes, design: Design) -> Value:
    """The columns of a `CountGLM`; NaN where a value is missing or a level is unknown. Shape: (rows, coefficients)."""
    parts = []
    for name in table.names:
        levels = design.levels.get(name)
        if levels is None:
            assert table.numbers is not None
            parts.append(table.numbers.take([table.number_names.index(name)]))
            continue
        every = table.levels[name]
        rows = np.full((len(every) + 2, len(levels) - 1), np.nan)
        for code, level in enumerate(every):
            if level in levels:
                rows[code] = np.eye(len(levels))[levels.index(level)][1:]
        assert table.codes is not None
        if len(levels) > 1:
            codes = table.codes.take(list(table.levels).index(name))
            parts.append(graph.constant(rows).take(codes, axis=0))
    return graph.concat(parts)
