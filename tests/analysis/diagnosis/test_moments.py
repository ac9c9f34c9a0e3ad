"""Moment tests: calibrated with estimated means and dispersion; tails by three moments; Holm's method."""

import numpy as np
import pytest
from scipy import stats

from ddpn.analysis.diagnosis.moments import SumNull, moment_test, tabulate
from ddpn.analysis.diagnosis.reference import FittedFamily, Reference, fit_families, smoothest
from ddpn.sample import Sample


def plain(y):
    return Reference.of(Sample(None, y))


def test_the_table_has_the_probabilities_of_scipy():
    mean = np.linspace(0.5, 30.0, 50)
    table = tabulate(FittedFamily("negative_binomial", 0.5, 0.0), plain(np.zeros(50)), mean)
    expected = stats.nbinom.pmf(table.counts[None], 2.0, 2.0 / (2.0 + mean[:, None]))
    np.testing.assert_allclose(table.pmf, expected, atol=1e-6)
    np.testing.assert_allclose(table.mean, mean, rtol=1e-3)


def test_zeros_of_negative_binomials_are_calibrated():
    excess = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        mean = np.exp(rng.normal(0.5, 0.5, 300))
        y = rng.poisson(mean * rng.gamma(2.0, 0.5, 300)).astype(float)
        family = smoothest(fit_families(plain(y), mean))
        table = tabulate(family, plain(y), mean)
        excess.append(moment_test(table, (table.counts == 0).astype(float)[None]).p_more)
    assert stats.kstest(excess, "uniform").pvalue > 0.001


def test_zeros_of_repeated_counts_are_calibrated_by_groups():
    p_values = {True: [], False: []}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        mean, person = np.repeat(np.exp(rng.normal(0.5, 0.5, 80)), 4), np.repeat(np.arange(80), 4)
        y = np.repeat(rng.poisson(mean[::4]), 4).astype(float)
        for grouped, found in p_values.items():
            reference = Reference.of(Sample(None, y, group=person if grouped else None))
            table = tabulate(FittedFamily("double_poisson", 1.0, 0.0), reference, mean)
            found.append(moment_test(table, (table.counts == 0).astype(float)[None]).p_value)
    assert stats.binom.sf(np.sum(np.array(p_values[True]) < 0.05) - 1, 40, 0.05) > 5e-4
    assert np.sum(np.array(p_values[False]) < 0.05) > 6


def test_a_wrong_mean_does_not_look_like_too_many_zeros():
    rng = np.random.default_rng(0)
    mean = np.exp(rng.normal(0.5, 0.3, 5000))
    y = rng.poisson(mean).astype(float)
    table = tabulate(FittedFamily("double_poisson", 1.0, 0.0), plain(y), 1.1 * mean)
    zero = (table.counts == 0).astype(float)[None]
    assert moment_test(table, zero).p_value > 0.01
    expected = np.sum(np.exp(-1.1 * mean))
    assert stats.norm.sf((np.sum(y == 0) - expected) / np.sqrt(expected)) < 0.05


@pytest.mark.parametrize(("name", "parameter"), [("double_poisson", 2.0), ("negative_binomial", 0.5)])
def test_the_fitted_parameter(name, parameter):
    mean = np.exp(np.random.default_rng(0).normal(1.5, 0.4, 5000))
    y = FittedFamily(name, parameter, 0.0).distribution(mean).sample().numpy()
    found = fit_families(plain(y), mean)
    assert found[name].parameter == pytest.approx(parameter, rel=0.1)
    assert smoothest(found).name == name


def test_tails_of_a_skewed_sum():
    terms = stats.gamma(0.5)
    null = SumNull(200 * terms.var(), 200 * 2 * 0.5)
    exact = stats.gamma(100.0)
    for value in (-25.0, -10.0, 0.0, 15.0, 30.0):
        assert null.above(value) == pytest.approx(exact.sf(100.0 + value), rel=1e-6)
    assert null.below(null.quantile(0.3)) == pytest.approx(0.3)
