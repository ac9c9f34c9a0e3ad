"""scikit-learn's histogram boosting: what trees are fitted with where LightGBM is not installed."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any
from zipfile import BadZipFile

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from ddpn.deadlines import Clock
from ddpn.errors import InputError
from ddpn.members.trees.engine import UNLIMITED, Booster, Engine, MeanFit, Settings
from ddpn.members.trees.saved_sklearn import check_file, check_trees
from ddpn.members.trees.table import MAX_COLUMNS, TreeRows, columns_of, least_in_leaf

#: Types that the file may hold besides numbers, text and scikit-learn's own estimators.
TRUSTED = [
    "functools.partial",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.utils.validation.check_array",
]
#: The smallest rate: a Poisson needs a positive one.
TINY = 1e-9


def poisson_trees(is_category: np.ndarray, most: int = MAX_COLUMNS, **options: Any) -> HistGradientBoostingRegressor:
    """Unfitted boosting of a Poisson mean. A split sees a share of the columns: thousands would take all the time."""
    share = min(1.0, most / len(is_category))
    return HistGradientBoostingRegressor(
        loss="poisson", categorical_features=is_category, max_features=share, **options
    )


def early_stopped(
    trees: HistGradientBoostingRegressor,
    X: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
    inner: np.ndarray,
    outer: np.ndarray,
) -> HistGradientBoostingRegressor:
    """Boosting that stops when the rows of `outer` gain no more."""
    held_out = {"X_val": X[outer], "y_val": y[outer], "sample_weight_val": w[outer]}
    return trees.fit(X[inner], y[inner], sample_weight=w[inner], **held_out)


def forget_bins(boosters: Sequence[HistGradientBoostingRegressor]) -> None:
    """Drop the bins of numeric columns, which only the fit needs: of thousands of columns they fill most of a file."""
    none = np.empty(0)
    for booster in boosters:
        mapper = booster._bin_mapper
        known = zip(mapper.bin_thresholds_, mapper.is_categorical_, strict=True)
        mapper.bin_thresholds_ = [bins if is_category else none for bins, is_category in known]


def trees_to_bytes(trees: Sequence[HistGradientBoostingRegressor]) -> bytes:
    """The content of a skops file."""
    import skops.io

    return skops.io.dumps(list(trees))


def trees_from_bytes(content: bytes, name: str) -> list[HistGradientBoostingRegressor]:
    """The inverse; raises an `InputError` for other types and for damaged files."""
    import skops.io

    check_file(content, name)
    try:
        found = skops.io.loads(content, trusted=TRUSTED)
    except (BadZipFile, AttributeError, ImportError, KeyError, MemoryError, TypeError, ValueError) as error:
        raise InputError(f"{name} must hold boosted trees as they were saved, got {error}.") from None
    if not isinstance(found, list) or not all(isinstance(each, HistGradientBoostingRegressor) for each in found):
        raise InputError(f"{name} must hold boosted trees as they were saved, got {type(found).__name__}.")
    for each in found:
        check_trees(each, name)
    return found


class HistogramBooster(Booster):
    """A fitted `HistGradientBoostingRegressor`."""

    def __init__(self, trees: HistGradientBoostingRegressor, chosen: np.ndarray | None) -> None:
        self.trees, self.chosen, self.rounds = trees, chosen, int(trees.n_iter_)

    def raw(self, matrix: np.ndarray) -> np.ndarray:
        if not len(matrix):
            return np.zeros(0)
        return np.log(np.maximum(self.trees.predict(columns_of(matrix, self.chosen)), TINY))

    def split(self, groups: np.ndarray) -> list[Booster]:
        own = groups if self.chosen is None else groups[self.chosen]
        columns = np.array([_root_column(each) for each in self.trees._predictors])
        found: list[Booster] = []
        for number in range(int(groups.max()) + 1):
            part = copy(self.trees)
            wanted = np.where(columns < 0, 0, own[columns]) == number
            part._predictors = [each for each, w in zip(self.trees._predictors, wanted, strict=True) if w]
            if number:  # the mean is part of the first
                part._baseline_prediction = np.zeros_like(self.trees._baseline_prediction)
            found.append(HistogramBooster(part, self.chosen))
        return found


def _root_column(predictors: Any) -> int:
    """The column that a tree of one split splits; -1 for a leaf."""
    root = predictors[0].nodes[0]
    return -1 if root["is_leaf"] else int(root["feature_idx"])


class EarlyStopped(MeanFit):
    """Each fold ends where its own held-out rows gain no more."""

    def __init__(self, rows: TreeRows, settings: Settings) -> None:
        super().__init__(rows, settings)
        self._boosters: list[Booster] = []

    def run(self, folds: int, clock: Clock = UNLIMITED) -> None:
        rows = self.rows
        for number in range(len(self._boosters), folds):
            inner, outer, chosen = rows.folds[number]
            directions = None if rows.directions is None else columns_of(rows.directions[None], chosen)[0]
            booster = poisson_trees(
                columns_of(rows.is_category[None], chosen)[0],
                monotonic_cst=directions,
                max_leaf_nodes=self.settings.leaves,
                min_samples_leaf=least_in_leaf(len(inner)),
                learning_rate=self.settings.rate,
                max_iter=self.settings.rounds,
                early_stopping=True,
                n_iter_no_change=self.settings.patience,
                random_state=self.settings.seed + number,
            )
            inputs = columns_of(rows.matrix, chosen)
            fitted = early_stopped(booster, inputs, rows.rate, rows.weight, inner, outer)
            forget_bins([fitted])
            self._boosters.append(HistogramBooster(fitted, chosen))

    def boosters(self) -> list[Booster]:
        return self._boosters


class ScikitLearn(Engine):
    """Part of every installation."""

    name = "scikit-learn"
    _file = "trees.skops"

    def mean_fit(self, rows: TreeRows, settings: Settings) -> MeanFit:
        return EarlyStopped(rows, settings)

    def to_files(self, boosters: Sequence[Booster]) -> dict[str, bytes]:
        return {self._file: trees_to_bytes([each.trees for each in boosters if isinstance(each, HistogramBooster)])}

    def from_files(self, files: Mapping[str, bytes], chosen: Sequence[Any], columns: Sequence[int]) -> list[Booster]:
        trees = trees_from_bytes(files[self._file], self._file)
        if [each.n_features_in_ for each in trees] != list(columns):
            raise InputError(f"{self._file} must hold boosted trees as they were saved, got another number of columns.")
        return [HistogramBooster(each, known) for each, known in zip(trees, chosen, strict=True)]
