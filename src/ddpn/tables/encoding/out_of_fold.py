"""Encode training rows with level effects (target encoding) that were fitted without the row's own fold."""

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
    from ddpn.tables.encoding.encoder import TableEncoder

#: The least ratio of standard deviations of out-of-fold effects and of effects of all rows for a column to keep
#: effects.
_MIN_EFFECT_SPREAD = 0.2


def has_effects(encoder: "TableEncoder") -> bool:
    """Return True if some column of an encoder has level effects. Training rows must then be encoded out of fold."""
    return any(isinstance(column, CategoryEncoding) and column.effects is not None for column in encoder.columns_)


class OutOfFoldEffects:
    """Level effects (target encoding) of each fold, fitted to all rows outside it.

    They are needed for training rows. If the effects in training rows contained the row's own count, a network would
    rely on them too much in new rows.

    Parameters
    ----------
    encoder : TableEncoder
        An encoder that was fitted to the same rows.
    X : table
        The training rows.
    y : array, shape (rows,)
        Their counts.
    weight, exposure : array, shape (rows,), or None
        Their weights and exposures. None stands for 1 in all rows.
    fold : array of int, shape (rows,)
        The number of each row's fold, from 0 on.
    """

    def __init__(
        self,
        encoder: "TableEncoder",
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
        """Encode rows like `TableEncoder.encode`, but with level effects that were fitted without the row's fold.

        X has training rows. `fold` has the fold number of each row, as passed to the constructor. Shape of the result:
        (rows, inputs).
        """
        table = self.encoder.schema_.parse(X)
        out = self.encoder.encode(table)
        for j, (position, effects) in self._effects.items():
            out[:, position] = self._look_up(table[j], effects, fold)
        return out

    @staticmethod
    def _look_up(cells: Column, effects: list[LevelEffects], fold: np.ndarray) -> np.ndarray:
        """Return the effect of each row's level, as fitted without the row's fold. `effects` has one item per fold."""
        inputs = np.empty(len(fold), dtype=np.float32)
        for number, level_effects in enumerate(effects):
            rows = fold == number
            inputs[rows] = level_effects.look_up(cells.rows(rows))
        return inputs


def drop_effects(columns: list[Encoded], positions: set[int]) -> list[Encoded]:
    """Return a copy of the encodings in which the columns at these positions have no level effects."""
    return [
        replace(column, effects=None) if j in positions and isinstance(column, CategoryEncoding) else column
        for j, column in enumerate(columns)
    ]


def assign_folds_by_content(encoder: "TableEncoder", X: TableLike) -> np.ndarray:
    """Assign each row to one of five folds by a hash of its cells, so that it is in the same fold whenever it is read.

    Rows with equal cells are in the same fold. Return the fold number of each row, from 0 on. Shape: (rows,).
    """
    codes = [hash_column(column) for column in encoder.schema_.parse(X)]
    return (hash_rows(codes, len(codes[0])) % np.uint64(FOLDS)).astype(np.int64)
