"""The checks: their size and power on simulated counts, with estimated means and dispersion; intervals."""

import numpy as np
import pytest
from scipy import stats

from ddpn.analysis.diagnosis.checks import (
    FittedFamily,
    ceiling_finding,
    conditional_dispersion,
    fit_families,
    moment_test,
    tabulate,
)
from ddpn.analysis.diagnosis.means import Means, out_of_fold_means
from ddpn.rows.count_rows import CountRows


def smoothest(families):
    return max(families.values(), key=lambda family: family.loglik)


def test_the_table_has_the_probabilities_of_scipy():
    mean = np.linspace(0.5, 30.0, 50)
    table = tabulate(FittedFamily("negative_binomial", 0.5, 0.0), CountRows(None, np.zeros(50)), mean)
    expected = stats.nbinom.pmf(table.counts[None], 2.0, 2.0 / (2.0 + mean[:, None]))
    np.testing.assert_allclose(table.pmf, expected, atol=1e-6)
    np.testing.assert_allclose(table.mean, mean, rtol=1e-3)


def test_zeros_of_negative_binomials_are_calibrated():
    excess = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        mean = np.exp(rng.normal(0.5, 0.5, 300))
        y = rng.poisson(mean * rng.gamma(2.0, 0.5, 300)).astype(float)
        family = smoothest(fit_families(CountRows(None, y), mean))
        table = tabulate(family, CountRows(None, y), mean)
        excess.append(moment_test(table, (table.counts == 0).astype(float)[None]).p_more)
    assert stats.kstest(excess, "uniform").pvalue > 0.001


@pytest.mark.slow
def test_zeros_of_repeated_counts_are_calibrated_by_groups():
    p_values = {True: [], False: []}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        mean, person = np.repeat(np.exp(rng.normal(0.5, 0.5, 80)), 4), np.repeat(np.arange(80), 4)
        y = np.repeat(rng.poisson(mean[::4]), 4).astype(float)
        for grouped, found in p_values.items():
            sample = CountRows(None, y, group=person if grouped else None)
            table = tabulate(FittedFamily("double_poisson", 1.0, 0.0), sample, mean)
            found.append(moment_test(table, (table.counts == 0).astype(float)[None]).p_value)
    assert stats.binom.sf(np.sum(np.array(p_values[True]) < 0.05) - 1, 40, 0.05) > 5e-4
    assert np.sum(np.array(p_values[False]) < 0.05) > 6


def test_a_wrong_mean_does_not_look_like_too_many_zeros():
    rng = np.random.default_rng(0)
    mean = np.exp(rng.normal(0.5, 0.3, 5000))
    y = rng.poisson(mean).astype(float)
    table = tabulate(FittedFamily("double_poisson", 1.0, 0.0), CountRows(None, y), 1.1 * mean)
    zero = (table.counts == 0).astype(float)[None]
    assert moment_test(table, zero).p_value > 0.01
    expected = np.sum(np.exp(-1.1 * mean))
    assert stats.norm.sf((np.sum(y == 0) - expected) / np.sqrt(expected)) < 0.05


@pytest.mark.parametrize(("name", "parameter"), [("double_poisson", 2.0), ("negative_binomial", 0.5)])
def test_the_fitted_parameter(name, parameter):
    mean = np.exp(np.random.default_rng(0).normal(1.5, 0.4, 5000))
    y = FittedFamily(name, parameter, 0.0).distribution(mean).sample().numpy()
    found = fit_families(CountRows(None, y), mean)
    assert found[name].parameter == pytest.approx(parameter, rel=0.1)
    assert smoothest(found).name == name


# Dispersion ---

RUNS, ROWS = 100, 500


def known(mean):
    return Means("glm", mean, 0.0, 0.0, 0.0)


def p_values(mean, draw, fit, runs=RUNS):
    found = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(ROWS, 2))
        expected = mean * np.exp(0.4 * X[:, 0])
        y = draw(rng, expected).astype(float)
        sample = CountRows(X, y)
        means = out_of_fold_means(sample, "glm", 0, lambda words: None) if fit else known(expected)
        found.append(conditional_dispersion(sample, means))
    return found


