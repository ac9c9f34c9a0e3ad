"""Test the Double Binomial against scipy's Binomial and direct sums."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.autograd import gradcheck, gradgradcheck

from ddpn import DoubleBinomial, InputError

#: (total, mu, gamma, k) of short sums, of narrow bells and of wide ones, both ends included.
REGIMES = {
    "table": [(12, 3.0, 0.5, 0), (12, 11.5, 2.0, 12), (40, 20.0, 0.1, 22), (1, 0.3, 4.0, 1)],
    "local": [(500, 250.0, 20.0, 255), (500, 499.0, 3.0, 500), (200, 100.5, 900.0, 100)],
    "wide": [(100_000, 4e4, 0.3, 40_100), (5000, 20.0, 0.01, 0), (700, 690.0, 0.2, 700), (1_000_000, 3e5, 1.0, 3e5)],
}


def make_float64(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


@pytest.mark.parametrize("n", [1, 12, 60, 100, 900, 1_000_000])
def test_gamma_1_is_the_binomial(n, assert_within):
    for share in (1e-5, 0.2, 0.5, 0.99):
        dist, reference = (
            DoubleBinomial(make_float64(n), make_float64(n * share), make_float64(1.0)),
            stats.binom(n, share),
        )
        y = np.unique(reference.ppf([1e-6, 0.1, 0.5, 0.9, 1 - 1e-6]))
        assert_within(dist.log_prob(make_float64(y)), reference.logpmf(y), 5e-9, floor=1.0, y=y)
        assert_within(dist.cdf(make_float64(y)), reference.cdf(y), 1e-8, floor=1e-7, y=y)
        assert_within(dist.mean, n * share, 1e-9)
        assert_within(dist.variance, n * share * (1 - share), 1e-8)
        low, high = (end.item() for end in dist.interval(0.9))
        assert (low, high) == (reference.ppf(0.05), reference.ppf(0.95))


def test_support_ends_at_the_total():
    dist = DoubleBinomial(make_float64([1, 12, 500]), make_float64([0.5, 11.0, 300.0]), make_float64([1.0, 0.1, 0.3]))
    assert torch.isneginf(dist.log_prob(dist.total + 1)).all()
    assert torch.isfinite(dist.log_prob(dist.total)).all()
    assert (dist.survival(dist.total) == 0).all()
    assert torch.equal(dist.cdf(dist.total + 5), make_float64([1, 1, 1]))
    assert torch.equal(dist.icdf(make_float64(1.0)), dist.total)
    assert (dist.sample((200,), generator=torch.Generator().manual_seed(0)) <= dist.total).all()
    assert dist.support.check(dist.total).all()
    assert not dist.support.check(dist.total + 1).any()
    mu = dist.mu.clone().requires_grad_()
    (slope,) = torch.autograd.grad(DoubleBinomial(dist.total, mu, dist.gamma).log_prob(dist.total).sum(), mu)
    assert torch.isfinite(slope).all()


@pytest.mark.parametrize("regime", REGIMES)
def test_derivatives_of_log_prob_are_numerical_ones(regime):
    n, mu, gamma, k = make_float64(REGIMES[regime]).unbind(1)
    at = (torch.logit(mu / n).requires_grad_(), gamma.log().requires_grad_())
    log_prob = lambda a, b: DoubleBinomial(n, n * torch.sigmoid(a), b.exp()).log_prob(k)
    assert gradcheck(log_prob, at, eps=1e-6, atol=1e-5, rtol=1e-5)
    assert gradgradcheck(log_prob, at, eps=1e-6, atol=1e-4, rtol=1e-4)


def test_scores_have_mean_zero():
    for n, mu, gamma in [(12, 10.0, 0.3), (800, 3.0, 2.0), (800, 500.0, 0.02)]:
        m, g = make_float64(mu).requires_grad_(), make_float64(gamma).requires_grad_()
        log_p = DoubleBinomial(n, m, g).log_prob(torch.arange(n + 1.0, dtype=torch.float64))
        slopes = torch.autograd.grad((log_p.detach().exp() * log_p).sum(), (m, g))
        assert max(abs(mu * slopes[0].item()), abs(gamma * slopes[1].item())) < 1e-8 * n


@pytest.mark.parametrize(
    ("total", "mu", "gamma", "message"),
    [
        (12.5, 3.0, 1.0, "total must hold integers of at least 1, got 12.5"),
        (0, 0.5, 1.0, "total must hold integers of at least 1, got 0"),
        (12, 12.0, 1.0, "mu must be below the total, got 12 of 12"),
        (12, -1.0, 1.0, "mu must be finite and positive"),
        (12, 3.0, 0.0, "gamma must be finite and positive"),
    ],
)
def test_bad_parameters_are_reported(total, mu, gamma, message):
    with pytest.raises(InputError, match=message):
        DoubleBinomial(make_float64([total]), make_float64([mu]), make_float64([gamma]))
