"""Test every family at random parameters against 80-bit sums over all counts, to 1e-9."""

import math

import numpy as np
import pytest
import torch

from ddpn import distributions
from ddpn.distributions import Mixture

Real = np.longdouble
#: Log weights below the largest at which sums end, and the most counts of one.
DEPTH, MAX_COUNTS = 110.0, 1 << 16
#: Halvings in which an 80-bit number is found.
HALVINGS = 80
NARROWEST = 18.0

LOG = np.log(np.maximum(np.arange(MAX_COUNTS, dtype=Real), 1))
LOG_FACTORIAL = LOG.cumsum()


def compute_poisson(y, mu):
    return y * np.log(mu) - LOG_FACTORIAL[: len(y)]


def compute_negative_binomial(y, mu, alpha):
    ratios = np.log((y[:-1] + 1 / alpha) / (y[:-1] + 1)) - np.log1p(1 / (alpha * mu))
    return np.append(Real(0), ratios.cumsum())


def compute_generalized_poisson(y, mu, alpha):
    theta, share = mu / (1 + alpha), alpha / (1 + alpha)
    return (y - 1) * np.log(theta + share * y) - share * y - LOG_FACTORIAL[: len(y)]


def compute_double_poisson(y, mu, gamma):
    # h(y) exp(-gamma D(y; mu)), without factors that do not depend on y.
    log_y = LOG[: len(y)]
    return y * log_y - y - LOG_FACTORIAL[: len(y)] + gamma * (y - y * (log_y - np.log(mu)))


def compute_double_binomial(y, mu, gamma, total):
    y = y[: int(total) + 1]
    size, others = len(y), total - y
    both = y * LOG[:size] - LOG_FACTORIAL[:size]
    log_h = both + both[::-1]
    deviance = y * (LOG[:size] - np.log(mu)) + others * (LOG[:size][::-1] - np.log(total - mu))
    return log_h - gamma * deviance


def compute_conway_maxwell_poisson(y, log_m, nu):
    return nu * (y * log_m - LOG_FACTORIAL[: len(y)])


def compute_mean_double_poisson(y, log_mu, gamma):
    log_y = LOG[: len(y)]
    return y * log_y - y - LOG_FACTORIAL[: len(y)] + gamma * (y - y * (log_y - log_mu))


def parametrize_by_mean(log_weight):
    """Return log weights by the mean, whose rate is found by halving."""

    def compute_by_mean(y, mean, c):
        low, high = -Real(60) / min(c, Real(1)) - 60, np.log(mean) + Real(60) / min(c, Real(1))
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            log_w = log_weight(y, middle, c)
            weights = np.exp(log_w - log_w.max())
            low, high = (middle, high) if (weights * y).sum() < mean * weights.sum() else (low, middle)
        return log_weight(y, low, c)

    return compute_by_mean


def draw_log_uniform(rng, low, high):
    return math.exp(rng.uniform(math.log(low), math.log(high)))


#: How to draw the parameters of each family, and the log weights of its counts.
FAMILIES = {
    "Poisson": (lambda r: (draw_log_uniform(r, 1e-6, 3e3),), compute_poisson),
    "NegativeBinomial": (
        lambda r: (draw_log_uniform(r, 1e-6, 300), draw_log_uniform(r, 1e-6, 5)),
        compute_negative_binomial,
    ),
    "GeneralizedPoisson": (
        lambda r: (draw_log_uniform(r, 1e-6, 300), draw_log_uniform(r, 1e-4, 13)),
        compute_generalized_poisson,
    ),
    "DoublePoisson": (
        lambda r: (draw_log_uniform(r, 1e-3, 1e3), draw_log_uniform(r, 1e-2, 100)),
        compute_double_poisson,
    ),
    "DoubleBinomial": (
        lambda r: ((n := r.integers(1, 2000)) * r.uniform(0.001, 0.999), draw_log_uniform(r, 1e-2, 30), n),
        compute_double_binomial,
    ),
    "ConwayMaxwellPoisson": (
        lambda r: (draw_log_uniform(r, 1e-2, 200), draw_log_uniform(r, 0.05, NARROWEST)),
        parametrize_by_mean(compute_conway_maxwell_poisson),
    ),
    "MeanDoublePoisson": (
        lambda r: (draw_log_uniform(r, 1e-2, 200), draw_log_uniform(r, 0.05, NARROWEST)),
        parametrize_by_mean(compute_mean_double_poisson),
    ),
}
#: Counts to begin with where there is no more than one try.
SIZES = {"DoubleBinomial": 1 << 11, "ConwayMaxwellPoisson": 1 << 12, "MeanDoublePoisson": 1 << 12}


def make_truth(name, parameters, enumerated):
    """Sum all counts that matter; None where these are too many."""
    log_weight, size = FAMILIES[name][1], SIZES.get(name, 1 << 10)
    while size <= MAX_COUNTS:
        log_w = log_weight(np.arange(size, dtype=Real), *(Real(x) for x in parameters))
        if log_w[-1] < log_w.max() - DEPTH or len(log_w) < size:
            p = np.exp(log_w - log_w.max())
            return enumerated(0, p / p.sum())
        size = 4 * size if name not in SIZES else MAX_COUNTS + 1
    return None


@pytest.mark.parametrize("sets", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_that_of_80_bit_sums(name, sets, sum_masses, assert_within):
    rng, rows, dists, counts = np.random.default_rng([sets, *name.encode()]), [], [], []
    while len(rows) < sets:
        parameters = FAMILIES[name][0](rng)
        distribution = make_truth(name, parameters, sum_masses)
        if distribution is not None:
            rows.append(parameters)
            dists.append(distribution)
            y = distribution.mean + math.sqrt(distribution.variance) * rng.uniform(-3.0, 8.0)
            counts.append(min(max(math.floor(y), 0), len(distribution.p) - 1))
    columns = [torch.tensor(x, dtype=torch.float64) for x in zip(*rows, strict=True)]
    kind = getattr(distributions, name)
    dist = kind(columns[2], *columns[:2]) if name == "DoubleBinomial" else kind(*columns)
    y, truth = torch.tensor(counts, dtype=torch.float64), list(zip(dists, counts, strict=True))
    at = {f"parameter {i}": x for i, x in enumerate(columns)} | {"y": y}
    log_p = np.array([distribution.log_pmf(count) for distribution, count in truth])
    scale = np.maximum(np.abs(log_p), 1.0)
    assert_within(dist.log_prob(y).numpy() / scale, log_p / scale, 1e-9, floor=1.0, **at)
    summary = dist.summary(torch.tensor([0.05, 0.5, 0.9], dtype=torch.float64), y)
    assert_within(summary.mean, [distribution.mean for distribution in dists], 1e-9, **at)
    assert_within(summary.variance, [distribution.variance for distribution in dists], 1e-9, **at)
    assert_within(summary.crps, [distribution.crps(count) for distribution, count in truth], 1e-9, **at)
    assert_within(dist.crps(torch.zeros_like(y)), [distribution.crps(0) for distribution in dists], 1e-9, **at)
    expected = np.array([distribution.quantile(np.array([0.05, 0.5, 0.9])) for distribution in dists])
    np.testing.assert_array_equal(summary.quantiles.numpy(), expected)
    # Both tails relatively, and together in a mixture with itself.
    one_of_two = Mixture([dist, dist], [0.25, 0.75])
    for tails in (dist, one_of_two):
        assert_within(tails.cdf(y), [distribution.cdf(count) for distribution, count in truth], 1e-9, **at)
        assert_within(
            tails.survival(y), [distribution.survival(count) for distribution, count in truth], 1e-9, floor=1e-280, **at
        )
