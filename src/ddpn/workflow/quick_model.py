"""A model of the mean that is fitted in a second, for warnings about a table. Imports no torch."""

import warnings
from typing import Any, NamedTuple

import numpy as np

from ddpn.runtime.threads import tree_threads_for
from ddpn.sample import Sample

#: Cells of a table at most: 10,000 rows of up to 100 columns take about a second per set of folds.
MAX_ROWS, _MAX_CELLS = 10_000, 1_000_000
#: Trees of the booster, and rows of a leaf at least: few, so that it recognises rows that come again.
_TREES, _LEAF_ROWS = 60, 5
#: Bins of a column, by quantiles (scikit-learn takes far longer to bin weighted rows), and levels of a category that
#: trees distinguish, as many as scikit-learn allows.
_BINS, _LEVELS = 254, 254
#: The ridge penalty of the GLM on standardised columns, and its most inputs.
_ALPHA, _MAX_INPUTS = 1e-3, 300
#: The smallest mean, as a share of the overall rate.
_SMALLEST = 1e-4

Pairs = list[tuple[np.ndarray, np.ndarray]]


def most_rows(columns: int) -> int:
    """Rows that a quick model is fitted to at most; larger tables are sampled."""
    return min(MAX_ROWS, _MAX_CELLS // max(1, columns))


class Quick(NamedTuple):
    """Means per row and their Poisson deviances."""

    mean: np.ndarray
    deviance: np.ndarray


class QuickModel:
    """A Poisson GLM and boosted trees with few rows per leaf; the better one predicts.

    Parameters
    ----------
    sample : Sample
        Rows to fit and to predict; `X` is a polars DataFrame.
    """

    def __init__(self, sample: Sample) -> None:
        from ddpn.members.reader import TableReader
        from ddpn.tables.encoding import FeatureEncoder  # scikit-learn is slow to import

        columns = TableReader().fit(sample.X)
        self._is_category = [column.kind == "category" for column in columns]
        self._matrix = np.column_stack([_codes(column) for column in columns])
        self._inputs = FeatureEncoder().fit(sample.X).transform(sample.X).astype(np.float64)
        self._exposure = np.ones(len(sample)) if sample.exposure is None else sample.exposure
        self._rate, self._weight = sample.y / self._exposure, sample.weight_or_ones * self._exposure
        self._y, self._own = sample.y, sample.weight_or_ones
        self._smallest = _SMALLEST * float(np.average(self._rate, weights=self._weight))

    def predict(self, pairs: Pairs) -> Quick:
        """The means of the second rows of each pair, by models fitted to the first; NaN for all other rows."""
        found = [self._predicted(self._trees, pairs)]
        if self._inputs.shape[1] <= _MAX_INPUTS:
            found.append(self._predicted(self._glm, pairs))
        rows = np.concatenate([outer for _, outer in pairs])
        return min(found, key=lambda each: np.average(each.deviance[rows], weights=self._own[rows]))

    @property
    def constant_deviance(self) -> float:
        """The mean deviance of a constant rate."""
        mean = np.average(self._rate, weights=self._weight) * self._exposure
        return float(np.average(self.scored(mean).deviance, weights=self._own))

    def _predicted(self, fit: Any, pairs: Pairs) -> Quick:
        rate = np.full(len(self._y), np.nan)
        for inner, outer in pairs:
            rate[outer] = fit(inner, outer)
        return self.scored(np.maximum(rate, self._smallest) * self._exposure)

    def scored(self, mean: np.ndarray) -> Quick:
        """Means per row with their deviances."""
        ratio = np.where(self._y > 0, self._y, 1.0) / mean
        return Quick(mean, 2.0 * (self._y * np.log(ratio) - self._y + mean))

    def _trees(self, inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
        from sklearn.ensemble import HistGradientBoostingRegressor

        trees = HistGradientBoostingRegressor(
            loss="poisson", categorical_features=self._is_category, max_iter=_TREES, min_samples_leaf=_LEAF_ROWS,
            early_stopping=False, random_state=0,
        )  # fmt: skip
        with tree_threads_for(self._matrix.size):
            trees.fit(self._matrix[inner], self._rate[inner], sample_weight=self._weight[inner])
            return np.asarray(trees.predict(self._matrix[outer]))

    def _glm(self, inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
        from sklearn.linear_model import PoissonRegressor

        model = PoissonRegressor(alpha=_ALPHA, solver="newton-cholesky", max_iter=50)
        with warnings.catch_warnings(), tree_threads_for(self._inputs.size):
            # One that is not quite at its maximum has a larger deviance, and is not chosen then.
            warnings.simplefilter("ignore")
            model.fit(self._inputs[inner], self._rate[inner], sample_weight=self._weight[inner])
        known, new = (self._inputs[rows] @ model.coef_ for rows in (inner, outer))
        return np.asarray(np.exp(np.clip(new, known.min(), known.max()) + model.intercept_))


def _codes(column: Any) -> np.ndarray:
    """Numbers as the number of their bin, categories as codes of their most frequent levels; NaN for other cells."""
    if column.kind != "category":
        values = np.asarray(column.values, dtype=np.float64)
        known = values[~np.isnan(values)]
        edges = (
            np.unique(np.quantile(known, np.arange(1, _BINS) / _BINS, method="inverted_cdf")) if len(known) else known
        )
        return np.where(np.isnan(values), np.nan, np.searchsorted(edges, values).astype(np.float64))
    rows = np.bincount(column.values[column.values >= 0], minlength=len(column.levels) + 1)
    order = np.argsort(-rows, kind="stable")[:_LEVELS]
    place = np.full(len(rows) + 1, np.nan)  # its last entry serves code -1
    place[order] = np.arange(len(order))
    place[-1] = np.nan
    return np.asarray(place[column.values])
