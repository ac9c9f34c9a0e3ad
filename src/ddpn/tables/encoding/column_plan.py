"""The inputs of rows, of all columns of an encoder at once: one row takes as few numpy calls as many rows do."""

from collections.abc import Sequence

import numpy as np

from ddpn.tables.encoding.categorical import CategoricalColumn, by_level
from ddpn.tables.encoding.numeric import NumericColumn, bounded
from ddpn.tables.encoding.table import Column

Encoded = NumericColumn | CategoricalColumn
#: Rows whose numbers are encoded together, so that they stay in cache.
_ROWS = 512


class ColumnPlan:
    """Fields of fitted columns as arrays over columns, bins, steps and codes.

    Parameters
    ----------
    columns : sequence of NumericColumn or CategoricalColumn
        The encoding of each column.
    """

    def __init__(self, columns: Sequence[Encoded]) -> None:
        starts = np.cumsum([0, *(column.width for column in columns)])
        self.width = int(starts[-1])
        numbers = [(j, column) for j, column in enumerate(columns) if isinstance(column, NumericColumn)]
        self._numbers = [j for j, _ in numbers]
        self._fill = np.array([column.fill for _, column in numbers])
        self._center = np.array([0.5 * column.center for _, column in numbers])
        self._scale = np.array([0.5 * column.scale for _, column in numbers])
        self._values = starts[self._numbers]
        own = [column for _, column in numbers]
        widths = [
            (int(each.has_missing), max(len(each.edges) - 1, 0), len(each.steps), len(each.codes)) for each in own
        ]
        # The inputs of a column are its value, then these in their order.
        targets = [np.cumsum([starts[j] + 1, *width]) for j, width in zip(self._numbers, widths, strict=True)]
        self._missing, self._bins, self._steps, self._codes = (_inputs(widths, targets, i) for i in range(4))
        self._low = 0.5 * _flat([each.edges[:-1] for each in own])
        self._length = 0.5 * _flat([each.edges[1:] for each in own]) - self._low
        self._cuts, self._equal = _flat([each.steps for each in own]), _flat([each.codes for each in own])
        texts = [(j, column) for j, column in enumerate(columns) if isinstance(column, CategoricalColumn)]
        self._categories = [(j, _places(column, int(starts[j]))) for j, column in texts]
        self._effects = [(j, int(starts[j + 1]) - 1, own.effects) for j, own in texts if own.effects is not None]

    def encode(self, table: Sequence[Column], limit: float) -> np.ndarray:
        """Inputs of rows, in float32. Shape: (rows, width)."""
        rows = len(table[0].values)
        out = np.zeros((rows, self.width), dtype=np.float32)
        for top in range(0, rows if self._numbers else 0, _ROWS):
            part = slice(top, top + _ROWS)
            x = np.array([table[j].values[part] for j in self._numbers], dtype=np.float64).T
            self._write_numbers(x, out[part], limit)
        for j, (places, other, missing) in self._categories:
            place = by_level(table[j].values, table[j].levels, places, other, missing)
            known = np.flatnonzero(place >= 0)
            out[known, place[known]] = 1.0
        for j, target, effects in self._effects:
            out[:, target] = effects.of(table[j].values, table[j].levels)
        return out

    def _write_numbers(self, x: np.ndarray, out: np.ndarray, limit: float) -> None:
        missing = np.isnan(x)
        x = np.where(missing, self._fill, x)
        half = 0.5 * x
        with np.errstate(over="ignore"):
            out[:, self._values] = bounded((half - self._center) / self._scale, limit)
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


def _inputs(widths: Sequence[tuple[int, ...]], targets: list[np.ndarray], part: int) -> tuple[np.ndarray, np.ndarray]:
    """Of one part of all columns: the position of each input's column among those of numbers, and of the input."""
    source = np.repeat(np.arange(len(widths)), [width[part] for width in widths])
    ranges = [np.arange(at[part], at[part] + width[part]) for at, width in zip(targets, widths, strict=True)]
    return source, np.concatenate([np.empty(0, dtype=np.int64), *ranges])


def _flat(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0), *parts])


def _places(column: CategoricalColumn, start: int) -> tuple[dict[str, int], int, int]:
    """Inputs of levels, of other levels, and of missing values; -1 where there is none."""
    places = {level: start + j for j, level in enumerate(column.levels)}
    other = start + len(places) if column.has_other else -1
    return places, other, start + len(places) + column.has_other if column.has_missing else other
