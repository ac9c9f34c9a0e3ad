"""A model of the mean that is fitted in a second, for warnings about a table. Imports no torch."""

from typing import NamedTuple

import numpy as np

from ddpn.sample import Sample

#: Cells of a table at most: 10,000 rows of up to 100 columns take about a second per set of folds.
MAX_ROWS, _MAX_CELLS = 10_000, 1_000_000
#: Trees, and rows of a leaf at least: few, so that rows that come again are recognised.
_TREES, _LEAF_ROWS = 60, 5
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
    """Boosted trees of Poisson rates with few rows per leaf.

    Parameters
    ----------
    sample : Sample
        Rows to fit and to predict; `X` is a polars DataFrame.
    """

    def __init__(self, sample: Sample) -> None:
        from ddpn.members.reader import TableReader  # scikit-learn is slow to import

        columns = TableReader().fit(sample.X)
        # Code -1, a missing level, is a missing value to LightGBM, too.
        self._matrix = np.column_stack([column.values.astype(np.float64) for column in columns])
        self._categories = [j for j, column in enumerate(columns) if column.kind == "category"]
        self._exposure = np.ones(len(sample)) if sample.exposure is None else sample.exposure
        self._rate, self._weight = sample.y / self._exposure, sample.weight_or_ones * self._exposure
        self._y, self._own = sample.y, sample.weight_or_ones

    def predict(self, pairs: Pairs) -> Quick:
        """The means of the second rows of each pair, by models fitted to the first; NaN for all other rows."""
        rate = np.full(len(self._y), np.nan)
        for inner, outer in pairs:
            rate[outer] = self._rates(inner, outer)
        smallest = _SMALLEST * float(np.average(self._rate, weights=self._weight))
        return self.scored(np.maximum(rate, smallest) * self._exposure)

    @property
    def constant_deviance(self) -> float:
        """The mean deviance of a constant rate."""
        mean = np.average(self._rate, weights=self._weight) * self._exposure
        return float(np.average(self.scored(mean).deviance, weights=self._own))

    def scored(self, mean: np.ndarray) -> Quick:
        """Means per row with their deviances."""
        ratio = np.where(self._y > 0, self._y, 1.0) / mean
        return Quick(mean, 2.0 * (self._y * np.log(ratio) - self._y + mean))

    def _rates(self, inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
        import lightgbm

        if not self._rate[inner].any():
            return np.zeros(len(outer))
        settings = {
            "objective": "poisson", "min_data_in_leaf": _LEAF_ROWS, "num_threads": 1, "deterministic": True,
            "force_row_wise": True, "verbosity": -1,
        }  # fmt: skip
        rows = lightgbm.Dataset(
            self._matrix[inner], self._rate[inner], weight=self._weight[inner], params=settings,
            categorical_feature=self._categories,
        )  # fmt: skip
        return np.asarray(lightgbm.train(settings, rows, _TREES).predict(self._matrix[outer]))
