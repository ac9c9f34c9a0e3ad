"""Test the Double Poisson by its mean against the Poisson, the Double Poisson and its limits."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.autograd import gradcheck, gradgradcheck

from ddpn import InputError
from ddpn.distributions import DoublePoisson, MeanDoublePoisson, variance_limits
from ddpn.distributions.families.mean_double_poisson import MeanDoublePoissonFamily

#: (mean, gamma, y) of short sums, of narrow bells and of wide ones.
REGIMES = {
    "table": [(3.0, 0.5, 0), (0.5, 3.0, 1), (0.02, 4.0, 1), (20.0, 3.0, 25)],
    "local": [(300.0, 20.0, 310), (1000.0, 60.0, 995), (80.0, 5.0, 70)],
    "wide": [(40.0, 0.1, 90), (300.0, 2.0, 310), (5.0, 0.02, 0), (1e5, 0.7, 1.004e5)],
}


def make_float64(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


@pytest.mark.parametrize("mean", [1e-3, 3.0, 70.0, 1e6])
def test_gamma_1_is_the_poisson(mean, assert_within):
    dist, reference = MeanDoublePoisson(make_float64(mean), make_float64(1.0)), stats.poisson(mean)
    y = np.unique(reference.ppf([1e-6, 0.3, 0.5, 0.9, 1 - 1e-6]))
    assert_within(dist.log_prob(make_float64(y)), reference.logpmf(y), 5e-9, floor=1.0, y=y)
    assert_within(dist.variance, mean, 1e-8)


def test_results_are_those_of_the_double_poisson_with_this_mean():
    rng = np.random.default_rng(0)
    mean, gamma = np.exp(rng.uniform(-6, 8, 200)), np.exp(rng.uniform(-3, 3, 200))
    gamma = np.minimum(gamma, 19.0 * np.maximum(mean, 1.0))
    mu = np.exp([MeanDoublePoissonFamily.prepare(*pair, 0.0).log_m for pair in zip(mean, gamma, strict=True)])
    is_float = mu > 1e-200
    dist = MeanDoublePoisson(make_float64(mean[is_float]), make_float64(gamma[is_float]))
    peer = DoublePoisson(make_float64(mu[is_float]), make_float64(gamma[is_float]))
    torch.testing.assert_close(peer.mean, dist.mean, rtol=1e-8, atol=0)
    torch.testing.assert_close(dist.variance, peer.variance, rtol=1e-7, atol=0)
    y = dist.mean.round()
    torch.testing.assert_close(dist.log_prob(y), peer.log_prob(y), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("mean", [0.01, 1.0, 30.0, 1000.0])
def test_small_gammas_reach_the_largest_variance(mean):
    dist = MeanDoublePoisson(make_float64(mean), make_float64(1e-7))
    assert dist.variance.item() == pytest.approx(variance_limits(make_float64(mean))[1].item(), rel=1e-3)


@pytest.mark.parametrize("regime", REGIMES)
def test_derivatives_of_log_prob_are_numerical_ones(regime):
    mean, gamma, y = make_float64(REGIMES[regime]).unbind(1)
    at = (mean.log().requires_grad_(), gamma.log().requires_grad_())
    log_prob = lambda a, b: MeanDoublePoisson(a.exp(), b.exp()).log_prob(y)
    assert gradcheck(log_prob, at, eps=1e-6, atol=1e-5, rtol=1e-5)
    assert gradgradcheck(log_prob, at, eps=1e-6, atol=1e-4, rtol=1e-4)


def test_too_narrow_distributions_are_refused():
    with pytest.raises(InputError, match=r"gamma must be at most 20 times the larger .* got 90 for a mean of 4"):
        MeanDoublePoisson(4.0, 90.0)
