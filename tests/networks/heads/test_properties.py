"""Test the paper's propositions: which heads reach which variance, and which losses attenuate residuals."""

import itertools
import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from ddpn.distributions import DoublePoisson
from ddpn.networks.heads import (
    DoublePoissonHead,
    GaussianHead,
    NaturalGaussianHead,
    NegativeBinomialHead,
    PoissonHead,
    make_head,
)

real = lambda low, high: st.floats(low, high, allow_nan=False)


def make_float64(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# Definitions 2.1 and 2.2: at a given mean, every variance -----------------------------------------------------------


@given(mean=real(-1e3, 1e3), log_variance=real(-13.0, 30.0))
def test_gaussians_reach_every_variance(mean, log_variance):
    """Test proposition 2.3."""
    for name in ("gaussian", "faithful_gaussian"):
        dist = make_head(name)(make_float64(mean, log_variance))
        assert dist.mean.item() == mean
        assert dist.variance.item() == pytest.approx(math.exp(log_variance), rel=1e-12)
    dist = NaturalGaussianHead()(make_float64(mean * math.exp(-log_variance), -log_variance))
    assert dist.mean.item() == pytest.approx(mean, rel=1e-12, abs=1e-12)
    assert dist.variance.item() == pytest.approx(math.exp(log_variance), rel=1e-12)


@given(raw=real(-60.0, 60.0))
def test_the_variance_of_a_poisson_is_its_mean(raw):
    """Test proposition 2.3: whatever the network emits, variance and mean are one number."""
    dist = PoissonHead()(make_float64(raw))
    assert dist.variance.item() == dist.mean.item()


@given(first=real(-60.0, 60.0), second=real(-60.0, 60.0))
def test_negative_binomial_never_goes_below_the_mean(first, second):
    """Test proposition 2.3."""
    dist = NegativeBinomialHead()(make_float64(first, second))
    assert dist.variance.item() >= dist.mean.item()


@given(log_mean=real(-2.0, 14.0), log_variance=real(-6.0, 22.0))
def test_double_poisson_reaches_every_variance_by_efrons_moments(log_mean, log_variance):
    """Follow the proof of proposition 3.1: gamma = mu / variance, from 1e-4 to 1e4 and variances down to 0.01."""
    log_gamma = log_mean - log_variance
    assume(abs(log_gamma) < 9.2 and log_variance > math.log(0.01))
    dist = DoublePoissonHead()(make_float64(log_mean, log_gamma))
    assert dist.efron_mean.item() == pytest.approx(math.exp(log_mean), rel=1e-10)
    assert dist.efron_variance.item() == pytest.approx(math.exp(log_variance), rel=1e-10)


@pytest.mark.parametrize("mean", [1.4, 5.0, 10.0, 300.0])
@pytest.mark.parametrize("ratio", [0.25, 0.6, 1.0, 1.5, 3.0])
def test_a_double_poisson_has_variances_below_and_above_its_mean(mean, ratio):
    """The head can emit the distribution that matches this mean and variance."""
    target = DoublePoisson.from_moments(make_float64(mean), make_float64(ratio * mean))
    dist = DoublePoissonHead()(torch.cat([target.mu, target.gamma]).log())
    assert dist.mean.item() == pytest.approx(mean, rel=1e-7)
    assert dist.variance.item() == pytest.approx(ratio * mean, rel=1e-6)


# Definition 3.2: loss = d(phi) + a(phi) r(mu, y) ---------------------------------------------------------------------


class DoublePoissonTerms:
    """Proposition 3.4, with phi = 1 / gamma."""

    head = DoublePoissonHead(objective="paper")
    penalty = staticmethod(lambda phi: 0.5 * math.log(phi))
    factor = staticmethod(lambda phi: 1.0 / phi)
    raw = staticmethod(lambda mu, phi: make_float64(math.log(mu), -math.log(phi)))

    @staticmethod
    def residual(mu, y):
        return (mu - y) - (y * (math.log(mu) - math.log(y)) if y else 0.0)


class GaussianTerms:
    """Kendall and Gal, with phi the variance; the paper drops log(2 pi) / 2."""

    head = GaussianHead()
    penalty = staticmethod(lambda phi: 0.5 * math.log(phi) + 0.5 * math.log(2.0 * math.pi))
    factor = staticmethod(lambda phi: 0.5 / phi)
    raw = staticmethod(lambda mu, phi: make_float64(mu, math.log(phi)))
    residual = staticmethod(lambda mu, y: (mu - y) ** 2)


TERMS = [DoublePoissonTerms, GaussianTerms]
MEANS, COUNTS, PHI = (0.3, 1.0, 6.0, 80.0), (0, 1, 6, 90), [math.exp(k) for k in range(-3, 10)]


def compute_loss(terms, mu, phi, y) -> float:
    return terms.head.loss(terms.raw(mu, phi), torch.tensor(y)).item()


@pytest.mark.parametrize("terms", TERMS)
def test_loss_is_penalty_plus_attenuated_residual(terms):
    for mu, y, phi in itertools.product(MEANS, COUNTS, PHI):
        if terms is DoublePoissonTerms and mu * phi < 0.011:
            continue  # narrower than the clamps allow
        expected = terms.penalty(phi) + terms.factor(phi) * terms.residual(mu, y)
        assert compute_loss(terms, mu, phi, y) == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("terms", TERMS)
def test_residual_is_zero_at_the_target_only(terms):
    """r, read off the loss at phi = 1, is 0 at mu = y and positive elsewhere, y = 0 included."""
    for y in COUNTS:
        at = {mu: compute_loss(terms, mu, 1.0, y) - terms.penalty(1.0) for mu in (*MEANS, 1e-6, 90.0)}
        nearest = min(at, key=lambda mu: abs(mu - y))
        assert at[nearest] == pytest.approx(0.0, abs=1e-5)
        assert all(value > 1e-3 for mu, value in at.items() if mu != nearest and abs(mu - y) > 1e-2)


@pytest.mark.parametrize("terms", TERMS)
def test_dispersion_attenuates_the_residual(terms):
    """Test proposition 3.3:

    the residual's part of the loss vanishes as phi grows, while the penalty grows without end.
    """
    mu, y = 6.0, 90
    far = [phi for phi in PHI if phi > 2.0]
    penalties = [compute_loss(terms, y, phi, y) for phi in far]
    parts = [compute_loss(terms, mu, phi, y) - penalty for phi, penalty in zip(far, penalties, strict=True)]
    steps = [b - a for a, b in itertools.pairwise(penalties)]
    assert steps == pytest.approx([0.5] * len(steps), rel=1e-9)
    assert all(b == pytest.approx(a / math.e, rel=1e-9) for a, b in itertools.pairwise(parts))
    ratios = [part / penalty for part, penalty in zip(parts, penalties, strict=True)]
    assert all(b < a for a, b in itertools.pairwise(ratios))
    assert ratios[-1] < 0.15
