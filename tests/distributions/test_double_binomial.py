"""The Double Binomial against 40-digit sums, rmutil, scipy's Binomial and direct sums."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, jacrev, vmap

from ddpn import DoubleBinomial, InputError, Mixture

#: (total, mu, gamma, k) where each way of `binomial_sums.py` is the one taken, both ends included.
REGIMES = {
    "table": [(12, 3.0, 0.5, 0), (12, 11.5, 2.0, 12), (40, 20.0, 0.1, 22), (1, 0.3, 4.0, 1)],
    "local": [(500, 250.0, 20.0, 255), (500, 499.0, 3.0, 500), (200, 100.5, 900.0, 100)],
    "wide": [(100_000, 4e4, 0.3, 40_100), (5000, 20.0, 0.01, 0), (700, 690.0, 0.2, 700), (1_000_000, 3e5, 1.0, 3e5)],
}


def f64(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


def direct(n: int, mu: float, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Counts and probabilities by Efron's formula."""
    k = np.arange(n + 1.0)
    saturated = special.xlogy(k, k / n) + special.xlogy(n - k, (n - k) / n)
    linear = k * math.log(mu / n) + (n - k) * math.log1p(-mu / n)
    log_w = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    log_w = log_w + (1 - gamma) * saturated + gamma * linear
    return k, special.softmax(log_w)


def test_log_prob_and_moments_are_those_of_40_digit_sums(golden_families, assert_within):
    rows = golden_families("double_binomial")
    at = {"total": rows["total"], "mu": rows["mu"], "gamma": rows["dispersion"]}
    law = DoubleBinomial(*(f64(rows[key]) for key in ("total", "mu", "dispersion")))
    assert_within(law.mean, rows["mean"], 1e-9, **at)
    assert_within(law.variance, rows["variance"], 1e-8, **at)
    for i in "123":
        assert_within(law.log_prob(f64(rows[f"y{i}"])), rows[f"log_pmf{i}"], 2e-9, floor=1.0, **at)


def test_log_prob_is_that_of_rmutil(r_families, assert_within):
    rows = r_families("double_binomial")
    law = DoubleBinomial(*(f64(rows[key]) for key in ("total", "mu", "dispersion")))
    assert_within(law.log_prob(f64(rows["y"])), rows["log_pmf"], 1e-9, floor=1.0, **rows)


@pytest.mark.parametrize("n", [1, 12, 60, 100, 900, 1_000_000])
def test_gamma_one_is_the_binomial(n, assert_within):
    for share in (1e-5, 0.2, 0.5, 0.99):
        law, reference = DoubleBinomial(f64(n), f64(n * share), f64(1.0)), stats.binom(n, share)
        y = np.unique(reference.ppf([1e-6, 0.1, 0.5, 0.9, 1 - 1e-6]))
        assert_within(law.log_prob(f64(y)), reference.logpmf(y), 5e-9, floor=1.0, y=y)
        assert_within(law.cdf(f64(y)), reference.cdf(y), 1e-8, floor=1e-7, y=y)
        assert_within(law.mean, n * share, 1e-9)
        assert_within(law.variance, n * share * (1 - share), 1e-8)
        low, high = (end.item() for end in law.interval(0.9))
        assert (low, high) == (reference.ppf(0.05), reference.ppf(0.95))


@pytest.mark.parametrize(("n", "mu", "gamma"), [(12, 9.0, 3.0), (50, 4.0, 0.2), (300, 180.0, 0.05), (2500, 30.0, 7.0)])
def test_everything_follows_from_the_pmf(n, mu, gamma, assert_within):
    law, (k, p) = DoubleBinomial(f64(n), f64(mu), f64(gamma)), direct(n, mu, gamma)
    cdf = p.cumsum()
    assert_within(law.log_prob(f64(k)).exp(), p, 1e-9, floor=1e-6, k=k)
    assert_within(law.cdf(f64(k)), cdf, 1e-9, k=k, floor=1e-6)
    assert_within(law.entropy(), -special.xlogy(p, p).sum(), 1e-9)
    assert law.mode.item() == k[p.argmax()]
    for y in (0, int(mu), n, n + 3):
        assert_within(law.crps(f64(y)), (cdf[:y] ** 2).sum() + ((1 - cdf)[y:] ** 2).sum() + max(y - n - 1, 0), 1e-8)
    assert_within(law.icdf(f64(0.3)), k[np.searchsorted(cdf, 0.3)], 0.0)


