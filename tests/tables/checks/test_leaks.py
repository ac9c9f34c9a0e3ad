"""Test that columns that are nearly the target are asked about, and predictors that leave the noise of counts are not.

tests/soundness/test_leaks.py tests columns that are made of the target for certain.
"""

import re
from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ddpn.tables.checks.findings import FindingKind
from ddpn.tables.checks.leaks import _measure_explained_share, _Target, find_leaks
from ddpn.tables.checks.transforms import describe_target_transform
from ddpn.tables.files import read_file
from ddpn.workflow.column_roles import find_roles
from ddpn.workflow.config import FitConfig
from ddpn.workflow.preparing import prepare
from ddpn.workflow.table_warnings import describe_finding

RNG = np.random.default_rng(1)
#: E min(Z^2, 4) of a standard normal Z, by integration by parts.
NOISE_OF_NORMALS = stats.chi2.cdf(4.0, 3) + 4.0 * stats.chi2.sf(4.0, 1)


def list_suspects(X, y, **options):
    """List columns that are leaks, or asked about, in the order of the table."""
    names = {name for finding in find_leaks(X, y, **options) for name in finding.columns}
    return [name for name in X.columns if name in names]


def simulate_counts(mean, rows, seed=0):
    """Simulate counts that follow one column, log-linearly."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    return x, rng.poisson(mean * np.exp(0.7 * x)).astype(float)


def test_a_sole_column_that_was_confirmed_is_not_asked_about():
    x, y = simulate_counts(20.0, 400)
    table = pl.DataFrame({"nearly": y + 0.01 * x, "y": y.astype(int)})
    asked, confirmed = (prepare(table, FitConfig(target="y", use=use)) for use in ((), ("nearly",)))
    assert any("nearly" in words for words in (*asked.leaks, *asked.warnings))
    assert not any("nearly" in words for words in (*confirmed.leaks, *confirmed.warnings))


# Rates ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rate_table():
    """Counts with exposures, a predictor of their rate, and the exposure."""
    rng = np.random.default_rng(5)
    x, exposure = rng.normal(size=600), rng.uniform(1.0, 30.0, 600)
    return x, rng.poisson(exposure * np.exp(1.0 + 0.8 * x)).astype(float), exposure


@pytest.mark.parametrize("made", [lambda rate: rate, lambda rate: 100 * rate.round(2), lambda rate: np.log1p(rate)])
def test_a_column_that_is_the_rate_is_found_with_the_exposure_only(rate_table, made):
    x, y, exposure = rate_table
    X = pl.DataFrame({"x": x, "rate": made(y / exposure)})
    (finding,) = find_leaks(X, y, exposure=exposure)
    assert re.match(r"Column rate (is|predicts) .*the target per exposure", finding.statement)
    assert find_leaks(X, y) == find_leaks(X, y, exposure=np.full(600, 2.0)) == []


def test_parts_that_sum_to_the_rate_are_leaks(rate_table):
    _, y, exposure = rate_table
    part = np.random.default_rng(0).binomial(y.astype(int), 0.5) / exposure
    *_, finding = find_leaks(pl.DataFrame({"one": part, "two": y / exposure - part}), y, exposure=exposure)
    assert finding.kind == FindingKind.LEAK
    assert "together determine the target per exposure" in finding.statement


@pytest.mark.parametrize("factor", [1.0, 50.0])
def test_the_rate_that_counts_follow_is_no_leak(rate_table, factor):
    x, _, exposure = rate_table
    rate = factor * np.exp(1.0 + 0.8 * x)
    y = np.random.default_rng(1).poisson(exposure * rate).astype(float)
    assert find_leaks(pl.DataFrame({"rate": rate, "x": x}), y, exposure=exposure) == []


# Leaks ---------------------------------------------------------------------------------------------------------------


def test_a_column_that_nearly_is_the_target_is_suspected():
    y = RNG.poisson(20, 500).astype(float)
    noisy = y + RNG.normal(size=500)
    r = np.corrcoef(noisy, y)[0, 1]
    (finding,) = find_leaks(pl.DataFrame({"ok": RNG.normal(size=500), "noisy": noisy}), y)
    assert finding.kind == FindingKind.QUESTION
    share = re.match(
        r"Column noisy predicts the target nearly without error \(R² (0\.\d\d) by its values alone\)\.",
        finding.statement,
    )
    assert float(share[1]) == pytest.approx(r**2, abs=0.02)
    assert describe_finding(finding).endswith(
        'Is it known before the count? If not, leave it out with `drop=["noisy"]`; if so, confirm with `use=["noisy"]`.'
    )


def test_a_large_part_of_the_target_is_suspected():
    large_part, small_part = RNG.negative_binomial(2, 2 / 202, 800), RNG.negative_binomial(1, 1 / 21, 800)
    small_part *= RNG.random(800) < 0.9
    assert list_suspects(pl.DataFrame({"most": large_part}), (large_part + small_part).astype(float)) == ["most"]


def make_leaks(y):
    """Make columns of the counts alone."""
    ranges = np.searchsorted(np.unique(np.quantile(y, [0.2, 0.4, 0.6, 0.8])), y)
    return {
        "root": np.sqrt(y),
        "log": np.log1p(y),
        "inverse": 1 / (1 + y),
        "ranges": ranges,
        "names": [f"level {value}" for value in ranges],
        "missing": [None if value == 0 else float(value**0.3) for value in y],
    }


@pytest.mark.parametrize("rows", [150, 4000])
@pytest.mark.parametrize("mean", [3.0, 40.0, 1000.0])
def test_functions_and_ranges_of_the_target_are_suspected(mean, rows):
    x, y = simulate_counts(mean, rows)
    leaks = make_leaks(y)
    noise = {
        "x": x,
        "noise": RNG.normal(size=rows),
        "word": RNG.choice(["a", "b"], rows),
        "yes": RNG.random(rows) < 0.5,
    }
    assert list_suspects(pl.DataFrame(noise | leaks), y) == list(leaks)


def test_a_category_that_determines_the_target_is_suspected():
    level = RNG.integers(0, 30, 600)
    y = RNG.permutation(np.arange(30) * 3.0)[level]
    assert list_suspects(pl.DataFrame({"plan": [f"p{plan}" for plan in level]}), y) == ["plan"]
    wrong = np.where(RNG.random(600) < 0.02, RNG.integers(0, 90, 600), y)
    assert list_suspects(pl.DataFrame({"plan": [f"p{plan}" for plan in level]}), wrong.astype(float)) == ["plan"]


def test_one_outlier_does_not_hide_a_leak():
    y = simulate_counts(20.0, 500)[1]
    y[7] = 1e12
    assert list_suspects(pl.DataFrame({"log": np.log1p(y)}), y) == ["log"]


def test_two_dates_whose_distance_is_the_target_are_leaks():
    days = RNG.integers(0, 2000, 400)
    y = RNG.poisson(6.0, 400) + 1
    start = [date(2015, 1, 1) + timedelta(days=int(day)) for day in days]
    frame = pl.DataFrame(
        {"arrived": start, "left": [a + timedelta(days=int(n)) for a, n in zip(start, y, strict=True)], "y": y}
    )
    (leak,) = prepare(frame, FitConfig(target="y")).leaks
    assert "together determine the target" in leak
    assert re.search(r'`drop=\["(arrived", "left|left", "arrived)"\]`;', leak)


# No leaks ------------------------------------------------------------------------------------------------------------


def test_honest_columns_are_not_suspected():
    X = RNG.normal(size=(300, 6))
    frame = pl.DataFrame({f"x{j}": X[:, j] for j in range(6)})
    assert find_leaks(frame, RNG.poisson(np.exp(1 + X[:, 0])).astype(float)) == []
    assert find_leaks(frame, np.full(300, 2.0)) == []


def test_groups_whose_counts_are_far_apart_are_not_suspected():
    wrong = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        means = np.cumprod(rng.uniform(2, 15, 3))
        group = rng.integers(0, 3, 300)
        y = rng.poisson(means[group]).astype(float)
        wrong += bool(list_suspects(pl.DataFrame({"g": [f"g{label}" for label in group]}), y))
    assert wrong <= 1


def test_repeated_rows_and_the_order_of_rows_raise_no_suspicion():
    x, y = simulate_counts(5.0, 300)
    twice = pl.DataFrame({"x": np.tile(x, 3), "code": np.tile(RNG.integers(0, 200, 300), 3)})
    assert list_suspects(twice, np.tile(y, 3)) == []
    order = np.argsort(y)
    assert list_suspects(pl.DataFrame({"c": RNG.integers(0, 3, 300), "w": RNG.choice(["a", "b"], 300)}), y[order]) == []


@pytest.mark.parametrize(
    ("file", "target", "drop"),
    [
        ("length_of_stay/los_20k.csv", "lengthofstay", ()),
        ("bike_sharing/hour.csv", "cnt", ("casual", "registered")),
        ("reviews/womens_clothing.csv.gz", "Rating", ("Positive Feedback Count",)),
    ],
)
def test_no_column_of_a_real_table_is_suspected(data_folder, file, target, drop):
    frame = read_file(str(data_folder / file))
    roles = find_roles(frame, FitConfig(target=target, drop=drop))
    sample = roles.read_rows(frame)
    assert find_leaks(sample.X.to_polars(), sample.y) == []


@pytest.mark.parametrize("rows", [1000, 1280, 1500])
def test_a_large_exposure_makes_no_column_a_leak(rows):
    """The logarithm of rates far below 1 has a lower bound: it is a constant, which no column is a line of."""
    rng = np.random.default_rng(0)
    population, x = rng.integers(10_000, 100_000, rows), rng.normal(size=rows)
    y = rng.poisson(population / 20_000 * np.exp(0.3 * x)).astype(float)
    X = pl.DataFrame({"x": x, "k": rng.integers(0, 8, rows)})
    assert find_leaks(X, y, exposure=population.astype(float)) == []


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_codes_of_the_target_are_found_whatever_their_unit(scale):
    """Give a code per count, with the rounding of a program that has computed it."""
    rng = np.random.default_rng(0)
    y = rng.poisson(3.0, 400).astype(float)
    code = rng.permutation(50)[y.astype(int)] + 1.0
    rounded = scale * code * (1 + 1e-15 * rng.normal(size=400))
    assert describe_target_transform(pl.Series(rounded), y) == "is a function of {target}"


@pytest.mark.parametrize("seed", range(3))
def test_a_column_without_information_leaves_the_noise_of_counts(seed):
    """With 20,000 Poisson counts and neighbours at uneven distances no variance is explained."""
    rng = np.random.default_rng(seed)
    y = rng.poisson(50.0, 20_000).astype(float)
    share, noise = _measure_explained_share(
        rng.exponential(size=len(y)), _Target.from_values("t", y, np.ones(len(y))), True
    )
    assert share == pytest.approx(0.0, abs=0.04)
    assert noise == pytest.approx(NOISE_OF_NORMALS, abs=0.04)


@pytest.mark.parametrize("is_number", [True, False])
def test_rates_leave_the_noise_of_counts_with_their_exposures(is_number):
    """A rate of a Poisson count has the variance of its mean over its exposure, whatever its neighbours have."""
    rng = np.random.default_rng(0)
    exposure = rng.choice([1.0, 10.0], 20_000)
    y = rng.poisson(50.0 * exposure) / exposure
    codes = rng.exponential(size=len(y)) if is_number else rng.integers(0, 3000, len(y)).astype(float)
    share, noise = _measure_explained_share(codes, _Target.from_values("t", y, 1.0 / exposure), is_number)
    assert share == pytest.approx(0.0, abs=0.06)
    assert noise == pytest.approx(NOISE_OF_NORMALS, abs=0.04)


def test_levels_explain_half_of_the_variance():
    """The means of levels vary as much as the counts around them."""
    rng = np.random.default_rng(1)
    level = np.repeat(np.arange(4000), 5)
    mean = 100.0 + 10.0 * rng.normal(size=4000)
    y = rng.poisson(mean[level]).astype(float)
    for codes, is_number in ((level, False), (level + 0.0, True)):
        share, noise = _measure_explained_share(
            codes.astype(float), _Target.from_values("t", y, np.ones(len(y))), is_number
        )
        assert share == pytest.approx(0.5, abs=0.08 if is_number else 0.04)
        assert noise == pytest.approx(NOISE_OF_NORMALS, abs=0.2 if is_number else 0.04)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda y, rng: y, "is {target} itself"),
        (lambda y, rng: np.where(np.arange(len(y)) % 9 == 0, np.nan, y), "is {target} itself, with missing values"),
        (lambda y, rng: 100.0 - 0.5 * y, "is {target} times a factor plus a constant"),
        (np.log1p, "is a function of {target}"),
        (lambda y, rng: np.sqrt(y), "is a function of {target}"),
        (lambda y, rng: 1.0 / (1.0 + y), "is a function of {target}"),
        (lambda y, rng: np.square(y) + 1.0, "is a function of {target}"),
        (lambda y, rng: (y == 0).astype(float), "says whether {target} is 0"),
        (lambda y, rng: (y > 0) * rng.binomial(1, 0.7, len(y)) * 1.0, "is set only where {target} is above 0"),
        (lambda y, rng: rng.binomial(y.astype(int), 0.8).astype(float), "is a part of {target}"),
        (lambda y, rng: np.where(y == 0, np.nan, rng.normal(size=len(y))), "is missing just where {target} is 0"),
        (lambda y, rng: np.where(y == 0, rng.normal(size=len(y)), np.nan), "is known just where {target} is 0"),
        (lambda y, rng: y + rng.normal(0.0, 0.3, len(y)), ""),
        (lambda y, rng: rng.poisson(y + 0.5).astype(float), ""),
        (lambda y, rng: np.minimum(rng.poisson(1.0, len(y)), 40).astype(float), ""),
        (lambda y, rng: rng.integers(0, 2, len(y)).astype(float), ""),
        (lambda y, rng: np.where(rng.random(len(y)) < 0.4, np.nan, 1.0), ""),
        (lambda y, rng: np.full(len(y), 2.0), ""),
    ],
    ids=["itself", "gaps", "line", "log", "root", "inverse", "square", "zero", "set", "part", "missing", "known",
         "noisy", "drawn", "small", "flag", "absent", "constant"],
)  # fmt: skip
def test_a_leak_says_how_the_column_is_made_of_the_target(make, words):
    rng = np.random.default_rng(0)
    y = rng.poisson(3.0, 600).astype(float)
    column = np.log1p(y) if make is np.log1p else make(y, rng)
    series = pl.Series(column).fill_nan(None)
    assert describe_target_transform(series, y) == words
    # In any order of the rows, and beside whatever name.
    order = rng.permutation(600)
    assert describe_target_transform(series[order.tolist()].alias("z"), y[order]) == words


def test_parts_and_flags_of_rates_are_no_leaks():
    rng = np.random.default_rng(0)
    y = rng.poisson(3.0, 600).astype(float)
    assert describe_target_transform(pl.Series((y == 0).astype(float)), y / 2.0, is_count=False) == ""
    assert describe_target_transform(pl.Series(np.where(y == 0, np.nan, 1.0)), y / 2.0, is_count=False) == ""
    assert (
        describe_target_transform(pl.Series(3.0 * y), y / 2.0, is_count=False)
        == "is {target} times a factor plus a constant"
    )


def test_columns_that_sum_to_the_target_are_named_without_the_others():
    rng = np.random.default_rng(0)
    parts = [rng.poisson(4.0, 500).astype(float) for _ in range(3)]
    X = pl.DataFrame(
        {"a": parts[0], "b": parts[1], "c": parts[2], "x": rng.normal(size=500), "z": rng.normal(size=500)}
    )
    (finding,) = find_leaks(X, sum(parts))
    assert (finding.kind, set(finding.columns)) == (FindingKind.LEAK, {"a", "b", "c"})
    assert "a weighted sum of them equals it" in finding.statement
    noisy = sum(parts) + rng.binomial(1, 0.005, 500)
    (finding,) = find_leaks(X, noisy)
    assert (finding.kind, set(finding.columns)) == (FindingKind.QUESTION, {"a", "b", "c"})
    assert find_leaks(X.drop("c"), sum(parts)) == []


def test_values_that_stand_for_ranges_of_counts_are_leaks():
    """Ranges of ten counts follow one another; ranges that overlap are no leak."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 6, 800)
    X = pl.DataFrame({"code": [f"k{k}" for k in rng.permutation(6)[level]], "x": rng.normal(size=800)})
    (finding,) = find_leaks(X, (level * 10 + rng.integers(0, 10, 800)).astype(float))
    assert finding.columns == ("code",)
    assert find_leaks(X, (level * 5 + rng.integers(0, 10, 800)).astype(float)) == []