@pytest.mark.parametrize(("mean", "fit"), [(0.3, False), pytest.param(3.0, True, marks=pytest.mark.slow)])
def test_size_on_poisson_counts(mean, fit):
    rejected = sum(each.p_value < 0.05 for each in p_values(mean, lambda rng, mu: rng.poisson(mu), fit))
    # The number of rejections is binomial; 1 in 1,000 correct tests would fail here.
    assert stats.binom.sf(rejected - 1, RUNS, 0.05) > 5e-4


def test_power_and_direction():
    # With 500 rows a dispersion of 0.6 or 1.6 is as clear as 0.8 or 1.3 with 2,000.
    over = p_values(3.0, lambda rng, mu: rng.poisson(rng.gamma(mu / 0.6, 0.6)), False, 30)
    under = p_values(3.0, lambda rng, mu: rng.binomial(np.maximum(1, np.rint(mu / 0.4)).astype(int), 0.4), False, 30)
    assert sum(each.direction == "over" for each in over) >= 28
    assert sum(each.direction == "under" for each in under) >= 28


def test_an_interval_without_1_means_that_the_test_rejects():
    for each in p_values(0.3, lambda rng, mu: rng.poisson(mu), False, 40):
        assert each.direction == "equi" or each.p_value < 0.05


def test_repeated_counts_of_a_person_need_groups():
    rejected = {True: 0, False: 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        mean, person = np.repeat(np.exp(rng.normal(1.0, 0.4, 100)), 5), np.repeat(np.arange(100), 5)
        y = np.repeat(rng.poisson(mean[::5]), 5).astype(float)
        for grouped in rejected:
            sample = CountRows(None, y, group=person if grouped else None)
            rejected[grouped] += conditional_dispersion(sample, known(mean)).p_value < 0.05
    assert stats.binom.sf(rejected[True] - 1, 60, 0.05) > 5e-4
    # Five times the variance: a normal is beyond 1.96 / sqrt(5) in 38% of the runs.
    assert rejected[False] > 12


def test_noise_of_the_mean_is_subtracted():
    rng = np.random.default_rng(0)
    mean = np.full(20_000, 4.0)
    y = rng.poisson(mean).astype(float)
    wrong = mean * np.exp(rng.normal(0, 0.2, len(mean)))
    noise = float(np.mean((wrong - mean) ** 2 / wrong))
    sample = CountRows(None, y)
    assert conditional_dispersion(sample, known(wrong)).direction == "over"
    corrected = known(wrong)._replace(noise=noise, most_noise=noise)
    assert conditional_dispersion(sample, corrected).direction == "equi"


@pytest.mark.slow
def test_the_noise_of_a_glm_is_columns_over_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 19))
    y = rng.poisson(5.0, 500).astype(float)
    found = [out_of_fold_means(CountRows(X, y), "glm", seed, lambda words: None) for seed in range(5)]
    # Twenty coefficients, fitted to four fifths of the rows. One draw of counts has a chi-squared error of 32%.
    assert np.mean([means.noise for means in found]) == pytest.approx(20 / 400, rel=0.25)


# The largest count ---


def ceiling(y, mean):
    return ceiling_finding(tabulate(FittedFamily("double_poisson", 1.0, 0.0), CountRows(None, y.astype(float)), mean))


def test_the_expected_pile_is_that_of_a_truncated_poisson():
    mean = np.full(1000, 3.0)
    y = np.minimum(np.random.default_rng(0).poisson(mean), 4)
    found = ceiling(y, mean)
    expected = stats.poisson.pmf(4, 3) / stats.poisson.cdf(4, 3)
    assert found.effect == f"{100 * np.mean(y == 4):.1f}% at the maximum 4, {100 * expected:.1f}% expected"
    assert found.matters
    assert found.p_value < 1e-6


def test_without_a_limit_nothing_seems_piled_up():
    rng = np.random.default_rng(0)
    rejected = sum(ceiling(rng.poisson(2.0, 300), np.full(300, 2.0)).p_value < 0.05 for _ in range(100))
    assert stats.binom.sf(rejected - 1, 100, 0.05) > 5e-4
