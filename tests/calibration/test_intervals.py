"""Test that intervals have their stated probability, and that calibrated ones cover as asked, also by group."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import stats
from torch.distributions import Normal

from ddpn import ConfigError, CountGLM, InputError, Poisson
from ddpn.calibration.intervals import (
    IntervalGroups,
    IntervalLevels,
    compute_probability_between,
    make_interval,
    score_blocks,
    score_counts,
)


def make_poisson(mu) -> Poisson:
    return Poisson(torch.as_tensor(mu, dtype=torch.float64))


def compute_scores(dist, y, seed=0) -> np.ndarray:
    counts = torch.as_tensor(y)
    return score_counts(dist, counts, np.random.default_rng(seed).random(len(counts)))


# The score of a count --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.05, 0.7, 3.0, 40.0, 1e5])
def test_a_count_is_inside_above_the_levels_at_which_it_enters_and_outside_below(mu):
    y = torch.from_numpy(np.unique(stats.poisson.ppf([1e-4, 0.02, 0.3, 0.5, 0.7, 0.99, 1 - 1e-6], mu)))
    outside, inside = make_poisson(np.full(len(y), mu)).entry_levels(y)
    # Of the many counts of the last, levels are known to a thousandth.
    slack = 1e-3 if mu > 1e4 else 1e-9
    for count, before, after in zip(y.tolist(), outside.tolist(), inside.tolist(), strict=True):
        low, high, _ = make_poisson(mu).narrowest_interval(min(after + slack, 1 - 1e-9))
        assert low <= count <= high
        if before > slack:
            low, high, _ = make_poisson(mu).narrowest_interval(before - slack)
            assert not low <= count <= high


def test_counts_enter_in_the_order_of_their_probabilities():
    pmf = stats.poisson.pmf(np.arange(40), 3.3)
    order = np.argsort(-pmf)
    inside = np.empty(40)
    inside[order] = np.cumsum(pmf[order])
    before, after = (x.numpy() for x in make_poisson(np.full(40, 3.3)).entry_levels(torch.arange(40.0)))
    assert after == pytest.approx(inside, abs=1e-12)
    assert after - before == pytest.approx(pmf, abs=1e-12)


@pytest.mark.parametrize("mu", [0.02, 0.4, 3.0, 50.0, 1e6])
def test_scores_of_a_right_distribution_are_uniform_whatever_its_counts(mu):
    rng = np.random.default_rng(1)
    y = rng.poisson(mu, 4000).astype(float)
    assert stats.kstest(compute_scores(make_poisson(np.full(4000, mu)), y), "uniform").pvalue > 1e-3


def test_a_normal_counts_as_the_integers_it_rounds_to():
    dist = Normal(torch.full((5,), 3.0).double(), torch.tensor(1.0).double())
    score = compute_scores(dist, torch.tensor([3, 3, 5, 5, 20]))
    middle, upto_five = (stats.norm.cdf(half) - stats.norm.cdf(-half) for half in (0.5, 2.5))
    assert (score[:2] <= middle).all()
    assert (stats.norm.cdf(1.5) - stats.norm.cdf(-1.5) - 1e-6 <= score[2:4]).all()
    assert (score[2:4] <= upto_five + 1e-6).all()
    assert score[4] > 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("mu", "y"), [(300.0, 900), (4000.0, 1000), (3.0, 60)])
def test_impossible_counts_enter_intervals_that_are_widened(mu, y, dtype):
    dist = Poisson(torch.tensor([mu, mu], dtype=dtype))
    score = compute_scores(dist, [y, int(mu)])
    assert score[0] > 1.0 > score[1]
    low, high, probability = make_interval(dist, float(score[0]) + 1e-9)
    inner = dist.narrowest_interval(1.0 - 1e-9)
    assert (low[0] == y) if y < mu else (high[0] == y)
    assert probability[0] == pytest.approx(1.0)
    gap = max(inner.low[0] - y, y - inner.high[0])
    assert score[0] == pytest.approx(float(1.0 + gap / (inner.high[0] - inner.low[0] + 1.0)))
    low, high, _ = make_interval(dist, score - 1e-9)
    assert not low[0] <= y <= high[0]
    assert high[1] - low[1] < inner.high[1] - inner.low[1]


def test_far_too_narrow_distributions_are_calibrated_too():
    """A Poisson says that half of these counts are impossible, so their scores are beyond the highest level."""
    rng = np.random.default_rng(7)
    mu = rng.uniform(100.0, 400.0, 2000)
    y = rng.negative_binomial(2.0, 2.0 / (2.0 + mu)).astype(float)
    level = IntervalLevels.from_scores(score_blocks([(slice(None), make_poisson(mu[:1000]))], y[:1000])).at(0.9)
    low, high = (end.numpy() for end in make_interval(make_poisson(mu[1000:]), level)[:2])
    assert level > 1.0
    assert ((low <= y[1000:]) & (y[1000:] <= high)).mean() == pytest.approx(0.9, abs=4 * np.sqrt(0.09 * 2 / 1000))


# Intervals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["narrowest", "central"])
@pytest.mark.parametrize("level", [0.3, 0.8, 0.99, 0.9999])
def test_intervals_have_the_probability_that_they_state_and_at_least_the_level(kind, level):
    mu = np.geomspace(1e-3, 1e6, 60)
    low, high, probability = (part.numpy() for part in make_interval(make_poisson(mu), level, kind))
    exact = stats.poisson.cdf(high, mu) - stats.poisson.cdf(low - 1, mu)
    assert probability == pytest.approx(exact, abs=1e-9)
    assert (exact >= level - 1e-9).all()
    if kind == "central":
        assert (stats.poisson.sf(high, mu) <= 0.5 * (1.0 - level) + 1e-9).all()


@pytest.mark.parametrize("level", [0.3, 0.8, 0.99])
def test_no_interval_with_fewer_counts_has_the_level(level):
    mu = np.geomspace(0.01, 300.0, 40)
    low, high, _ = (part.numpy() for part in make_poisson(mu).narrowest_interval(level))
    for rate, width in zip(mu, (high - low).astype(int), strict=True):
        cdf = np.r_[0.0, stats.poisson.cdf(np.arange(600), rate)]
        assert width == 0 or (cdf[width:] - cdf[:-width]).max() < level


@pytest.mark.parametrize("kind", ["narrowest", "central"])
def test_levels_may_differ_by_row(kind):
    mu, levels = np.array([3.0, 3.0, 800.0]), np.array([0.5, 0.95, 1.5])
    every = make_interval(make_poisson(mu), levels, kind)
    for row, (rate, level) in enumerate(zip(mu, levels, strict=True)):
        alone = make_interval(make_poisson([rate]), float(level), kind)
        assert [part[row].item() for part in every] == [part.item() for part in alone]


def test_probabilities_between_counts_are_exact_in_both_tails():
    mu, low, high = np.array([3.0, 50.0, 50.0]), np.array([0.0, 0.0, 120.0]), np.array([2.0, 10.0, 130.0])
    exact = [stats.poisson.pmf(np.arange(a, b + 1), m).sum() for m, a, b in zip(mu, low, high, strict=True)]
    actual = compute_probability_between(make_poisson(mu), torch.from_numpy(low), torch.from_numpy(high))
    assert actual.numpy() == pytest.approx(exact, rel=1e-9)


# Coverage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0.5, 2.0], ids=["too low", "too high"])
def test_new_rows_are_inside_as_often_as_asked_whatever_the_distribution(wrong):
    rng = np.random.default_rng(4)
    mu = rng.gamma(2.0, 1.0, (120, 160))
    y = rng.poisson(mu)
    covered = []
    for rates, counts in zip(wrong * mu, y, strict=True):
        level = IntervalLevels.from_scores(compute_scores(make_poisson(rates[:80]), counts[:80])).at(0.8)
        low, high, _ = (part.numpy() for part in make_interval(make_poisson(rates[80:]), level))
        covered.append(((low <= counts[80:]) & (counts[80:] <= high)).mean())
    # Means of 120 draws of a share of about 0.8 among 80 rows with 80 for calibration: four deviations.
    assert np.mean(covered) > 0.8 - 4 * np.sqrt(0.16 / 80 * 2 / 120)


def test_right_distributions_keep_the_level_and_wide_ones_do_too():
    rng = np.random.default_rng(6)
    uniform = rng.random(20_000)
    for coverage in (0.5, 0.8, 0.9, 0.99):
        assert IntervalLevels.from_scores(uniform).at(coverage) == pytest.approx(coverage, abs=0.01)
        assert IntervalLevels.from_scores(uniform**4).at(coverage) == coverage


def test_prior_rows_reduce_the_spread_of_levels_from_few_rows():
    rng = np.random.default_rng(8)
    result = {
        prior: [IntervalLevels.from_scores(rng.random(40), prior_rows=prior).at(0.9) for _ in range(150)]
        for prior in (0.0, 100.0)
    }
    assert np.std(result[100.0]) < 0.5 * np.std(result[0.0])


def test_the_level_is_the_smallest_that_holds_enough_rows():
    scores = (np.random.default_rng(2).permutation(99) / 99) ** 0.25
    level = IntervalLevels.from_scores(scores).at(0.9)
    assert (scores <= level).sum() == 90  # 0.9 times 99 + 1


def test_a_weight_is_a_repeated_row():
    rng = np.random.default_rng(3)
    scores, weight = rng.random(400) ** 0.25, rng.integers(1, 4, 400).astype(float)
    once = IntervalLevels.from_scores(scores, weight).at(0.8)
    often = IntervalLevels.from_scores(np.repeat(scores, weight.astype(int))).at(0.8)
    # They differ by what the one new row counts among 400 and among 800.
    assert once == pytest.approx(often, abs=0.01)
    assert IntervalLevels.from_scores(scores, 7.0 * weight).at(0.8) == once


@pytest.mark.parametrize("seed", range(20))
def test_the_weight_of_a_new_row_is_what_one_has_on_average(seed):
    """With such weights a new row counts as about 10 of the 400, which moves some levels."""
    rng = np.random.default_rng(seed)
    scores, weight = rng.random(400) ** 0.25, rng.gamma(0.1, 1.0, 400)
    order, coverages = np.argsort(scores), np.arange(0.5, 0.96, 0.05)
    upto = np.cumsum(weight[order]) / weight.sum()

    def levels(of_new: float) -> list[float]:
        positions = np.searchsorted(upto, coverages * (1.0 + of_new) - 1e-10)
        return np.append(scores[order], scores.max())[positions].tolist()

    expected = levels(np.square(weight).sum() / weight.sum() ** 2)
    assert expected != levels(1 / 400), "the data do not show how much a new row counts"
    fitted = IntervalLevels.from_scores(scores, weight)
    assert [fitted.at(float(coverage)) for coverage in coverages] == expected


def test_density_ratios_as_weights_cover_rows_of_another_distribution_of_features():
    """Counts are noisier where x is large, and new rows have x from 0.6 on."""
    rng = np.random.default_rng(2)

    def draw(low, n):
        x = rng.uniform(low, 1.0, n)
        size = np.exp(4.0 - 3.0 * x)
        return x, rng.negative_binomial(size, size / (size + 40.0)).astype(float)

    (x, y), (_, y_new) = draw(0.0, 3000), draw(0.6, 3000)
    dist = make_poisson(np.full(3000, 40.0))
    scores = compute_scores(dist, y)

    def measure_weighted_coverage(weight):
        low, high, _ = (
            part.numpy() for part in make_interval(dist, IntervalLevels.from_scores(scores, weight).at(0.9))
        )
        return ((low <= y_new) & (y_new <= high)).mean()

    assert measure_weighted_coverage(None) < 0.87
    assert measure_weighted_coverage(1.0 * (x > 0.6)) == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize(("scores", "level"), [([], 0.9), ([0.1] * 8, 0.9), ([0.97, 0.1], 0.97), ([1.0] * 20, 1.0)])
def test_with_too_few_rows_the_asked_level_stays_or_a_higher_one(scores, level):
    result = IntervalLevels.from_scores(np.array(scores, dtype=float)).at(0.9)
    assert result == pytest.approx(level, abs=2e-9)
    assert 0.0 < result < 1.0


@pytest.mark.parametrize("prior", [0.0, 30.0])
def test_blocks_and_rows_of_weight_zero_change_nothing(prior):
    rng = np.random.default_rng(5)
    mu, weight = rng.gamma(2.0, 1.0, 500), rng.integers(0, 3, 500).astype(float)
    y = rng.poisson(mu).astype(float)
    first, later = slice(0, 130), slice(130, 500)
    blocks = [(slice(None), make_poisson(mu))], [(later, make_poisson(mu[later])), (first, make_poisson(mu[first]))]
    whole, parts = (IntervalLevels.from_scores(score_blocks(division, y), weight, prior) for division in blocks)
    for one, other in zip(whole, parts, strict=True):
        assert one == pytest.approx(other, rel=1e-12)
    assert whole.rows.tolist() == [(weight > 0).sum()]
    assert whole.weight.sum() == pytest.approx((weight > 0).sum() + prior)


# In an estimator -------------------------------------------------------------------------------------------------


def test_exposure_and_weights_are_used(quick, counts, exposures):
    X, y = counts
    model = quick().fit(X, y, exposure=exposures)
    weight = np.where(np.arange(90) < 40, 2.0, 0.0)
    levels = model.fit_intervals(X, y, weight, exposures).predictor_.calibration.intervals["mixture"]
    before, after = model.predict_distribution(X, exposures).distribution.entry_levels(torch.from_numpy(y))
    assert len(levels.scores) == 40
    assert levels.scores.sum() == pytest.approx(0.5 * (before + after)[:40].sum().item(), abs=4.0)
    assert before[:40].min() <= levels.scores[0]
    assert levels.scores[-1] <= after[:40].max()
    assert (levels.weight == 1.0).all()


def test_before_calibration_the_level_is_the_asked_coverage(small_ensemble, counts):
    assert small_ensemble.predictor_.calibration.interval_level(0.8) == 0.8
    assert not small_ensemble.predictor_.calibration.intervals
    with pytest.raises(ConfigError, match="kind must be 'narrowest' or 'central', got 'calibrated'"):
        small_ensemble.predict_interval(counts[0], kind="calibrated")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"y": np.full(90, 0.5)}, InputError, "y must hold non-negative integers"),
        ({"prior_rows": -1.0}, ConfigError, "prior_rows must be a finite number of at least 0, got -1"),
        ({"prior_rows": float("nan")}, ConfigError, "prior_rows must"),
        ({"prior_rows": "100"}, ConfigError, "prior_rows must"),
    ],
)
def test_bad_arguments_are_reported(small_ensemble, counts, change, error, words):
    with pytest.raises(error, match=words):
        small_ensemble.fit_intervals(**{"X": counts[0], "y": counts[1]} | change)


# Groups ---------------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
N = 3000
MU = RNG.uniform(4.0, 12.0, N)
SHOP = RNG.choice(["calm", "wild"], N, p=[0.75, 0.25]).astype(object)
#: Poisson counts in one group; counts that vary far more in the other.
Y = np.where(SHOP == "calm", RNG.poisson(MU), RNG.negative_binomial(1.0, 1.0 / (1.0 + MU))).astype(float)
FRAME = pd.DataFrame({"x": np.log(MU), "shop": SHOP})
HALF = np.arange(N) < 1500


@pytest.fixture(scope="module")
def model():
    """A Poisson GLM of the first column, fitted to other rows."""
    mu = RNG.uniform(4.0, 12.0, 300)
    return CountGLM(likelihood="poisson").fit(np.log(mu)[:, None], RNG.poisson(mu))


def measure_coverage(model, rows, **options) -> dict[str, float]:
    low, high = model.predict_interval(FRAME[["x"]].to_numpy()[rows], 0.9, **options).T
    inside = (low <= Y[rows]) & (Y[rows] <= high)
    return {name: float(inside[SHOP[rows] == name].mean()) for name in ("calm", "wild")}


def test_each_group_is_covered_as_asked(model):
    X = FRAME[["x"]].to_numpy()
    alone = measure_coverage(model.fit_intervals(X[HALF], Y[HALF]), ~HALF)
    assert alone["wild"] < 0.82 < 0.93 < alone["calm"]
    model.fit_intervals(X[HALF], Y[HALF], groups=SHOP[HALF], group_rows=0.0)
    result = measure_coverage(model, ~HALF, groups=SHOP[~HALF])
    with pytest.raises(InputError, match="interval_groups is missing: intervals were calibrated by group of"):
        model.report(X[~HALF], Y[~HALF], "report.html")
    # Intervals of the calm group have 92.5% by their own distributions, as counts are integers.
    assert result["calm"] == pytest.approx(0.925, abs=0.04)
    # Four deviations of a share among about 375 rows with as many for calibration.
    assert result["wild"] == pytest.approx(0.9, abs=4 * np.sqrt(0.09 * 2 / 375))


def test_the_level_of_a_group_is_that_of_its_own_rows():
    scores = compute_scores(make_poisson(MU[HALF]), Y[HALF])
    whole = IntervalLevels.from_scores(scores)
    groups = IntervalGroups("shop", ("calm", "wild"), 0.0)
    groups.add("mixture", scores, groups.encode_labels(SHOP[HALF]))
    for code, name in enumerate(groups.names):
        alone = IntervalLevels.from_scores(scores[SHOP[HALF] == name]).at(0.9)
        assert groups.at(0.9, "mixture", whole, np.array([code])).tolist() == [alone]
    assert groups.at(0.9, "mixture", whole, np.array([-1])).tolist() == [whole.at(0.9)]
    assert sum(groups.rows.values()) == 1500


def test_groups_of_few_rows_are_shrunk_towards_all_rows():
    scores = np.concatenate([np.linspace(0.9, 0.95, 1000), [0.99] * 2])
    codes = np.array([0] * 1000 + [1] * 2)
    whole = IntervalLevels.from_scores(scores)
    # With 50 rows more, 0.9 of 53 rows must be inside: that is 47.7 of the 50.
    for prior, expected in ((0.0, 0.99), (1e4, whole.at(0.9)), (50.0, 0.9 + 0.05 * 47.7 / 50)):
        groups = IntervalGroups("g", ("a", "b"), prior)
        groups.add("m", scores, codes)
        assert groups.at(0.9, "m", whole, np.array([1]))[0] == pytest.approx(expected, abs=1e-3)


def test_groups_are_read_from_the_table_and_unknown_ones_have_the_level_of_all(tmp_path):
    model = (
        CountGLM("poisson", covariance="robust")
        .fit(FRAME[:300], Y[:300])
        .fit_intervals(FRAME[HALF], Y[HALF], groups="shop")
    )
    intervals = model.predict_interval(FRAME[~HALF])
    assert (intervals == model.predict_interval(FRAME[~HALF], groups=SHOP[~HALF])).all()
    assert (intervals == model.predict_interval(pl.from_pandas(FRAME[~HALF]))).all()
    with pytest.warns(UserWarning, match=r"2 of 3 rows have a shop that no calibration row has \('new'\)"):
        other = model.predict_interval(FRAME[:3], groups=["new", "calm", "new"])
    low, high, _ = make_interval(
        model.predict_distribution(FRAME[:3]).distribution, model.predictor_.calibration.interval_level(0.9)
    )
    assert other[[0, 2]].tolist() == torch.stack([low, high], 1).long()[[0, 2]].tolist()
    model.save(tmp_path / "model")
    again = CountGLM.load(tmp_path / "model")
    assert (intervals == again.predict_interval(FRAME[~HALF])).all()
    assert again.predictor_.calibration.groups.rows == model.predictor_.calibration.groups.rows


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"groups": "shop"}, InputError, "groups must be labels if X is not a data frame"),
        ({"groups": ["a"]}, InputError, "one label per row of X, got 1 for 1500"),
        ({"groups": 3}, InputError, "label per row"),
        ({"groups": "shop", "group_rows": -1.0}, ConfigError, "group_rows must be a finite number"),
    ],
)
def test_bad_groups_are_reported(model, options, error, words):
    with pytest.raises(error, match=words):
        model.fit_intervals(FRAME[["x"]].to_numpy()[HALF], Y[HALF], **options)


def test_predictions_need_the_groups_they_were_calibrated_by(model):
    X = FRAME[["x"]].to_numpy()
    model.fit_intervals(X[HALF], Y[HALF], groups=SHOP[HALF])
    with pytest.raises(InputError, match="groups is missing: intervals were calibrated by group of 'group'"):
        model.predict_interval(X[:3])
    model.fit_intervals(X[HALF], Y[HALF])
    with pytest.raises(InputError, match="were not calibrated by groups"):
        model.predict_interval(X[:3], groups=["a", "b", "c"])
