"""Points and their errors: the statistic that was asked for, and no other."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Laplace, Normal

from ddpn.distributions import Mixture, NegativeBinomial, Poisson
from ddpn.metrics import absolute_error, point, squared_error
from ddpn.runtime.errors import ConfigError, InputError

STATISTICS = ("mean", "median", "mode")


def test_points_of_a_skewed_distribution_against_scipy():
    mu, r = np.array([0.3, 4.3, 301.0]), 2.0
    dist = NegativeBinomial(torch.from_numpy(mu), torch.tensor(1 / r, dtype=torch.float64))
    peer = stats.nbinom(r, r / (r + mu))
    np.testing.assert_allclose(point(dist, "mean").numpy(), peer.mean(), rtol=1e-12)
    np.testing.assert_array_equal(point(dist, "median").numpy(), peer.median())
    pmf = stats.nbinom.pmf(np.arange(2000)[:, None], r, r / (r + mu))
    np.testing.assert_array_equal(point(dist, "mode").numpy(), pmf.argmax(0))


def test_points_of_a_normal_and_of_a_lopsided_mixture_of_normals():
    assert [point(Normal(2.5, 3.0), s).item() for s in STATISTICS] == [2.5, 2.5, 2.5]
    loc, scale = np.array([0.0, 0.0, 9.0]), np.array([1.0, 0.5, 2.0])
    mixture = Mixture(Normal(torch.from_numpy(loc), torch.from_numpy(scale)))
    assert point(mixture, "mean").item() == pytest.approx(3.0)
    assert stats.norm.cdf(point(mixture, "median").item(), loc, scale).mean() == pytest.approx(0.5)
    z = np.linspace(-3, 12, 150_001)
    density = stats.norm.pdf(z[:, None], loc, scale).mean(1)
    assert point(mixture, "mode").item() == pytest.approx(z[density.argmax()], abs=1e-4)


def test_errors_are_those_of_the_point(dist, y):
    for statistic in STATISTICS:
        gap = point(dist, statistic).numpy() - y.numpy()
        np.testing.assert_allclose(absolute_error(dist, y, statistic).numpy(), np.abs(gap), rtol=1e-14)
        np.testing.assert_allclose(squared_error(dist, y, statistic).numpy(), gap**2, rtol=1e-14)


def test_defaults_are_the_points_that_make_each_error_least():
    """Summed over the dist itself: no other count has a smaller mean |z - y|, no number a smaller mean square."""
    dist = NegativeBinomial(torch.tensor(7.0, dtype=torch.float64), 0.8)
    z = torch.arange(400)
    pmf = stats.nbinom.pmf(z.numpy(), 1 / 0.8, 1 / (1 + 0.8 * 7.0))
    absolute = (pmf * absolute_error(dist, z).numpy()).sum()
    square = (pmf * squared_error(dist, z).numpy()).sum()
    others = np.arange(30)
    assert absolute == pytest.approx((pmf * np.abs(z.numpy() - others[:, None])).sum(1).min(), rel=1e-12)
    assert square == pytest.approx(stats.nbinom.var(1 / 0.8, 1 / (1 + 0.8 * 7.0)), rel=1e-12)
    for statistic in ("mean", "mode"):
        assert (pmf * absolute_error(dist, z, statistic).numpy()).sum() > absolute


def test_what_is_refused():
    with pytest.raises(ConfigError, match="statistic must be one of mean, median, mode, got 'middle'"):
        point(Poisson(1.0), "middle")
    with pytest.raises(ConfigError, match="got 'average'"):
        absolute_error(Poisson(1.0), torch.tensor(1), statistic="average")
    with pytest.raises(InputError, match=r"dist must be a count distribution .* got Laplace"):
        point(Laplace(0.0, 1.0), "mean")
