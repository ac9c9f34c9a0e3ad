"""Encode training rows out of fold, with level effects (target encoding) that were fitted to the other folds."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ddpn.rows.checks import TableLike
from ddpn.rows.splits import FOLDS
from ddpn.tables.columns import Column
from ddpn.tables.encoding.categories import CategoryEncoding, LevelEffects, fit_effects, make_targets
from ddpn.tables.encoding.columns import Encoded
from ddpn.tables.row_hashes import hash_column, hash_rows

if TYPE_CHECKING:
    from ddpn.tables.encoding.encoder import FeatureEncoder

#: The least ratio of standard deviations of out-of-fold effects and of effects of all rows for a column to keep
#: effects.
_MIN_EFFECT_SPREAD = 0.2


def has_effects(encoder: "FeatureEncoder") -> bool:
    """Return True if some column of an encoder has level effects; training rows must then be encoded out of fold."""
    return any(isinstance(column, CategoryEncoding) and column.effects is not None for column in encoder.columns_)


class OutOfFoldEffects:
    """Level effects (target encoding) for cross-fitting: the effects of each fold were fitted to the other folds.

    If the effects of training rows contained their own counts, a network would rely on effects too much in new rows.
    The encoder must be fitted to the same rows; `fold` has the number of each row's fold, from 0 on.
    """

    def __init__(
        self,
        encoder: "FeatureEncoder",
        X: TableLike,
        y: np.ndarray,
        weight: np.ndarray | None,
        exposure: np.ndarray | None,
        fold: np.ndarray,
    ) -> None:
        self.encoder = encoder
        table = encoder.schema_.parse(X)
        target = make_targets(y, np.ones(len(y)) if weight is None else weight, exposure)
        ends = np.cumsum([column.width for column in encoder.columns_]).tolist()
        self._effects: dict[int, tuple[int, list[LevelEffects]]] = {}
        for j, (cells, column) in enumerate(zip(table, encoder.columns_, strict=True)):
            if isinstance(column, CategoryEncoding) and column.effects is not None:
                # Rows of a stream may be in a fold that has no rows in this sample.
                others = [fold != number for number in range(max(FOLDS, fold.max() + 1))]
                scale = column.effects.scale
                effects = [fit_effects(cells.rows(rows), target.rows(rows), scale) for rows in others]
                self._effects[j] = ends[j] - 1, [fitted for fitted in effects if fitted is not None]
        #: Positions of columns whose out-of-fold effects hardly vary.
        self.weak_columns = {
            j
            for j, (_, effects) in self._effects.items()
            if np.std(self._look_up(table[j], effects, fold)) < _MIN_EFFECT_SPREAD
        }

    def encode(self, X: TableLike, fold: np.ndarray) -> np.ndarray:
        """Encode rows like `FeatureEncoder.transform`, but with effects that were fitted without the fold of each row.

        `fold` has the fold number of each row. Shape of the result: (rows, inputs).
        """
        table = self.encoder.schema_.parse(X)
        out = self.encoder.encode(table)
        for j, (position, effects) in self._effects.items():
            out[:, position] = self._look_up(table[j], effects, fold)
        return out

    def encode_by_content(self, X: TableLike) -> np.ndarray:
        """Encode rows like `encode`, with the folds of `assign_folds_by_content`."""
        return self.encode(X, assign_folds_by_content(self.encoder, X))

    @staticmethod
    def _look_up(cells: Column, effects: list[LevelEffects], fold: np.ndarray) -> np.ndarray:
        inputs = np.empty(len(fold), dtype=np.float32)
        for number, level_effects in enumerate(effects):
            rows = fold == number
            inputs[rows] = level_effects.look_up(cells.rows(rows))
        return inputs


def drop_effects(columns: list[Encoded], positions: set[int]) -> list[Encoded]:
    """Return the encodings, without level effects for the columns at these positions."""
    return [
        replace(column, effects=None) if j in positions and isinstance(column, CategoryEncoding) else column
        for j, column in enumerate(columns)
    ]


def assign_folds_by_content(encoder: "FeatureEncoder", X: TableLike) -> np.ndarray:
    """Assign each row to a fold by a hash of its cells, so that a row has the same fold whenever it is read."""
    codes = [hash_column(column) for column in encoder.schema_.parse(X)]
    return (hash_rows(codes, len(codes[0])) % np.uint64(FOLDS)).astype(np.int64)
