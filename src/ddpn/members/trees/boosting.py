"""Boost trees with LightGBM in several folds at once, and stop at the round with the best held-out loss.

Each fold has its own booster. It is fitted to the rows of the other folds (`train_rows`) and evaluated on the rows of
this fold (`held_out_rows`). A round adds one tree to each booster.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ddpn.members.member import NotApplicableError
from ddpn.members.trees.booster import Booster
from ddpn.rows.count_rows import CountRows
from ddpn.rows.splits import FOLDS, SMALL_TABLE_ROWS, split_folds
from ddpn.runtime.deadlines import NO_LIMIT, Clock, check_deadline
from ddpn.tables.encoding.steps import MAX_COLUMNS, choose_columns

_QUIET = {"verbosity": -1}
#: Up to this many columns, trees use all of them; with more, trees of a mean use this share of the columns.
_MAX_UNSAMPLED_COLUMNS, _COLUMN_SHARE = 7, 0.7
#: The largest output of a leaf of a dispersion, on a log scale and before the learning rate.
_MAX_LEAF_STEP = 2.0


# Rows -----------------------------------------------------------------------------------------------------------------


class Fold(NamedTuple):
    """The rows to which the booster of one fold is fitted (`train_rows`), and the held-out rows of this fold.

    Both are arrays of the positions of the rows. `chosen` has the positions of the columns that the booster uses, or is
    None if it uses all.
    """

    train_rows: np.ndarray
    held_out_rows: np.ndarray
    chosen: np.ndarray | None = None


class TreeRows(NamedTuple):
    """The rows to which boosters are fitted.

    - `matrix`: the inputs, of shape (rows, columns);
    - `is_category`: a mask of the matrix columns that have codes of categories, of shape (columns,);
    - `rate`: count / exposure of each row, of shape (rows,);
    - `weight`: the weight of each row for Poisson regression on rates (see `compute_rates`), of shape (rows,);
    - `folds`: the folds for out-of-fold predictions;
    - `directions`: for each column, 1 if the mean must not decrease with it, -1 if it must not increase, else 0; None
      without any such constraint.
    """

    matrix: np.ndarray
    is_category: np.ndarray
    rate: np.ndarray
    weight: np.ndarray
    folds: list[Fold]
    directions: np.ndarray | None = None

    def with_column(self, values: np.ndarray) -> "TreeRows":
        """Return a copy with an additional numeric column, which the boosters of all folds use.

        `values` has the value of each row in this column, shape (rows,). It becomes the last column.
        """
        last = self.matrix.shape[1]
        return self._replace(
            matrix=np.column_stack([self.matrix, values]),
            is_category=np.append(self.is_category, False),
            folds=[f if f.chosen is None else f._replace(chosen=np.append(f.chosen, last)) for f in self.folds],
        )


def compute_rates(sample: CountRows) -> tuple[np.ndarray, np.ndarray]:
    """Compute the rate (count / exposure) of each row, and its weight for Poisson regression (weight * exposure).

    The Poisson log-likelihood of rates with these weights equals that of the counts with their exposures, up to an
    additive constant.
    """
    exposure = sample.exposure_or_ones
    return sample.y / exposure, exposure * sample.weight_or_ones


def divide_rows(y: np.ndarray, seed: int, group: np.ndarray | None = None, folds: int = FOLDS) -> list[Fold]:
    """Divide rows into random folds. Groups of rows stay together.

    `y` has the counts, and `group` the group of each row, or is None if all rows may be separated. `folds` is the
    number of folds; there are fewer if there are not enough rows or groups. Raise a `NotApplicableError` if fewer than
    two folds are possible, or if all counts above 0 are in the same fold.
    """
    pairs = [Fold(train, held_out) for train, held_out in split_folds(len(y), folds, seed, group)]
    if len(pairs) < 2:
        raise NotApplicableError("it needs at least two rows, or two groups of rows")
    if not all(y[fold.train_rows].any() for fold in pairs):
        raise NotApplicableError("it has too few counts above 0 to leave some of them out")
    return pairs


def choose_fold_columns(folds: list[Fold], matrix: np.ndarray, rate: np.ndarray, weight: np.ndarray) -> list[Fold]:
    """Choose the most predictive columns for each fold; return the folds with their `chosen` columns.

    As many columns are chosen as the fold has training rows, but at least 500. If there are no more columns than that,
    all are used. The choice for a fold uses its training rows only, so that it does not depend on the held-out rows.
    `matrix` has the inputs, shape (rows, columns). `rate` is count / exposure of each row, and `weight` its weight for
    Poisson regression on rates (`compute_rates`), both of shape (rows,).
    """
    return [
        f._replace(chosen=choose_columns(matrix[f.train_rows], rate[f.train_rows], weight[f.train_rows])) for f in folds
    ]


def select_columns(matrix: np.ndarray, chosen: np.ndarray | None) -> np.ndarray:
    """Select the columns of a matrix at the positions `chosen`; None selects all columns.

    Shape: (rows, columns) -> (rows, chosen columns).
    """
    return matrix if chosen is None else matrix[:, chosen]


def min_rows_per_leaf(rows: int) -> int:
    """Return the minimum number of rows in a leaf: 20, or fewer for tables with fewer than 400 rows."""
    return min(20, max(1, rows // 20))


# Boosting -------------------------------------------------------------------------------------------------------------


class Settings(NamedTuple):
    """Settings of boosting.

    - `leaves`: the number of leaves per tree;
    - `learning_rate`: the factor by which the output of each tree is multiplied;
    - `rounds`: the maximum number of rounds;
    - `patience`: the number of rounds without improvement after which boosting stops;
    - `seed`: the random seed.
    """

    leaves: int = 31
    learning_rate: float = 0.05
    rounds: int = 1500
    patience: int = 20
    seed: int = 0


class FoldData:
    """Creates the LightGBM datasets of each fold of `rows`.

    If all folds use the same columns, bins are computed only once.
    """

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
        """Return two LightGBM datasets: of the training rows and of the held-out rows of a fold.

        The second one is None if the fold has no held-out rows.
        """
        whole = self._make_dataset(fold.chosen) if self._whole is None else self._whole
        held_out = whole.subset(np.sort(fold.held_out_rows)) if len(fold.held_out_rows) else None
        return whole.subset(np.sort(fold.train_rows)), held_out


def _get_column_options(rows: int, columns: int, share: float) -> dict[str, float]:
    """Return LightGBM's options for growing trees on random subsets of the columns.

    - Up to 7 columns, all are used, because every one may be needed.
    - With 8 to 500 columns, a random `share` of them is used, from 0 to 1. The subset is drawn for each tree or, if
      there are fewer than 5,000 rows, for each split. With a `share` of 1, all are used.
    - With more than 500 columns, 500 of them are drawn for each split, whatever `share` is.

    On the development tables, a share of 0.7 lowers the CRPS of the trees by 0.4% compared with all columns.
    """
    if share == 1.0 or not _MAX_UNSAMPLED_COLUMNS < columns <= MAX_COLUMNS:
        return {"feature_fraction_bynode": min(1.0, MAX_COLUMNS / columns)}
    return {"feature_fraction" if rows >= SMALL_TABLE_ROWS else "feature_fraction_bynode": share}


class BoostedTrees:
    """The booster of one fold during training, to which `grow` adds trees.

    `data` creates the LightGBM datasets of `rows`. The objective is LightGBM's Poisson loss. If `is_custom`, it is a
    custom objective, whose derivatives are passed to `grow`. The fold is `rows.folds[fold_number]` or, if `fold` is
    given, this fold, which may consist of all rows. `fold_number` also varies the random seed. `settings` are those of
    boosting. The attributes `train_rows` and `held_out_rows` have the sorted positions of the rows of the fold.
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
        self.train_rows, self.held_out_rows = np.sort(fold.train_rows), np.sort(fold.held_out_rows)
        self.chosen = fold.chosen
        train, valid = data.make_datasets(fold)
        self.columns = rows.matrix.shape[1] if self.chosen is None else len(self.chosen)
        params = {
            **_QUIET,
            "objective": "none" if is_custom else "poisson",
            "metric": "None" if is_custom else "poisson",
            "num_leaves": settings.leaves,
            "learning_rate": settings.learning_rate,
            "max_delta_step": _MAX_LEAF_STEP if is_custom else 0.0,
            "min_data_in_leaf": min_rows_per_leaf(len(self.train_rows)),
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

        For a custom objective, `derivatives` has the first and the second derivatives of the loss of each training row,
        in the order of `train_rows`. None for LightGBM's Poisson loss.
        """
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
        """Remove the last trees, so that `rounds` rounds are left.

        A first tree without splits, which adds 0 to predictions, may remain.
        """
        for _ in range(self.rounds - rounds):
            self._booster.rollback_one_iter()

    @property
    def loss(self) -> float:
        """The mean Poisson loss of the held-out rows."""
        return self._booster.eval_valid()[0][2]

    @property
    def train_scores(self) -> np.ndarray:
        """The sum of the tree outputs so far, for each training row, in the order of `train_rows`."""
        return self._capture_scores(self._booster.eval_train)

    @property
    def held_out_scores(self) -> np.ndarray:
        """The sum of the tree outputs so far, for each held-out row, in the order of `held_out_rows`."""
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
        return Booster.from_lightgbm(self._booster, rounds, self.chosen)

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
    """Add rounds until the loss stops improving; return the number of rounds with the lowest loss.

    - `add_round` adds a tree to each booster and returns the new held-out loss. It is called with the number of the
      round, from 1.
    - `initial_loss` is the loss before the first round. If no round improves it, 0 is returned.
    - `on_improvement` is called after each round with a new lowest loss.

    Boosting stops after `settings.rounds` rounds, after `settings.patience` rounds without improvement, when the time
    of `clock` is up, or if the loss is not finite.
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
