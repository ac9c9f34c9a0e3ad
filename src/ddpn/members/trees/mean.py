"""The mean of boosted trees: a booster per fold, with the number of leaves that predicts best out of fold."""

from collections.abc import Sequence

import numpy as np

from ddpn.members.trees.booster import Booster
from ddpn.members.trees.boosting import UNLIMITED, FoldData, Growing, Settings, best_round
from ddpn.members.trees.table import MANY_ROWS, MAX_COLUMNS, Fold, TreeRows
from ddpn.runtime.deadlines import Clock

#: Leaf counts that are tried by default: of (8, 31), (4, 12, 31) and one alone, the best on the development tables.
_LEAVES = (4, 12, 31)
#: From so many rows on, larger trees and steps: with smaller ones the boosting of all bikes ended at 1,500 rounds,
#: before the out-of-fold loss was smallest (CRPS 16.3 instead of 15.8).
_MORE_LEAVES, _RATE, _LARGER_RATE = (12, 31, 63), 0.05, 0.1
#: The share of the folds that the choice is made by; the others are boosted with the best choice only.
_TRIAL_SHARE = 0.5
#: Shares of the time left, where it is limited: for each trial, and for the boosting of all folds.
_TRIAL_TIME, _FOLDS_TIME = 0.2, 0.7


def rate_for(rows: int, rate: float | None = None) -> float:
    """The learning rate; None is the default for so many rows."""
    return (_LARGER_RATE if rows >= MANY_ROWS else _RATE) if rate is None else rate


class MeanFit:
    """Poisson boosting of a rate, one booster per fold, each of which predicts the rows it was not fitted to.

    All folds grow together and end where the sum of their held-out losses is smallest: one number of rounds that all
    rows choose is less noisy than one per fold, and no fold sees its own rows alone.
    """

    def __init__(self, rows: TreeRows, settings: Settings, data: FoldData | None = None) -> None:
        self.rows, self.settings = rows, settings
        self._data = FoldData(rows) if data is None else data
        self._growing: list[Growing] = []
        self._best = 0

    @classmethod
    def best_of(
        cls, rows: TreeRows, settings: Settings, leaves: Sequence[int] | None, clock: Clock = UNLIMITED
    ) -> "MeanFit":
        """The fit with the number of leaves that predicts best, so far of the folds that each was tried on.

        A trial that runs out of time is the last one.

        Parameters
        ----------
        rows : TreeRows
            Inputs, rates and folds.
        settings : Settings
            All but the number of leaves.
        leaves : sequence of int or None
            Numbers of leaves to choose from; None is the default for so many rows. Of very many columns, the first.
        clock : Clock
            The time there is.
        """
        if leaves is None:
            leaves = _MORE_LEAVES if len(rows.rate) >= MANY_ROWS else _LEAVES
        trials: list[MeanFit] = []
        for size in leaves if rows.matrix.shape[1] <= MAX_COLUMNS else leaves[:1]:
            time = clock.part(_TRIAL_TIME * clock.left)
            trials.append(cls(rows, settings._replace(leaves=size)))
            trials[-1].run(max(1, int(_TRIAL_SHARE * len(rows.folds))), time)
            if not time.left:
                break
        return min(trials, key=lambda trial: trial.loss)

    def run_all(self, clock: Clock = UNLIMITED) -> None:
        """Boost all folds, within a share of the time."""
        self.run(len(self.rows.folds), clock.part(_FOLDS_TIME * clock.left))

    def run(self, folds: int, clock: Clock = UNLIMITED) -> None:
        """Boost the first so many folds until the clock ends; what is there already is continued."""
        self._growing += [Growing(self._data, self.rows, k, self.settings) for k in range(len(self._growing), folds)]
        shares = [self.rows.weight[growing.outer].sum() for growing in self._growing]

        def step(done: int) -> float:
            for growing in self._growing:
                if len(growing.curve) < done:
                    growing.grow()
                    growing.curve.append(growing.loss)
            return sum(share * growing.curve[done - 1] for share, growing in zip(shares, self._growing, strict=True))

        self._best = best_round(step, self.settings, clock)

    def boosters(self) -> list[Booster]:
        """The boosters of the folds that were run, at their best rounds."""
        return [growing.booster(self._best) for growing in self._growing]

    def whole(self, part: Fold) -> Booster:
        """A booster of all rows, with as many rounds as were best for the held-out rows of the folds."""
        growing = Growing(self._data, self.rows, len(self.rows.folds), self.settings, part=part)
        while growing.rounds < self._best and not growing.is_finished:
            growing.grow()
        return growing.booster(self._best)

    @property
    def out_of_fold(self) -> np.ndarray:
        """Log rates that the boosters predict for the rows they were not fitted to; NaN for those of further folds."""
        found = np.full(len(self.rows.rate), np.nan)
        for growing in self._growing:
            found[growing.outer] = growing.predicted(self.rows.matrix[growing.outer], self._best)
        return found

    @property
    def loss(self) -> float:
        """The sum of the weighted Poisson losses of the held-out rows."""
        raw = self.out_of_fold
        return float(np.nansum(self.rows.weight * (np.exp(raw) - self.rows.rate * raw)))
