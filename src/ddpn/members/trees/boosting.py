"""Boosting with LightGBM: boosters that are grown round by round, all folds in step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ddpn.members.trees.booster import Booster
from ddpn.members.trees.table import MANY_ROWS, MAX_COLUMNS, Fold, TreeRows, columns_of, least_in_leaf
from ddpn.runtime.deadlines import Clock

#: Scores of the rows that are fitted -> first and second derivatives of their losses.
Objective = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
#: A clock without an end.
UNLIMITED = Clock()
_QUIET = {"verbosity": -1}
#: Up to so many columns, trees choose from all of them; of more, those of a mean from this share.
_FEW_COLUMNS, _COLUMN_SHARE = 7, 0.7


class Settings(NamedTuple):
    """How trees are boosted.

    Leaves per tree, learning rate, rounds at most, rounds without gain before the end, and seed.
    """

    leaves: int = 31
    rate: float = 0.05
    rounds: int = 1500
    patience: int = 20
    seed: int = 0


class FoldData:
    """The rows of each fold, binned once where all folds take the same columns."""

    def __init__(self, rows: TreeRows) -> None:
        import lightgbm

        self._rows, self._lightgbm = rows, lightgbm
        self._whole: Any = self._dataset(None) if rows.folds[0].chosen is None else None

    def _dataset(self, chosen: np.ndarray | None) -> Any:
        rows = self._rows
        is_category = columns_of(rows.is_category[None], chosen)[0]
        params = {**_QUIET, "feature_pre_filter": False, "min_data_in_bin": min(3, least_in_leaf(len(rows.rate)))}
        # Bins of all rows: they depend on the inputs alone.
        return self._lightgbm.Dataset(
            columns_of(rows.matrix, chosen),
            rows.rate,
            weight=rows.weight,
            categorical_feature=np.flatnonzero(is_category).tolist(),
            params=params,
        ).construct()

    def of(self, part: Fold) -> tuple[Any, Any]:
        """Data sets of the rows to fit and of those to predict; None where there are no rows to predict."""
        whole = self._dataset(part.chosen) if self._whole is None else self._whole
        outer = whole.subset(np.sort(part.outer)) if len(part.outer) else None
        return whole.subset(np.sort(part.inner)), outer


def _columns_for(rows: int, columns: int, share: float) -> dict[str, float]:
    """The share of the columns that a tree, or with few rows a split, chooses from; of MAX_COLUMNS at most.

    On the development tables 0.7 lowers the CRPS of the trees by 0.4%. With few columns every one may be needed.
    """
    if share == 1.0 or not _FEW_COLUMNS < columns <= MAX_COLUMNS:
        return {"feature_fraction_bynode": min(1.0, MAX_COLUMNS / columns)}
    return {"feature_fraction" if rows >= MANY_ROWS else "feature_fraction_bynode": share}


class Growing:
    """A booster of one fold while it grows: `scores` and `held_out` are its sums for rows inside and outside.

    Rows are in ascending order of their positions.
    """

    def __init__(
        self,
        data: FoldData,
        rows: TreeRows,
        fold: int,
        settings: Settings,
        own: bool = False,
        longest: float = 0.0,
        part: Fold | None = None,
    ) -> None:
        import lightgbm

        part = rows.folds[fold] if part is None else part
        self.inner, self.outer, self.chosen = np.sort(part.inner), np.sort(part.outer), part.chosen
        train, valid = data.of(part)
        directions = None if rows.directions is None else columns_of(rows.directions[None], self.chosen)[0].tolist()
        self.columns = rows.matrix.shape[1] if self.chosen is None else len(self.chosen)
        params = {
            **_QUIET,
            "objective": "none" if own else "poisson",
            "metric": "None" if own else "poisson",
            "num_leaves": settings.leaves,
            "learning_rate": settings.rate,
            "max_delta_step": longest,
            "min_data_in_leaf": least_in_leaf(len(self.inner)),
            **_columns_for(len(rows.rate), self.columns, 1.0 if own else _COLUMN_SHARE),
            "seed": settings.seed + fold,
            "deterministic": True,
            "force_row_wise": True,
            "feature_pre_filter": False,
        }
        if directions is not None:
            params |= {"monotone_constraints": directions, "monotone_constraints_method": "intermediate"}
        self._booster = lightgbm.Booster(params, train)
        if valid is not None:
            self._booster.add_valid(valid, "held out")
        #: Losses of the held-out rows after each round, for the objective of LightGBM itself.
        self.curve: list[float] = []
        #: Whether no tree could be split any more.
        self.is_finished = False

    def grow(self, objective: Objective | None = None) -> None:
        """One more tree."""
        if objective is None:
            self.is_finished = self._booster.update()
        else:
            self.is_finished = self._booster.update(fobj=lambda scores, _: objective(scores))

    @property
    def rounds(self) -> int:
        """Rounds so far."""
        return self._booster.current_iteration()

    def roll_back(self, rounds: int) -> None:
        """Forget the trees after so many rounds. A first tree that could not be split, which adds 0, may stay."""
        for _ in range(self.rounds - rounds):
            self._booster.rollback_one_iter()

    @property
    def loss(self) -> float:
        """Mean Poisson loss of the held-out rows."""
        return self._booster.eval_valid()[0][2]

    @property
    def scores(self) -> np.ndarray:
        """The sum of the trees for the rows that are fitted."""
        return self._captured(self._booster.eval_train)

    @property
    def held_out(self) -> np.ndarray:
        """The sum of the trees for the other rows."""
        return self._captured(self._booster.eval_valid)

    def _captured(self, evaluate: Callable[..., Any]) -> np.ndarray:
        found = []

        def watch(scores: np.ndarray, _: Any) -> tuple[str, float, bool]:
            found.append(scores.copy())
            return "watched", 0.0, False

        evaluate(watch)
        return found[0]

    def booster(self, rounds: int) -> Booster:
        """The first so many rounds, without the rows."""
        text = self._booster.model_to_string(num_iteration=rounds) if rounds else ""
        return Booster(text, self.chosen)

    def predicted(self, matrix: np.ndarray, rounds: int) -> np.ndarray:
        """The sum of the first so many rounds for other rows."""
        inputs = columns_of(matrix, self.chosen)
        return np.asarray(self._booster.predict(inputs, num_iteration=rounds, raw_score=True))


def best_round(
    step: Callable[[int], float],
    settings: Settings,
    clock: Clock = UNLIMITED,
    lowest: float = np.inf,
    keep: Callable[[], object] = lambda: None,
) -> int:
    """Boost until the loss falls no more; returns the number of the best round, 0 if none was better than before.

    Parameters
    ----------
    step : callable
        Does a round, given by its number from 1, and returns the out-of-fold loss; NaN or infinity ends the boosting.
    settings : Settings
        Rounds at most, and rounds without gain before the end.
    clock : Clock
        Boosting ends with it.
    lowest : float
        The loss before the first round.
    keep : callable
        Called after each round that is better than all before it.
    """
    best = 0
    for done in range(1, settings.rounds + 1):
        loss = step(done)
        if loss < lowest:
            lowest, best = loss, done
            keep()
        if not np.isfinite(loss) or done - best >= settings.patience or not clock.left:
            break
    return best
