"""Test mean differences with intervals: against scipy without weights and skewness, and by their coverage elsewhere."""

import numpy as np
import pytest
from scipy import stats

from ddpn.analysis.gains import Gain, compare_scores, count_independent_rows, mean_gain
from ddpn.statistics import effective_rows, mean_and_error, weighted_quantile, wilson_interval

RNG = np.random.default_rng(0)


def test_symmetric_differences_have_the_interval_of_students_t():
    half = RNG.normal(size=40)
    values = np.concatenate([0.3 + half, 0.3 - half])
    gain = mean_gain(values, np.ones(80))
    low, high = stats.t.interval(0.95, 79, values.mean(), stats.sem(values))
    assert (gain.mean, gain.error) == pytest.approx((values.mean(), stats.sem(values)))
    assert (gain.low, gain.high) == pytest.approx((low, high))


def test_only_the_upper_end_is_wider_for_the_best_of_several_candidates():
    values = RNG.normal(size=200)
    one, four = mean_gain(values, np.ones(200)), mean_gain(values, np.ones(200), candidates=4)
    assert four.low == one.low
    assert four.high > one.high


def test_gains_in_scores_are_those_of_the_logarithm_of_their_ratio():
    """Repeat the delta method with matrices: the gradient of log(b / a) at the means."""
    model, rival = RNG.gamma(9.0, size=400), 1.1 * RNG.gamma(9.0, size=400)
    gain = compare_scores(model, rival, np.ones(400))
    assert (gain.mean, gain.error) == pytest.approx((rival.mean() - model.mean(), stats.sem(rival - model)))
    gradient = np.array([-1.0 / model.mean(), 1.0 / rival.mean()])
    error = np.sqrt(gradient @ np.cov(model, rival) @ gradient / 400)
    log = np.log(rival.mean() / model.mean())
    ends = rival.mean() * (1.0 - np.exp(-np.array(stats.t.interval(0.95, 399, log, error))))
    assert (gain.low, gain.high) == pytest.approx(tuple(ends), abs=0.1 * (ends[1] - ends[0]))  # up to skewness


def test_out_of_fold_scores_have_intervals_that_are_wider_by_the_factor_of_nadeau_and_bengio():
    model, rival = RNG.gamma(2.0, size=300), RNG.gamma(2.0, size=300)
    plain, folds = (compare_scores(model, rival, np.ones(300), folds=number) for number in (0, 5))
    logs = [np.log1p(-np.array([gain.low, gain.mean, gain.high]) / rival.mean()) for gain in (plain, folds)]
    reach = [ends[[0, 2]] - ends[1] for ends in logs]
    assert reach[1] / reach[0] == pytest.approx([1.5, 1.5])
    assert (folds.mean, folds.error) == pytest.approx((plain.mean, 1.5 * plain.error))


def test_scores_of_zero_have_finite_gains():
    zeros, ones = np.zeros(60), np.ones(60)
    assert compare_scores(zeros, zeros, ones)[:3] == (0.0, 0.0, 0.0)
    assert compare_scores(zeros, ones, ones)[:3] == pytest.approx((1.0, 1.0, 1.0))
    assert compare_scores(ones, zeros, ones)[:3] == pytest.approx((-1.0, -1.0, -1.0))


def test_skewed_differences_are_covered():
    """On lognormal differences the t interval of 50 rows misses the mean too often, and ours does not."""
    below = above = t_misses = 0
    for seed in range(400):
        values = np.exp(np.random.default_rng(seed).normal(size=50)) - np.exp(0.5)
        gain = mean_gain(values, np.ones(50))
        below, above = below + (gain.high < 0), above + (gain.low > 0)
        t_misses += gain.mean + stats.t.ppf(0.975, 49) * gain.error < 0
    assert t_misses > 0.07 * 400
    assert below + above < 0.06 * 400


def test_integer_weights_are_repeated_rows_and_zeros_are_none():
    values, weight = RNG.gamma(2.0, size=60), RNG.integers(0, 2, 60).astype(float)
    weighted, kept = mean_gain(values, weight), mean_gain(values[weight > 0], np.ones(int(weight.sum())))
    assert (weighted.mean, weighted.low, weighted.high) == pytest.approx((kept.mean, kept.low, kept.high))
    assert mean_gain(values, 7 * weight).low == pytest.approx(weighted.low)
    assert effective_rows(np.array([1.0, 1.0, 0.0, 2.0])) == pytest.approx(16 / 6)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_errors_of_values_of_any_size_are_finite(scale):
    values = scale * np.array([1.0, 2.0, 4.0, 9.0])
    assert mean_and_error(values, np.ones(4)) == pytest.approx((values.mean(), scale * stats.sem([1, 2, 4, 9])))


def test_equal_differences_leave_no_doubt():
    assert mean_gain(np.full(60, 0.25), np.ones(60))[:4] == (0.25, 0.25, 0.25, 0.0)


