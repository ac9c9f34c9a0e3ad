"""The expansions in 1 / (gamma mu) against direct sums: right, and wrong by no more than the first term left out."""

import numpy as np
import pytest
import torch

from ddpn.distributions.double_poisson import series

#: gamma and k = gamma mu; mu / gamma stays above 1.3, below which the integers show.
POINTS = [(g, k) for g in (0.01, 0.1, 0.5, 1.0, 2.0, 4.0) for k in (37.0, 55.0, 90.0, 160.0) if k >= 1.3 * g * g]


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    gamma, k = torch.tensor(POINTS, dtype=torch.float64).unbind(1)
    return k / gamma, gamma


@pytest.fixture(scope="module")
def exact(summed):
    return [summed(k / g, g) for g, k in POINTS]


def test_log_normalizer(exact):
    """What is left out falls as k^-7: a wrong coefficient of any q_n would not."""
    mu, gamma = rows()
    value = series.LogNormalizer(*series.log_normalizer(mu, gamma, order=2)).value
    error = np.abs(value.numpy() - [o.log_c for o in exact])
    k = (gamma * mu).numpy()
    assert (error <= 80.0 * k**-7.0 + 1e-15 + 2 * np.exp(-2 * np.pi**2 * (mu / gamma).numpy())).all()


def test_moments(exact, assert_within):
    """Derivatives of log c are moments; relative to what Efron's approximation already gives."""
    mu, gamma = rows()
    s = series.LogNormalizer(*series.log_normalizer(mu, gamma, order=2))
    assert_within(mu + s.m / gamma, [o.law.mean for o in exact], 1e-9)
    assert_within(mu / gamma + s.mm / gamma**2, [o.law.variance for o in exact], 4e-9)
    assert_within((0.5 - s.g) / gamma, [o.law.expectation(o.deviance) for o in exact], 2e-8)
    z = [o.law.y - o.law.mean for o in exact]
    d = [o.deviance - o.law.expectation(o.deviance) for o in exact]
    each = lambda f: np.array([o.law.expectation(f(a, b)) for o, a, b in zip(exact, z, d, strict=True)])
    sd, dev_sd = np.sqrt(each(lambda z, d: z * z)), np.sqrt(each(lambda z, d: d * d))
    # Mixed and odd moments nearly vanish: relative to the standard deviations they are made of.
    assert_within(
        ((s.m - s.mg) / gamma**2).numpy() / (sd * dev_sd), each(lambda z, d: z * d) / (sd * dev_sd), 1e-7, floor=1.0
    )
    assert_within((0.5 - s.g + s.gg) / gamma**2, each(lambda z, d: d * d), 2e-7)
    third = (mu / gamma**2 + s.mmm / gamma**3).numpy()
    assert_within(third / sd**3, each(lambda z, d: z * z * z) / sd**3, 1e-7, floor=1.0)
    square_deviance = ((mu / gamma + (2 * s.mm - s.mmg) / gamma**2) / gamma).numpy()
    assert_within(square_deviance / (sd**2 * dev_sd), each(lambda z, d: z * z * d) / (sd**2 * dev_sd), 2e-7, floor=1.0)


def test_first_order_is_a_part_of_the_second():
    mu, gamma = rows()
    for one, two in zip(
        series.log_normalizer(mu, gamma, order=1), series.log_normalizer(mu, gamma, order=2), strict=False
    ):
        torch.testing.assert_close(one, two, rtol=1e-13, atol=1e-16)


def test_half_mean_difference(exact):
    """What is left out is 23 k^-6."""
    mu, gamma = rows()
    expected = np.array([o.law.half_mean_difference for o in exact])
    error = np.abs(series.half_mean_difference(mu, gamma).numpy() / expected - 1)
    assert (error <= 40.0 * (gamma * mu).numpy() ** -6.0 + 1e-11).all()


def test_applies_where_it_holds():
    mu = torch.tensor([5.0, 40.0, 40.0, 40.0, 1e6], dtype=torch.float64)
    gamma = torch.tensor([10.0, 0.5, 1.0, 35.0, 1e-3], dtype=torch.float64)
    assert series.applies(mu, gamma).tolist() == [False, False, True, False, True]
