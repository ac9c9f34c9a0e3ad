"""Inputs of training rows whose level effects were fitted to other rows.

With effects that hold a row's own count, a network would learn to trust them more than those of new rows deserve.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from ddpn.tables.encoding.categorical import CategoricalColumn, LevelEffects, Targets, refit_effects, targets_of
from ddpn.tables.encoding.column_plan import Encoded
from ddpn.tables.encoding.kinds import read_as_fitted
from ddpn.tables.encoding.table import Column
from ddpn.tables.hashing import MISSING_TEXT, hashed, number_codes, text_codes
from ddpn.tables.splits import FOLDS

#: Effects are of use if those of other folds vary at least by this share of what those of all rows do.
_LEAST_SPREAD = 0.2


def has_effects(encoder: Any) -> bool:
    """Whether some column of a `FeatureEncoder` has level effects: training rows then need inputs of their own."""
    return any(isinstance(own, CategoricalColumn) and own.effects is not None for own in encoder.columns_)


class OutOfFoldEffects:
    """Level effects per fold, each fitted to the rows of the other folds.

    Parameters
    ----------
    encoder : FeatureEncoder
        The encoder that was fitted to the rows.
    X : array-like or data frame
        The rows.
    y : array
        Their counts.
    weight, exposure : array, optional
        How many times each row counts, and its known scale.
    fold : array of int
        The number of each row's fold, from 0 on.
    """

    def __init__(
        self,
        encoder: Any,
        X: Any,
        y: np.ndarray,
        weight: np.ndarray | None,
        exposure: np.ndarray | None,
        fold: np.ndarray,
    ) -> None:
        self.encoder = encoder
        table = read_as_fitted(encoder, X)
        target = targets_of(y, np.ones(len(y)) if weight is None else weight, exposure)
        ends = np.cumsum([column.width for column in encoder.columns_]).tolist()
        self._effects: dict[int, tuple[int, list[LevelEffects]]] = {}
        for j, (cells, column) in enumerate(zip(table, encoder.columns_, strict=True)):
            if isinstance(column, CategoricalColumn) and column.effects is not None:
                self._effects[j] = ends[j] - 1, _by_fold(cells, column.effects.scale, target, fold)
        #: Positions of columns whose effects hardly vary where they were fitted to other rows.
        self.useless = {
            j for j, (_, effects) in self._effects.items() if np.std(self._of(table[j], effects, fold)) < _LEAST_SPREAD
        }

    def inputs(self, X: Any, fold: np.ndarray) -> np.ndarray:
        """As `FeatureEncoder.transform`, with the effects that left out each row's fold. Shape: (rows, inputs)."""
        out, table = self.encoder.encode(X), read_as_fitted(self.encoder, X)
        for j, (place, effects) in self._effects.items():
            out[:, place] = self._of(table[j], effects, fold)
        return out

    def inputs_by_content(self, X: Any) -> np.ndarray:
        """The same, with the folds of `content_folds`."""
        return self.inputs(X, content_folds(self.encoder, X))

    @staticmethod
    def _of(cells: Column, effects: list[LevelEffects], fold: np.ndarray) -> np.ndarray:
        found = np.empty(len(fold), dtype=np.float32)
        for number, own in enumerate(effects):
            rows = fold == number
            found[rows] = own.of(cells.values[rows], cells.levels)
        return found


def without_effects(columns: list[Encoded], positions: set[int]) -> list[Encoded]:
    """The same encoding, without the level effects of the columns at these positions."""
    return [
        replace(column, effects=None) if j in positions and isinstance(column, CategoricalColumn) else column
        for j, column in enumerate(columns)
    ]


def _by_fold(cells: Column, scale: float, target: Targets, fold: np.ndarray) -> list[LevelEffects]:
    # Rows of a stream may be in a fold that has no rows here.
    others = [fold != number for number in range(max(FOLDS, fold.max() + 1))]
    return [refit_effects(cells.values[rows], cells.levels, target.rows(rows), scale) for rows in others]


def content_folds(encoder: Any, X: Any) -> np.ndarray:
    """Folds by the cells of each row, so that a row that is read again from a file has the fold of its first time."""
    table = read_as_fitted(encoder, X)
    return (hashed([_codes(cells) for cells in table], len(table[0].values)) % np.uint64(FOLDS)).astype(np.int64)


def _codes(cells: Column) -> np.ndarray:
    """An integer per cell that is the same for equal cells of any table."""
    if cells.kind != "category":
        return number_codes(cells.values)
    return text_codes([*cells.levels, MISSING_TEXT])[cells.values]  # the last entry serves code -1
