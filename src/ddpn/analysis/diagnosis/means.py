"""Out-of-fold conditional means: what the features explain, without the optimism of a fit to the same rows."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import PoissonRegressor

from ddpn.members.reader import TableReader
from ddpn.runtime.threads import tree_threads_for
from ddpn.sample import Sample
from ddpn.tables.encoding import FeatureEncoder
from ddpn.tables.encoding.table import Column
from ddpn.tables.splits import fold_pairs

#: Mean models that can be chosen; "auto" takes the one with the smallest out-of-fold deviance.
MEAN_MODELS = ("auto", "constant", "glm", "boosting")
LABELS = {"constant": "constant mean", "glm": "Poisson GLM", "boosting": "Poisson GLM with boosted trees on top"}
FOLDS = 5
#: Ridge penalty of the GLM on standardised columns, as in `ddpn.members.PoissonGLM`, and its most columns.
ALPHA, MAX_COLUMNS = 1e-4, 300
#: Small trees on top of a GLM: of the settings tried on simulated Poisson counts with linear, smooth and stepped means,
#: these had the smallest error of the mean, or nearly so, in all.
_LEAVES, _RATE, _ROUNDS, _PATIENCE = 8, 0.1, 400, 10
#: Quantile bins of a column: scikit-learn needs up to 20 times as long for weighted rows with more distinct values.
_BINS = 128
#: The smallest mean, as a share of the overall rate.
_SMALLEST = 1e-4

Step = Callable[[str], object]


class Means(NamedTuple):
    """Out-of-fold means and how far they are from the conditional means.

    `noise` is the mean of (estimate - mean)^2 / mean per row that refitting to Poisson counts with these means causes:
    it adds to every estimate of dispersion. `most_noise` allows for a mean that is rougher than its estimate. Means of
    all rows use the weights `emphasis`. `explained` is the share of the deviance of a constant mean.
    """

    name: str
    mean: np.ndarray
    deviance: float
    noise: float
    most_noise: float
    explained: float


def emphasis(mean: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weights of rows in an estimate of dispersion: rows with a mean below 1 say little about it."""
    return np.asarray(weight * np.minimum(mean, 1.0))


def out_of_fold_means(sample: Sample, kind: str, seed: int, step: Step) -> Means:
    """The means of the chosen model, or of the best one, by five-fold cross-fitting."""
    data = _Data.of(sample, seed)
    constant = _linear(data, np.empty((len(data.y), 0)), "constant")
    if kind == "constant":
        return constant
    candidates = [constant]
    step("Fitting a Poisson GLM")
    inputs = FeatureEncoder().fit(sample.X, sample.y, sample.weight).transform(sample.X).astype(np.float64)
    if inputs.shape[1] <= MAX_COLUMNS:
        candidates.append(_linear(data, inputs, "glm", constant.deviance))
    if kind == "glm":
        return candidates[-1]
    base = min(candidates, key=lambda each: each.deviance)
    boosted = _boosted(data, codes(TableReader().fit(sample.X)), base, constant.deviance, step)
    return boosted if kind == "boosting" else min(*candidates, boosted, key=lambda each: each.deviance)


class _Data(NamedTuple):
    """Counts, weights, exposures (ones where there are none) and folds (rows to fit, rows to predict)."""

    y: np.ndarray
    weight: np.ndarray
    exposure: np.ndarray
    folds: list[tuple[np.ndarray, np.ndarray]]
    seed: int

    @classmethod
    def of(cls, sample: Sample, seed: int) -> "_Data":
        exposure = np.ones(len(sample)) if sample.exposure is None else sample.exposure
        folds = fold_pairs(len(sample), FOLDS, seed, sample.group)
        weight = sample.weight_or_ones
        return cls(sample.y, weight / weight.mean(), exposure / exposure.mean(), folds, seed)

    @property
    def smallest(self) -> np.ndarray:
        rate = np.average(self.y / self.exposure, weights=self.weight * self.exposure)
        return np.asarray(_SMALLEST * rate * self.exposure)


def _deviance(data: _Data, mean: np.ndarray) -> float:
    """Mean Poisson deviance."""
    ratio = np.where(data.y > 0, data.y, 1.0) / mean
    return float(np.average(2.0 * (data.y * np.log(ratio) - data.y + mean), weights=data.weight))


def _explained(deviance: float, constant: float | None) -> float:
    return 0.0 if not constant else max(0.0, 1.0 - deviance / constant)


# A GLM ---------------------------------------------------------------------------------------------------------------


def _linear(data: _Data, inputs: np.ndarray, name: str, constant: float | None = None) -> Means:
    """A Poisson GLM, whose estimation noise follows from its covariance."""
    mean, noise = np.empty_like(data.y), np.empty_like(data.y)
    for inner, outer in data.folds:
        eta = _eta(data, inputs, inner)
        fitted = data.exposure * np.exp(eta)
        mean[outer] = fitted[outer]
        noise[outer] = fitted[outer] * _variance_of_eta(inputs, inner, outer, fitted[inner], data.weight[inner])
    mean = np.maximum(mean, data.smallest)
    average = float(np.average(noise, weights=emphasis(mean, data.weight)))
    deviance = _deviance(data, mean)
    return Means(name, mean, deviance, average, average, _explained(deviance, constant))


