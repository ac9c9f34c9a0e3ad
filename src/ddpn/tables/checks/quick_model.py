"""A model of the mean that is fitted in a fraction of a second, for checks of tables."""

from functools import cached_property

import numpy as np
import polars as pl

from ddpn.rows.count_rows import CountRows
from ddpn.rows.splits import split_folds
from ddpn.runtime.deadlines import check_deadline
from ddpn.statistics import poisson_deviance
from ddpn.tables.checks.sampling import count_checked_rows
from ddpn.tables.checks.transforms import to_ranked_numbers

#: The fewest rows that can show a difference or a trend.
MIN_ROWS = 100
#: The most rows and cells to which the model is fitted. A set of folds then takes about 0.2 seconds.
MAX_ROWS, MAX_CELLS = 5_000, 100_000
#: The number of trees, the fewest rows of a leaf and the number of bins. Small leaves recognise repeated rows, and few
#: bins are fast.
_TREES, _LEAF_ROWS, _BINS = 60, 5, 63
#: The smallest predicted mean, as a share of the overall rate.
_SMALLEST_RATE = 1e-4
_FOLDS = 3

Pairs = list[tuple[np.ndarray, np.ndarray]]


def count_quick_model_rows(n_columns: int) -> int:
    """Return the largest number of rows to which a quick model is fitted; it is smaller for wide tables."""
    return count_checked_rows(n_columns, MAX_ROWS, MAX_CELLS)


class QuickModel:
    """A small LightGBM model of Poisson rates, for predictions by cross-validation.

    Its leaves may have few rows, so that it recognises repeated rows.

    Parameters
    ----------
    sample : CountRows
        Rows with inputs in a polars frame.
    seed : int
        Seed of the random folds.
    """

    def __init__(self, sample: CountRows, seed: int = 0) -> None:
        self.sample, self.seed = sample, seed
        self.exposure = sample.exposure_or_ones
        self.rate, self.weight = sample.y / self.exposure, sample.weight_or_ones * self.exposure

    @cached_property
    def _matrix(self) -> tuple[np.ndarray, list[int]]:
        """The inputs as float64, and the positions of the categorical columns."""
        columns = self.sample.X.get_columns()
        is_category = [not (series.dtype.is_numeric() or series.dtype == pl.Boolean) for series in columns]
        return np.column_stack([to_ranked_numbers(series) for series in columns]), np.flatnonzero(is_category).tolist()

    @cached_property
    def random_pairs(self) -> Pairs:
        """Random folds, each as a pair of arrays: the positions of the rows to fit and of the rows to predict."""
        return split_folds(len(self.sample), _FOLDS, self.seed)

    @cached_property
    def random_means(self) -> np.ndarray:
        """The predicted mean of each row, by cross-validation with random folds."""
        return self.predict_means(self.random_pairs)

    def predict_grouped_means(self, labels: np.ndarray) -> np.ndarray:
        """Predict the mean of each row by cross-validation, with rows of equal `labels` in the same fold."""
        return self.predict_means(split_folds(len(self.sample), _FOLDS, self.seed, labels))

    def predict_means(self, pairs: Pairs) -> np.ndarray:
        """Predict the mean of each row by cross-validation.

        `pairs` has, for each fold, the positions of the rows to fit and of the rows to predict. Rows that are not
        predicted in any fold get NaN. Shape: (rows,).
        """
        import lightgbm  # slow to import

        matrix, categories = self._matrix
        settings = {
            "objective": "poisson", "min_data_in_leaf": _LEAF_ROWS, "max_bin": _BINS, "num_threads": 1,
            "deterministic": True, "force_row_wise": True, "verbosity": -1,
        }  # fmt: skip
        means = np.full(len(self.sample), np.nan)
        for inner, outer in pairs:
            check_deadline()
            if not self.rate[inner].any():
                means[outer] = 0.0
                continue
            rows = lightgbm.Dataset(
                matrix[inner], self.rate[inner], weight=self.weight[inner], params=settings,
                categorical_feature=categories,
            )  # fmt: skip
            means[outer] = lightgbm.train(settings, rows, _TREES).predict(matrix[outer])
        smallest = _SMALLEST_RATE * float(np.average(self.rate, weights=self.weight))
        return np.maximum(means, smallest) * self.exposure

    @property
    def constant_means(self) -> np.ndarray:
        """The mean of each row if all rows had the same rate: the overall rate times the row's exposure."""
        mean: np.ndarray = np.average(self.rate, weights=self.weight) * self.exposure
        return mean

    def compute_deviances(self, means: np.ndarray) -> np.ndarray:
        """Return the Poisson deviance of each row's count from its predicted mean. Shape: (rows,) -> (rows,)."""
        return poisson_deviance(self.sample.y, means)

    def explain_share(self, deviances: np.ndarray) -> float:
        """Return the share of the deviance that a model explains, compared with a constant rate.

        `deviances` has the deviance of each row under the model.
        """
        weight = self.sample.weight_or_ones
        total = np.average(self.compute_deviances(self.constant_means), weights=weight)
        return float(1.0 - np.average(deviances, weights=weight) / total)


def estimate_effects(y: np.ndarray, mean: np.ndarray, codes: np.ndarray, pairs: Pairs) -> np.ndarray:
    """Estimate for each row how the counts of its group differ from the predictions, as a factor of its predicted mean.

    The factor is the ratio of observed to predicted counts of the group in other folds. It is shrunk towards 1, most if
    the groups hardly differ. The variance between groups is estimated from products of residuals of different rows of a
    group, so that over-dispersion does not inflate it.

    Parameters
    ----------
    y : array, shape (rows,)
        The counts.
    mean : array, shape (rows,)
        The predicted means.
    codes : array of int, shape (rows,)
        The group number of each row.
    pairs : list of pairs of arrays
        For each fold, the positions of the rows outside and inside it.

    Returns
    -------
    array, shape (rows,)
        The factors, which are 1 for groups without rows in other folds.
    """
    residual = y - mean
    products, sizes = (
        float(np.sum(np.bincount(codes, values) ** 2) - np.sum(np.square(values))) for values in (residual, mean)
    )
    variance = max(0.0, products / sizes) if sizes > 0 else 0.0
    effects = np.ones(len(y))
    for inner, outer in pairs:
        n_groups = codes.max() + 1
        counts, means = (np.bincount(codes[inner], values[inner], minlength=n_groups) for values in (y, mean))
        effects[outer] = ((1.0 + variance * counts) / (1.0 + variance * means))[codes[outer]]
    return effects
