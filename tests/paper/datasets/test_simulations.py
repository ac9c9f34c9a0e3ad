"""Test draws against their distributions, and these against scipy and the paper's formulas."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import softmax

from ddpn.distributions import Poisson
from ddpn.paper.datasets.simulations import SIMULATIONS, Reflected, simulate
from ddpn.runtime.errors import ConfigError

names = pytest.mark.parametrize("name", SIMULATIONS)


@pytest.mark.parametrize(
    ("name", "low", "high", "sizes"),
    [
        ("wave", 0.0, 2 * np.pi, [800, 100, 100]),
        ("poisson", -5.0, 5.0, [800, 100, 100]),
        ("negative_binomial", -3.0, 3.0, [800, 100, 100]),
        ("isolated", 3.0, 8.0, [500, 0, 0]),
    ],
)
def test_simulations_have_the_sizes_and_ranges_of_the_paper(name, low, high, sizes):
    data = simulate(name)
    assert [len(part) for part in data.split] == sizes
    x = data.x[: 498 if name == "isolated" else None]
    assert stats.kstest(x, stats.uniform(low, high - low).cdf).pvalue > 1e-3
    assert (data.y >= 0).all()
    assert data.X.shape == (len(data.y), 1)


@names
def test_draws_follow_their_distribution(name):
    """Randomised PIT values are uniform, overall and on either half of the inputs."""
    data = simulate(name, n=1200, seed=7)
    y = torch.from_numpy(data.y)
    upper, mass = data.truth.cdf(y).numpy(), data.truth.log_prob(y).exp().numpy()
    pit = (upper - np.random.default_rng(1).random(len(upper)) * mass)[:1200]
    middle = data.x[:1200] < np.median(data.x)
    for rows in (slice(None), middle, ~middle):
        assert stats.kstest(pit[rows], "uniform").pvalue > 1e-3


def test_the_wave_is_its_formula():
    """p(30 - z) is proportional to (rate^z / z!)^5."""
    x = np.array([0.0, 1.0, np.pi / 2, 4.0, 4.6])
    z = np.arange(31)
    log_p = 5 * stats.poisson.logpmf(z, (10 * np.sin(x) + 10)[:, None])
    p = np.exp(log_p - log_p.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    dist = SIMULATIONS["wave"].distribution(x)
    np.testing.assert_allclose(dist.mean, 30 - p @ z, rtol=1e-9)
    np.testing.assert_allclose(dist.variance, p @ z**2 - (p @ z) ** 2, rtol=1e-6)


def test_the_wave_where_its_rate_is_zero_is_a_point():
    dist = SIMULATIONS["wave"].distribution(3 * np.pi / 2)
    assert dist.mean.item() == 30
    assert 0 <= dist.variance.item() < 1e-50
    assert dist.crps(torch.tensor(30)).item() < 1e-50
    assert dist.crps(torch.tensor(28)).item() == pytest.approx(2.0)


def test_the_matched_distributions_are_those_of_scipy():
    x = np.array([-3.0, -0.4, 1.5, 2.9])
    y = np.array([[0], [1], [5], [12]])
    distributions = {
        "poisson": stats.poisson(np.exp(x / 2)),
        "negative_binomial": stats.nbinom(x**2, 0.5),
    }
    for name, expected in distributions.items():
        dist = SIMULATIONS[name].distribution(x)
        np.testing.assert_allclose(dist.log_prob(torch.from_numpy(y)), expected.logpmf(y), rtol=1e-8)
        np.testing.assert_allclose(dist.mean, expected.mean(), rtol=1e-12)
        np.testing.assert_allclose(dist.variance, expected.var(), rtol=1e-12)


def test_the_negative_binomial_at_zero_is_a_point():
    dist = SIMULATIONS["negative_binomial"].distribution([0.0, 0.0])
    assert dist.crps(torch.tensor([0, 3])).tolist() == pytest.approx([0.0, 3.0], abs=1e-9)


def test_the_isolated_points_are_those_of_the_paper():
    data = simulate("isolated")
    assert data.x[-2:].tolist() == [1.0, 10.0]
    assert data.y[-2:].tolist() == [np.ceil(np.sin(1) + 15), np.ceil(10 * np.sin(10) + 15)]
    assert {498, 499} <= set(data.split.train)
    dist = data.distribution([1.0, 5.0, 10.0])
    np.testing.assert_allclose(dist.mu, [16, np.ceil(5 * np.sin(5)) + 15, 10])
    np.testing.assert_allclose(dist.gamma, [5.97, 5.25, 3.0])


def test_an_unknown_simulation_is_refused():
    with pytest.raises(ConfigError, match="name must be one of wave, poisson, negative_binomial, isolated, got 'sine'"):
        simulate("sine")


# The reflected distribution, against sums of scipy's pmf --------------------------------------------------------

RATES = np.array([1e-9, 0.3, 4.2, 11.3, 20.0 - 1e-6])
TOP = 30
Z = np.arange(TOP, -1, -1)


def compute_table(folds: int) -> np.ndarray:
    """Compute p(y) of rates on 0..30 by scipy."""
    return softmax(folds * stats.poisson.logpmf(Z, RATES[:, None]), axis=1)


@pytest.fixture(scope="module", params=[1, 5])
def distribution_and_table(request):
    rates = torch.from_numpy(RATES)
    return Reflected(Poisson(rates), TOP, folds=request.param), compute_table(request.param)


def test_probabilities_are_those_of_a_table(distribution_and_table):
    dist, p = distribution_and_table
    y = torch.arange(TOP + 1.0, dtype=torch.float64).unsqueeze(1)
    np.testing.assert_allclose(dist.log_prob(y).exp().T, p, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(dist.cdf(y).T, p.cumsum(1), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(dist.survival(y).T[:, :-1], p[:, ::-1].cumsum(1)[:, ::-1][:, 1:], rtol=1e-9, atol=1e-15)