def _eta(data: _Data, inputs: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Log rates of all rows by a fit to the rows `inner`, within the range that these have."""
    weight, rate = (data.weight * data.exposure)[inner], (data.y / data.exposure)[inner]
    least = np.log(max(float(np.average(rate, weights=weight)), 1e-12))
    if not inputs.shape[1]:
        return np.full(len(data.y), least)
    with warnings.catch_warnings():
        # One that is not quite at its maximum has a larger deviance, and is not chosen then.
        warnings.simplefilter("ignore")
        model = PoissonRegressor(alpha=ALPHA, solver="newton-cholesky", max_iter=100)
        model.fit(inputs[inner], rate, sample_weight=weight)
    eta = inputs @ model.coef_ + model.intercept_
    return np.clip(eta, eta[inner].min(), eta[inner].max())


def _variance_of_eta(
    inputs: np.ndarray, inner: np.ndarray, outer: np.ndarray, mean: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """The variance of the predicted log means of `outer` for Poisson counts, by the sandwich formula for weights."""
    x, new = (np.column_stack([np.ones(len(rows)), inputs[rows]]) for rows in (inner, outer))
    penalty = np.diag([0.0, *np.full(inputs.shape[1], ALPHA * weight.sum())])
    bread = np.linalg.pinv((x * (weight * mean)[:, None]).T @ x + penalty, hermitian=True)
    covariance = bread @ ((x * (weight**2 * mean)[:, None]).T @ x) @ bread
    return np.asarray(np.einsum("ij,jk,ik->i", new, covariance, new))


# Boosted trees -------------------------------------------------------------------------------------------------------


def _boosted(data: _Data, table: "Codes", base: Means, constant: float, step: Step) -> Means:
    """Boosted trees that multiply the out-of-fold means of `base`; one parametric bootstrap measures their noise."""
    step("Fitting boosted trees")
    mean = _cross_boosted(data, table, base.mean, data.y)
    step("Measuring the noise of the mean")
    simulated = np.random.default_rng(data.seed).poisson(mean).astype(np.float64)
    noise = 0.0
    if simulated.any():
        # The noise of two folds is that of all.
        part = data._replace(folds=data.folds[:2])
        again = _cross_boosted(part, table, base.mean, simulated)
        rows = np.concatenate([outer for _, outer in part.folds])
        errors = (again[rows] - mean[rows]) ** 2 / again[rows]
        noise = float(np.average(errors, weights=emphasis(mean, data.weight)[rows]))
    deviance = _deviance(data, mean)
    # In simulations the squared error of the mean was up to twice what the bootstrap finds, whose means are smoother.
    return Means("boosting", mean, deviance, noise, 2.0 * noise, _explained(deviance, constant))


def _cross_boosted(data: _Data, table: "Codes", base: np.ndarray, y: np.ndarray) -> np.ndarray:
    mean, weight = np.empty_like(base), data.weight * base
    for number, (inner, outer) in enumerate(data.folds):
        trees = HistGradientBoostingRegressor(
            loss="poisson", categorical_features=table.is_category, max_leaf_nodes=_LEAVES, learning_rate=_RATE,
            max_iter=_ROUNDS, early_stopping=len(inner) >= 200, n_iter_no_change=_PATIENCE,
            max_features=min(1.0, 500 / table.matrix.shape[1]), random_state=data.seed + number,
        )  # fmt: skip
        if len(inner) < 200:
            trees.set_params(max_iter=30)
        with tree_threads_for(table.matrix.size):
            trees.fit(table.matrix[inner], y[inner] / base[inner], sample_weight=weight[inner])
            mean[outer] = base[outer] * trees.predict(table.matrix[outer])
    return np.maximum(mean, data.smallest)


class Codes(NamedTuple):
    """Columns for trees: numbers as the number of their bin, categories as codes of their most frequent levels."""

    matrix: np.ndarray
    is_category: list[bool]


def codes(columns: list[Column]) -> Codes:
    """The columns of a table for trees."""
    is_category = [column.kind == "category" for column in columns]
    each = [_level_codes(column) if category else _bins(column.values.astype(np.float64))
            for column, category in zip(columns, is_category, strict=True)]  # fmt: skip
    return Codes(np.column_stack(each), is_category)


def _bins(values: np.ndarray) -> np.ndarray:
    known = values[~np.isnan(values)]
    if not len(known):
        return np.zeros_like(values)
    edges = np.unique(np.quantile(known, np.arange(1, _BINS) / _BINS, method="inverted_cdf"))
    return np.where(np.isnan(values), np.nan, np.searchsorted(edges, values, side="left").astype(np.float64))


def _level_codes(column: Column) -> np.ndarray:
    found = np.bincount(column.values[column.values >= 0], minlength=len(column.levels) + 1)
    order = np.argsort(-found, kind="stable")[:254]
    place = np.full(len(found) + 1, np.nan)
    place[order[found[order] > 0]] = np.arange(int((found[order] > 0).sum()))
    place[-1] = np.nan  # serves code -1
    return np.asarray(place[column.values])
