"""The Generalised Poisson against 40-digit sums, VGAM, statsmodels, the Poisson and direct sums."""

import numpy as np
import pytest
import torch
from scipy import stats
from statsmodels.distributions.discrete import genpoisson_p

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


@pytest.mark.parametrize("alpha", [0.0, -0.1])
def test_only_overdispersion(alpha):
    with pytest.raises(InputError, match="alpha must be finite and positive"):
        GeneralizedPoisson(3.0, alpha)
