"""Calibrated intervals cover what is asked, of all rows and within groups; few rows are shrunk."""

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
    grouping,
    interval_at,
    level_expected,
    level_needed,
    levels_of,
)
from ddpn.sample import Sample


def poisson(mu) -> Poisson:
    return Poisson(torch.as_tensor(mu, dtype=torch.float64))


# The level a count needs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.05, 0.7, 3.0, 40.0, 1e5])
def test_a_count_is_inside_just_above_the_level_it_needs_and_outside_just_below(mu):
    y = torch.from_numpy(np.unique(stats.poisson.ppf([1e-4, 0.02, 0.3, 0.5, 0.7, 0.99, 1 - 1e-6], mu)))
    dist = poisson(mu)
    for count, level in zip(y, level_needed(dist, y), strict=True):
        low, high = dist.interval(float(level) + 1e-9)
        assert low <= count <= high
        if level > 1e-6:
            low, high = dist.interval(float(level) - 1e-9)
            assert not low <= count <= high


def test_levels_by_scipy():
    y = np.arange(12.0)
    dist = stats.poisson(3.0)
    expected = np.maximum(np.maximum(1 - 2 * dist.cdf(y), 2 * dist.cdf(y - 1) - 1), 0)
    assert level_needed(poisson(3.0), torch.from_numpy(y)).numpy() == pytest.approx(expected)


def test_a_normal_counts_as_the_integers_it_rounds_to():
    found = level_needed(Normal(torch.tensor(3.0).double(), torch.tensor(1.0).double()), torch.tensor([5]))
    assert found.item() == pytest.approx(2 * stats.norm.cdf(4.5, 3.0, 1.0) - 1, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("mu", "y"), [(300.0, 900), (4000.0, 1000), (3.0, 60)])
def test_impossible_counts_enter_intervals_that_are_widened(mu, y, dtype):
    dist = Poisson(torch.tensor([mu, mu], dtype=dtype))
    counts = torch.tensor([y, int(mu)])
    level = level_needed(dist, counts)
    assert level[0] > 1.0 > level[1]
    low, high = interval_at(dist, float(level[0]) + 1e-9)
    inner = dist.interval(1.0 - 1e-9)
    assert (low[0] == y) if y < mu else (high[0] == y)
    gap = max(inner[0][0] - y, y - inner[1][0])
    assert level[0] == pytest.approx(float(1.0 + gap / (inner[1][0] - inner[0][0] + 1.0)))
    low, high = interval_at(dist, level.double().numpy() - 1e-9)
    assert not low[0] <= y <= high[0]
    assert high[1] - low[1] < inner[1][1] - inner[0][1]


def test_far_too_narrow_distributions_are_calibrated_too():
    """A Poisson says that these counts are impossible; the level of half of them is beyond the highest quantile."""
    rng = np.random.default_rng(7)
    mu = rng.uniform(100.0, 400.0, 2000)
    y = rng.negative_binomial(2.0, 2.0 / (2.0 + mu)).astype(float)
    level = IntervalLevels.of(levels_of([poisson(mu[:1000])], y[:1000])[0]).at(0.9)
    low, high = (end.numpy() for end in interval_at(poisson(mu[1000:]), level))
    assert level > 1.0
    assert ((low <= y[1000:]) & (y[1000:] <= high)).mean() == pytest.approx(0.9, abs=4 * np.sqrt(0.09 * 2 / 1000))


# Coverage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0.5, 1.0, 2.0], ids=["too low", "right", "too high"])
def test_new_rows_are_inside_as_often_as_asked_whatever_the_distribution(wrong):
    rng = np.random.default_rng(4)
    mu = rng.gamma(2.0, 1.0, (120, 160))
    y, dist = rng.poisson(mu), poisson(wrong * mu)
    needed = level_needed(dist, torch.from_numpy(y)).numpy()
    levels = [IntervalLevels.of(rows).at(0.8) for rows in needed[:, :80]]
    # A row is inside from the level on that it needs, as shown above and here for one calibration set.
    inside = needed[:, 80:] < np.array(levels)[:, None]
    low, high = (end.numpy() for end in poisson(wrong * mu[0]).interval(levels[0]))
    assert ((low <= y[0]) & (y[0] <= high))[80:].tolist() == inside[0].tolist()
    # Means of 120 draws of a share of about 0.8 among 80 rows with 80 for calibration: four deviations.
    assert inside.mean() == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / 80 * 2 / 120))


def test_expected_levels_are_those_that_true_distributions_need():
    mu = torch.from_numpy(np.random.default_rng(6).gamma(2.0, 1.0, 500))
    drawn = torch.poisson(mu.expand(100, -1), generator=torch.Generator().manual_seed(1))
    exact, expected = level_needed(poisson(mu), drawn).numpy().ravel(), level_expected(poisson(mu), 500).numpy().ravel()
    assert len(expected) == 2000
    for share in (0.5, 0.8, 0.9, 0.95):
        assert np.quantile(expected, share) == pytest.approx(np.quantile(exact, share), abs=0.01)


