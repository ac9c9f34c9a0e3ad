"""Tests of one feature of the counts, such as the number of zeros, around estimated means and dispersion.

A statistic sum of s(y) depends on the means and on the dispersion, which are estimates. Both dependencies are removed
to first order: s is replaced by its residual after regressions on y and on the score of the dispersion, under the
fitted distribution. For the Double Poisson and the Negative Binomial, where y / variance is the score of the mean, the
expectation of that residual does not change with small errors of either.
"""

from typing import NamedTuple

import numpy as np
import torch
from scipy import stats

from ddpn.analysis.diagnosis.reference import FittedFamily, Reference
from ddpn.tables.splits import group_codes

#: Means that probabilities are tabulated for, cells of the table, and the largest count.
_MEANS, _CELLS, _MAX_COUNT = 256, 1_500_000, 20_000
#: Rows that must be tabulated at least.
_FEWEST = 200
#: Half the relative step of the parameter in its score.
_STEP = 1e-3


class SumNull:
    """The distribution of a sum of independent terms with mean 0: Pearson's type III, which has its skewness.

    For Poisson counts with large means the dispersion statistic is a chi-squared variable, and this is exact.

    >>> chi = SumNull(variance=2 * 50, third=8 * 50)
    >>> bool(abs(chi.above(10.0) - stats.chi2(50).sf(60.0)) < 1e-12)
    True
    """

    def __init__(self, variance: float, third: float) -> None:
        self.scale = float(np.sqrt(max(variance, 1e-300)))
        skewness = float(np.clip(third / self.scale / self.scale / self.scale, -5.0, 5.0))
        self.frozen = stats.pearson3(skewness, scale=self.scale)

    def above(self, value: float) -> float:
        """P(sum >= value)."""
        return float(self.frozen.sf(value))

    def below(self, value: float) -> float:
        """P(sum <= value)."""
        return float(self.frozen.cdf(value))

    def quantile(self, level: float) -> float:
        """The value with a probability of `level` below it."""
        return float(self.frozen.ppf(level))


def design_effect(terms: np.ndarray, group: np.ndarray | None) -> float:
    """The variance of a sum of terms, estimated from the sums of groups, over that of independent terms; at least 1.

    >>> design_effect(np.array([1.0, 1.0, -1.0, -1.0]), np.array(["a", "a", "b", "b"]))
    2.0
    """
    if group is None:
        return 1.0
    codes, _ = group_codes(len(terms), group)
    return max(1.0, float(np.square(np.bincount(codes, terms)).sum() / max(np.square(terms).sum(), 1e-300)))


class ProbabilityTable(NamedTuple):
    """Probabilities of every count for a grid of means, and each row's place in it. Shape: pmf (means, counts)."""

    counts: np.ndarray
    mean: np.ndarray
    pmf: np.ndarray
    score: np.ndarray
    place: np.ndarray
    reference: Reference

    @property
    def y(self) -> np.ndarray:
        """The counts of the rows as recorded, as integers."""
        return self.reference.y.astype(int)

    @property
    def rows(self) -> np.ndarray:
        """Rows at each mean of the grid."""
        return np.bincount(self.place, minlength=len(self.mean))

    def at_rows(self, values: np.ndarray) -> np.ndarray:
        """A table's value at each row's mean and count; of a censored count its expectation at that many or more."""
        found, censored = np.array(values[self.place, self.y]), self.reference.is_censored
        if censored.any():
            found[censored] = self._beyond(values)
        return found

    def missing_variance(self, values: np.ndarray) -> np.ndarray:
        """The variance of a table's value given what was recorded: 0 but for censored counts."""
        found, censored = np.zeros(len(self.y)), self.reference.is_censored
        if censored.any():
            found[censored] = np.maximum(self._beyond(values**2) - self._beyond(values) ** 2, 0.0)
        return found

    def _beyond(self, values: np.ndarray) -> np.ndarray:
        """Expectations given a count of at least y, of the censored rows."""
        censored = self.reference.is_censored
        place, y = self.place[censored], self.y[censored]
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


