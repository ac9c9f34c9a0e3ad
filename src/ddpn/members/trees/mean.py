"""The mean of boosted trees: a booster per fold; the number of leaves and an additive index are chosen out of fold."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ddpn.deadlines import Clock
from ddpn.members.trees.engine import UNLIMITED, Booster, Engine, MeanFit, Settings
from ddpn.members.trees.table import MAX_COLUMNS, TreeRows

#: Leaf counts that are tried by default: of (8, 31), (4, 12, 31) and one alone, the best on the development tables.
_LEAVES = (4, 12, 31)
#: From so many rows on, larger trees and steps: with smaller ones the boosting of all bikes ended at 1,500 rounds,
#: before the out-of-fold loss was smallest (CRPS 16.3 instead of 15.8).
_MANY_ROWS, _MORE_LEAVES, _RATE, _LARGER_RATE = 5000, (12, 31, 63), 0.05, 0.1
#: Folds that the choice is made by; the others are boosted with the best choice only.
_TRIAL_FOLDS = 2
#: Learning rate of the stumps, which take many rounds and little time.
_INDEX_RATE = 0.1
#: Shares of the time left, where it is limited: for each trial, for the stumps, and for the boosting of all folds.
_TRIAL_TIME, _STUMPS_TIME, _FOLDS_TIME = 0.2, 0.3, 0.7
#: Standard errors of the paired difference by which the index must reduce the out-of-fold loss.
_CLEAR = 1.0


class FoldMean(NamedTuple):
    """The booster of a fold and, where the index is used, the stumps whose sum is its last input."""

    main: Booster
    stumps: Booster | None = None

    def raw(self, matrix: np.ndarray) -> np.ndarray:
        """Log rates."""
        if self.stumps is None:
            return self.main.raw(matrix)
        return self.main.raw(np.column_stack([matrix, self.stumps.raw(matrix)]))

    @property
    def boosters(self) -> list[Booster]:
        """One booster or two."""
        return [self.main] if self.stumps is None else [self.main, self.stumps]


class Mean(NamedTuple):
    """Boosters of all folds, what they predict for the rows they were not fitted to, and the number of leaves."""

    folds: list[FoldMean]
    out_of_fold: np.ndarray
    leaves: int

    @property
    def has_index(self) -> bool:
        """Whether the additive index is an input."""
        return self.folds[0].stumps is not None


def average(folds: Sequence[FoldMean], matrix: np.ndarray) -> np.ndarray:
    """Logarithms of the mean rate of all boosters."""
    return np.log(np.mean([np.exp(fold.raw(matrix)) for fold in folds], axis=0))


def leaves_for(rows: int, leaves: Sequence[int] | None = None) -> tuple[int, ...]:
    """Leaf counts to choose from; None is the default for so many rows."""
    return (_MORE_LEAVES if rows >= _MANY_ROWS else _LEAVES) if leaves is None else tuple(leaves)


def rate_for(rows: int, rate: float | None = None) -> float:
    """The learning rate; None is the default for so many rows."""
    return (_LARGER_RATE if rows >= _MANY_ROWS else _RATE) if rate is None else rate


class Choice(NamedTuple):
    """What was chosen on some folds: leaves, the fit with them so far, and the stumps of all folds where they help."""

    leaves: int
    fit: MeanFit
    stumps: MeanFit | None

    def fold_stumps(self) -> list[Booster | None]:
        """The stumps of every fold, None where there are none."""
        return [None] * len(self.fit.rows.folds) if self.stumps is None else list(self.stumps.boosters())


def choose(
    engine: Engine,
    rows: TreeRows,
    settings: Settings,
    leaves: Sequence[int],
    index: bool = True,
    clock: Clock = UNLIMITED,
) -> Choice:
    """Choose the number of leaves and whether to use the index.

    Each number of leaves is tried on two folds. Then stumps are boosted in all folds: their sum, an additive index of
    all columns, is one more input where that reduces the out-of-fold loss of the same two folds clearly. A tree finds a
    threshold in a sum of many columns by one split on the index, and by very many without. A trial that runs out of
    time is the last one.
    """
    trial, columns = min(_TRIAL_FOLDS, len(rows.folds)), rows.matrix.shape[1]
    sizes = leaves if columns <= MAX_COLUMNS else leaves[:1]
    tried: dict[int, MeanFit] = {}
    for size in sizes:
        fit, time = engine.mean_fit(rows, settings._replace(leaves=size)), _part(clock, _TRIAL_TIME)
        fit.run(trial, time)
        tried[size] = fit
        if not time.left:
            index = False
            break
    size = min(tried, key=lambda size: tried[size].losses(trial).sum()) if len(tried) > 1 else sizes[0]
    if index and 1 < columns <= MAX_COLUMNS:
        stumps, indexed = _indexed(engine, rows, settings._replace(leaves=size), _part(clock, _STUMPS_TIME))
        indexed.run(trial, _part(clock, _TRIAL_TIME))
        if _is_clearly_less(indexed.losses(trial), tried[size].losses(trial)):
            return Choice(size, indexed, stumps)
    return Choice(size, tried[size], None)


def fit_mean(
    engine: Engine,
    rows: TreeRows,
    settings: Settings,
    leaves: Sequence[int],
    index: bool = True,
    clock: Clock = UNLIMITED,
) -> Mean:
    """Boost a mean in folds, with what `choose` finds best."""
    chosen = choose(engine, rows, settings, leaves, index, clock)
    chosen.fit.run(len(rows.folds), _part(clock, _FOLDS_TIME))
    out_of_fold = _in_order(chosen.fit)
    pairs = zip(chosen.fit.boosters(), chosen.fold_stumps(), strict=True)
    return Mean([FoldMean(*pair) for pair in pairs], out_of_fold, chosen.leaves)


def _part(clock: Clock, share: float) -> Clock:
    return clock.part(share * clock.left)


def _in_order(fit: MeanFit) -> np.ndarray:
    """Out-of-fold log rates of all rows."""
    order, raw = fit.held_out(len(fit.rows.folds))
    found = np.empty(len(raw))
    found[order] = raw
    return found


def _indexed(engine: Engine, rows: TreeRows, settings: Settings, clock: Clock) -> tuple[MeanFit, MeanFit]:
    """Stumps in all folds, and an unfitted mean that has their out-of-fold sum as its last input."""
    stumps = engine.mean_fit(rows, settings._replace(leaves=2, rate=max(settings.rate, _INDEX_RATE)))
    stumps.run(len(rows.folds), clock)
    return stumps, engine.mean_fit(rows.with_column(_in_order(stumps), direction=1), settings)


def _is_clearly_less(ours: np.ndarray, theirs: np.ndarray) -> bool:
    gain = theirs - ours
    return bool(gain.sum() > _CLEAR * np.sqrt(len(gain)) * gain.std())
