"""Tests of counts against a smooth distribution that is fitted to them: a Double Poisson or a Negative Binomial.

A test compares the average of a statistic s(y), such as an indicator of zeros, with its expectation under the fitted
distributions. This expectation is not exact, because the means and the dispersion are estimates. To remove the
first-order effect of their errors, s is replaced by its residual after a regression on the two scores: the derivatives
of the log-likelihood in the mean and in the dispersion. In both families, the score of the mean is linear in y, so the
regression is on y and on the score of the dispersion.
"""

from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from ddpn.analysis.diagnosis.significance import approximate_null, design_effect
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
    """Smooth distribution that was fitted to the counts with one dispersion for all rows.

    Attributes
    ----------
    name : str
        The name of the likelihood in `HEADS`.
    parameter : float
        The dispersion: gamma of a Double Poisson (variance about mean / gamma), or alpha of a Negative Binomial
        (variance mean + alpha mean^2).
    loglik : float
        The mean log-likelihood of the counts.
    """

    name: str
    parameter: float
    loglik: float

    def distribution(self, mean: np.ndarray, factor: float = 1.0) -> CountDistribution:
        """Return the distributions of rows with the given means; `factor` multiplies the dispersion parameter.

        A factor above 1 makes a Double Poisson narrower (a larger gamma), but a Negative Binomial wider (a larger
        alpha).
        """
        mu = torch.from_numpy(np.ascontiguousarray(mean))
        return _FAMILIES[self.name](mu, torch.full_like(mu, factor * self.parameter), validate_args=False)


def fit_families(sample: CountRows, mean: np.ndarray) -> dict[str, FittedFamily]:
    """Fit the dispersion of a Double Poisson and of a Negative Binomial to the counts by maximum likelihood.

    The mean of every row is fixed to `mean`. Return both fits by name. Poisson counts can be fitted by either family
    (by the Negative Binomial approximately).
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
    """Pmfs of a fitted family at a grid of means, used to compute expectations over many rows quickly.

    Each row is represented by the grid mean that is nearest to its own mean.

    Attributes
    ----------
    counts : array, shape (counts,)
        The counts 0, 1, 2, ...
    mean : array, shape (means,)
        The means of the grid.
    pmf : array, shape (means, counts)
        The probability of each count, for each mean of the grid.
    score : array, shape (means, counts)
        The derivatives of log(pmf) in the logarithm of the dispersion parameter.
    position : array of int, shape (rows,)
        The index in `mean` of the grid mean of each row.
    sample : CountRows
        The rows with their observed counts.
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

    def compute_residuals(self, statistic: np.ndarray) -> np.ndarray:
        """Regress a statistic s(y) linearly on y, separately for each mean of the grid, and return the residuals.

        The observations of each regression are all counts in `counts`, weighted by their probabilities in `pmf`.
        `statistic` has s for each count, shape (1, counts). If s depends on the mean as well, its shape is (means,
        counts). The residuals have shape (means, counts).
        """
        y, s = (v - np.sum(self.pmf * v, axis=1, keepdims=True) for v in (self.counts[None], statistic))
        slope = np.sum(self.pmf * y * s, axis=1) / np.maximum(np.sum(self.pmf * y * y, axis=1), 1e-300)
        return np.asarray(s - slope[:, None] * y)


@torch.no_grad()
def tabulate_probabilities(family: FittedFamily, sample: CountRows, mean: np.ndarray) -> ProbabilityTable | None:
    """Tabulate the pmfs of a fitted family at a grid of means that covers the means of the rows.

    `mean` has the mean of every row of the sample. Return None if a count exceeds 20,000, because the table would be
    too large.
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
    """Result of `moment_test`: the average of a statistic over the rows, such as the share of zeros, and p-values.

    Attributes
    ----------
    observed : float
        The observed average.
    expected : float
        The expectation of the average under the fitted family.
    p_more, p_less : float
        One-sided p-values. `p_more` is small if the observed average is larger than expected, `p_less` if it is
        smaller.
    """

    observed: float
    expected: float
    p_more: float
    p_less: float

    def format_shares(self, digits: int = 1) -> tuple[str, str]:
        """Format the observed and the expected average in percent with `digits` decimals, if they are shares of rows.

        The expected share is an estimate and may be below 0. It is then shown as 0.
        """
        return percent(self.observed, digits), percent(max(self.expected, 0.0), digits)

    @property
    def p_value(self) -> float:
        """The two-sided p-value."""
        return min(1.0, 2.0 * min(self.p_more, self.p_less))


def moment_test(table: ProbabilityTable, statistic: np.ndarray) -> MomentTest:
    """Test whether the average of a statistic s(y) over the rows equals its expectation under the fitted family.

    `table` has the rows and their tabulated pmfs. `statistic` has s for each count, shape (1, counts). If s depends on
    the mean as well, `statistic` has it for each mean of the table's grid, shape (means, counts).
    """
    s = np.broadcast_to(statistic, table.pmf.shape)
    residual, score = table.compute_residuals(s), table.compute_residuals(table.score)
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
    null = approximate_null(effect * variance, effect**1.5 * third)
    return MomentTest(observed, observed - excess, float(null.sf(excess)), float(null.cdf(excess)))