def tabulate(family: FittedFamily, reference: Reference, mean: np.ndarray) -> ProbabilityTable | None:
    """The table of a fitted distribution, with a line per rounded mean and bounds.

    Means are rounded to a grid, which is fine where there are many rows. Where bounds differ so much that there are too
    many lines, the table is that of a random sample of rows; None where too few rows fit into a table.
    """
    upper = reference.sample.upper
    largest = upper.max() if upper is not None else _largest(family, mean)
    if max(reference.y.max(), 0 if upper is None else largest) > _MAX_COUNT:
        return None
    size = int(min(max(largest, reference.y.max()), _MAX_COUNT)) + 2
    most = _CELLS // size
    grid = _grid(mean, int(np.clip(most, 16, _MEANS)))
    lines, place = _lines(reference, grid[np.searchsorted(0.5 * (grid[1:] + grid[:-1]), mean)])
    if len(lines) > max(most, 16):
        if most < _FEWEST:
            return None
        rows = np.sort(np.random.default_rng(0).choice(len(mean), most, replace=False))
        lines, place, reference = lines[place[rows]], np.arange(most), reference.rows(rows)
    counts, (means, lowest, highest) = np.arange(float(size)), np.ascontiguousarray(lines.T)

    def logs(log_factor: float) -> np.ndarray:
        found = family.log_table(means, size, log_factor, None if upper is None else highest)
        found = np.where(counts[None] >= lowest[:, None], found, -np.inf)
        return np.asarray(found - np.logaddexp.reduce(found, axis=1, keepdims=True))

    pmf = np.exp(logs(0.0))
    with np.errstate(invalid="ignore"):
        score = np.where(pmf > 0.0, (logs(_STEP) - logs(-_STEP)) / (2 * _STEP), 0.0)
    return ProbabilityTable(counts, pmf @ counts, pmf, score, place, reference)


def _largest(family: FittedFamily, mean: np.ndarray) -> float:
    """A count that is hardly ever exceeded."""
    return float(family.distribution(np.array([mean.max()])).icdf(torch.tensor(1 - 1e-7))[0])


def _lines(reference: Reference, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct means with lower and upper bounds, and the place of each row among them. Shape: (lines, 3), (rows,)."""
    bounds = [
        np.zeros(len(mean)) if each is None else each for each in (reference.sample.lower, reference.sample.upper)
    ]
    lines, place = np.unique(np.column_stack([mean, *bounds]), axis=0, return_inverse=True)
    return lines, place.ravel()


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


def moment_test(table: ProbabilityTable, values: np.ndarray) -> MomentTest:
    """Test the mean of s(y), whose `values` are given per mean of the grid and count, or per count."""
    s = np.broadcast_to(values, table.pmf.shape)
    residual, score = table.residual(s), table.residual(table.score)
    share = table.reference.weight / table.reference.weight.sum()
    squares = np.bincount(table.place, share**2, len(table.mean))
    cubes = np.bincount(table.place, share**3, len(table.mean))
    information = squares @ np.sum(table.pmf * score * score, axis=1)
    if information > 0:
        residual = residual - (squares @ np.sum(table.pmf * residual * score, axis=1)) / information * score
    variance = float(squares @ np.sum(table.pmf * residual**2, axis=1))
    # What a censored count does not tell has no part in the variance of the sum.
    kept = max(1.0 - float(share**2 @ table.missing_variance(residual)) / max(variance, 1e-300), 0.05)
    of_rows = share * table.at_rows(residual)
    kept = kept * design_effect(of_rows - share * of_rows.sum(), table.reference.sample.group)
    null = SumNull(kept * variance, kept**1.5 * float(cubes @ np.sum(table.pmf * residual**3, axis=1)))
    excess, observed = float(of_rows.sum()), float(share @ table.at_rows(s))
    return MomentTest(observed, observed - excess, null.above(excess), null.below(excess))
