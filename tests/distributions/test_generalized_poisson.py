"""The Generalised Poisson against 40-digit sums, VGAM, statsmodels, the Poisson and direct sums."""

import numpy as np
import pytest
import torch
from scipy import stats
from statsmodels.distributions.discrete import genpoisson_p
from torch.autograd import gradcheck, gradgradcheck

from ddpn import GeneralizedPoisson, InputError


def f64(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


def test_log_prob_and_moments_are_those_of_40_digit_sums(golden_families, assert_within):
    rows = golden_families("generalized_poisson")
    law = GeneralizedPoisson(f64(rows["mu"]), f64(rows["dispersion"]))
    at = {"mu": rows["mu"], "alpha": rows["dispersion"]}
    assert_within(law.mean, rows["mean"], 1e-12, **at)
    assert_within(law.variance, rows["variance"], 1e-11, **at)
    for i in "123":
        assert_within(law.log_prob(f64(rows[f"y{i}"])), rows[f"log_pmf{i}"], 1e-10, floor=1.0, **at)


def test_log_prob_is_that_of_vgam(r_families, assert_within):
    rows = r_families("generalized_poisson")
    law = GeneralizedPoisson(f64(rows["mu"]), f64(rows["dispersion"]))
    assert_within(law.log_prob(f64(rows["y"])), rows["log_pmf"], 1e-11, floor=1.0, **rows)


def test_log_prob_is_that_of_statsmodels(assert_within):
    mu, alpha, y = (x.reshape(-1) for x in np.meshgrid([0.3, 5.0, 40.0], [1e-3, 0.3, 2.0], [0, 1, 7, 60]))
    expected = genpoisson_p.logpmf(y, mu, alpha, 1)
    assert_within(GeneralizedPoisson(f64(mu), f64(alpha)).log_prob(f64(y)), expected, 1e-11, floor=1.0)


@pytest.mark.parametrize("mu", [0.2, 30.0, 1e6])
def test_tends_to_poisson(mu, assert_within):
    law, limit = GeneralizedPoisson(f64(mu), f64(1e-12)), stats.poisson(mu)
    y = np.unique(limit.ppf([0.001, 0.3, 0.5, 0.999]))
    assert_within(law.log_prob(f64(y)), limit.logpmf(y), 1e-7, floor=1.0)
    assert_within(law.cdf(f64(y)), limit.cdf(y), 1e-7)


@pytest.mark.parametrize(
    ("mu", "alpha"), [(0.02, 8.0), (3.0, 0.4), (6.0, 30.0), (400.0, 1e-5), (2000.0, 5.0), (5e4, 0.7)]
)
def test_everything_follows_from_the_pmf(mu, alpha, assert_within):
    law = GeneralizedPoisson(f64(mu), f64(alpha))
    last = law.bracket(60.0)[1].item()
    y = torch.arange(last + 1.0, dtype=torch.float64)
    log_p = law.log_prob(y).numpy()
    p = np.exp(log_p).astype(np.longdouble)
    below, above = p.cumsum(), np.append(p[::-1].cumsum()[::-1][1:], 0.0)
    assert abs(float(p.sum()) - 1) < 1e-10
    at = np.unique(np.searchsorted(below, [1e-6, 0.05, 0.5, 0.9, 1 - 1e-6]))
    assert_within(law.cdf(f64(at)), below[at], 1e-8, floor=1e-9, y=at)
    assert_within(law.survival(f64(at)), above[at], 1e-8, floor=1e-12, y=at)
    scores = [float((below[:i] ** 2).sum() + (above[i:] ** 2).sum()) for i in at]
    # A difference of two mean distances, each exact to 1e-8.
    assert_within(law.crps(f64(at)), scores, 1e-6, floor=0.01 * min(mu, 1.0), y=at)
    assert_within(law.entropy(), float(-(p * log_p).sum()), 1e-7)
    assert law.mode.item() == np.argmax(p)
    assert_within(law.icdf(f64([0.1, 0.9])), np.searchsorted(below, [0.1, 0.9]), 0.0)


def test_derivatives():
    at = (f64([0.1, 3.0, 50.0, 2e3]).requires_grad_(), f64([2.0, 0.1, 1e-3, 5.0]).requires_grad_())
    log_prob = lambda mu, alpha: GeneralizedPoisson(mu, alpha).log_prob(f64([0.0, 5.0, 44.0, 1e3]))
    assert gradcheck(log_prob, at)
    assert gradgradcheck(log_prob, at)


@pytest.mark.parametrize("alpha", [0.0, -0.1])
def test_only_overdispersion(alpha):
    with pytest.raises(InputError, match="alpha must be finite and positive"):
        GeneralizedPoisson(3.0, alpha)
