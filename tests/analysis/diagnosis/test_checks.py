"""Test the checks of a diagnosis on simulated counts:

size, power and intervals, also where means and dispersion are estimated.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from ddpn.analysis.diagnosis.checks import check_ceiling, check_heaping, check_tail, check_zeros
from ddpn.analysis.diagnosis.dispersion import describe_dispersion, estimate_dispersion
from ddpn.analysis.diagnosis.finding import Finding
from ddpn.analysis.diagnosis.means import Means, predict_out_of_fold_means
from ddpn.analysis.diagnosis.smooth import FittedFamily, fit_families, moment_test, tabulate_probabilities
from ddpn.analysis.gains import mean_gain
from ddpn.rows.count_rows import CountRows


def select_likeliest(families):
    return max(families.values(), key=lambda family: family.loglik)


def test_the_table_has_the_probabilities_of_scipy():
    mean = np.linspace(0.5, 30.0, 50)
    table = tabulate_probabilities(FittedFamily("negative_binomial", 0.5, 0.0), CountRows(None, np.zeros(50)), mean)
    expected = stats.nbinom.pmf(table.counts[None], 2.0, 2.0 / (2.0 + mean[:, None]))
    np.testing.assert_allclose(table.pmf, expected, atol=1e-6)
    np.testing.assert_allclose(table.mean, mean, rtol=1e-3)


def test_zeros_of_negative_binomials_are_calibrated():
    excess = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        mean = np.exp(rng.normal(0.5, 0.5, 300))
        y = rng.poisson(mean * rng.gamma(2.0, 0.5, 300)).astype(float)
        family = select_likeliest(fit_families(CountRows(None, y), mean))
        table = tabulate_probabilities(family, CountRows(None, y), mean)
        excess.append(moment_test(table, (table.counts == 0).astype(float)[None]).p_more)
    assert stats.kstest(excess, "uniform").pvalue > 0.001


@pytest.mark.slow
def test_zeros_of_repeated_counts_are_calibrated_by_groups():
    p_values = {True: [], False: []}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        mean, person = np.repeat(np.exp(rng.normal(0.5, 0.5, 80)), 4), np.repeat(np.arange(80), 4)
        y = np.repeat(rng.poisson(mean[::4]), 4).astype(float)
        for grouped, group_p_values in p_values.items():
            sample = CountRows(None, y, group=person if grouped else None)
            table = tabulate_probabilities(FittedFamily("double_poisson", 1.0, 0.0), sample, mean)
            group_p_values.append(moment_test(table, (table.counts == 0).astype(float)[None]).p_value)
    assert stats.binom.sf(np.sum(np.array(p_values[True]) < 0.05) - 1, 40, 0.05) > 5e-4
    assert np.sum(np.array(p_values[False]) < 0.05) > 6


def test_a_wrong_mean_does_not_look_like_too_many_zeros():
    rng = np.random.default_rng(0)
    mean = np.exp(rng.normal(0.5, 0.3, 5000))
    y = rng.poisson(mean).astype(float)
    table = tabulate_probabilities(FittedFamily("double_poisson", 1.0, 0.0), CountRows(None, y), 1.1 * mean)
    zero = (table.counts == 0).astype(float)[None]
    assert moment_test(table, zero).p_value > 0.01
    expected = np.sum(np.exp(-1.1 * mean))
    assert stats.norm.sf((np.sum(y == 0) - expected) / np.sqrt(expected)) < 0.05


@pytest.mark.parametrize(("name", "parameter"), [("double_poisson", 2.0), ("negative_binomial", 0.5)])
def test_the_fitted_parameter_is_the_simulated_one(name, parameter):
    mean = np.exp(np.random.default_rng(0).normal(1.5, 0.4, 5000))
    y = FittedFamily(name, parameter, 0.0).distribution(mean).sample().numpy()
    families = fit_families(CountRows(None, y), mean)
    assert families[name].parameter == pytest.approx(parameter, rel=0.1)
    assert select_likeliest(families).name == name


# Dispersion ---

RUNS, ROWS = 100, 500


def describe_known_means(mean):
    return Means("glm", mean, 0.0, 0.0, 0.0)


def simulate_dispersion_tests(mean, draw, fit, runs=RUNS):
    dispersions = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(ROWS, 2))
        expected = mean * np.exp(0.4 * X[:, 0])
        y = draw(rng, expected).astype(float)
        sample = CountRows(X, y)
        means = (
            predict_out_of_fold_means(sample, "glm", 0, lambda words: None) if fit else describe_known_means(expected)
        )
        dispersions.append(estimate_dispersion(sample, means))
    return dispersions


@pytest.mark.parametrize(("mean", "fit"), [(0.3, False), pytest.param(3.0, True, marks=pytest.mark.slow)])
def test_poisson_counts_are_rejected_as_often_as_stated(mean, fit):
    rejected = sum(
        dispersion.p_value < 0.05
        for dispersion in simulate_dispersion_tests(mean, lambda rng, mu: rng.poisson(mu), fit)
    )
    # The number of rejections is binomial; 1 in 1,000 correct tests would fail here.
    assert stats.binom.sf(rejected - 1, RUNS, 0.05) > 5e-4


def test_over_and_under_dispersion_are_found_with_their_direction():
    # With 500 rows a dispersion of 0.6 or 1.6 is as clear as 0.8 or 1.3 with 2,000.
    over = simulate_dispersion_tests(3.0, lambda rng, mu: rng.poisson(rng.gamma(mu / 0.6, 0.6)), False, 30)
    under = simulate_dispersion_tests(
        3.0, lambda rng, mu: rng.binomial(np.maximum(1, np.rint(mu / 0.4)).astype(int), 0.4), False, 30
    )
    assert sum(dispersion.direction == "over" for dispersion in over) >= 28
    assert sum(dispersion.direction == "under" for dispersion in under) >= 28


def test_an_interval_without_1_means_that_the_test_rejects():
    for dispersion in simulate_dispersion_tests(0.3, lambda rng, mu: rng.poisson(mu), False, 40):
        assert dispersion.direction == "equi" or dispersion.p_value < 0.05


def test_repeated_counts_of_a_person_need_groups():
    rejected = {True: 0, False: 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        mean, person = np.repeat(np.exp(rng.normal(1.0, 0.4, 100)), 5), np.repeat(np.arange(100), 5)
        y = np.repeat(rng.poisson(mean[::5]), 5).astype(float)
        for grouped in rejected:
            sample = CountRows(None, y, group=person if grouped else None)
            rejected[grouped] += estimate_dispersion(sample, describe_known_means(mean)).p_value < 0.05
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
    assert estimate_dispersion(sample, describe_known_means(wrong)).direction == "over"
    corrected = describe_known_means(wrong)._replace(noise=noise, max_noise=noise)
    assert estimate_dispersion(sample, corrected).direction == "equi"


@pytest.mark.slow
def test_the_noise_of_a_glm_is_columns_over_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 19))
    y = rng.poisson(5.0, 500).astype(float)
    mean_models = [predict_out_of_fold_means(CountRows(X, y), "glm", seed, lambda words: None) for seed in range(5)]
    # Twenty coefficients, fitted to four fifths of the rows. One draw of counts has a chi-squared error of 32%.
    assert np.mean([means.noise for means in mean_models]) == pytest.approx(20 / 400, rel=0.25)


# The largest count ---


def check_ceiling_of_poisson(y, mean):
    return check_ceiling(
        tabulate_probabilities(FittedFamily("double_poisson", 1.0, 0.0), CountRows(None, y.astype(float)), mean)
    )


def test_the_expected_pile_is_that_of_a_truncated_poisson():
    mean = np.full(1000, 3.0)
    y = np.minimum(np.random.default_rng(0).poisson(mean), 4)
    finding = check_ceiling_of_poisson(y, mean)
    expected = stats.poisson.pmf(4, 3) / stats.poisson.cdf(4, 3)
    assert finding.effect == f"{100 * np.mean(y == 4):.1f}% at the maximum 4, {100 * expected:.1f}% expected"
    assert finding.matters
    assert finding.p_value < 1e-6


def test_without_a_limit_nothing_seems_piled_up():
    rng = np.random.default_rng(0)
    rejected = sum(
        check_ceiling_of_poisson(rng.poisson(2.0, 300), np.full(300, 2.0)).p_value < 0.05 for _ in range(100)
    )
    assert stats.binom.sf(rejected - 1, 100, 0.05) > 5e-4


# Every number by hand -------------------------------------------------------------------------------------------------


def simulate_weighted_counts(rows: int = 300, seed: int = 0, groups: bool = True) -> tuple[CountRows, np.ndarray]:
    """Simulate over-dispersed counts of known means below and above 1, with weights and groups."""
    rng = np.random.default_rng(seed)
    mean, group = rng.gamma(2.0, 1.0, rows) + 0.1, np.repeat(np.arange(rows // 3), 3)
    y = rng.poisson(mean * np.repeat(rng.gamma(0.7, 1 / 0.7, rows // 3), 3)).astype(float)
    return CountRows(None, y, rng.uniform(0.2, 2.0, rows), group=group if groups else None), mean


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize(("noise", "most"), [(0.0, 0.0), (0.05, 0.1)])
def test_dispersion_and_interval_follow_their_formulas(groups, noise, most):
    """Repeat the weighted mean of ((y - m)^2 - y) / m, its chi-squared-like null and its corrections."""
    sample, mean = simulate_weighted_counts(groups=groups)
    dispersion = estimate_dispersion(sample, describe_known_means(mean)._replace(noise=noise, max_noise=most))
    share = sample.weight * np.minimum(mean, 1.0)
    share = share / share.sum()
    terms = ((sample.y - mean) ** 2 - sample.y) / mean
    raw = share @ terms
    assert raw > noise
    assert dispersion.estimate == pytest.approx((1.0 + raw) / (1.0 + noise))
    effect = 1.0
    if groups:
        terms_of_rows = share * (terms - raw)
        effect = max(1.0, np.square(np.bincount(sample.group, terms_of_rows)).sum() / np.square(terms_of_rows).sum())
        assert effect > 1.0
    variance, third = effect * 2.0 * (share**2).sum(), effect**1.5 * (share**3 * (8.0 + 4.0 / mean)).sum()
    null = stats.pearson3(third / variance**1.5, scale=variance**0.5)
    assert dispersion.p_value == pytest.approx(2.0 * min(null.sf(raw - most), null.cdf(raw)))
    _, low, high = mean_gain(terms, share, group=sample.group)[:3]
    assert dispersion.low == pytest.approx((1.0 + min(low, raw - null.ppf(0.975))) / (1.0 + most))
    assert dispersion.high == pytest.approx(1.0 + high)
    excess = (sample.weight * ((sample.y - mean) ** 2 - sample.y)).sum() / (sample.weight * mean**2).sum()
    assert dispersion.spread == pytest.approx(np.sqrt(excess))


def test_counts_that_vary_less_than_poisson_ones_have_no_spread():
    rng = np.random.default_rng(0)
    mean = np.full(400, 6.0)
    sample = CountRows(None, rng.binomial(12, 0.5, 400).astype(float))
    dispersion = estimate_dispersion(sample, describe_known_means(mean)._replace(noise=0.05, max_noise=0.1))
    raw = np.mean(((sample.y - mean) ** 2 - sample.y) / mean)
    assert dispersion.estimate == pytest.approx(1.0 + raw), "noise never makes counts under-dispersed"
    null = stats.pearson3((8.0 + 4.0 / 6.0) / 400**2 / (2.0 / 400) ** 1.5, scale=(2.0 / 400) ** 0.5)
    high = mean_gain(((sample.y - mean) ** 2 - sample.y) / mean, np.full(400, 1 / 400))[2]
    assert dispersion.high == pytest.approx(1.0 + max(high, raw - null.ppf(0.025)))
    assert (dispersion.spread, dispersion.direction) == (0.0, "under")
    assert dispersion.p_value == pytest.approx(2.0 * null.cdf(raw))


@pytest.mark.parametrize(("draw", "direction"), [("gamma", "over"), ("binomial", "under"), ("poisson", "equi")])
def test_the_finding_about_the_dispersion_says_in_which_direction(draw, direction):
    rng = np.random.default_rng(2)
    mean = np.full(600, 5.0)
    y = {"gamma": rng.poisson(mean * rng.gamma(2.0, 0.5, 600)), "binomial": rng.binomial(10, 0.5, 600),
         "poisson": rng.poisson(mean)}[draw]  # fmt: skip
    dispersion = estimate_dispersion(CountRows(None, y.astype(float)), describe_known_means(mean))
    finding = describe_dispersion(dispersion, "glm")
    assert dispersion.direction == direction
    assert finding.matters == (direction != "equi")
    assert finding.label == ("" if direction == "equi" else f"{direction}-dispersed")
    assert f"variance / mean {dispersion.estimate:.2f}" in finding.effect
    assert direction == "equi" or f"{direction}-dispersed" in finding.sentence
    assert (f"±{dispersion.spread:.0%}" in finding.sentence) == (direction == "over")
    assert "a Poisson" in finding.clean


@pytest.mark.parametrize("name", ["double_poisson", "negative_binomial"])
@pytest.mark.parametrize("groups", [False, True])
def test_a_moment_is_tested_after_a_regression_on_the_count_and_the_score(name, groups):
    """Repeat the test by weighted least squares, with the probabilities of one mean as weights."""
    sample, _ = simulate_weighted_counts(groups=groups)
    mean, family = np.full(len(sample), 2.0), FittedFamily(name, 0.8, 0.0)
    table = tabulate_probabilities(family, sample, mean)
    feature = (table.counts % 3 == 1).astype(float)
    test = moment_test(table, feature[None])
    pmf = table.pmf[0] / table.pmf[0].sum()
    step = 1e-4
    dists = [family.distribution(np.array([2.0]), float(np.exp(sign * step))) for sign in (1, -1)]
    logs = [dist.log_prob(torch.from_numpy(table.counts)).numpy() for dist in dists]
    logs = [log - np.logaddexp.reduce(log) for log in logs]
    design = np.column_stack([np.ones_like(pmf), table.counts, (logs[0] - logs[1]) / (2 * step)])
    root = np.sqrt(pmf)[:, None]
    left = feature - design @ np.linalg.lstsq(root * design, root[:, 0] * feature, rcond=None)[0]
    share = sample.weight / sample.weight.sum()
    residuals = share * left[sample.y.astype(int)]
    excess, observed = residuals.sum(), share @ feature[sample.y.astype(int)]
    assert test.observed == pytest.approx(observed)
    assert test.expected == pytest.approx(observed - excess, rel=1e-4)
    effect = 1.0
    if groups:
        deviations = residuals - share * excess
        effect = max(1.0, np.square(np.bincount(sample.group, deviations)).sum() / np.square(deviations).sum())
    variance = effect * (share**2).sum() * (pmf @ left**2)
    third = effect**1.5 * (share**3).sum() * (pmf @ left**3)
    null = stats.pearson3(third / variance**1.5, scale=variance**0.5)
    assert test.p_more == pytest.approx(null.sf(excess), rel=1e-3)
    assert test.p_less == pytest.approx(null.cdf(excess), rel=1e-3)
    assert test.p_value == pytest.approx(min(1.0, 2.0 * min(test.p_more, test.p_less)))


def test_tables_of_many_means_have_the_probabilities_of_the_nearest():
    rng = np.random.default_rng(0)
    mean = rng.gamma(2.0, 3.0, 5000)
    table = tabulate_probabilities(
        FittedFamily("double_poisson", 1.0, 0.0), CountRows(None, rng.poisson(mean).astype(float)), mean
    )
    assert len(table.mean) <= 257
    np.testing.assert_allclose(np.log(table.mean[table.position]), np.log(mean), atol=0.12)
    np.testing.assert_allclose(table.pmf.sum(1), 1.0)
    assert (table.pmf[:, -1] < 1e-4).all()
    nearest = np.abs(table.mean[None] - mean[:, None]).argmin(1)
    assert np.mean(nearest == table.position) > 0.98
    assert len(table.counts) >= rng.poisson(mean).max()
    assert (
        tabulate_probabilities(FittedFamily("double_poisson", 1.0, 0.0), CountRows(None, np.array([20_001.0])), mean)
        is None
    )


def tabulate_constant_mean(y: np.ndarray, mean: float, name: str = "double_poisson", parameter: float = 1.0):
    return tabulate_probabilities(
        FittedFamily(name, parameter, 0.0), CountRows(None, y.astype(float)), np.full(len(y), mean)
    )


@pytest.mark.parametrize(
    ("mean", "inflated", "label"), [(4.0, 60, "zero-inflated"), (2.0, 0, ""), (2.0, -20, "too few zeros")]
)
def test_too_many_and_too_few_zeros_are_found(mean, inflated, label):
    rng = np.random.default_rng(0)
    y = rng.poisson(mean, 400)
    zeros = np.flatnonzero(y == 0)
    y[rng.choice(400, max(inflated, 0), replace=False)] = 0
    y[zeros[: max(-inflated, 0)]] = 1
    finding = check_zeros(tabulate_constant_mean(y, y.mean()))
    assert finding.effect.startswith(f"{100 * np.mean(y == 0):.1f}% observed")
    assert (finding.p_value < 0.01, finding.matters) == ((True, True) if label else (False, finding.matters))
    assert not label or finding.label == label
    assert "0, more" in finding.sentence or inflated <= 0


def test_counts_without_small_ones_are_said():
    y = 5 + np.random.default_rng(0).poisson(2.0, 300)
    finding = check_zeros(tabulate_constant_mean(y, 7.0))
    assert finding.label == "no small counts"
    assert finding.matters
    assert "below 5" in finding.sentence
    assert finding.effect.startswith("0% observed")


@pytest.mark.parametrize(("unit", "share"), [(5, 0.3), (10, 0.3), (10, 0.0)])
def test_rounded_counts_are_heaped_at_their_unit(unit, share):
    rng = np.random.default_rng(1)
    y = rng.poisson(30.0 * rng.gamma(4.0, 0.25, 800))
    y = np.where(rng.random(800) < share, unit * np.rint(y / unit), y).astype(int)
    size = np.square(y.mean()) / (y.var() - y.mean())
    finding = check_heaping(tabulate_constant_mean(y, y.mean(), "negative_binomial", 1.0 / size))
    assert (finding.p_value < 0.001) == bool(share)
    assert finding.matters == bool(share)
    if share:
        observed = np.mean((y > 0) & (y % unit == 0))
        assert finding.effect.startswith(f"{100 * observed:.1f}% multiples of {unit}, ")
        expected = float(finding.effect.split(", ")[1].split("%")[0])
        assert expected == pytest.approx(100 / unit, abs=3.0)


def test_heaping_is_not_looked_for_in_small_counts():
    y = np.r_[np.zeros(50), np.full(50, 5), np.full(50, 11)]
    assert check_heaping(tabulate_constant_mean(y, 5.0)).effect == "not tested"
    assert check_heaping(tabulate_constant_mean(np.r_[y, 12], 5.0)).effect != "not tested"


@pytest.mark.parametrize(("extreme", "is_said"), [(0, False), (2, False), (6, True)])
def test_a_heavy_tail_has_more_extreme_counts_than_its_distribution(extreme, is_said):
    y = np.random.default_rng(0).poisson(4.0, 1000)
    y[:extreme] = 25
    finding = check_tail(tabulate_constant_mean(y, 4.0))
    level = 5.0 / 1000
    quantile = stats.poisson.isf(level, 4.0)
    above = np.array([stats.poisson.sf(count - 1, 4.0) for count in y])
    assert quantile > 8
    assert finding.effect.startswith(f"{100 * np.mean(above <= level):.2f}% extreme")
    assert (finding.p_value < 0.01 and finding.matters) == is_said
    if is_said:
        third = np.sort(above)[2]
        assert f"third most extreme count has a probability of {third:.1g}" in finding.sentence
        assert f"of the counts ({(above <= level).sum()})" in finding.sentence


def test_the_p_value_of_an_upper_limit_is_its_probability():
    """No count is above 6, where 11% of Poisson counts would be, and few more rows than expected are at the limit."""
    y = np.random.default_rng(0).poisson(4.0, 2000)
    y = y[y <= 6]
    finding = check_ceiling(tabulate_constant_mean(y, 4.0))
    beyond = len(y) * stats.poisson.sf(6, 4.0)
    expected = len(y) * stats.poisson.pmf(6, 4.0) / stats.poisson.cdf(6, 4.0)
    pile = stats.binom(len(y), expected / len(y))
    p_pile = pile.sf((y == 6).sum() - 1) / pile.sf(0)
    assert finding.p_value == pytest.approx(2.0 * min(p_pile, np.exp(-beyond)), abs=1e-12)
    assert finding.effect == f"none above 6, {100 * beyond / len(y):.1f}% expected"
    assert (finding.label, finding.matters) == ("upper limit", True)
    few = tabulate_constant_mean(np.r_[np.zeros(300), np.full(4, 1)], 0.01)
    assert not check_ceiling(few).matters


@pytest.mark.parametrize("name", ["double_poisson", "negative_binomial"])
def test_families_are_fitted_by_maximum_likelihood_with_weights(name):
    sample, mean = simulate_weighted_counts()
    family = fit_families(sample, mean)[name]
    share = sample.weight / sample.weight.sum()

    def loglik(parameter: float) -> float:
        dist = FittedFamily(name, parameter, 0.0).distribution(mean)
        return float(share @ dist.log_prob(torch.from_numpy(sample.y)).numpy())

    assert family.loglik == pytest.approx(loglik(family.parameter))
    assert all(loglik(factor * family.parameter) < family.loglik for factor in (0.98, 1.02))
    if name == "negative_binomial":
        size = 1.0 / family.parameter
        expected = share @ stats.nbinom.logpmf(sample.y, size, size / (size + mean))
        assert family.loglik == pytest.approx(expected, rel=1e-5)


def test_a_finding_that_is_small_or_explained_has_another_outcome():
    finding = Finding("zeros", "zero-inflated", "", 0.01, True, "found", "clean", adjusted=0.02)
    assert (finding.found, finding.outcome, finding.words) == (True, "zero-inflated", "found")
    for change, outcome in (
        ({"matters": False}, "negligible"),
        ({"matters": False, "is_explained": True}, "see the others"),
        ({"adjusted": 0.05}, "no finding"),
        ({"adjusted": 0.3, "is_explained": True}, "no finding"),
    ):
        other = replace(finding, **change)
        assert (other.found, other.outcome, other.words) == (False, outcome, "clean")
    assert finding.to_dict()["adjusted_p_value"] == 0.02