def test_support_ends_at_the_total():
    law = DoubleBinomial(f64([1, 12, 500]), f64([0.5, 11.0, 300.0]), f64([1.0, 0.1, 0.3]))
    assert torch.isneginf(law.log_prob(law.total + 1)).all()
    assert torch.isfinite(law.log_prob(law.total)).all()
    assert (law.survival(law.total) == 0).all()
    assert torch.equal(law.cdf(law.total + 5), f64([1, 1, 1]))
    assert torch.equal(law.icdf(f64(1.0)), law.total)
    assert (law.sample((200,), generator=torch.Generator().manual_seed(0)) <= law.total).all()
    assert law.support.check(law.total).all()
    assert not law.support.check(law.total + 1).any()
    mu = law.mu.clone().requires_grad_()
    (slope,) = torch.autograd.grad(DoubleBinomial(law.total, mu, law.gamma).log_prob(law.total).sum(), mu)
    assert torch.isfinite(slope).all()


@pytest.mark.parametrize("regime", REGIMES)
def test_derivatives(regime):
    n, mu, gamma, k = f64(REGIMES[regime]).unbind(1)
    at = (torch.logit(mu / n).requires_grad_(), gamma.log().requires_grad_())
    log_prob = lambda a, b: DoubleBinomial(n, n * torch.sigmoid(a), b.exp()).log_prob(k)
    assert gradcheck(log_prob, at, eps=1e-6, atol=1e-5, rtol=1e-5)
    assert gradgradcheck(log_prob, at, eps=1e-6, atol=1e-4, rtol=1e-4)
    share = lambda a, b: DoubleBinomial(n, n * torch.sigmoid(a), b.exp()).mean / n
    assert gradcheck(share, at, atol=1e-6, rtol=1e-5)


def test_transforms():
    n, mu, gamma, k = f64([row for rows in REGIMES.values() for row in rows]).unbind(1)
    log_prob = lambda mu, gamma, n, k: DoubleBinomial(n, mu, gamma).log_prob(k)
    leaves = [mu.clone().requires_grad_(), gamma.clone().requires_grad_()]
    expected = torch.autograd.grad(log_prob(*leaves, n, k).sum(), leaves)
    torch.testing.assert_close(vmap(log_prob)(mu, gamma, n, k), log_prob(mu, gamma, n, k))
    torch.testing.assert_close(vmap(grad(log_prob, argnums=(0, 1)))(mu, gamma, n, k), expected)
    assert torch.isfinite(vmap(jacrev(jacrev(log_prob)))(mu, gamma, n, k)).all()


def test_scores_have_mean_zero():
    for n, mu, gamma in [(12, 10.0, 0.3), (800, 3.0, 2.0), (800, 500.0, 0.02)]:
        m, g = f64(mu).requires_grad_(), f64(gamma).requires_grad_()
        log_p = DoubleBinomial(n, m, g).log_prob(torch.arange(n + 1.0, dtype=torch.float64))
        slopes = torch.autograd.grad((log_p.detach().exp() * log_p).sum(), (m, g))
        assert max(abs(mu * slopes[0].item()), abs(gamma * slopes[1].item())) < 1e-8 * n


@pytest.mark.parametrize("n", [12, 100_000])
def test_mixtures(n, assert_within):
    parts = DoubleBinomial(f64([n, n]), f64([0.2 * n, 0.7 * n]), f64([0.5, 2.0]))
    mixture, y = Mixture(parts), f64(round(0.3 * n))
    assert_within(mixture.log_prob(y).exp(), parts.log_prob(y).exp().mean(), 1e-12)
    assert_within(mixture.mean, parts.mean.mean(), 1e-12)
    assert_within(mixture.cdf(y), parts.cdf(y).mean(), 1e-9)
    apart = mixture.crps(y).item() - parts.crps(y).mean().item()
    assert apart < 0
    assert mixture.interval(0.99)[1] <= n


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
        DoubleBinomial(f64([total]), f64([mu]), f64([gamma]))


def test_shapes_and_dtypes():
    law = DoubleBinomial(torch.tensor([12, 30]), torch.tensor([[3.0], [9.0]]), 2.0)
    assert law.batch_shape == (2, 2)
    assert law.mean.dtype == torch.float32
    assert law.log_prob(torch.zeros(4, 1, 1)).shape == (4, 2, 2)
    assert isinstance(law.expand((3, 2, 2)), DoubleBinomial)
    assert law.rows(torch.tensor([1])).total.tolist() == [[12.0, 30.0]]
    assert DoubleBinomial(torch.zeros(0), torch.zeros(0), torch.zeros(0)).cdf(torch.zeros(0)).shape == (0,)
