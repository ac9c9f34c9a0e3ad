"""Tests of one feature of the counts, such as the number of zeros, around estimated means and dispersion.

A statistic sum of s(y) depends on the means and on the dispersion, which are estimates. Both dependencies are removed
to first order: s is replaced by its residual after regressions on y and on the score of the dispersion, under the
fitted distribution. For the Double Poisson and the Negative Binomial, where y / variance is the score of the mean, the
expectation of that residual does not change with small errors of either.
"""

from typing import NamedTuple

import numpy as np
import torch

from ddpn.analysis.diagnosis.approximations import SumNull
from ddpn.analysis.diagnosis.families import Family
from ddpn.analysis.diagnosis.recorded import Limits

#: Means that probabilities are tabulated for, cells of the table, and the largest count.
_MEANS, _CELLS, MAX_COUNT = 256, 1_500_000, 20_000
#: Rows of counts with bounds or limits that are tabulated, at most and at least.
_RECORDED_ROWS, _FEWEST = 3000, 200
#: Half the relative step of the parameter in its score.
_STEP = 1e-3


class Table(NamedTuple):
    """Probabilities of every count for a grid of means, and each row's place in it. Shape: pmf (means, counts)."""

    counts: np.ndarray
    mean: np.ndarray
    pmf: np.ndarray
    score: np.ndarray
    place: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    censored: np.ndarray | None = None

    @property
    def rows(self) -> np.ndarray:
        """Rows at each mean of the grid."""
        return np.bincount(self.place, minlength=len(self.mean))

    def at_rows(self, values: np.ndarray) -> np.ndarray:
        """A table's value at each row's mean and count; of a censored count its expectation at that many or more."""
        found = np.array(values[self.place, self.y])
        if self.censored is not None:
            found[self.censored] = self._beyond(values)
        return found

    def missing_variance(self, values: np.ndarray) -> np.ndarray:
        """The variance of a table's value given what was recorded: 0 but for censored counts."""
        found = np.zeros(len(self.y))
        if self.censored is not None:
            found[self.censored] = np.maximum(self._beyond(values**2) - self._beyond(values) ** 2, 0.0)
        return found

    def _beyond(self, values: np.ndarray) -> np.ndarray:
        """Expectations given a count of at least y, of the censored rows."""
        place, y = self.place[self.censored], self.y[self.censored]
        beyond = np.arange(len(self.counts))[None] >= y[:, None]
        mass = np.where(beyond, self.pmf[place], 0.0)
        total = mass.sum(axis=1)
        value = values[place]
        return np.where(total > 0.0, np.sum(mass * value, axis=1) / np.maximum(total, 1e-300), values[place, y])

    def center(self, values: np.ndarray) -> np.ndarray:
        """Values minus their expectation."""
        return values - np.sum(self.pmf * values, axis=1, keepdims=True)

    def residual(self, values: np.ndarray) -> np.ndarray:
        """Values minus their regression on y, at each mean."""
        y, s = self.center(self.counts[None]), self.center(values)
        slope = np.sum(self.pmf * y * s, axis=1) / np.maximum(np.sum(self.pmf * y * y, axis=1), 1e-300)
        return np.asarray(s - slope[:, None] * y)


