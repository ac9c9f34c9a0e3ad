"""The mean of boosted trees: a booster per fold; the number of leaves and an additive index are chosen out of fold."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ddpn.deadlines import Clock
from ddpn.members.trees.engine import UNLIMITED, Booster, Engine, MeanFit, Settings
from ddpn.members.trees.table import MANY_ROWS, MAX_COLUMNS, TreeRows

#: Leaf counts that are tried by default: of (8, 31), (4, 12, 31) and one alone, the best on the development tables.
_LEAVES = (4, 12, 31)
#: From so many rows on, larger trees and steps: with smaller ones the boosting of all bikes ended at 1,500 rounds,
#: before the out-of-fold loss was smallest (CRPS 16.3 instead of 15.8).
_MORE_LEAVES, _RATE, _LARGER_RATE = (12, 31, 63), 0.05, 0.1
#: Folds that the choice is made by; the others are boosted with the best choice only.
_TRIAL_FOLDS = 2
#: Learning rate of the stumps, which take many rounds and little time.
_INDEX_RATE = 0.1
#: Shares of the time left, where it is limited: for each trial, for the stumps, and for the boosting of all folds.
_TRIAL_TIME, _STUMPS_TIME, _FOLDS_TIME = 0.2, 0.3, 0.7
#: Standard errors of the paired difference by which the index must reduce the out-of-fold loss.
_CLEAR = 1.0


class Index(NamedTuple):
    """Stumps whose sums are further inputs: one booster per group of columns."""

    groups: tuple[Booster, ...]

    def inputs(self, matrix: np.ndarray) -> np.ndarray:
        """The sum of each group and, where there are several, of all. Shape: (rows, k)."""
        parts = np.stack([group.raw(matrix) for group in self.groups], axis=1)
        return parts if len(self.groups) == 1 else np.column_stack([parts, parts.sum(axis=1)])

    @staticmethod
    def width(groups: int) -> int:
        """How many inputs an index of so many groups has."""
        return groups if groups < 2 else groups + 1


def index_of(boosters: Iterator[Booster], groups: int) -> Index | None:
    """The index of the next so many boosters; None for none."""
    return Index(tuple(next(boosters) for _ in range(groups))) if groups else None


def with_index(matrix: np.ndarray, index: Index | None) -> np.ndarray:
    """A matrix with the inputs of an index, if there is one."""
    return matrix if index is None else np.column_stack([matrix, index.inputs(matrix)])


class FoldMean(NamedTuple):
    """The booster of a fold and, where it is used, the index whose sums are its last inputs."""

    main: Booster
    additive: Index | None = None

    def raw(self, matrix: np.ndarray) -> np.ndarray:
        """Log rates."""
        return self.main.raw(with_index(matrix, self.additive))

    @property
    def boosters(self) -> list[Booster]:
        """The booster and those of the index."""
        return [self.main, *(() if self.additive is None else self.additive.groups)]


class Mean(NamedTuple):
    """Boosters of all folds, what they predict for the rows they were not fitted to, and the number of leaves."""

    folds: list[FoldMean]
    out_of_fold: np.ndarray
    leaves: int

    @property
    def has_index(self) -> bool:
        """Whether the additive index is an input."""
        return self.folds[0].additive is not None


def average(folds: Sequence[FoldMean], matrix: np.ndarray) -> np.ndarray:
    """Logarithms of the mean rate of all boosters."""
    return np.log(np.mean([np.exp(fold.raw(matrix)) for fold in folds], axis=0))


def leaves_for(rows: int, leaves: Sequence[int] | None = None) -> tuple[int, ...]:
    """Leaf counts to choose from; None is the default for so many rows."""
    return (_MORE_LEAVES if rows >= MANY_ROWS else _LEAVES) if leaves is None else tuple(leaves)


def rate_for(rows: int, rate: float | None = None) -> float:
    """The learning rate; None is the default for so many rows."""
    return (_LARGER_RATE if rows >= MANY_ROWS else _RATE) if rate is None else rate


class Known(NamedTuple):
    """What a fit to fewer rows chose: the number of leaves, and whether to use the index."""

    leaves: int
    has_index: bool


class Choice(NamedTuple):
    """What was chosen on some folds: leaves, the fit with them so far, and the index of each fold where it helps."""

    leaves: int
    fit: MeanFit
    indices: list[Index] | None

    def fold_indices(self) -> list[Index | None]:
        """The index of every fold, None where there is none."""
        return [None] * len(self.fit.rows.folds) if self.indices is None else list(self.indices)


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
    all columns, and the sums of those that split categories, two-valued columns and other numbers, are further inputs
    where that reduces the out-of-fold loss of the same two folds clearly. A tree finds a threshold in a sum of many
    columns by one split on the index, and by very many without. A trial that runs out of time is the last one.
    """
    trial, columns = min(_TRIAL_FOLDS, len(rows.folds)), rows.matrix.shape[1]
    sizes = leaves if columns <= MAX_COLUMNS else leaves[:1]
    tried: dict[int, MeanFit] = {}
    indexed: dict[int, MeanFit] = {}
    for size in sizes:
        fit, time = engine.mean_fit(rows, settings._replace(leaves=size)), _part(clock, _TRIAL_TIME)
        fit.run(trial, time)
        tried[size] = fit
        if not time.left:
            index = False
            break
    size = min(tried, key=lambda size: tried[size].losses(trial).sum()) if len(tried) > 1 else sizes[0]
    if index and 1 < columns <= MAX_COLUMNS:
        indices, more = _indexed(engine, rows, settings, _part(clock, _STUMPS_TIME))
        # With the index, smaller trees may be enough.
        for leaves_with in [size, *sorted((each for each in sizes if each < size), reverse=True)[:1]]:
            # Every tree sees the index, which may be what matters most.
            fit = engine.mean_fit(more, settings._replace(leaves=leaves_with, share=1.0))
            fit.run(trial, _part(clock, _TRIAL_TIME))
            indexed[leaves_with] = fit
        best = min(indexed, key=lambda size: indexed[size].losses(trial).sum())
        if _is_clearly_less(indexed[best].losses(trial), tried[size].losses(trial)):
            return Choice(best, indexed[best], indices)
    return Choice(size, tried[size], None)


