"""Encode all columns of a table at once, as float32 inputs of a network."""

from collections.abc import Sequence

import numpy as np

from ddpn.tables.columns import ColumnTable
from ddpn.tables.encoding.categories import CategoryEncoding, LevelEffects
from ddpn.tables.encoding.numbers import NumberEncoding, soft_clip

Encoded = NumberEncoding | CategoryEncoding
#: Rows per block of numbers, which must fit into the processor's cache.
_BLOCK_ROWS = 512


class ColumnPlan:
    """The encodings of all columns, stored as flat arrays, so that a single row can be encoded by few NumPy calls.

    `columns` has the encoding of each column of the table, in the order of the columns.
    """

    def __init__(self, columns: Sequence[Encoded]) -> None:
        starts = np.cumsum([0, *(column.width for column in columns)])
        self.width = int(starts[-1])
        numbers = [(j, column) for j, column in enumerate(columns) if isinstance(column, NumberEncoding)]
        self._numbers = [j for j, _ in numbers]
        self._fill = np.array([column.fill for _, column in numbers])
        self._center = np.array([0.5 * column.center for _, column in numbers])
        self._scale = np.array([0.5 * column.scale for _, column in numbers])
        self._values = starts[self._numbers]
        encodings = [column for _, column in numbers]
        widths = [
            (int(encoding.has_missing), max(len(encoding.edges) - 1, 0), len(encoding.steps), len(encoding.codes))
            for encoding in encodings
        ]
        # The inputs of a column are its value, followed by these in order.
        targets = [np.cumsum([starts[j] + 1, *width]) for j, width in zip(self._numbers, widths, strict=True)]
        self._missing, self._bins, self._steps, self._codes = (_index_inputs(widths, targets, i) for i in range(4))
        self._low = 0.5 * _concatenate([encoding.edges[:-1] for encoding in encodings])
        self._length = 0.5 * _concatenate([encoding.edges[1:] for encoding in encodings]) - self._low
        self._cuts, self._equal = (
            _concatenate([encoding.steps for encoding in encodings]),
            _concatenate([encoding.codes for encoding in encodings]),
        )
        #: For each category: its column, and the inputs of its levels, of other levels and of missing values (-1 if
        #: none).
        self._categories: list[tuple[int, dict[str, int], int, int]] = []
        self._effects: list[tuple[int, int, LevelEffects]] = []
        for j, column in enumerate(columns):
            if isinstance(column, CategoryEncoding):
                positions = {level: int(starts[j]) + at for at, level in enumerate(column.levels)}
                end = int(starts[j]) + len(positions)
                other = end if column.has_other else -1
                self._categories.append((j, positions, other, end + column.has_other if column.has_missing else other))
                if column.effects is not None:
                    self._effects.append((j, int(starts[j + 1]) - 1, column.effects))

    @property
    def numeric_inputs(self) -> list[int]:
        """Positions of the inputs that can be any number, such as values and level effects. Other inputs are 0 or 1."""
        return sorted([*self._values.tolist(), *self._bins[1].tolist(), *(target for _, target, _ in self._effects)])

    def encode(self, table: ColumnTable) -> np.ndarray:
        """Encode rows as float32. Shape: (rows, inputs)."""
        rows = len(table)
        out = np.zeros((rows, self.width), dtype=np.float32)
        for top in range(0, rows if self._numbers else 0, _BLOCK_ROWS):
            part = slice(top, top + _BLOCK_ROWS)
            x = np.array([table[j].values[part] for j in self._numbers], dtype=np.float64).T
            self._write_numbers(x, out[part])
        for j, positions, other, missing in self._categories:
            position = table[j].map_levels(positions, other, missing)
            rows_with_input = np.flatnonzero(position >= 0)
            out[rows_with_input, position[rows_with_input]] = 1.0
        for j, target, effects in self._effects:
            out[:, target] = effects.look_up(table[j])
        return out

    def _write_numbers(self, x: np.ndarray, out: np.ndarray) -> None:
        """Write the inputs of all columns of numbers to `out`, an array (rows, inputs).

        `x` has the values, shape (rows, columns of numbers), with NaN where they are missing. The inputs of all other
        columns in `out` stay unchanged.
        """
        missing = np.isnan(x)
        x = np.where(missing, self._fill, x)
        half = 0.5 * x
        with np.errstate(over="ignore"):
            out[:, self._values] = soft_clip((half - self._center) / self._scale)
            if len(self._low):
                source, target = self._bins
                part = half[:, source]
                part -= self._low
                part /= self._length
                out[:, target] = np.clip(part, 0.0, 1.0, out=part)
        if len(self._missing[0]):
            out[:, self._missing[1]] = missing[:, self._missing[0]]
        if len(self._cuts):
            out[:, self._steps[1]] = x[:, self._steps[0]] > self._cuts
        if len(self._equal):
            out[:, self._codes[1]] = x[:, self._codes[0]] == self._equal


def _index_inputs(
    widths: Sequence[tuple[int, ...]], targets: list[np.ndarray], part: int
) -> tuple[np.ndarray, np.ndarray]:
    """Index the inputs of one type that are derived from columns of numbers.

    Parameters
    ----------
    widths : sequence of tuples
        For each column of numbers, the number of inputs of each of the four types.
    targets : list of arrays
        For each column of numbers, the position of its first input of each type among all inputs.
    part : int
        The type: 0 for missing indicators, 1 for bins, 2 for steps and 3 for one-hot codes.

    Returns
    -------
    source : array of int, shape (inputs of this type,)
        For each input of this type, the position of its column among the columns of numbers.
    target : array of int, shape (inputs of this type,)
        For each input of this type, its position among all inputs.
    """
    source = np.repeat(np.arange(len(widths)), [width[part] for width in widths])
    ranges = [np.arange(at[part], at[part] + width[part]) for at, width in zip(targets, widths, strict=True)]
    return source, np.concatenate([np.empty(0, dtype=np.int64), *ranges])


def _concatenate(parts: list[np.ndarray]) -> np.ndarray:
    """Concatenate arrays; return an empty array if the list is empty."""
    return np.concatenate([np.empty(0), *parts])
