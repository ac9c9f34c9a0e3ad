"""Test the Conway-Maxwell-Poisson against the Poisson, its limits and direct sums."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.autograd import gradcheck, gradgradcheck

from ddpn import ConwayMaxwellPoisson, InputError

#: (mu, nu, y) of short sums, of narrow bells and of wide ones.
REGIMES = {
    "table": [(3.0, 0.5, 0), (0.5, 4.0, 1), (0.02, 15.0, 1), (20.0, 3.0, 25)],
    "local": [(300.0, 20.0, 310), (1000.0, 60.0, 995), (80.0, 5.0, 70)],
    "wide": [(40.0, 0.1, 90), (300.0, 2.0, 310), (5.0, 0.02, 0), (1e5, 0.7, 1.004e5)],
}


def make_float64(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


@pytest.mark.parametrize("mu", [1e-3, 3.0, 70.0, 1e6])
def test_nu_1_is_the_poisson(mu, assert_within):
    dist, reference = ConwayMaxwellPoisson(make_float64(mu), make_float64(1.0)), stats.poisson(mu)
    y = np.unique(reference.ppf([1e-6, 0.3, 0.5, 0.9, 1 - 1e-6]))
    assert_within(dist.log_prob(make_float64(y)), reference.logpmf(y), 5e-9, floor=1.0, y=y)
    assert_within(dist.cdf(make_float64(y)), reference.cdf(y), 1e-8, floor=1e-7, y=y)
    assert_within(dist.variance, mu, 1e-8)


def test_limits_of_nu_are_geometric_and_bernoulli(assert_within):
    """nu = 0 is the Geometric, and nu = infinity, for means below 1, the Bernoulli."""
    y = np.arange(20.0)
    assert_within(
        ConwayMaxwellPoisson(make_float64(3.0), make_float64(1e-9)).log_prob(make_float64(y)),
        stats.geom.logpmf(y + 1, 1 / 4),
        1e-6,
        y=y,
    )
    assert_within(
        ConwayMaxwellPoisson(make_float64(0.3), make_float64(20.0)).log_prob(make_float64([0, 1])),
        np.log([0.7, 0.3]),
        1e-5,
    )


def test_the_mean_is_that_of_the_pmf():
    """Over the whole domain of the head; sums over at most a few thousand counts."""
    rng = np.random.default_rng(0)
    mu, nu = np.exp(rng.uniform(-8, 6, 60)), np.exp(rng.uniform(-4, 4, 60))
    nu = np.minimum(nu, 19.0 * np.maximum(mu, 1.0))
    dist = ConwayMaxwellPoisson(make_float64(mu), make_float64(nu))
    last = int(dist.bracket(45.0)[1].max().item())
    y = torch.arange(last + 1.0, dtype=torch.float64).unsqueeze(1)
    p = dist.log_prob(y).exp()
    torch.testing.assert_close(p.sum(0), torch.ones(60, dtype=torch.float64), rtol=1e-9, atol=0)
    torch.testing.assert_close((p * y).sum(0), dist.mean, rtol=1e-8, atol=0)
    torch.testing.assert_close((p * (y - dist.mean) ** 2).sum(0), dist.variance, rtol=1e-7, atol=0)


@pytest.mark.parametrize("regime", REGIMES)
def test_derivatives_of_log_prob_are_numerical_ones(regime):
    mu, nu, y = make_float64(REGIMES[regime]).unbind(1)
    at = (mu.log().requires_grad_(), nu.log().requires_grad_())
    log_prob = lambda a, b: ConwayMaxwellPoisson(a.exp(), b.exp()).log_prob(y)
    assert gradcheck(log_prob, at, eps=1e-6, atol=1e-5, rtol=1e-5)
    assert gradgradcheck(log_prob, at, eps=1e-6, atol=1e-4, rtol=1e-4)


def test_too_narrow_distributions_are_refused():
    with pytest.raises(InputError, match=r"nu must be at most 20 times the larger .* got 90 for a mean of 4"):
        ConwayMaxwellPoisson(4.0, 90.0)
