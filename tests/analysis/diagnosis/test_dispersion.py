"""The test of dispersion: moments, size, power, and its interval."""

import numpy as np
import pytest
from scipy import stats

from ddpn.analysis.diagnosis.dispersion import conditional_dispersion
from ddpn.analysis.diagnosis.means import Means, out_of_fold_means
from ddpn.analysis.diagnosis.reference import Reference
from ddpn.sample import Sample

RUNS, ROWS = 100, 500


def known(mean):
    return Means("glm", mean, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("mean", [0.05, 0.7, 4.0, 60.0])
def test_moments_of_a_term(mean):
    y = np.arange(400.0)
    pmf = stats.poisson.pmf(y, mean)
    term = ((y - mean) ** 2 - y) / mean
    np.testing.assert_allclose([pmf @ term, pmf @ term**2, pmf @ term**3], [0, 2, 8 + 4 / mean], atol=1e-8)


def p_values(mean, draw, fit, runs=RUNS):
    found = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(ROWS, 2))
        expected = mean * np.exp(0.4 * X[:, 0])
        y = draw(rng, expected).astype(float)
        reference = Reference.of(Sample(X, y))
        means = out_of_fold_means(reference, "glm", 0, lambda words: None) if fit else known(expected)
        found.append(conditional_dispersion(reference, means))
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
            reference = Reference.of(Sample(None, y, group=person if grouped else None))
            rejected[grouped] += conditional_dispersion(reference, known(mean)).p_value < 0.05
    assert stats.binom.sf(rejected[True] - 1, 60, 0.05) > 5e-4
    # Five times the variance: a normal is beyond 1.96 / sqrt(5) in 38% of the runs.
    assert rejected[False] > 12


def test_noise_of_the_mean_is_subtracted():
    rng = np.random.default_rng(0)
    mean = np.full(20_000, 4.0)
    y = rng.poisson(mean).astype(float)
    wrong = mean * np.exp(rng.normal(0, 0.2, len(mean)))
    noise = float(np.mean((wrong - mean) ** 2 / wrong))
    reference = Reference.of(Sample(None, y))
    assert conditional_dispersion(reference, known(wrong)).direction == "over"
    corrected = known(wrong)._replace(noise=noise, most_noise=noise)
    assert conditional_dispersion(reference, corrected).direction == "equi"


def test_the_noise_of_a_glm_is_columns_over_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 19))
    y = rng.poisson(5.0, 500).astype(float)
    found = [out_of_fold_means(Reference.of(Sample(X, y)), "glm", seed, lambda words: None) for seed in range(10)]
    # Twenty coefficients, fitted to four fifths of the rows. One draw of counts has a chi-squared error of 32%.
    assert np.mean([means.noise for means in found]) == pytest.approx(20 / 400, rel=0.25)
