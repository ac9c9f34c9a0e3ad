"""Add graph nodes that encode the raw columns of a table as matrices of numbers, from which members predict.

These matrices are the inputs of networks, the columns of trees, and the design matrices of GLMs. A level is a value of
a category. Its code is its position in the list of levels.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ddpn.export.graph import ML, Graph, Value
from ddpn.export.source import InputColumn
from ddpn.members.design import Design
from ddpn.members.trees.table import MAX_LEVELS, TreeTable
from ddpn.storage.contents import JsonObject
from ddpn.tables.columns import Kind
from ddpn.tables.dates import DAY, HOUR, MONTH, WEEKDAY
from ddpn.tables.encoding import TableEncoder
from ddpn.tables.encoding.categories import CategoryEncoding
from ddpn.tables.encoding.numbers import LARGEST, SOFT_CLIP_LIMIT, NumberEncoding
from ddpn.tables.levels import NUMBER, parse_number_level

_DAY_MICROSECONDS = 86_400e6


class EncodedTable(NamedTuple):
    """The columns of a table as two matrices: one of numbers, and one of the codes of categories.

    Attributes
    ----------
    names : tuple of str
        All columns, in the order of the table.
    numbers : Value or None, shape (rows, columns)
        Numbers, parts of dates and booleans, with NaN for missing values. None if there are no such columns.
    number_names : tuple of str
        The names of the columns of `numbers`.
    codes : Value or None, shape (rows, columns)
        A column per category, in the order of `levels`. If a category has n levels, their codes are 0, ..., n - 1. Code
        n stands for unknown levels, and n + 1 for missing values. None if there are no categories.
    levels : dict of str to tuple
        The levels of each category, by name.
    """

    names: tuple[str, ...]
    numbers: Value | None
    number_names: tuple[str, ...]
    codes: Value | None
    levels: dict[str, tuple[str, ...]]


def read_columns(
    graph: Graph, cells: Mapping[str, Value], columns: Sequence[InputColumn], levels: Mapping[str, tuple[str, ...]]
) -> EncodedTable:
    """Encode the raw columns of a table as numbers and codes.

    Parameters
    ----------
    graph : Graph
        The graph to which nodes are added.
    cells : mapping of str to Value
        The raw values of each column, shape (rows,), by name.
    columns : sequence of InputColumn
        The columns to encode, and how their cells are converted.
    levels : mapping of str to tuple of str
        The levels of each category, by the name of the category.
    """
    numbers: list[Value] = []
    codes: list[Value] = []
    number_names: list[str] = []
    for column in columns:
        column_cells = cells[column.name]
        if column.kind == Kind.CATEGORY:
            codes.append(find_level_codes(graph, column_cells, column, levels[column.names[0]]))
        else:
            numbers += _convert_numbers(graph, column_cells, column)
            number_names += column.names
    names = tuple(name for column in columns for name in column.names)
    return EncodedTable(names, _join_columns(numbers), tuple(number_names), _join_columns(codes), dict(levels))


def _join_columns(columns: list[Value]) -> Value | None:
    """Join columns with shape (rows,) to a matrix with shape (rows, columns); return None if there are no columns."""
    return columns[0].graph.concat([column.add_axes(1) for column in columns]) if columns else None


def _convert_numbers(graph: Graph, cells: Value, column: InputColumn) -> list[Value]:
    """Convert a column of numbers, booleans or dates to columns of numbers: several for a date, otherwise one.

    Infinite values, and numbers that stand for a missing value, become NaN.
    """
    missing = cells.op("IsInf", kind="b")
    for marker in column.markers:
        missing = missing | cells.equals(marker)
    if column.kind == Kind.BOOLEAN:
        missing = missing | ~(cells.equals(0.0) | cells.equals(1.0))
    values = graph.where(missing, np.nan, cells)
    return _compute_date_parts(graph, values, column.parts) if column.kind == Kind.DATE else [values]


def _compute_date_parts(graph: Graph, seconds: Value, parts: Sequence[str]) -> list[Value]:
    """Compute date parts from seconds since 1970; return one value of shape (rows,) for each of `parts`.

    The names of parts, such as the month, and the results are those of `ddpn.tables.dates.extract_date_parts`.
    """
    time = (seconds * 1e6).op("Round")
    days = (time / _DAY_MICROSECONDS).floor()
    time_of_day = time - days * _DAY_MICROSECONDS
    hours = (time_of_day / 3600e6).floor()
    minutes = ((time_of_day - hours * 3600e6) / 60e6).floor()
    week = days + 3.0
    compute_part = {
        DAY: lambda: time / _DAY_MICROSECONDS,
        MONTH: lambda: _compute_month(graph, days),
        WEEKDAY: lambda: week - (week / 7.0).floor() * 7.0 + 1.0,
        HOUR: lambda: hours + minutes / 60.0,
    }
    return [compute_part[part]() for part in parts]


def _compute_month(graph: Graph, days: Value) -> Value:
    """Compute the month, from 1 to 12, from days since 1970.

    The algorithm counts years from March, so that leap days are at the end of a year (Hinnant, 2013).
    """
    z = days + 719468.0
    day = z - (z / 146097.0).floor() * 146097.0
    leap = (day / 1460.0).floor() - (day / 36524.0).floor() + (day / 146096.0).floor()
    year = ((day - leap) / 365.0).floor()
    day = day - (year * 365.0 + (year / 4.0).floor() - (year / 100.0).floor())
    month = ((day * 5.0 + 2.0) / 153.0).floor()
    return graph.where(month < 10.0, month + 3.0, month - 9.0)


def find_level_codes(graph: Graph, cells: Value, column: InputColumn, levels: Sequence[str]) -> Value:
    """Find the code of each cell of a category: the position of its level in `levels`.

    The code is len(levels) for unknown levels, and len(levels) + 1 for missing values. `cells` has the text of each
    row, and `column` says which words stand for a missing value and which texts are other spellings of a level. Blanks
    around the text are ignored. Shape: (rows,).
    """
    # Strip blanks around a single word. An additional word is appended, so that even an empty cell has one.
    words, count = graph.ops("StringSplit", cells.op("StringConcat", " ."), kinds=("s", "i"))
    trimmed = graph.where(count.equals(1), "", graph.where(count.equals(2), words.take(0), cells))
    unknown, missing = len(levels), len(levels) + 1
    keys = {level: code for code, level in enumerate(levels)}
    keys |= {alias: keys[level] for alias, level in column.aliases if level in keys}
    keys = {word: missing for word in column.words if word not in keys} | keys
    # Levels of several words are matched with and without blanks around them.
    blanks = {f"{a}{key}{b}": code for key, code in keys.items() if " " in key for a in ("", " ") for b in ("", " ")}
    keys = blanks | keys
    codes = trimmed.op(
        "LabelEncoder", kind="i", domain=ML, keys_strings=list(keys), values_int64s=list(keys.values()),
        default_int64=unknown,
    )  # fmt: skip
    values = [(parse_number_level(level), code) for code, level in enumerate(levels)]
    values += [(marker, missing) for marker in column.markers]
    code_by_value = {value: code for value, code in reversed(values) if value is not None}
    if not column.by_value or not code_by_value:
        return codes
    # Text that is a number is matched by value: 7, 7.0 and 007 are the same level.
    is_number = trimmed.op("RegexFullMatch", kind="b", pattern=NUMBER.pattern)
    numbers = graph.where(is_number, trimmed, "nan").cast("f")
    is_equal = numbers.add_axes(1).equals(np.array(list(code_by_value))).cast("i")
    match = is_equal.op("ArgMax", axis=1, keepdims=0)
    # Exact matches come first: different integers of 17 digits may be equal as numbers.
    has_match = is_equal.max(1).reshape(-1).cast("b")
    by_value = graph.where(has_match, graph.constant(list(code_by_value.values())).take(match, axis=0), codes)
    return graph.where(codes.equals(unknown), by_value, codes)


class _PositionedInputs(NamedTuple):
    """Some columns of the matrix that an encoder computes, with their positions in the whole matrix.

    `inputs` has the columns, shape (rows, columns).
    """

    inputs: Value
    positions: list[int]


def encode_inputs(graph: Graph, table: EncodedTable, encoder: TableEncoder, chosen: np.ndarray | None = None) -> Value:
    """Encode a table like a fitted `TableEncoder`, as the input matrix of a network or GLM. Shape: (rows, inputs).

    Values are rounded to float32 precision, but stay float64. `chosen` has the positions of the columns of the encoded
    matrix to return. By default, all are returned.
    """
    ends = np.cumsum([column.width for column in encoder.columns_])
    starts = dict(zip(table.names, (ends - [column.width for column in encoder.columns_]).tolist(), strict=True))
    encodings: JsonObject = dict(zip(table.names, encoder.columns_, strict=True))
    parts = _encode_numbers(graph, table, encodings, starts) if table.numbers is not None else []
    if table.codes is not None:
        parts += _encode_categories(table.codes, table, encodings, starts)
    order = np.argsort(np.concatenate([part.positions for part in parts]))
    order = order if chosen is None else order[chosen]
    return graph.concat([part.inputs for part in parts]).take(order).round_to_float32()


def _encode_numbers(
    graph: Graph, table: EncodedTable, encodings: dict[str, NumberEncoding], starts: dict[str, int]
) -> list[_PositionedInputs]:
    """Encode all columns of numbers: standardised values, missing indicators, bins, steps and one-hot codes.

    `encodings` has the fitted encoding of each column, and `starts` has the position of its first input in the whole
    matrix.
    """
    assert table.numbers is not None
    names = table.number_names
    fields = {key: np.array([getattr(encodings[name], key) for name in names]) for key in ("fill", "center", "scale")}
    missing = table.numbers.is_nan()
    x = graph.where(missing, fields["fill"][None], table.numbers)
    z = ((x * 0.5 - 0.5 * fields["center"]) / (0.5 * fields["scale"])).clip(-LARGEST, LARGEST)
    # As `ddpn.tables.encoding.columns.soft_clip`.
    size = z.op("Abs")
    far = z.op("Sign") * ((size.clip(SOFT_CLIP_LIMIT, LARGEST) - (SOFT_CLIP_LIMIT - 1.0)).log() + SOFT_CLIP_LIMIT)
    z = graph.where(size > SOFT_CLIP_LIMIT, far, z)
    parts = [_PositionedInputs(z, [starts[name] for name in names])]
    flags = [j for j, name in enumerate(names) if encodings[name].has_missing]
    if flags:
        parts.append(_PositionedInputs(missing.take(flags).cast("f"), [starts[names[j]] + 1 for j in flags]))
    next_position = {name: starts[name] + 1 + encodings[name].has_missing for name in names}
    for key in ("edges", "steps", "codes"):
        value_lists = [getattr(encodings[name], key) for name in names]
        widths = [max(0, len(values) - (key == "edges")) for values in value_lists]
        positions = [next_position[name] + i for name, width in zip(names, widths, strict=True) for i in range(width)]
        next_position = {name: next_position[name] + width for name, width in zip(names, widths, strict=True)}
        if not positions:
            continue
        column, thresholds = x.take(np.repeat(np.arange(len(names)), widths)), np.concatenate(value_lists)[None]
        if key == "edges":  # the share of each bin below the value
            ends = ([edges[part] for edges in value_lists] for part in (slice(None, -1), slice(1, None)))
            low, high = (0.5 * np.concatenate(side) for side in ends)
            parts.append(_PositionedInputs(((column * 0.5 - low) / (high - low)).clip(0.0, 1.0), positions))
        else:  # True for steps below the value, or for the code that equals the value
            parts.append(
                _PositionedInputs(
                    (column > thresholds if key == "steps" else column.equals(thresholds)).cast("f"), positions
                )
            )
    return parts


def _encode_categories(
    codes: Value, table: EncodedTable, encodings: dict[str, CategoryEncoding], starts: dict[str, int]
) -> list[_PositionedInputs]:
    """Encode all categories: indicators of levels, of rare levels and of missing values, and level effects.

    A level effect is a number for the level (target encoding, `CategoryEncoding.effects`). `encodings` has the fitted
    encoding of each column, and `starts` has the position of its first input in the whole matrix.
    """
    targets, columns, inputs, positions = [], [], [], []
    effects, with_effects, effect_positions = [], [], []
    for j, (name, levels) in enumerate(table.levels.items()):
        column = encodings[name]
        other = len(column.levels) if column.has_other else column.indicators
        missing = len(column.levels) + column.has_other if column.has_missing else other
        position_by_level = {level: i for i, level in enumerate(column.levels)}
        targets.append([*(position_by_level.get(level, other) for level in levels), other, missing])
        columns += [j] * column.indicators
        inputs += list(range(column.indicators))
        positions += [starts[name] + i for i in range(column.indicators)]
        if column.effects is not None:
            values = (column.effects.values.get(level, 0.0) for level in levels)
            effects.append([*values, 0.0, column.effects.missing])
            with_effects.append(j)
            effect_positions.append(starts[name] + column.indicators)
    indicators = _map_codes(codes, targets).take(columns).equals(np.array([inputs])).cast("f")
    parts = [_PositionedInputs(indicators, positions)]
    return (
        [*parts, _PositionedInputs(_map_codes(codes.take(with_effects), effects), effect_positions)]
        if effects
        else parts
    )


def _map_codes(codes: Value, targets: Sequence[Sequence[float]]) -> Value:
    """Replace codes by numbers: code c in column j becomes `targets[j][c]`.

    `codes` has shape (rows, columns), and so has the result. `targets` has one sequence per column.
    """
    offsets = np.concatenate([[0], np.cumsum([len(column_targets) for column_targets in targets])[:-1]])
    return codes.graph.constant(np.concatenate([np.asarray(column_targets) for column_targets in targets])).take(
        codes + offsets[None], axis=0
    )


def build_tree_matrix(graph: Graph, table: EncodedTable, tree_table: TreeTable) -> Value:
    """Build the matrix of numbers and codes that boosted trees take as input. Shape: (rows, columns).

    A category is a column of the codes that `tree_table` gives its levels. The code `MAX_LEVELS` stands for missing and
    unknown levels.
    """
    levels = tree_table.levels
    parts = (
        []
        if table.numbers is None
        else [_PositionedInputs(table.numbers, [table.names.index(n) for n in table.number_names])]
    )
    if table.codes is not None:
        targets = []
        for name, names_of_levels in table.levels.items():
            code_by_level = {level: float(code) for code, level in enumerate(levels[name])}
            missing = float(MAX_LEVELS)
            targets.append([*(code_by_level.get(level, missing) for level in names_of_levels), missing, missing])
        parts.append(
            _PositionedInputs(_map_codes(table.codes, targets), [table.names.index(name) for name in table.levels])
        )
    order = np.argsort(np.concatenate([part.positions for part in parts]))
    return graph.concat([part.inputs for part in parts]).take(order)


def build_design_matrix(graph: Graph, table: EncodedTable, design: Design) -> Value:
    """Build the design matrix of a `CountGLM`. Shape: (rows, coefficients).

    Missing values and unknown levels become NaN.
    """
    parts = []
    for name in table.names:
        levels = design.levels.get(name)
        if levels is None:
            assert table.numbers is not None
            parts.append(table.numbers.take([table.number_names.index(name)]))
            continue
        table_levels = table.levels[name]
        rows = np.full((len(table_levels) + 2, len(levels) - 1), np.nan)
        for code, level in enumerate(table_levels):
            if level in levels:
                rows[code] = np.eye(len(levels))[levels.index(level)][1:]
        assert table.codes is not None
        if len(levels) > 1:
            codes = table.codes.take(list(table.levels).index(name))
            parts.append(graph.constant(rows).take(codes, axis=0))
    return graph.concat(parts)
