"""A smooth distribution with the dispersion that fits best, and tests of counts against it.

The expectation of a statistic, sum of s(y), depends on the means and the dispersion, which are estimates. Both
dependencies are removed to first order: s is replaced by its residual after regressions on y and on the score of the
dispersion, under the fitted distribution. For the Double Poisson and the Negative Binomial, whose score of the mean is
proportional to y, the expectation of this residual is insensitive to small errors of either estimate.
"""

from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from ddpn.analysis.diagnosis.significance import design_effect, sum_null
from ddpn.distributions import CountDistribution, DoublePoisson, NegativeBinomial
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.display import percent

#: The smooth distributions, and bounds on the logarithm of their dispersion.
_FAMILIES: dict[str, type[DoublePoisson] | type[NegativeBinomial]] = {
    "double_poisson": DoublePoisson,
    "negative_binomial": NegativeBinomial,
}
_BOUNDS = {"double_poisson": (-5.0, 4.0), "negative_binomial": (-9.0, 4.0)}
#: The most rows to which the dispersion is fitted.
_MAX_FIT_ROWS = 10_000
#: The most means and the most cells of a table of probabilities, and its largest count.
_MAX_MEANS, _MAX_CELLS, _MAX_COUNT = 256, 1_500_000, 20_000
#: Half of the relative step by which the score of the dispersion is differentiated.
_STEP = 1e-3


class FittedFamily(NamedTuple):
    """A smooth distribution that was fitted to the counts, with one dispersion for all rows; a check compares with it.

    `name` is that of a likelihood in `HEADS`, and `loglik` the mean log-likelihood of the counts. The parameter is
    gamma of a Double Poisson (variance about mean / gamma) or alpha of a Negative Binomial (variance mean + alpha
    mean^2).
    """

    name: str
    parameter: float
    loglik: float

    def distribution(self, mean: np.ndarray, factor: float = 1.0) -> CountDistribution:
        """Return the distributions of rows with the means `mean`; the dispersion parameter is scaled by `factor`."""
        mu = torch.from_numpy(np.ascontiguousarray(mean))
        return _FAMILIES[self.name](mu, torch.full_like(mu, factor * self.parameter), validate_args=False)


def fit_families(sample: CountRows, mean: np.ndarray) -> dict[str, FittedFamily]:
    """Fit the dispersion of a Double Poisson and of a Negative Binomial to the counts by maximum likelihood.

    `mean` has the mean of every row, which stays as it is. Return both fits by name. Both distributions contain the
    Poisson, at least approximately.
    """
    if len(mean) > _MAX_FIT_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(len(mean), _MAX_FIT_ROWS, replace=False))
        sample, mean = sample.rows(rows), mean[rows]
    counts, weight = torch.from_numpy(sample.y), sample.weight_or_ones
    shares, families = torch.from_numpy(weight / weight.sum()), {}

    def loss(name: str, log_parameter: float) -> float:
        dist = FittedFamily(name, float(np.exp(log_parameter)), 0.0).distribution(mean)
        return -float(shares @ dist.log_prob(counts))

    for name, bounds in _BOUNDS.items():
        best = minimize_scalar(
            lambda at, name=name: loss(name, at), bounds=bounds, method="bounded", options={"xatol": 1e-3}
        )
        families[name] = FittedFamily(name, float(np.exp(best.x)), -float(best.fun))
    return families


class ProbabilityTable(NamedTuple):
    """The probabilities of all counts by a fitted family for a grid of means, so that a check sums over them quickly.

    `counts` are the counts and `mean` the means of the grid. `pmf` has the probabilities, and `score` the derivatives
    of their logarithms by the logarithm of the dispersion parameter; shape (means, counts). `position` is the index of
    each row's mean in the grid, and `sample` has the rows.
    """

    counts: np.ndarray
    mean: np.ndarray
    pmf: np.ndarray
    score: np.ndarray
    position: np.ndarray
    sample: CountRows

    @property
    def y(self) -> np.ndarray:
        """The counts of the rows as integers."""
        return self.sample.y.astype(int)

    def residual(self, values: np.ndarray) -> np.ndarray:
        """Return the residuals of a regression of `values` on the count y, for each mean of the grid.

        Shape: values (1 or means, counts) -> (means, counts).
        """
        y, s = (v - np.sum(self.pmf * v, axis=1, keepdims=True) for v in (self.counts[None], values))
        slope = np.sum(self.pmf * y * s, axis=1) / np.maximum(np.sum(self.pmf * y * y, axis=1), 1e-300)
        return np.asarray(s - slope[:, None] * y)


