"""Pile-ups at the largest and smallest count."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from ddpn.analysis.diagnosis.moments import tabulate
from ddpn.analysis.diagnosis.reference import FittedFamily, Reference
from ddpn.analysis.diagnosis.shape import ceiling_kind, extreme
from ddpn.sample import Sample

POISSON = FittedFamily("double_poisson", 1.0, 0.0)


def table_of(y, mean):
    return tabulate(POISSON, Reference.of(Sample(None, y.astype(float))), mean)


def test_the_expected_pile_is_that_of_a_truncated_poisson():
    mean = np.full(1000, 3.0)
    y = np.minimum(np.random.default_rng(0).poisson(mean), 4)
    found = extreme(table_of(y, mean), upper=True)
    assert (found.value, found.rows) == (4, int(np.sum(y == 4)))
    assert found.expected == pytest.approx(1000 * stats.poisson.pmf(4, 3) / stats.poisson.cdf(4, 3), rel=1e-6)
    assert found.p_pile < 1e-6
    assert found.p_absent == pytest.approx(stats.poisson.cdf(4, 3) ** 1000)


def test_p_values_hold_without_bounds():
    rng = np.random.default_rng(0)
    found = [extreme(table_of(rng.poisson(2.0, 300), np.full(300, 2.0)), upper=True) for _ in range(100)]
    rejected = sum(each.p_value < 0.05 for each in found)
    assert stats.binom.sf(rejected - 1, len(found), 0.05) > 5e-4


def test_a_floor():
    mean = np.full(500, 3.0)
    y = np.random.default_rng(0).poisson(mean)
    found = extreme(table_of(y[y > 0], mean[y > 0]), upper=False)
    assert found.value == 1
    assert found.beyond == pytest.approx(np.exp(-3.0), rel=1e-6)
    assert found.matters
    assert found.p_absent < 1e-6


def test_censoring_and_a_ceiling_differ_with_the_right_means():
    rng = np.random.default_rng(0)
    x = rng.normal(size=3000)
    latent = np.exp(1.6 + 0.3 * x)
    at = np.arange(8)
    expected = (at * stats.poisson.pmf(at, latent[:, None])).sum(1) + 8 * stats.poisson.sf(7, latent)
    assert ceiling_kind(np.minimum(8, rng.poisson(latent)), expected) == "censored"
    share = expit(1.0 + x)
    assert ceiling_kind(rng.binomial(4, rng.beta(0.6 * share, 0.6 * (1 - share))), 4 * share) == "ceiling"