def test_prior_rows_reduce_the_spread_of_levels_from_few_rows():
    """With true distributions and 40 rows the coverage varies from one calibration set to the next."""
    rng = np.random.default_rng(8)
    mu = rng.gamma(2.0, 1.0, 40)
    dist, expected = poisson(mu), level_expected(poisson(mu), 40).numpy()
    needed, later = (level_needed(dist, torch.from_numpy(rng.poisson(mu, (n, 40)))).numpy() for n in (150, 500))
    held = {
        prior: [(later < IntervalLevels.of(rows, None, expected, prior).at(0.9)).mean() for rows in needed]
        for prior in (0.0, 100.0)
    }
    assert np.std(held[100.0]) < 0.5 * np.std(held[0.0])
    assert np.mean(held[100.0]) == pytest.approx(0.9, abs=0.01)


def test_the_smallest_level_that_holds_enough_rows_by_counting():
    needed = np.random.default_rng(2).permutation(99) / 100
    level = IntervalLevels.of(needed).at(0.9)
    assert (needed < level).sum() == 90  # 0.9 times 99 + 1
    assert (needed < level - 2e-9).sum() == 89


def test_a_weight_is_a_repeated_row():
    rng = np.random.default_rng(3)
    needed, weight = rng.random(400), rng.integers(1, 4, 400).astype(float)
    once = IntervalLevels.of(needed, weight).at(0.8)
    often = IntervalLevels.of(np.repeat(needed, weight.astype(int))).at(0.8)
    # They differ by what the one new row counts among 400 and among 800.
    assert once == pytest.approx(often, abs=0.01)
    assert IntervalLevels.of(needed, 7.0 * weight).at(0.8) == once


def test_the_weight_of_a_new_row_is_what_one_has_on_average():
    rng = np.random.default_rng(1)
    needed, weight = rng.random(50), rng.gamma(0.5, 1.0, 50)
    share = np.sort(needed), weight[np.argsort(needed)] / weight.sum()
    extra = np.square(weight).sum() / weight.sum() ** 2
    place = np.searchsorted(np.cumsum(share[1]), 0.8 * (1.0 + extra) - 1e-10)
    assert IntervalLevels.of(needed, weight).at(0.8) == pytest.approx(share[0][place], abs=2e-9)


def test_density_ratios_as_weights_cover_rows_of_another_distribution_of_features():
    """Counts are noisier where x is large, and new rows have x from 0.6 on."""
    rng = np.random.default_rng(2)

    def draw(low, n):
        x = rng.uniform(low, 1.0, n)
        size = np.exp(4.0 - 3.0 * x)
        return x, rng.negative_binomial(size, size / (size + 40.0)).astype(float)

    (x, y), (_, y_new) = draw(0.0, 3000), draw(0.6, 3000)
    needed, later = (level_needed(poisson(np.full(3000, 40.0)), torch.from_numpy(each)).numpy() for each in (y, y_new))
    ratio = 1.0 * (x > 0.6)
    assert (later < IntervalLevels.of(needed).at(0.9)).mean() < 0.87
    assert (later < IntervalLevels.of(needed, ratio).at(0.9)).mean() == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize(("needed", "level"), [([], 0.9), ([0.1] * 8, 0.9), ([0.97, 0.1], 0.97), ([1.0] * 20, 1.0)])
def test_with_too_few_rows_the_asked_level_stays_or_a_higher_one(needed, level):
    found = IntervalLevels.of(np.array(needed, dtype=float)).at(0.9)
    assert found == pytest.approx(level, abs=2e-9)
    assert 0.0 < found < 1.0


@pytest.mark.parametrize("prior", [0.0, 30.0])
def test_blocks_and_rows_of_weight_zero_change_nothing(prior):
    rng = np.random.default_rng(5)
    mu, weight = rng.gamma(2.0, 1.0, 500), rng.integers(0, 3, 500).astype(float)
    y = rng.poisson(mu).astype(float)
    blocks = [poisson(mu)], [poisson(mu[:130]), poisson(mu[130:])]
    found = [levels_of(each, y, prior > 0) for each in blocks]
    whole, parts = (IntervalLevels.of(needed, weight, expected, prior) for needed, expected in found)
    for one, other in zip(whole, parts, strict=True):
        assert one == pytest.approx(other, rel=1e-12)
    assert whole.rows.tolist() == [(weight > 0).sum()]
    assert whole.weight.sum() == pytest.approx((weight > 0).sum() + prior)


# In an estimator -------------------------------------------------------------------------------------------------


def test_exposure_and_weights_are_used(quick, counts, exposures):
    X, y = counts
    model = quick().fit(X, y, exposure=exposures)
    needed = level_needed(model.predict_distribution(X, exposures), torch.from_numpy(y)).numpy()
    weight = np.where(np.arange(90) < 40, 2.0, 0.0)
    levels = model.fit_intervals(X, y, weight, exposures).predictor_.intervals["mixture"]
    assert levels.needed == pytest.approx(np.sort(needed[:40]))
    assert (levels.weight == 1.0).all()