def fit_mean(
    engine: Engine,
    rows: TreeRows,
    settings: Settings,
    leaves: Sequence[int],
    index: bool = True,
    clock: Clock = UNLIMITED,
    known: Known | None = None,
) -> Mean:
    """Boost a mean in folds, with what `choose` finds best, or with what is known to be best."""
    chosen = (
        choose(engine, rows, settings, leaves, index, clock) if known is None else _known(engine, rows, settings, known)
    )
    chosen.fit.run(len(rows.folds), _part(clock, _FOLDS_TIME))
    out_of_fold = _in_order(chosen.fit)
    pairs = zip(chosen.fit.boosters(), chosen.fold_indices(), strict=True)
    return Mean([FoldMean(*pair) for pair in pairs], out_of_fold, chosen.leaves)


def _known(engine: Engine, rows: TreeRows, settings: Settings, known: Known) -> Choice:
    """As `choose`, without trials."""
    indices = None
    if known.has_index:
        indices, rows = _indexed(engine, rows, settings, UNLIMITED)
        settings = settings._replace(share=1.0)
    return Choice(known.leaves, engine.mean_fit(rows, settings._replace(leaves=known.leaves)), indices)


def _part(clock: Clock, share: float) -> Clock:
    return clock.part(share * clock.left)


def _in_order(fit: MeanFit) -> np.ndarray:
    """Out-of-fold log rates of all rows."""
    order, raw = fit.held_out(len(fit.rows.folds))
    found = np.empty(len(raw))
    found[order] = raw
    return found


def _indexed(engine: Engine, rows: TreeRows, settings: Settings, clock: Clock) -> tuple[list[Index], TreeRows]:
    """Stumps in all folds, and the rows with their out-of-fold sums as the last inputs."""
    stumps = engine.mean_fit(rows, settings._replace(leaves=2, rate=max(settings.rate, _INDEX_RATE), share=1.0))
    stumps.run(len(rows.folds), clock)
    indices = [Index(tuple(booster.split(rows.kinds))) for booster in stumps.boosters()]
    sums = np.empty((len(rows.rate), Index.width(len(indices[0].groups))))
    for index, fold in zip(indices, rows.folds, strict=True):
        sums[fold.outer] = index.inputs(rows.matrix[fold.outer])
    return indices, rows.with_columns(sums, direction=1)


def _is_clearly_less(ours: np.ndarray, theirs: np.ndarray) -> bool:
    gain = theirs - ours
    return bool(gain.sum() > _CLEAR * np.sqrt(len(gain)) * gain.std())
