"""Boost trees with LightGBM in several folds at once, and stop at the round with the best held-out loss.

Each fold has its own booster. It is fitted to the rows of the other folds (`inner`) and evaluated on the rows of this
fold (`outer`). A round adds one tree to each booster.
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
    """The row positions of one fold: `inner` rows to which a booster is fitted, and held-out `outer` rows.

    `chosen` holds the positions of the columns that the booster uses, or None if it uses all.
    """

    inner: np.ndarray
    outer: np.ndarray
    chosen: np.ndarray | None = None


class TreeRows(NamedTuple):
    """The training rows of boosters: a matrix of inputs, rates (count / exposure), weights and folds."""

    matrix: np.ndarray
    is_category: np.ndarray
    rate: np.ndarray
    weight: np.ndarray
    folds: list[Fold]
    #: For each column, 1 if the mean must not fall with it, -1 if it must not rise, else 0.
    directions: np.ndarray | None = None

    def with_column(self, values: np.ndarray) -> "TreeRows":
        """Return a copy with an additional numeric column, which the boosters of all folds use."""
        last = self.matrix.shape[1]
        return self._replace(
            matrix=np.column_stack([self.matrix, values]),
            is_category=np.append(self.is_category, False),
            folds=[f if f.chosen is None else f._replace(chosen=np.append(f.chosen, last)) for f in self.folds],
        )


def compute_rates(sample: CountRows) -> tuple[np.ndarray, np.ndarray]:
    """Compute the rate (count / exposure) of each row and its weight for Poisson regression (weight * exposure).

    Up to a constant, the Poisson log-likelihood of rates with these weights equals that of the counts with their
    exposures.
    """
    scale = np.ones_like(sample.y) if sample.exposure is None else sample.exposure
    return sample.y / scale, scale * sample.weight_or_ones


def divide_rows(y: np.ndarray, seed: int, group: np.ndarray | None = None, folds: int = FOLDS) -> list[Fold]:
    """Divide rows into random folds. Groups of rows stay together.

    Raise a `NotApplicableError` if fewer than two folds are possible, or if a booster would be fitted only to counts of
    0. `y` holds the counts.
    """
    pairs = [Fold(inner, outer) for inner, outer in split_folds(len(y), folds, seed, group)]
    if len(pairs) < 2:
        raise NotApplicableError("it needs at least two rows, or two groups of rows")
    if not all(y[fold.inner].any() for fold in pairs):
        raise NotApplicableError("it has too few counts above 0 to leave some of them out")
    return pairs


def choose_fold_columns(folds: list[Fold], matrix: np.ndarray, rate: np.ndarray, weight: np.ndarray) -> list[Fold]:
    """Choose the most predictive columns for each fold; return the folds with their `chosen` columns.

    Only the `inner` rows of a fold are used, so that its held-out rows do not influence the choice.
    """
    return [
        f._replace(chosen=choose_columns(matrix[f.inner], rate[f.inner], weight[f.inner], MAX_COLUMNS)) for f in folds
    ]


def select_columns(matrix: np.ndarray, chosen: np.ndarray | None) -> np.ndarray:
    """Select the columns of a matrix at the positions `chosen`; None selects all columns."""
    return matrix if chosen is None else matrix[:, chosen]


def min_rows_per_leaf(rows: int) -> int:
    """Return the minimum number of rows in a leaf: 20, or fewer for tables with fewer than 400 rows."""
    return min(20, max(1, rows // 20))


# Boosting -------------------------------------------------------------------------------------------------------------


class Settings(NamedTuple):
    """Settings of boosting.

    `leaves` is the number of leaves per tree, `rate` the learning rate, and `rounds` the maximum number of rounds.
    Boosting stops early after `patience` rounds without improvement.
    """

    leaves: int = 31
    rate: float = 0.05
    rounds: int = 1500
    patience: int = 20
    seed: int = 0


class FoldData:
    """Creates the LightGBM datasets of each fold. If all folds use the same columns, bins are computed only once."""

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

    def make_datasets(self, fold: Fold) -> tuple[Any, Any]:
        """Return the LightGBM datasets of the `inner` and the `outer` rows of a fold.

        The second one is None if the fold has no `outer` rows.
        """
        whole = self._make_dataset(fold.chosen) if self._whole is None else self._whole
        outer = whole.subset(np.sort(fold.outer)) if len(fold.outer) else None
        return whole.subset(np.sort(fold.inner)), outer


def _get_column_options(rows: int, columns: int, share: float) -> dict[str, float]:
    """Return LightGBM's options for random subsets of columns, of which `share` is the relative size.

    A subset is drawn for each tree or, in tables with few rows, for each split. If the table has few columns, all are
    used, because every one may be needed. If it has more than MAX_COLUMNS, that many are drawn for each split. On the
    development tables, a share of 0.7 lowers the CRPS of the trees by 0.4%.
    """
    if share == 1.0 or not _MAX_UNSAMPLED_COLUMNS < columns <= MAX_COLUMNS:
        return {"feature_fraction_bynode": min(1.0, MAX_COLUMNS / columns)}
    return {"feature_fraction" if rows >= SMALL_TABLE_ROWS else "feature_fraction_bynode": share}


class BoostedTrees:
    """The booster of one fold during training, to which `grow` adds trees.

    The objective is LightGBM's Poisson loss, or with `is_custom` an objective whose derivatives are passed to `grow`.
    `fold_number` selects the fold from `rows.folds` and varies the seed. A `fold` is used instead of the selected one,
    for example a fold of all rows. The attributes `inner` and `outer` hold the sorted row positions of the fold.
    """

    def __init__(
        self,
        data: FoldData,
        rows: TreeRows,
        fold_number: int,
        settings: Settings,
        is_custom: bool = False,
        fold: Fold | None = None,
    ) -> None:
        import lightgbm

        fold = rows.folds[fold_number] if fold is None else fold
        self.inner, self.outer, self.chosen = np.sort(fold.inner), np.sort(fold.outer), fold.chosen
        train, valid = data.make_datasets(fold)
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
            "seed": settings.seed + fold_number,
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
        """Add one tree.

        For a custom objective, `derivatives` holds the first and second derivatives of the loss of each `inner` row.
        """
        check_deadline()
        if derivatives is None:
            self.is_finished = self._booster.update()
        else:
            self.is_finished = self._booster.update(fobj=lambda scores, rows: derivatives)

    @property
    def rounds(self) -> int:
        """The current number of rounds."""
        return self._booster.current_iteration()

    def roll_back(self, rounds: int) -> None:
        """Remove trees until `rounds` rounds are left. A first tree without splits, which adds 0, may remain."""
        for _ in range(self.rounds - rounds):
            self._booster.rollback_one_iter()

    @property
    def loss(self) -> float:
        """The mean Poisson loss of the held-out rows."""
        return self._booster.eval_valid()[0][2]

    @property
    def inner_scores(self) -> np.ndarray:
        """The current sum of the tree outputs for each `inner` row."""
        return self._capture_scores(self._booster.eval_train)

    @property
    def outer_scores(self) -> np.ndarray:
        """The current sum of the tree outputs for each `outer` row, the held-out rows."""
        return self._capture_scores(self._booster.eval_valid)

    def _capture_scores(self, evaluate: Callable[..., Any]) -> np.ndarray:
        captured = []

        def watch(scores: np.ndarray, _: object) -> tuple[str, float, bool]:
            captured.append(scores.copy())
            return "watched", 0.0, False

        evaluate(watch)
        return captured[0]

    def to_booster(self, rounds: int) -> Booster:
        """Return the first `rounds` trees as a `Booster`, which does not keep the training rows."""
        text = self._booster.model_to_string(num_iteration=rounds) if rounds else ""
        return Booster(text, self.chosen)

    def predict(self, matrix: np.ndarray, rounds: int) -> np.ndarray:
        """Compute the sum of the outputs of the first `rounds` trees for each row of a matrix."""
        inputs = select_columns(matrix, self.chosen)
        return np.asarray(self._booster.predict(inputs, num_iteration=rounds, raw_score=True))


def boost_until_best(
    add_round: Callable[[int], float],
    settings: Settings,
    clock: Clock = NO_LIMIT,
    initial_loss: float = np.inf,
    on_improvement: Callable[[], object] = lambda: None,
) -> int:
    """Add rounds until the loss stops improving; return the best number of rounds.

    `add_round` is called with the number of the round, from 1. It adds a tree to each booster and returns the new
    held-out loss. Boosting stops after `settings.patience` rounds without improvement, when the time is up, or if the
    loss is not finite. `initial_loss` is the loss before the first round; 0 is returned if no round improves it.
    `on_improvement` is called after each round that lowers the loss to a new minimum.
    """
    best, lowest = 0, initial_loss
    for number in range(1, settings.rounds + 1):
        loss = add_round(number)
        if loss < lowest:
            lowest, best = loss, number
            on_improvement()
        if not np.isfinite(loss) or number - best >= settings.patience or not clock.left:
            break
    return best
