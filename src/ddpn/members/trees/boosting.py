"""Boost with LightGBM: rows and folds, the boosters of all folds while they grow, and when they stop.

Each fold has a booster, which is fitted to the rows of the other folds (`inner`) and predicts the rows of this fold
(`outer`). A round adds one tree to a booster.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ddpn.members.member import NotApplicableError
from ddpn.members.trees.booster import Booster
from ddpn.rows.count_rows import CountRows
from ddpn.rows.splits import FOLDS, SMALL_TABLE_ROWS, split_folds
from ddpn.runtime.deadlines import NO_LIMIT, Clock, check_deadline
from ddpn.tables.encoding.steps import choose_columns

#: The most columns among which a split is chosen. If a table with few rows has more, this many are selected. With more
#: columns, large trees are not tried.
MAX_COLUMNS = 500
_QUIET = {"verbosity": -1}
#: Up to this many columns, trees use all of them; with more, trees of a mean use this share of the columns.
_MAX_UNSAMPLED_COLUMNS, _COLUMN_SHARE = 7, 0.7
#: The largest output of a leaf of a dispersion, on a log scale and before the learning rate.
_MAX_LEAF_STEP = 2.0


# Rows -----------------------------------------------------------------------------------------------------------------


class Fold(NamedTuple):
    """Positions of the rows to which a booster is fitted (`inner`) and of the held-out rows that it predicts (`outer`).

    `chosen` holds the positions of the columns that it uses, None for all.
    """

    inner: np.ndarray
    outer: np.ndarray
    chosen: np.ndarray | None = None


class TreeRows(NamedTuple):
    """The rows to which boosters of a mean are fitted: inputs, rates (counts per exposure), weights and folds."""

    matrix: np.ndarray
    is_category: np.ndarray
    rate: np.ndarray
    weight: np.ndarray
    folds: list[Fold]
    #: For each column, 1 if the mean must not fall with it, -1 if it must not rise, else 0.
    directions: np.ndarray | None = None

    def with_column(self, values: np.ndarray) -> "TreeRows":
        """Return the rows with one more numeric column, which every fold uses."""
        last = self.matrix.shape[1]
        return self._replace(
            matrix=np.column_stack([self.matrix, values]),
            is_category=np.append(self.is_category, False),
            folds=[f if f.chosen is None else f._replace(chosen=np.append(f.chosen, last)) for f in self.folds],
        )


def compute_rates(sample: CountRows) -> tuple[np.ndarray, np.ndarray]:
    """Compute the rate (count / exposure) and weight (weight * exposure) of each row.

    Rates with these weights have the same Poisson likelihood as the counts with their exposures.
    """
    scale = np.ones_like(sample.y) if sample.exposure is None else sample.exposure
    return sample.y / scale, scale * sample.weight_or_ones


def divide_rows(y: np.ndarray, seed: int, group: np.ndarray | None = None, folds: int = FOLDS) -> list[Fold]:
    """Divide rows with counts `y` into folds, with groups kept together.

    Raise a `NotApplicableError` if a booster would be fitted to counts of 0 alone.
    """
    pairs = [Fold(inner, outer) for inner, outer in split_folds(len(y), folds, seed, group)]
    if len(pairs) < 2:
        raise NotApplicableError("it needs at least two rows, or two groups of rows")
    if not all(y[fold.inner].any() for fold in pairs):
        raise NotApplicableError("it has too few counts above 0 to leave some of them out")
    return pairs


def choose_fold_columns(folds: list[Fold], matrix: np.ndarray, rate: np.ndarray, weight: np.ndarray) -> list[Fold]:
    """Select the columns of each fold by its `inner` rows alone, so that the held-out rows have no influence."""
    return [
        f._replace(chosen=choose_columns(matrix[f.inner], rate[f.inner], weight[f.inner], MAX_COLUMNS)) for f in folds
    ]


def select_columns(matrix: np.ndarray, chosen: np.ndarray | None) -> np.ndarray:
    """Select the matrix columns at the positions `chosen`; None selects all."""
    return matrix if chosen is None else matrix[:, chosen]


def min_rows_per_leaf(rows: int) -> int:
    """Return the smallest number of rows per leaf: 20, or fewer for small tables."""
    return min(20, max(1, rows // 20))


# Boosting -------------------------------------------------------------------------------------------------------------


class Settings(NamedTuple):
    """Settings of boosting: leaves per tree, learning rate, largest number of rounds, patience in rounds, and seed."""

    leaves: int = 31
    rate: float = 0.05
    rounds: int = 1500
    patience: int = 20
    seed: int = 0


class FoldData:
    """Makes the LightGBM data sets of each fold. If all folds use the same columns, bins are computed once."""

    def __init__(self, rows: TreeRows) -> None:
        import lightgbm

        self._rows, self._lightgbm = rows, lightgbm
        self._whole: Any = self._make_dataset(None) if rows.folds[0].chosen is None else None

    def _make_dataset(self, chosen: np.ndarray | None) -> Any:
        rows = self._rows
        is_category = select_columns(rows.is_category[None], chosen)[0]
        params = {**_QUIET, "feature_pre_filter": False, "min_data_in_bin": min(3, min_rows_per_leaf(len(rows.rate)))}
        # Bins are computed from all rows, which is no leak because they depend only on inputs.
        return self._lightgbm.Dataset(
            select_columns(rows.matrix, chosen),
            rows.rate,
            weight=rows.weight,
            categorical_feature=np.flatnonzero(is_category).tolist(),
            params=params,
        ).construct()

    def make_datasets(self, part: Fold) -> tuple[Any, Any]:
        """Make the data sets of the `inner` and of the `outer` rows of a fold; None if it has no `outer` rows."""
        whole = self._make_dataset(part.chosen) if self._whole is None else self._whole
        outer = whole.subset(np.sort(part.outer)) if len(part.outer) else None
        return whole.subset(np.sort(part.inner)), outer


def _get_column_options(rows: int, columns: int, share: float) -> dict[str, float]:
    """Return LightGBM's options for the share of columns that it draws for each tree.

    In tables of few rows, columns are drawn for each split instead. At most MAX_COLUMNS are drawn. On the development
    tables, a share of 0.7 lowers the CRPS of the trees by 0.4%. If there are few columns, all are used, because every
    one may be needed.
    """
    if share == 1.0 or not _MAX_UNSAMPLED_COLUMNS < columns <= MAX_COLUMNS:
        return {"feature_fraction_bynode": min(1.0, MAX_COLUMNS / columns)}
    return {"feature_fraction" if rows >= SMALL_TABLE_ROWS else "feature_fraction_bynode": share}


class BoostedTrees:
    """The booster of one fold while trees are added to it.

    It minimises the Poisson loss of a mean, or a custom objective, whose derivatives are passed to `grow`. `inner` and
    `outer` are sorted. `part` replaces the fold with the number `fold`, for example by all rows.
    """

    def __init__(
        self,
        data: FoldData,
        rows: TreeRows,
        fold: int,
        settings: Settings,
        is_custom: bool = False,
        part: Fold | None = None,
    ) -> None:
        import lightgbm

        part = rows.folds[fold] if part is None else part
        self.inner, self.outer, self.chosen = np.sort(part.inner), np.sort(part.outer), part.chosen
        train, valid = data.make_datasets(part)
        self.columns = rows.matrix.shape[1] if self.chosen is None else len(self.chosen)
        params = {
            **_QUIET,
            "objective": "none" if is_custom else "poisson",
            "metric": "None" if is_custom else "poisson",
            "num_leaves": settings.leaves,
            "learning_rate": settings.rate,
            "max_delta_step": _MAX_LEAF_STEP if is_custom else 0.0,
            "min_data_in_leaf": min_rows_per_leaf(len(self.inner)),
            **_get_column_options(len(rows.rate), self.columns, 1.0 if is_custom else _COLUMN_SHARE),
            "seed": settings.seed + fold,
            "deterministic": True,
            "force_row_wise": True,
            "feature_pre_filter": False,
        }
        if rows.directions is not None and not is_custom:
            directions = select_columns(rows.directions[None], self.chosen)[0].tolist()
            params |= {"monotone_constraints": directions, "monotone_constraints_method": "intermediate"}
        self._booster = lightgbm.Booster(params, train)
        if valid is not None:
            self._booster.add_valid(valid, "held out")
        #: The loss of the held-out rows after each round, for LightGBM's own objective.
        self.curve: list[float] = []
        #: True if no further split is possible.
        self.is_finished = False

    def grow(self, derivatives: tuple[np.ndarray, np.ndarray] | None = None) -> None:
        """Add one tree. A custom objective passes the first and second derivatives of the losses."""
        check_deadline()
        if derivatives is None:
            self.is_finished = self._booster.update()
        else:
            self.is_finished = self._booster.update(fobj=lambda scores, rows: derivatives)

    @property
    def rounds(self) -> int:
        """The number of rounds so far."""
        return self._booster.current_iteration()

    def roll_back(self, rounds: int) -> None:
        """Remove all trees after the first `rounds`. A first tree without splits, which adds 0, may remain."""
        for _ in range(self.rounds - rounds):
            self._booster.rollback_one_iter()

    @property
    def loss(self) -> float:
        """The mean Poisson loss of the held-out rows."""
        return self._booster.eval_valid()[0][2]

    @property
    def scores(self) -> np.ndarray:
        """The sum of the trees for each `inner` row."""
        return self._capture_scores(self._booster.eval_train)

    @property
    def held_out(self) -> np.ndarray:
        """The sum of the trees for each row in `outer`, the held-out rows. Shape: (held-out rows,)."""
        return self._capture_scores(self._booster.eval_valid)

    def _capture_scores(self, evaluate: Callable[..., Any]) -> np.ndarray:
        captured = []

        def watch(scores: np.ndarray, _: object) -> tuple[str, float, bool]:
            captured.append(scores.copy())
            return "watched", 0.0, False

        evaluate(watch)
        return captured[0]

    def to_booster(self, rounds: int) -> Booster:
        """Return the trees of the first `rounds` as a `Booster`, without the training rows."""
        text = self._booster.model_to_string(num_iteration=rounds) if rounds else ""
        return Booster(text, self.chosen)

    def predict(self, matrix: np.ndarray, rounds: int) -> np.ndarray:
        """Sum the outputs of the first `rounds` trees for each row of a matrix."""
        inputs = select_columns(matrix, self.chosen)
        return np.asarray(self._booster.predict(inputs, num_iteration=rounds, raw_score=True))


def boost_until_best(
    step: Callable[[int], float],
    settings: Settings,
    clock: Clock = NO_LIMIT,
    lowest: float = np.inf,
    keep: Callable[[], object] = lambda: None,
) -> int:
    """Add rounds until the loss no longer falls; return the number of the best one, 0 if none improved the loss.

    `step` adds a round, given its number (from 1), and returns the out-of-fold loss after it; NaN or infinity ends
    boosting. `lowest` is the loss before the first round. `keep` is called after each round with a new lowest loss.
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
