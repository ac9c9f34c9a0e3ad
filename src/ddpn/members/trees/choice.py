"""What the boosting of a mean chooses out of fold: the number of leaves, crosses of columns, an additive index."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ddpn.members.trees.boosting import UNLIMITED, MeanFit, Settings
from ddpn.members.trees.crosses import Cross, find_crosses, with_crosses
from ddpn.members.trees.index import Index
from ddpn.members.trees.table import MAX_COLUMNS, TreeRows
from ddpn.runtime.deadlines import Clock

#: The share of the folds that the choice is made by; the others are boosted with the best choice only.
_TRIAL_SHARE = 0.5
#: Learning rate of the stumps, which take many rounds and little time.
_INDEX_RATE = 0.1
#: Shares of the time left, where it is limited: for each trial, and for the stumps.
_TRIAL_TIME, _STUMPS_TIME = 0.2, 0.3
#: Standard errors of the paired difference by which crosses or the index must reduce the out-of-fold loss.
_CLEAR = 1.0


class Known(NamedTuple):
    """What a fit to fewer rows chose: the number of leaves, and whether to use the index."""

    leaves: int
    has_index: bool


class Choice(NamedTuple):
    """What was chosen on some folds.

    Leaves, the fit with them so far, the index of each fold where it helps, and crosses, which are the last columns of
    the matrix that was fitted to (but for the index).
    """

    leaves: int
    fit: MeanFit
    indices: list[Index] | None
    crosses: tuple[Cross, ...] = ()

    def fold_indices(self) -> list[Index | None]:
        """The index of every fold, None where there is none."""
        return [None] * len(self.fit.rows.folds) if self.indices is None else list(self.indices)


class _Trial(NamedTuple):
    """A fit of some folds, and the losses of the rows that it left out."""

    leaves: int
    fit: MeanFit
    losses: np.ndarray

    def is_clearly_better(self, other: "_Trial") -> bool:
        gain = other.losses - self.losses
        return bool(gain.sum() > _CLEAR * np.sqrt(len(gain)) * gain.std())


def choose(
    rows: TreeRows,
    settings: Settings,
    leaves: Sequence[int],
    index: bool = True,
    clock: Clock = UNLIMITED,
    crosses: bool = True,
) -> Choice:
    """Choose the number of leaves, and whether to use crosses and the index.

    Each number of leaves is tried on two folds. Then stumps are boosted in all folds. Pairs of columns that their sum
    explains badly are further inputs, crossed, where that reduces the out-of-fold loss of the same two folds clearly.
    So are the sum of the stumps, an additive index of all columns, and the sums of those that split categories,
    two-valued columns and other numbers. A tree finds a threshold in a sum of many columns by one split on the index,
    and by very many without. A trial that runs out of time is the last one.
    """
    columns = rows.matrix.shape[1]
    sizes = leaves if columns <= MAX_COLUMNS else leaves[:1]
    trials: list[_Trial] = []
    has_time = True
    for size in sizes:
        time = _part(clock, _TRIAL_TIME)
        trials.append(_tried(rows, settings._replace(leaves=size), time))
        if not time.left:
            has_time = False
            break
    best = min(trials, key=lambda trial: trial.losses.sum())
    if not (has_time and (index or crosses) and 1 < columns <= MAX_COLUMNS):
        return Choice(best.leaves, best.fit, None)
    stumps = boosted_stumps(rows, settings, clock)
    found = _crosses(rows, stumps) if crosses else ()
    if found:
        more = crossed(rows, found)
        trial = _tried(more, settings._replace(leaves=best.leaves), _part(clock, _TRIAL_TIME))
        if trial.is_clearly_better(best):
            rows, best = more, trial
            if index:
                stumps = boosted_stumps(rows, settings, clock)
        else:
            found = ()
    chosen = Choice(best.leaves, best.fit, None, found)
    return _with_index(stumps, settings, best, sizes, chosen, clock) if index else chosen


class Stumps(NamedTuple):
    """The index of every fold, and the rows with their out-of-fold sums as the last inputs."""

    indices: list[Index]
    rows: TreeRows

    @property
    def log_rate(self) -> np.ndarray:
        """The out-of-fold sum of all stumps."""
        return self.rows.matrix[:, -1]


def boosted_stumps(rows: TreeRows, settings: Settings, clock: Clock = UNLIMITED) -> Stumps:
    """Stumps in all folds, within a share of the time."""
    stumps = MeanFit(rows, settings._replace(leaves=2, rate=max(settings.rate, _INDEX_RATE), share=1.0))
    stumps.run(len(rows.folds), _part(clock, _STUMPS_TIME))
    indices = [Index(tuple(booster.split(rows.kinds))) for booster in stumps.boosters()]
    sums = np.empty((len(rows.rate), Index.width(len(indices[0].groups))))
    for index, fold in zip(indices, rows.folds, strict=True):
        sums[fold.outer] = index.inputs(rows.matrix[fold.outer])
    return Stumps(indices, rows.with_columns(sums, direction=1))


def crossed(rows: TreeRows, crosses: Sequence[Cross]) -> TreeRows:
    """The same rows with crosses as the last inputs."""
    return rows.with_columns(with_crosses(rows.matrix, crosses)[:, rows.matrix.shape[1] :])


def _with_index(
    stumps: Stumps,
    settings: Settings,
    plain: _Trial,
    sizes: Sequence[int],
    chosen: Choice,
    clock: Clock,
) -> Choice:
    """The choice with the index, if that is clearly better."""
    trials = []
    # With the index, smaller trees may be enough.
    smaller = sorted((size for size in sizes if size < plain.leaves), reverse=True)[:1]
    for leaves in [plain.leaves, *smaller]:
        # Every tree sees the index, which may be what matters most.
        own = settings._replace(leaves=leaves, share=1.0)
        trials.append(_tried(stumps.rows, own, _part(clock, _TRIAL_TIME)))
    best = min(trials, key=lambda trial: trial.losses.sum())
    if not best.is_clearly_better(plain):
        return chosen
    return Choice(best.leaves, best.fit, stumps.indices, chosen.crosses)


def _tried(rows: TreeRows, settings: Settings, clock: Clock) -> _Trial:
    fit, folds = MeanFit(rows, settings), max(1, int(_TRIAL_SHARE * len(rows.folds)))
    fit.run(folds, clock)
    return _Trial(settings.leaves, fit, fit.losses(folds))


def _crosses(rows: TreeRows, stumps: Stumps) -> tuple[Cross, ...]:
    directed = () if rows.directions is None else np.flatnonzero(rows.directions).tolist()
    return find_crosses(rows.matrix, rows.is_category, rows.rate, rows.weight, stumps.log_rate, directed)


def _part(clock: Clock, share: float) -> Clock:
    return clock.part(share * clock.left)