def test_before_calibration_the_level_is_the_coverage(fitted, counts):
    assert fitted.predictor_.interval_level(0.8) == 0.8
    assert not fitted.predictor_.intervals
    with pytest.raises(InputError, match='"calibrated" needs fit_intervals'):
        fitted.predict_interval(counts[0], kind="calibrated")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"y": np.full(90, 0.5)}, InputError, "y must hold non-negative integers"),
        ({"prior_rows": -1.0}, ConfigError, "prior_rows must be a finite number of at least 0, got -1"),
        ({"prior_rows": float("nan")}, ConfigError, "prior_rows must"),
        ({"prior_rows": "100"}, ConfigError, "prior_rows must"),
    ],
)
def test_bad_arguments_are_reported(fitted, counts, change, error, words):
    with pytest.raises(error, match=words):
        fitted.fit_intervals(**{"X": counts[0], "y": counts[1]} | change)


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


def coverage(model, rows, **options) -> dict[str, float]:
    low, high = model.predict_interval(FRAME[["x"]].to_numpy()[rows], 0.9, **options).T
    inside = (low <= Y[rows]) & (Y[rows] <= high)
    return {name: float(inside[SHOP[rows] == name].mean()) for name in ("calm", "wild")}


def test_each_group_is_covered_as_asked(model):
    X = FRAME[["x"]].to_numpy()
    alone = coverage(model.fit_intervals(X[HALF], Y[HALF]), ~HALF)
    assert alone["wild"] < 0.8 < 0.93 < alone["calm"]
    model.fit_intervals(X[HALF], Y[HALF], groups=SHOP[HALF], group_rows=0.0)
    found = coverage(model, ~HALF, groups=SHOP[~HALF])
    with pytest.raises(InputError, match="interval_groups is missing: intervals were calibrated by"):
        model.report("report.html", X[~HALF], Y[~HALF])
    # Four deviations of a share among about 375 rows with as many for calibration.
    assert found["calm"] == pytest.approx(0.9, abs=0.04)
    assert found["wild"] == pytest.approx(0.9, abs=4 * np.sqrt(0.09 * 2 / 375))


def test_the_level_of_a_group_is_that_of_its_own_rows():
    needed = level_needed(poisson(MU[HALF]), torch.from_numpy(Y[HALF])).numpy()
    whole = IntervalLevels.of(needed)
    groups, codes = grouping("shop", Sample(None, Y[HALF], interval_groups=SHOP[HALF]), 0.0)
    groups.add("mixture", needed, codes)
    for code, name in enumerate(groups.names):
        alone = IntervalLevels.of(needed[SHOP[HALF] == name]).at(0.9)
        assert groups.at(0.9, "mixture", whole, np.array([code])).tolist() == [alone]
    assert groups.at(0.9, "mixture", whole, np.array([-1])).tolist() == [whole.at(0.9)]
    assert sum(groups.rows.values()) == 1500


def test_groups_of_few_rows_are_shrunk_towards_all_rows():
    needed = np.concatenate([np.linspace(0.0, 0.5, 1000), [0.99] * 2])
    codes = np.array([0] * 1000 + [1] * 2)
    whole = IntervalLevels.of(needed)
    # With 50 rows more, 0.9 of 53 rows must be inside: that is 47.7 of the 50.
    for prior, expected in ((0.0, 0.99), (1e4, whole.at(0.9)), (50.0, 0.5 * 47.7 / 50)):
        groups = IntervalGroups("g", ("a", "b"), prior)
        groups.add("m", needed, codes)
        assert groups.at(0.9, "m", whole, np.array([1]))[0] == pytest.approx(expected, abs=0.01)


def test_a_column_of_the_table_and_a_group_that_is_unknown(tmp_path):
    model = (
        CountGLM("poisson", covariance="robust")
        .fit(FRAME[:300], Y[:300])
        .fit_intervals(FRAME[HALF], Y[HALF], groups="shop")
    )
    own = model.predict_interval(FRAME[~HALF])
    assert (own == model.predict_interval(FRAME[~HALF], groups=SHOP[~HALF])).all()
    assert (own == model.predict_interval(pl.from_pandas(FRAME[~HALF]))).all()
    with pytest.warns(UserWarning, match=r"2 of 3 rows have a shop that the calibration rows did not have \('new'\)"):
        other = model.predict_interval(FRAME[:3], groups=["new", "calm", "new"])
    low, high = interval_at(model.predict_distribution(FRAME[:3]).distribution, model.predictor_.interval_level(0.9))
    assert other[[0, 2]].tolist() == torch.stack([low, high], 1).long()[[0, 2]].tolist()
    model.save(tmp_path / "model")
    again = CountGLM.load(tmp_path / "model")
    assert (own == again.predict_interval(FRAME[~HALF])).all()
    assert again.predictor_.groups.rows == model.predictor_.groups.rows


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
    with pytest.raises(InputError, match="groups is missing: intervals were calibrated by 'group'"):
        model.predict_interval(X[:3])
    model.fit_intervals(X[HALF], Y[HALF])
    with pytest.raises(InputError, match="was not given groups"):
        model.predict_interval(X[:3], groups=["a", "b", "c"])