@torch.no_grad()
def tabulate(family: FittedFamily, sample: CountRows, mean: np.ndarray) -> ProbabilityTable | None:
    """Tabulate the probabilities of all counts by a fitted family for a grid of means; return None for large counts.

    `mean` has the mean of every row of the sample. Counts above 20,000 are too large.
    """
    # This count is exceeded with a probability of 1e-7.
    largest = float(family.distribution(np.array([mean.max()])).icdf(torch.tensor(1 - 1e-7))[0])
    if sample.y.max() > _MAX_COUNT:
        return None
    size = int(min(max(largest, sample.y.max()), _MAX_COUNT)) + 2
    counts = torch.arange(float(size), dtype=torch.float64)
    # All means if they are few; else some of their quantiles, and evenly spaced points of their logarithm.
    grid, max_means = np.unique(mean), int(np.clip(_MAX_CELLS // size, 16, _MAX_MEANS))
    if len(grid) > max_means:
        ranks, means = np.linspace(0, 1, max_means // 2), np.log(grid)
        grid = np.unique(np.exp(np.r_[np.quantile(means, ranks), np.linspace(means[0], means[-1], max_means // 2)]))

    def logs(factor: float) -> np.ndarray:
        log_pmf = family.distribution(grid[:, None], factor).log_prob(counts).numpy()
        return np.asarray(log_pmf - np.logaddexp.reduce(log_pmf, axis=1, keepdims=True))

    pmf = np.exp(logs(1.0))
    score = (logs(np.exp(_STEP)) - logs(np.exp(-_STEP))) / (2 * _STEP)
    line = np.searchsorted(0.5 * (grid[1:] + grid[:-1]), mean)
    return ProbabilityTable(counts.numpy(), pmf @ counts.numpy(), pmf, score, line, sample)


class MomentTest(NamedTuple):
    """A test of the share of rows with some property, such as zeros, against the share that a fitted family expects.

    `p_more` is the p-value if the observed share is larger than expected, `p_less` if it is smaller.
    """

    observed: float
    expected: float
    p_more: float
    p_less: float

    def shares(self, digits: int = 1) -> tuple[str, str]:
        """Write the observed and the expected share in percent, with this number of decimals.

        An expected share below 0, due to estimation, becomes 0.
        """
        return percent(self.observed, digits), percent(max(self.expected, 0.0), digits)

    @property
    def p_value(self) -> float:
        """The two-sided p-value."""
        return min(1.0, 2.0 * min(self.p_more, self.p_less))


def moment_test(table: ProbabilityTable, values: np.ndarray) -> MomentTest:
    """Test whether the mean of a statistic s(y) over the rows is as expected from the distributions of a table.

    `values` has s of each count, shape (1, counts), or of each mean of the grid and each count, shape (means, counts).
    """
    s = np.broadcast_to(values, table.pmf.shape)
    residual, score = table.residual(s), table.residual(table.score)
    share = table.sample.weight_or_ones / table.sample.weight_or_ones.sum()
    squares, cubes = (np.bincount(table.position, share**power, len(table.mean)) for power in (2, 3))
    information = squares @ np.sum(table.pmf * score * score, axis=1)
    if information > 0:
        residual = residual - (squares @ np.sum(table.pmf * residual * score, axis=1)) / information * score
    variance, third = (
        float(sums @ np.sum(table.pmf * residual**power, axis=1)) for sums, power in ((squares, 2), (cubes, 3))
    )
    terms = share * residual[table.position, table.y]
    excess, observed = float(terms.sum()), float(share @ s[table.position, table.y])
    effect = design_effect(terms - share * excess, table.sample.group)
    null = sum_null(effect * variance, effect**1.5 * third)
    return MomentTest(observed, observed - excess, float(null.sf(excess)), float(null.cdf(excess)))