def tabulate(family: Family, y: np.ndarray, mean: np.ndarray, weight: np.ndarray) -> Table:
    """The table of a fitted distribution; means are rounded to the grid, which is fine where there are many rows."""
    largest = float(family.distribution(np.array([mean.max()])).icdf(torch.tensor(1 - 1e-7))[0])
    size = int(min(max(largest, y.max()), MAX_COUNT)) + 2
    grid = _grid(mean, int(np.clip(_CELLS // size, 16, _MEANS)))
    log_pmf = family.log_table(grid, size)
    pmf = np.exp(log_pmf)
    pmf /= pmf.sum(axis=1, keepdims=True)
    counts = np.arange(float(size))
    actual = np.maximum.accumulate(pmf @ counts)
    score = (family.log_table(grid, size, _STEP) - family.log_table(grid, size, -_STEP)) / (2 * _STEP)
    middle = 0.5 * (actual[1:] + actual[:-1])
    place = np.searchsorted(middle, mean)
    return Table(counts, actual, pmf, score, place, y.astype(int), weight)


def tabulate_recorded(
    family: Family, y: np.ndarray, mean: np.ndarray, weight: np.ndarray, limits: Limits
) -> Table | None:
    """The table of counts with bounds or limits: a line per row, of a random sample of rows where there are many.

    None where counts are so large that too few rows fit into a table.
    """
    finite = limits.upper[np.isfinite(limits.upper)]
    largest = (
        float(family.distribution(np.array([mean.max()])).icdf(torch.tensor(1 - 1e-7))[0]) if not len(finite) else 0
    )
    size = int(max(largest, y.max(), finite.max() if len(finite) else 0)) + 2
    most = min(_RECORDED_ROWS, _CELLS // size)
    if most < _FEWEST:
        return None
    if len(y) > most:
        rows = np.sort(np.random.default_rng(0).choice(len(y), most, replace=False))
        y, mean, weight, limits = y[rows], mean[rows], weight[rows], limits.rows(rows)
    upper = limits.upper if limits.is_bounded else None
    counts = np.arange(float(size))
    possible = counts[None] >= limits.lower[:, None]

    def logs(log_factor: float) -> np.ndarray:
        found = np.where(possible, family.log_table(mean, size, log_factor, upper), -np.inf)
        return np.asarray(found - np.logaddexp.reduce(found, axis=1, keepdims=True))

    pmf = np.exp(logs(0.0))
    with np.errstate(invalid="ignore"):
        score = np.where(pmf > 0.0, (logs(_STEP) - logs(-_STEP)) / (2 * _STEP), 0.0)
    censored = limits.is_censored(y)
    place = np.arange(len(y))
    return Table(counts, pmf @ counts, pmf, score, place, y.astype(int), weight, censored if censored.any() else None)


def _grid(mean: np.ndarray, size: int) -> np.ndarray:
    """All means where there are few, else quantiles of them and even steps of their logarithm."""
    known = np.unique(mean)
    if len(known) <= size:
        return known
    logs = np.log(known)
    return np.unique(
        np.exp(np.r_[np.quantile(logs, np.linspace(0, 1, size // 2)), np.linspace(logs[0], logs[-1], size // 2)])
    )


class MomentTest(NamedTuple):
    """The weighted share of rows with a feature, observed and expected, and the p-values of more and of less."""

    observed: float
    expected: float
    p_more: float
    p_less: float

    @property
    def p_value(self) -> float:
        """Two-sided."""
        return min(1.0, 2.0 * min(self.p_more, self.p_less))


def moment_test(table: Table, values: np.ndarray) -> MomentTest:
    """Test the mean of s(y), whose `values` are given per mean of the grid and count, or per count."""
    s = np.broadcast_to(values, table.pmf.shape)
    residual, score = table.residual(s), table.residual(table.score)
    share = table.weight / table.weight.sum()
    squares = np.bincount(table.place, share**2, len(table.mean))
    cubes = np.bincount(table.place, share**3, len(table.mean))
    information = squares @ np.sum(table.pmf * score * score, axis=1)
    if information > 0:
        residual = residual - (squares @ np.sum(table.pmf * residual * score, axis=1)) / information * score
    variance = float(squares @ np.sum(table.pmf * residual**2, axis=1))
    # What a censored count does not tell has no part in the variance of the sum.
    kept = max(1.0 - float(share**2 @ table.missing_variance(residual)) / max(variance, 1e-300), 0.05)
    null = SumNull(kept * variance, kept**1.5 * float(cubes @ np.sum(table.pmf * residual**3, axis=1)))
    excess, observed = float(share @ table.at_rows(residual)), float(share @ table.at_rows(s))
    return MomentTest(observed, observed - excess, null.above(excess), null.below(excess))
