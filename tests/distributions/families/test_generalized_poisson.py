"""Test the Generalised Poisson against statsmodels, the Poisson and direct sums."""

import numpy as np
import pytest
import torch
from scipy import stats
from statsmodels.distributions.discrete import genpoisson_p

from ddpn import GeneralizedPoisson, InputError


def make_float64(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


def test_log_prob_is_that_of_statsmodels(assert_within):
    mu, alpha, y = (x.reshape(-1) for x in np.meshgrid([0.3, 5.0, 40.0], [1e-3, 0.3, 2.0], [0, 1, 7, 60]))
    expected = genpoisson_p.logpmf(y, mu, alpha, 1)
    assert_within(
        GeneralizedPoisson(make_float64(mu), make_float64(alpha)).log_prob(make_float64(y)), expected, 1e-11, floor=1.0
    )


@pytest.mark.parametrize("mu", [0.2, 30.0, 1e6])
def test_alpha_near_0_is_the_poisson(mu, assert_within):
    dist, limit = GeneralizedPoisson(make_float64(mu), make_float64(1e-12)), stats.poisson(mu)
    y = np.unique(limit.ppf([0.001, 0.3, 0.5, 0.999]))
    assert_within(dist.log_prob(make_float64(y)), limit.logpmf(y), 1e-7, floor=1.0)
    assert_within(dist.cdf(make_float64(y)), limit.cdf(y), 1e-7)


@pytest.mark.parametrize("alpha", [0.0, -0.1])
def test_alpha_of_0_or_less_is_refused(alpha):
    with pytest.raises(InputError, match="alpha must be finite and positive"):
        GeneralizedPoisson(3.0, alpha)
