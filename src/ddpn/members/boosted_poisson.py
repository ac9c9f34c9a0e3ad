"""Gradient boosting for the mean, by scikit-learn, read as a Poisson or as a Negative Binomial."""

import json
from collections.abc import Mapping
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import mean_poisson_deviance
from sklearn.model_selection import KFold
from torch.distributions import Distribution

from ddpn.distributions import NegativeBinomial, Poisson
from ddpn.errors import InputError
from ddpn.features.screening import screened
from ddpn.features.table import Column
from ddpn.members.member import Member, NotApplicableError, json_to_bytes
from ddpn.members.reader import TableReader
from ddpn.sample import Sample
from ddpn.threads import tree_threads_for

#: Levels of a category that get a code of their own: scikit-learn's trees have 255 bins.
_LEVELS = 254
#: The smallest mean: a Poisson needs a positive one.
_TINY = 1e-9
#: Types that the file may hold besides numbers, text and scikit-learn's own estimators.
TRUSTED = [
    "functools.partial",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.utils.validation.check_array",
]
#: Folds of the out-of-fold predictions, leaf counts tried, and the range of log alpha.
_FOLDS, _LEAVES, _LOG_ALPHA = 5, (8, 31), (-12.0, 5.0)
#: Columns that a split is chosen from, and that are kept of wider tables with few rows; with more, the larger trees are
#: not tried.
_MAX_COLUMNS = 500
#: Rounds at most, rounds without gain before boosting stops, and the learning rate.
_ROUNDS, _PATIENCE, _RATE = 500, 20, 0.06
_TREES, _FACTS = "trees.skops", "trees.json"


