"""Test statistics of weighted rows against scipy, statsmodels and repeated rows."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import mean_poisson_deviance
from statsmodels.stats.multitest import multipletests

from ddpn.statistics import (
    adjust_p_values,
    bonferroni_z,
    effective_rows,
    explained_deviance,
    mean_and_error,
    poisson_deviance,
    weighted_mean,
    weighted_quantile,
    wilson_interval,
)

RNG = np.random.default_rng(0)


def test_a_mean_with_weights_is_that_of_numpy():
    values, weight = RNG.normal(size=30), RNG.uniform(0.0, 3.0, 30)
    assert weighted_mean(values, weight) == pytest.approx(np.average(values, weights=weight))
    mean, error = mean_and_error(values, np.ones(30))
    assert (mean, error) == pytest.approx((values.mean(), stats.sem(values)))
    # As if there were (sum w)^2 / sum w^2 rows.
    mean, error = mean_and_error(values, weight)
    variance = np.average(np.square(values - mean), weights=weight)
    rows = weight.sum() ** 2 / np.square(weight).sum()
    assert effective_rows(weight) == pytest.approx(rows)
    assert error == pytest.approx(np.sqrt(variance / (rows - 1.0)))
    together = mean_and_error(np.stack([values, 2.0 * values + 1.0]), weight)
    assert together[1] == pytest.approx([error, 2.0 * error])
    assert together[0] == pytest.approx([mean, 2.0 * mean + 1.0])
    assert mean_and_error(np.array([3.0]), np.ones(1)) == (3.0, 0.0)


@pytest.mark.parametrize("comparisons", [1, 3, 100])
def test_intervals_of_several_comparisons_are_those_of_bonferroni(comparisons):
    assert bonferroni_z(comparisons) == pytest.approx(stats.norm.ppf(1.0 - 0.025 / comparisons))


def test_wilsons_interval_of_any_level_stays_within_shares():
    for z in (1.0, 2.5):
        level = 1.0 - 2.0 * stats.norm.sf(z)
        expected = stats.binomtest(7, 20).proportion_ci(level, method="wilson")
        assert wilson_interval(7 / 20, 20, z) == pytest.approx(tuple(expected))
    assert wilson_interval(0.0, 5.5)[0] == pytest.approx(0.0, abs=1e-12)
    assert wilson_interval(1.0, 5.5)[1] == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(4))
def test_adjusted_p_values_are_those_of_statsmodels(seed):
    p_values = np.random.default_rng(seed).uniform(size=7) ** 3
    assert adjust_p_values(p_values.tolist()) == pytest.approx(multipletests(p_values, method="holm")[1])
    assert adjust_p_values([0.4, 0.9, 0.8]) == [1.0, 1.0, 1.0]


def test_the_poisson_deviance_is_that_of_scikit_learn():
    y, mean = RNG.poisson(1.5, 50).astype(float), RNG.gamma(2.0, size=50)
    deviances = poisson_deviance(y, mean)
    assert deviances.mean() == pytest.approx(mean_poisson_deviance(y, mean))
    assert deviances[0] == pytest.approx(mean_poisson_deviance(y[:1], mean[:1]))
    assert (y == 0).any()
    assert poisson_deviance(np.array([0.0, 2.0]), np.array([3.0, 2.0])) == pytest.approx([6.0, 0.0])


@pytest.mark.parametrize("rows", [1, 10, 30])
def test_quantiles_of_tenths_are_those_of_whole_rows(rows):
    values = np.arange(float(rows))
    for q in (0.1, 0.3, 0.5, 1.0):
        expected = np.quantile(values, q, method="inverted_cdf")
        assert weighted_quantile(values, np.full(rows, 0.1), q) == expected


def test_equal_counts_are_explained_by_their_mean_alone():
    ones, y = np.ones(4), np.full(4, 2.0)
    assert explained_deviance(y, y, ones, ones) == 1.0
    assert explained_deviance(y, 1.01 * y, ones, ones) == 0.0
    assert explained_deviance(0.0 * y, 0.0 * y, ones, ones) == 1.0
