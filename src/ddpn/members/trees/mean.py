"""The mean of boosted trees: a booster per fold, with what `ddpn.members.trees.choice` finds best."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ddpn.members.trees.booster import Booster
from ddpn.members.trees.boosting import UNLIMITED, MeanFit, Settings
from ddpn.members.trees.choice import Choice, Known, boosted_stumps, choose
from ddpn.members.trees.crosses import Cross
from ddpn.members.trees.index import Index, with_index
from ddpn.members.trees.table import MANY_ROWS, Fold, TreeRows
from ddpn.runtime.deadlines import Clock

#: Leaf counts that are tried by default: of (8, 31), (4, 12, 31) and one alone, the best on the development tables.
_LEAVES = (4, 12, 31)
#: From so many rows on, larger trees and steps: with smaller ones the boosting of all bikes ended at 1,500 rounds,
#: before the out-of-fold loss was smallest (CRPS 16.3 instead of 15.8).
_MORE_LEAVES, _RATE, _LARGER_RATE = (12, 31, 63), 0.05, 0.1
#: Up to so many rows, boosting is repeated so often with other folds, which lowers the CRPS of small development tables
#: by 0.3%.
_FEW_ROWS, _FEW_ROWS_SEEDS = 2000, 3
#: The share of the time left, where it is limited, for the boosting of all folds.
_FOLDS_TIME = 0.7


class Indexed(NamedTuple):
    """A booster and, where it is used, the index whose sums are its last inputs."""

    main: Booster
    additive: Index | None = None

    def raw(self, matrix: np.ndarray) -> np.ndarray:
        """The sum of the trees."""
        return self.main.raw(with_index(matrix, self.additive))

    @property
    def boosters(self) -> list[Booster]:
        """The booster and those of the index."""
        return [self.main, *(() if self.additive is None else self.additive.groups)]


class Mean(NamedTuple):
    """Boosters of all folds, what they predict for the rows they were not fitted to, and what was chosen for them.

    `crosses` are those that were added to the columns of the rows.
    """

    folds: list[Indexed]
    out_of_fold: np.ndarray
    leaves: int
    crosses: tuple[Cross, ...]

    @property
    def has_index(self) -> bool:
        """Whether the additive index is an input."""
        return self.folds[0].additive is not None


def leaves_for(rows: int, leaves: Sequence[int] | None = None) -> tuple[int, ...]:
    """Leaf counts to choose from; None is the default for so many rows."""
    return (_MORE_LEAVES if rows >= MANY_ROWS else _LEAVES) if leaves is None else tuple(leaves)


def rate_for(rows: int, rate: float | None = None) -> float:
    """The learning rate; None is the default for so many rows."""
    return (_LARGER_RATE if rows >= MANY_ROWS else _RATE) if rate is None else rate


def seeds_for(rows: int, seeds: int | None = None) -> int:
    """Repetitions with other folds; None is the default for so many rows."""
    return (_FEW_ROWS_SEEDS if rows <= _FEW_ROWS else 1) if seeds is None else seeds


def fit_mean(
    rows: TreeRows,
    settings: Settings,
    leaves: Sequence[int],
    index: bool = True,
    clock: Clock = UNLIMITED,
    known: Known | None = None,
    crosses: bool = True,
    whole: Fold | None = None,
) -> Mean:
    """Boost a mean in folds, with what `choose` finds best, or with what is known to be best.

    With `whole`, all rows as one fold, the mean is that of one booster of all rows, unless the index is used: the folds
    choose, and predict the rows that they leave out.
    """
    if known is None:
        chosen = choose(rows, settings, leaves, index, clock, crosses)
    else:
        chosen = _known(rows, settings, known, clock)
    chosen.fit.run(len(rows.folds), clock.part(_FOLDS_TIME * clock.left))
    out_of_fold = _in_order(chosen.fit)
    if whole is not None and chosen.indices is None:
        return Mean([Indexed(chosen.fit.whole(whole))], out_of_fold, chosen.leaves, chosen.crosses)
    pairs = zip(chosen.fit.boosters(), chosen.fold_indices(), strict=True)
    return Mean([Indexed(*pair) for pair in pairs], out_of_fold, chosen.leaves, chosen.crosses)


def _known(rows: TreeRows, settings: Settings, known: Known, clock: Clock) -> Choice:
    """As `choose`, without trials."""
    indices = None
    if known.has_index:
        indices, rows = boosted_stumps(rows, settings, clock)
        settings = settings._replace(share=1.0)
    return Choice(known.leaves, MeanFit(rows, settings._replace(leaves=known.leaves)), indices)


def _in_order(fit: MeanFit) -> np.ndarray:
    """Out-of-fold log rates of all rows."""
    order, raw = fit.held_out(len(fit.rows.folds))
    found = np.empty(len(raw))
    found[order] = raw
    return found