class BoostedPoisson(Member):
    """`HistGradientBoostingRegressor(loss="poisson")` with its defaults, its mean read as a Poisson.

    Categories are split as such. With exposures it is fitted to rates, weighted by exposure: the same likelihood. Of
    more than 500 columns each booster takes as many as it has rows, those that explain these rows best one by one.
    """

    label = "Poisson gradient boosting"

    def fit(self, train: Sample, validation: Sample | None, seed: int) -> Self:
        matrix, rate, weight = self._prepare(train.rows(train.is_used))
        self.chosen = [screened(matrix, rate, weight, _MAX_COLUMNS)]
        matrix = _columns(matrix, self.chosen[0])
        with tree_threads_for(matrix.size):
            trees = self._booster(self.chosen[0], random_state=seed)
            self.trees = [trees.fit(matrix, rate, sample_weight=weight)]
        _forget_bins(self.trees)
        return self

    def _prepare(self, train: Sample) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Inputs, counts per exposure, and weights times exposure."""
        if not train.y.any():
            raise NotApplicableError("it has no count above 0 to fit")
        self.reader = TableReader()
        columns = self.reader.fit(train.X)
        self.levels = [_frequent(column) if column.kind == "category" else None for column in columns]
        scale = np.ones_like(train.y) if train.exposure is None else train.exposure
        return _matrix(columns, self.levels), train.y / scale, scale * train.weight_or_ones

    def _booster(self, chosen: np.ndarray | None, **options: Any) -> HistGradientBoostingRegressor:
        is_category = np.array([known is not None for known in self.levels])
        is_category = is_category if chosen is None else is_category[chosen]
        # A share of the columns per split: with thousands the time would be theirs alone.
        share = min(1.0, _MAX_COLUMNS / len(is_category))
        return HistGradientBoostingRegressor(
            loss="poisson", categorical_features=is_category, max_features=share, **options
        )

    def mean(self, X: Any, exposure: np.ndarray | None = None) -> np.ndarray:
        """The predicted mean of every row."""
        matrix = _matrix(self.reader.read(X), self.levels)
        with tree_threads_for(matrix.size):
            both = zip(self.trees, self.chosen, strict=True)
            rate = np.mean([trees.predict(_columns(matrix, chosen)) for trees, chosen in both], axis=0)
        return np.maximum(rate if exposure is None else rate * exposure, _TINY)

    def distribution(self, X: Any, exposure: np.ndarray | None = None) -> Distribution:
        return Poisson(torch.from_numpy(self.mean(X, exposure)).unsqueeze(1))

    def _numbers(self) -> dict[str, Any]:
        """What the file of facts holds besides the columns."""
        return {}

    def state(self) -> dict[str, bytes]:
        import skops.io

        chosen = [None if columns is None else columns.tolist() for columns in self.chosen]
        facts = {"reader": self.reader.as_dict(), "levels": self.levels, "chosen": chosen, **self._numbers()}
        return {_TREES: skops.io.dumps(self.trees), _FACTS: json_to_bytes(facts)}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        import skops.io

        known, member = json.loads(files[_FACTS]), cls()
        try:
            member.trees = skops.io.loads(files[_TREES], trusted=TRUSTED)
        except (BadZipFile, AttributeError, ImportError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{_TREES} must hold boosted trees as they were saved, got {error}.") from None
        member.reader = TableReader.from_dict(known["reader"])
        member.chosen = [None if columns is None else np.array(columns) for columns in known["chosen"]]
        member.levels = [None if levels is None else tuple(levels) for levels in known["levels"]]
        for name in member._numbers():
            setattr(member, name, known[name])
        return member

    def facts(self) -> dict[str, Any]:
        return {"trees": sum(trees.n_iter_ for trees in self.trees), **self._numbers()}


class BoostedNegativeBinomial(BoostedPoisson):
    """Poisson boosting with early stopping for the mean, read as a Negative Binomial: the usual strong baseline.

    Five folds give out-of-fold means. They choose the number of leaves by Poisson deviance and the one overdispersion
    alpha (variance = mean + alpha mean^2) by maximum likelihood; the boosters of all folds are averaged.
    """

    label = "gradient boosting + Negative Binomial"
    alpha: float = 0.0

    def fit(self, train: Sample, validation: Sample | None, seed: int) -> Self:
        train = train.rows(train.is_used)
        matrix, rate, weight = self._prepare(train)
        folds = _folds(train.y, seed)
        # Inside the folds: otherwise out-of-fold means would know the rows they predict.
        self.chosen = [screened(matrix[inner], rate[inner], weight[inner], _MAX_COLUMNS) for inner, _ in folds]
        found = []
        with tree_threads_for(matrix.size):
            # With more columns the larger trees are not tried.
            for leaves in _LEAVES if matrix.shape[1] <= _MAX_COLUMNS else _LEAVES[:1]:
                trees, out_of_fold = [], np.zeros(len(train))
                for number, ((inner, outer), chosen) in enumerate(zip(folds, self.chosen, strict=True)):
                    inputs = _columns(matrix, chosen)
                    booster = self._stopping(chosen, len(inner), leaves, seed + number)
                    fitted = _early_stopped(booster, inputs, rate, weight, inner, outer)
                    out_of_fold[outer] = np.maximum(fitted.predict(inputs[outer]), _TINY)
                    trees.append(fitted)
                score = mean_poisson_deviance(rate, out_of_fold, sample_weight=weight)
                found.append((score, leaves, trees, out_of_fold))
        _, _, self.trees, out_of_fold = min(found, key=lambda each: each[:2])
        _forget_bins(self.trees)
        mean = out_of_fold if train.exposure is None else out_of_fold * train.exposure
        self.alpha = _overdispersion(train.y, mean, train.weight_or_ones)
        return self

    def _stopping(self, chosen: np.ndarray | None, rows: int, leaves: int, seed: int) -> HistGradientBoostingRegressor:
        """Unfitted boosting with early stopping, for so many rows."""
        return self._booster(
            chosen,
            max_leaf_nodes=leaves,
            min_samples_leaf=min(20, max(1, rows // 20)),
            learning_rate=_RATE,
            max_iter=_ROUNDS,
            early_stopping=True,
            n_iter_no_change=_PATIENCE,
            random_state=seed,
        )

    def distribution(self, X: Any, exposure: np.ndarray | None = None) -> Distribution:
        mean = torch.from_numpy(self.mean(X, exposure)).unsqueeze(1)
        return NegativeBinomial(mean, torch.full_like(mean, self.alpha))

    def _numbers(self) -> dict[str, Any]:
        return {"alpha": self.alpha}


def _early_stopped(
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


def _columns(matrix: np.ndarray, chosen: np.ndarray | None) -> np.ndarray:
    return matrix if chosen is None else matrix[:, chosen]


def _forget_bins(boosters: list[HistGradientBoostingRegressor]) -> None:
    """Drop the bins of numeric columns, which only the fit needs: of thousands of columns they fill most of a file."""
    none = np.empty(0)
    for booster in boosters:
        mapper = booster._bin_mapper
        known = zip(mapper.bin_thresholds_, mapper.is_categorical_, strict=True)
        mapper.bin_thresholds_ = [bins if is_category else none for bins, is_category in known]


def _folds(y: np.ndarray, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows to fit and rows to predict, of which the former must have a count above 0."""
    if len(y) < 2:
        raise NotApplicableError("it needs 2 rows or more")
    folds = list(KFold(min(_FOLDS, len(y)), shuffle=True, random_state=seed).split(y))
    if not all(y[inner].any() for inner, _ in folds):
        raise NotApplicableError("it has too few counts above 0 to leave some of them out")
    return folds


def _overdispersion(y: np.ndarray, mean: np.ndarray, weight: np.ndarray) -> float:
    """The alpha that makes the counts most likely."""
    counts, means, each = (torch.from_numpy(values) for values in (y, mean, weight))

    def loss(log_alpha: float) -> float:
        alpha = torch.full_like(means, float(np.exp(log_alpha)))
        return -float(each @ NegativeBinomial(means, alpha, validate_args=False).log_prob(counts))

    return float(np.exp(minimize_scalar(loss, bounds=_LOG_ALPHA, method="bounded").x))


def _frequent(column: Column) -> tuple[str, ...]:
    """Levels that occur, most frequent first; equal ones in alphabetical order."""
    found = np.bincount(column.values[column.values >= 0], minlength=len(column.levels))
    order = sorted(range(len(found)), key=lambda code: (-found[code], column.levels[code]))
    return tuple(column.levels[code] for code in order if found[code])[:_LEVELS]


def _matrix(columns: list[Column], levels: list[tuple[str, ...] | None]) -> np.ndarray:
    """Numbers as they are and codes of levels; a level without a code is missing."""
    parts = zip(columns, levels, strict=True)
    return np.column_stack([column.values if known is None else _codes(column, known) for column, known in parts])


def _codes(column: Column, known: tuple[str, ...]) -> np.ndarray:
    place = {level: float(code) for code, level in enumerate(known)}
    # The last entry serves code -1.
    target = np.array([*(place.get(level, np.nan) for level in column.levels), np.nan])
    return target[column.values]
