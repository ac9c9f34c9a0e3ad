"""Moment tests: calibrated with estimated means and dispersion; tails by three moments; Holm's method."""

import numpy as np
import pytest
from scipy import stats

from ddpn.analysis.diagnosis.approximations import SumNull, holm
from ddpn.analysis.diagnosis.families import Family, fit_families, smoothest
from ddpn.analysis.diagnosis.moments import moment_test, tabulate


def test_the_table_has_the_probabilities_of_scipy():
    mean = np.linspace(0.5, 30.0, 50)
    table = tabulate(Family("negative_binomial", 0.5, 0.0), np.zeros(50), mean, np.ones(50))
    expected = stats.nbinom.pmf(table.counts[None], 2.0, 2.0 / (2.0 + mean[:, None]))
    np.testing.assert_allclose(table.pmf, expected, atol=1e-6)
    np.testing.assert_allclose(table.mean, mean, rtol=1e-3)


def test_zeros_of_negative_binomials_are_calibrated():
    excess = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        mean = np.exp(rng.normal(0.5, 0.5, 300))
        y = rng.poisson(mean * rng.gamma(2.0, 0.5, 300)).astype(float)
        family = smoothest(fit_families(y, mean, np.ones(300)))
        table = tabulate(family, y, mean, np.ones(300))
        excess.append(moment_test(table, (table.counts == 0).astype(float)[None]).p_more)
    assert stats.kstest(excess, "uniform").pvalue > 0.001


def test_a_wrong_mean_does_not_look_like_too_many_zeros():
    rng = np.random.default_rng(0)
    mean = np.exp(rng.normal(0.5, 0.3, 5000))
    y = rng.poisson(mean).astype(float)
    table = tabulate(Family("double_poisson", 1.0, 0.0), y, 1.1 * mean, np.ones(5000))
    zero = (table.counts == 0).astype(float)[None]
    assert moment_test(table, zero).p_value > 0.01
    expected = np.sum(np.exp(-1.1 * mean))
    plain = stats.norm.sf((np.sum(y == 0) - expected) / np.sqrt(expected))
    assert plain < 0.05


@pytest.mark.parametrize(("name", "parameter"), [("double_poisson", 2.0), ("negative_binomial", 0.5)])
def test_the_fitted_parameter(name, parameter):
    mean = np.exp(np.random.default_rng(0).normal(1.5, 0.4, 5000))
    y = Family(name, parameter, 0.0).distribution(mean).sample().numpy()
    found = fit_families(y, mean, np.ones(len(y)))
    assert found[name].parameter == pytest.approx(parameter, rel=0.1)
    assert smoothest(found).name == name


def test_tails_of_a_skewed_sum():
    terms = stats.gamma(0.5)
    null = SumNull(200 * terms.var(), 200 * 2 * 0.5)
    exact = stats.gamma(100.0)
    for value in (-25.0, -10.0, 0.0, 15.0, 30.0):
        assert null.above(value) == pytest.approx(exact.sf(100.0 + value), rel=1e-6)
    assert null.below(null.quantile(0.3)) == pytest.approx(0.3)


def test_holm_as_by_hand():
    np.testing.assert_allclose(holm([0.5, 0.001, 0.02, 0.04]), [0.5, 0.004, 0.06, 0.08])
