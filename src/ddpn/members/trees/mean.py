"""Fit boosted trees to the mean of counts, with one booster per fold.

The boosters of all folds are trained together.
"""

from collections.abc import Sequence

import numpy as np

from ddpn.members.trees.booster import Booster
from ddpn.members.trees.boosting import (
    BoostedTrees,
    Fold,
    FoldData,
    Settings,
    TreeRows,
    boost_until_best,
    choose_fold_columns,
)
from ddpn.rows.splits import SMALL_TABLE_ROWS
from ddpn.runtime.deadlines import NO_LIMIT, Clock
from ddpn.tables.encoding.steps import MAX_COLUMNS

#: Numbers of leaves to try for small tables. On the development tables, these were better than (8, 31) or a single one.
_LEAVES = (4, 12, 31)
#: Numbers of leaves to try for large tables, and learning rates for small and large tables. With the smaller ones, the
#: boosting of the whole bikes table reached 1,500 rounds before the out-of-fold loss was smallest (CRPS 16.3 instead of
#: 15.8).
_LARGE_TABLE_LEAVES, _RATE, _LARGE_TABLE_RATE = (12, 31, 63), 0.05, 0.1
#: The share of the folds in which numbers of leaves are compared. The other folds are boosted with the best one only.
_TRIAL_SHARE = 0.5
#: Shares of the time left for each trial, and for boosting all folds.
_TRIAL_TIME_SHARE, FOLDS_TIME_SHARE = 0.2, 0.7


def choose_learning_rate(rows: int, rate: float | None = None) -> float:
    """Return the learning rate `rate` if it is given, else the default for this number of rows."""
    return (_LARGE_TABLE_RATE if rows >= SMALL_TABLE_ROWS else _RATE) if rate is None else rate


class MeanFit:
    """Poisson boosting of the rate (count / exposure), with one booster per fold for out-of-fold predictions.

    The boosters of all folds are trained together and stop at the same round, the one with the smallest total held-out
    loss. One number of rounds for all folds is less noisy than one per fold, and hardly depends on the rows of any
    single fold.

    `rows` has the rows and folds, and `settings` are those of boosting. `data` creates the LightGBM datasets of the
    rows; it is created from `rows` if it is None.
    """

    def __init__(self, rows: TreeRows, settings: Settings, data: FoldData | None = None) -> None:
        self.rows, self.settings = rows, settings
        self._data = FoldData(rows) if data is None else data
        self._growing: list[BoostedTrees] = []
        self._best = 0

    @classmethod
    def choose_best(
        cls, rows: TreeRows, settings: Settings, leaves: Sequence[int] | None, clock: Clock = NO_LIMIT
    ) -> "MeanFit":
        """Try several numbers of leaves on half of the folds; return the fit with the smallest held-out loss.

        `leaves` has the numbers of leaves to try, which replace `settings.leaves`. None stands for the defaults for
        this number of rows. If the table has more than 500 columns, only the first number is tried. A trial may take a
        fifth of the time that is left. The search ends early if a trial runs out of its time.
        """
        if leaves is None:
            leaves = _LARGE_TABLE_LEAVES if len(rows.rate) >= SMALL_TABLE_ROWS else _LEAVES
        trials: list[MeanFit] = []
        for size in leaves if rows.matrix.shape[1] <= MAX_COLUMNS else leaves[:1]:
            time = clock.part(_TRIAL_TIME_SHARE * clock.left)
            trials.append(cls(rows, settings._replace(leaves=size)))
            trials[-1].run(max(1, int(_TRIAL_SHARE * len(rows.folds))), time)
            if not time.left:
                break
        return min(trials, key=lambda trial: trial.loss)

    def run(self, n_folds: int, clock: Clock = NO_LIMIT) -> None:
        """Train the boosters of the first `n_folds` folds until the loss stops improving or the time is up.

        Boosters that already exist are trained further.
        """
        self._growing += [
            BoostedTrees(self._data, self.rows, k, self.settings) for k in range(len(self._growing), n_folds)
        ]
        shares = [self.rows.weight[growing.held_out_rows].sum() for growing in self._growing]

        def add_round(number: int) -> float:
            for growing in self._growing:
                if len(growing.curve) < number:
                    growing.grow()
                    growing.curve.append(growing.loss)
            return sum(share * growing.curve[number - 1] for share, growing in zip(shares, self._growing, strict=True))

        self._best = boost_until_best(add_round, self.settings, clock)

    def to_boosters(self) -> list[Booster]:
        """Return the booster of each fold, with only the best number of rounds."""
        return [growing.to_booster(self._best) for growing in self._growing]

    def fit_all_rows(self) -> Booster:
        """Fit a single booster to all rows, for the number of rounds that was best on held-out rows."""
        rows, all_rows = self.rows, Fold(np.arange(len(self.rows.rate)), np.arange(0))
        (fold,) = choose_fold_columns([all_rows], rows.matrix, rows.rate, rows.weight)
        growing = BoostedTrees(self._data, self.rows, len(self.rows.folds), self.settings, fold=fold)
        while growing.rounds < self._best and not growing.is_finished:
            growing.grow()
        return growing.to_booster(self._best)

    @property
    def out_of_fold(self) -> np.ndarray:
        """The log rate (log of mean / exposure) of each row, predicted by the booster that was fitted without its fold.

        It is NaN for rows of folds that have no booster yet.
        """
        log_rates = np.full(len(self.rows.rate), np.nan)
        for growing in self._growing:
            log_rates[growing.held_out_rows] = growing.predict(self.rows.matrix[growing.held_out_rows], self._best)
        return log_rates

    @property
    def loss(self) -> float:
        """The total weighted Poisson loss of the held-out rows."""
        raw = self.out_of_fold
        return float(np.nansum(self.rows.weight * (np.exp(raw) - self.rows.rate * raw)))
