"""Test the Poisson against scipy, mpmath and closed forms."""

import mpmath
import numpy as np
import pytest
import torch
from scipy import special, stats

from ddpn import DoublePoisson, Poisson

MU = np.concatenate([np.logspace(-6, 7, 53), [1.0, 2.0, 64.0, 1e7]])
LEVELS = (1e-9, 1e-4, 0.05, 0.3, 0.5, 0.8, 0.99, 1 - 1e-6)


def make_float64(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


@pytest.fixture(scope="module")
def dist() -> Poisson:
    return Poisson(make_float64(MU))


def compute_exact_log_pmf(y: float, mu: float) -> float:
    """Compute with 40 digits: scipy loses eight of its digits at mu = 1e7, where terms of 1e8 cancel."""
    with mpmath.workdps(40):
        y, mu = mpmath.mpf(float(y)), mpmath.mpf(float(mu))
        return float(y * mpmath.log(mu) - mu - mpmath.loggamma(y + 1))


@pytest.mark.parametrize("q", LEVELS)
def test_log_prob_is_that_of_mpmath_and_scipy(dist, assert_within, q):
    y = stats.poisson.ppf(q, MU)
    assert_within(
        dist.log_prob(make_float64(y)),
        [compute_exact_log_pmf(*row) for row in zip(y, MU, strict=True)],
        1e-10,
        floor=1.0,
        mu=MU,
        y=y,
    )
    small = MU < 1e3
    assert_within(
        dist.log_prob(make_float64(y))[small], stats.poisson.logpmf(y, MU)[small], 1e-12, floor=1.0, mu=MU[small]
    )


def test_log_prob_far_out_is_that_of_mpmath(dist, assert_within):
    for y in (0.0, 1.0, 7.0, 1e3, 1e7):
        expected = [compute_exact_log_pmf(y, mu) for mu in MU]
        assert_within(dist.log_prob(make_float64(y)), expected, 1e-10, floor=1.0, mu=MU)


@pytest.mark.parametrize("q", LEVELS)
def test_quantiles_and_tails_are_those_of_scipy(dist, assert_within, q):
    # From 1e6 on scipy's incomplete gamma function is itself wrong in the tails (1% at 1e-10 and mu = 1e7).
    mu = MU[MU < 1e6]
    y, small = stats.poisson.ppf(q, mu), Poisson(make_float64(mu))
    assert small.icdf(make_float64(q)).tolist() == y.tolist()
    for got, expected in (
        (small.cdf(make_float64(y)), stats.poisson.cdf(y, mu)),
        (small.survival(make_float64(y)), stats.poisson.sf(y, mu)),
    ):
        assert_within(got, expected, 2e-6, floor=1e-12, mu=mu, y=y)
        assert_within(got, expected, 1e-7, floor=1e-4, mu=mu, y=y)


@pytest.mark.parametrize("mu", [3e6, 1e7 + 0.25])
@pytest.mark.parametrize("score", [-7.0, -3.0, 0.1, 3.0, 6.5])
def test_tails_of_large_means_are_sums(assert_within, mu, score):
    """Sum the tail that y cuts off term by term from y outwards."""
    y = np.floor(mu + score * np.sqrt(mu))
    steps = np.arange(0 if score < 0 else 1, 12 * np.sqrt(mu), dtype=np.longdouble)
    if score < 0:
        log_ratio = np.concatenate([[0], np.log((y - steps[:-1]) / np.longdouble(mu)).cumsum()])
    else:
        log_ratio = np.log(np.longdouble(mu) / (y + steps)).cumsum()
    tail = float(np.exp(log_ratio).sum()) * np.exp(compute_exact_log_pmf(y, mu))
    dist = Poisson(make_float64(mu))
    assert_within((dist.cdf if score < 0 else dist.survival)(make_float64(y)), tail, 1e-8)
    assert (dist.cdf(make_float64(y)) + dist.survival(make_float64(y))).item() == pytest.approx(1.0, abs=1e-15)
    assert dist.icdf(dist.cdf(make_float64(y))) == y


def test_moments_and_mode_follow_the_mean(dist):
    assert torch.equal(dist.mean, make_float64(MU))
    assert torch.equal(dist.variance, make_float64(MU))
    assert torch.equal(dist.stddev, make_float64(MU).sqrt())
    for mu, mode in [
        (0.3, 0.0),
        (1.0, 0.0),
        (1.5, 1.0),
        (2.0, 1.0),
        (64.0, 63.0),
        (1e7, 9_999_999.0),
        (1e7 + 0.5, 1e7),
    ]:
        assert Poisson(make_float64(mu)).mode == mode


def test_entropy_is_that_of_a_direct_sum(assert_within):
    mu = MU[MU < 2e3]
    expected = []
    for m in mu:
        y = np.arange(0.0, m + 40 * np.sqrt(m) + 60)
        log_p = stats.poisson.logpmf(y, m)
        expected.append(-(np.exp(log_p) * log_p).sum())
    assert_within(Poisson(make_float64(mu)).entropy(), expected, 1e-9, mu=mu)


def test_entropy_of_large_means_is_its_series(assert_within):
    """Compare with log(2 pi e mu) / 2 - 1/(12 mu) - 1/(24 mu^2) - 19/(360 mu^3)."""
    mu = MU[MU > 500]
    expected = 0.5 * np.log(2 * np.pi * np.e * mu) - 1 / (12 * mu) - 1 / (24 * mu**2) - 19 / (360 * mu**3)
    assert_within(Poisson(make_float64(mu)).entropy(), expected, 1e-9, mu=mu)


@pytest.mark.parametrize("q", [1e-4, 0.05, 0.3, 0.5, 0.8, 0.99, 1 - 1e-6])
def test_crps_is_its_closed_form(dist, assert_within, q):
    """Compare with the formula of Wei and Held (2014) up to mu = 1e7.

    It is (y - mu)(2 F(y) - 1) + 2 mu p(y) - mu e^-2mu (I0(2 mu) + I1(2 mu)).
    """
    y = stats.poisson.ppf(q, MU)
    density = np.exp([compute_exact_log_pmf(*row) for row in zip(y, MU, strict=True)])
    spread = MU * (special.ive(0, 2 * MU) + special.ive(1, 2 * MU))
    centred = np.where(y < MU, 2 * stats.poisson.cdf(y, MU) - 1, 1 - 2 * stats.poisson.sf(y, MU))
    expected = (y - MU) * centred + 2 * MU * density - spread
    # For tiny mu the closed form cancels; the next test is for those.
    assert_within(dist.crps(make_float64(y)), expected, 1e-7, floor=1e-6, mu=MU, y=y)


def test_crps_of_tiny_means_is_a_sum(assert_within):
    """Almost all mass is on 0: at y = 0 the score is the sum of squared survivals, at 1 it is nearly 1."""
    mu = np.array([1e-6, 1e-5, 1e-3])
    dist = Poisson(make_float64(mu))
    y = np.arange(12.0)
    survival, cdf = stats.poisson.sf(y, mu[:, None]), stats.poisson.cdf(y, mu[:, None])
    assert_within(dist.crps(make_float64(0.0)), (survival**2).sum(1), 1e-9)
    assert_within(dist.crps(make_float64(1.0)), cdf[:, 0] ** 2 + (survival[:, 1:] ** 2).sum(1), 1e-9)


def test_crps_is_that_of_scoringrules(assert_within, scoringrules):
    """Compare below mu = 120; from 140 on its mu**y and its Bessel functions overflow."""
    mu = np.logspace(-1, np.log10(120), 30)
    for q in (0.01, 0.5, 0.9):
        y = stats.poisson.ppf(q, mu)
        assert_within(
            Poisson(make_float64(mu)).crps(make_float64(y)), scoringrules.crps_poisson(y, mu), 1e-7, mu=mu, y=y
        )


def test_crps_far_above_is_a_distance():
    mu, y = 50.0, 1e7
    spread = mu * (special.ive(0, 2 * mu) + special.ive(1, 2 * mu))
    assert Poisson(make_float64(mu)).crps(make_float64(y)).item() == pytest.approx(y - mu - spread, rel=1e-14)


def test_a_poisson_is_the_double_poisson_with_gamma_1(dist, assert_within):
    double = DoublePoisson(make_float64(MU), 1.0)
    y = dist.icdf(make_float64(0.7))
    for method in ("log_prob", "cdf", "survival", "crps"):
        assert_within(getattr(dist, method)(y), getattr(double, method)(y), 1e-7, floor=1e-3, mu=MU)