def test_a_gain_that_depends_on_few_rows_says_so():
    values = np.r_[RNG.normal(0, 0.01, 397), [40.0, 50.0, 60.0]]
    gain = mean_gain(values, np.ones(400))
    assert gain.few == 4
    assert gain.without_few == pytest.approx(0.0, abs=0.01)
    assert gain.depends_on_few
    assert (-gain).depends_on_few
    assert not mean_gain(RNG.normal(1.0, 1.0, 400), np.ones(400)).depends_on_few


def test_few_rows_that_point_in_the_direction_of_the_rest_leave_its_sign_certain():
    values = np.r_[RNG.normal(0.5, 1.0, 397), [1e6, 2e6, 9e6]]
    gain = mean_gain(values, np.ones(400))
    assert 0 < gain.low < 0.5
    assert gain.mean + 1.96 * gain.error > 2 * gain.mean, "the usual interval is uncertain"
    assert mean_gain(-values, np.ones(400)).high == pytest.approx(-gain.low)
    values[-1] *= -1
    assert not mean_gain(values, np.ones(400)).is_clear


def test_the_gain_of_the_other_candidate_has_the_opposite_sign():
    opposite = -Gain(1.0, -0.5, 2.5, 0.7, few=3, without_few=0.8)
    assert opposite == Gain(-1.0, -2.5, 0.5, 0.7, few=3, without_few=-0.8)
    assert not opposite.is_clear


@pytest.mark.parametrize(("covered", "rows"), [(0, 10), (9, 10), (45, 50), (100, 100), (8123, 9000)])
def test_wilson_is_that_of_scipy(covered, rows):
    expected = stats.binomtest(covered, rows).proportion_ci(method="wilson")
    assert wilson_interval(covered / rows, rows) == pytest.approx(tuple(expected), abs=1e-12)


def test_intervals_of_groups_hold_where_rows_are_alike():
    """Simulate differences shared by the 10 rows of a group: 95% intervals hold for groups, and far less for rows."""
    rng, group, weight = np.random.default_rng(0), np.repeat(np.arange(40), 10), np.ones(400)
    held = {"rows": 0, "groups": 0}
    for _ in range(400):
        values = np.repeat(rng.normal(size=40), 10) + 0.3 * rng.normal(size=400)
        for name, labels in (("rows", None), ("groups", group)):
            gain = mean_gain(values, weight, group=labels)
            held[name] += gain.low <= 0 <= gain.high
    assert held["groups"] >= 0.92 * 400
    assert held["rows"] <= 0.6 * 400


def test_rows_count_as_independent_unless_groups_are_alike():
    rng = np.random.default_rng(0)
    weight, group = np.ones(1000), np.repeat(np.arange(100), 10)
    alike, apart = np.repeat(rng.random(100) < 0.9, 10), rng.random(1000) < 0.9
    assert count_independent_rows(alike, weight, None) == 1000
    assert 60 <= count_independent_rows(alike, weight, group) <= 140
    assert count_independent_rows(apart, weight, group) >= 600
    assert count_independent_rows(apart, weight, np.arange(1000) // 500) == 2


@pytest.mark.parametrize("q", [0.05, 0.5, 0.9])
def test_a_quantile_with_weights_is_that_of_repeated_values(q):
    values, weight = RNG.integers(0, 30, 50).astype(float), RNG.integers(1, 4, 50)
    expected = np.quantile(np.repeat(values, weight), q, method="inverted_cdf")
    assert weighted_quantile(values, weight.astype(float), q) == expected
    assert weighted_quantile(values, 0.1 * weight, q) == expected


def test_a_group_of_weight_zero_equals_a_group_that_is_not_there():
    values, group = np.random.default_rng(0).normal(size=60), np.repeat(np.arange(12), 5)
    weight, is_kept = np.where(group == 3, 0.0, 1.0), group != 3
    whole, some = (
        mean_gain(values, weight, group=group),
        mean_gain(values[is_kept], weight[is_kept], group=group[is_kept]),
    )
    assert (whole.mean, whole.error, whole.low, whole.high) == pytest.approx(
        (some.mean, some.error, some.low, some.high)
    )


def test_intervals_of_skewed_values_are_those_of_halls_transformation():
    """Ends at which Hall's function of the mean, w + g w^2 / 3 + g^2 w^3 / 27 + g / 6n, is a quantile of Student's t.

    With g the skewness and w the distance from the mean in standard deviations (Hall, 1992, J. R. Stat. Soc. B 54).
    """
    n = 400
    values = np.random.default_rng(0).exponential(size=n)
    deviation = values.std(ddof=1)
    g = ((values - values.mean()) ** 3).mean() / deviation**3
    shown = mean_gain(values, np.ones(n))
    w = (values.mean() - shown.low) / deviation, (values.mean() - shown.high) / deviation
    quantile = stats.t.ppf(0.975, n - 1) / n**0.5
    transformed = [x + g * x**2 / 3 + g**2 * x**3 / 27 + g / (6 * n) for x in w]
    assert w[0] == pytest.approx(quantile), "towards the short tail the t interval is the wider one"
    assert transformed[1] == pytest.approx(-quantile)
