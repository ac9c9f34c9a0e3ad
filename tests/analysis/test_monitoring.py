"""Test checks of columns: false alarms are rare, shifts are found, and differences that do not matter are no drift."""

import numpy as np
import polars as pl
import pytest
import torch
from scipy import stats

from ddpn import CountRegressor
from ddpn.analysis.drift_checks import Check, compare_column
from ddpn.analysis.monitoring import Monitoring, compare, decide_drift
from ddpn.calibration.calibrate import CalibrationOptions
from ddpn.calibration.calibration import Calibration
from ddpn.calibration.columns import fit_column
from ddpn.calibration.intervals import score_counts
from ddpn.distributions import Poisson
from ddpn.members.folds import Folds
from ddpn.members.glm import PoissonGLM
from ddpn.metrics import pit_distance
from ddpn.pipeline import FittedPipeline, PipelineOptions, calibrate_pipeline
from ddpn.predictor import Predictor
from ddpn.rows.count_rows import BLOCK, CountRows
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.time_plan import Schedule
from ddpn.tables.columns import Column, Kind, Levels


def make_numbers(values) -> Column:
    return Column("x", Kind.NUMBER, np.asarray(values, dtype=float))


def make_levels(values) -> Column:
    names, codes = np.unique(values, return_inverse=True)
    return Column("x", Kind.CATEGORY, codes, Levels(map(str, names)))


def compare_columns(before: Column, now: Column) -> Check:
    return compare_column(fit_column(before), now)


SOURCES = {
    "continuous": lambda rng, n: make_numbers(rng.normal(size=n)),
    "skewed": lambda rng, n: make_numbers(rng.exponential(size=n) ** 3),
    "few values": lambda rng, n: make_numbers(rng.poisson(2.0, n)),
    "many values": lambda rng, n: make_numbers(rng.poisson(300.0, n)),
    "levels": lambda rng, n: make_levels(rng.choice(list("abcd"), n, p=[0.6, 0.25, 0.1, 0.05])),
    "rare levels": lambda rng, n: make_levels(rng.zipf(1.6, n) % 500),
    "missing": lambda rng, n: make_numbers(np.where(rng.random(n) < 0.05, np.nan, rng.normal(size=n))),
    "missing levels": lambda rng, n: make_numbers(np.where(rng.random(n) < 0.3, np.nan, rng.poisson(2.0, n))),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("size", [60, pytest.param(1500, marks=pytest.mark.slow)])
def test_rows_like_the_training_rows_rarely_look_different(source, size):
    rng, draw = np.random.default_rng(1), SOURCES[source]
    small = sum(compare_columns(draw(rng, 400), draw(rng, size)).p_value < 0.05 for _ in range(100))
    # 100 draws with probability 0.05 are above 13 in one of two thousand cases.
    assert small <= 13


def test_shifts_are_found_with_their_size():
    rng = np.random.default_rng(2)
    check = compare_columns(make_numbers(rng.normal(size=800)), make_numbers(rng.normal(1.0, 1.0, 400)))
    # The Kolmogorov distance of Normals one standard deviation apart is 0.38.
    assert check.effect == pytest.approx(0.38, abs=0.08)
    assert check.p_value < 1e-9
    check = compare_columns(make_levels(rng.choice(list("ab"), 500)), make_levels(rng.choice(list("abz"), 500)))
    assert check.effect == pytest.approx(1 / 3, abs=0.05)
    assert check.p_value < 1e-9
    assert check.now.endswith("unseen")
    check = compare_columns(
        make_levels(["a"] * 300), make_levels(["a"] * 200 + ["b"] * 100)
    )  # a column that was constant
    assert check.effect == pytest.approx(1 / 3)
    assert check.p_value < 1e-9
    for draw in (rng.normal, lambda size: rng.poisson(2.0, size)):
        check = compare_columns(make_numbers(draw(size=500)), make_numbers([*draw(size=400), *[np.nan] * 100]))
        assert check.effect == pytest.approx(0.2, abs=0.06)
        assert check.p_value < 1e-6
        assert "20.0%" in check.now


@pytest.mark.parametrize(
    ("values", "new"),
    [
        (["a"] * 5000, [None] * 100),
        (["a"] * 500, ["b"] * 50),
        (["a", "b"] * 2500, [*"ab" * 40, *[None] * 20]),
        (["a", "b"] * 2500, [*"ab" * 17, *"a", *[None] * 15]),
        (np.linspace(0.0, 1.0, 5000), [*np.linspace(0.0, 1.0, 85), *[np.nan] * 15]),
        (np.ones(5000), [np.nan] * 100),
    ],
    ids=["one level, all missing", "one level, another", "two levels, 20%", "two levels, 30%", "number", "constant"],
)
def test_the_first_missing_and_unseen_values_are_found_among_few_rows(values, new):
    if isinstance(values, list):
        cells = [value or "" for value in new]
        codes = {name: code for code, name in enumerate(sorted(set(filter(None, cells))))}
        column = Column("x", Kind.CATEGORY, np.array([codes.get(value, -1) for value in cells]), Levels(codes))
        check = compare_columns(make_levels(values), column)
    else:
        check = compare_columns(make_numbers(values), make_numbers(new))
    assert check.p_value < 1e-9


def test_many_rows_make_small_differences_significant_but_not_drift():
    rng = np.random.default_rng(3)
    comparison = compare_columns(make_numbers(rng.normal(size=100_000)), make_numbers(rng.normal(0.05, 1.0, 100_000)))
    (check,) = decide_drift([comparison], 0.01, 0.1)
    assert check.adjusted_p_value < 1e-6
    assert not check.drift
    (check,) = decide_drift([comparison], 0.01, 0.01)
    assert check.drift


@pytest.mark.parametrize("values", [np.arange(50.0), np.arange(50) % 2])
def test_columns_of_which_all_values_are_missing_are_compared(values):
    whole, empty = make_numbers(values), make_numbers([np.nan] * 50)
    for check in (compare_columns(whole, empty), compare_columns(empty, whole)):
        assert check.effect == 1.0
        assert check.p_value < 1e-9
    assert compare_columns(empty, empty).p_value == 1.0
    assert (
        compare_columns(make_levels(["a", "b"] * 40), Column("x", Kind.CATEGORY, np.full(50, -1), Levels())).now
        == "missing 100.0%"
    )


# Against scipy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 0.2, 2.0])
@pytest.mark.parametrize(("gaps", "new_gaps"), [(0.0, 0.0), (0.1, 0.1), (0.1, 0.3)])
def test_numbers_are_compared_as_by_kolmogorov_and_smirnov(shift, gaps, new_gaps):
    """At every quantile that is kept; missing values come before all others, and have Fisher's test beside."""
    rng = np.random.default_rng(0)
    old, new = (np.where(rng.random(n) < share, np.nan, rng.normal(by, 1.0, n)) for n, share, by in
                ((600, gaps, 0.0), (250, new_gaps, shift)))  # fmt: skip
    check = compare_columns(make_numbers(old), make_numbers(new))
    filled = [np.nan_to_num(values, nan=-1e9) for values in (old, new)]
    exact = stats.ks_2samp(*filled, method="asymp")
    assert check.effect == pytest.approx(exact.statistic, abs=0.02)
    assert check.effect <= exact.statistic + 0.002
    p_value = stats.kstwobign.sf(check.effect * np.sqrt(600 * 250 / 850))
    if gaps:
        missing = [[np.isnan(values).sum(), (~np.isnan(values)).sum()] for values in (old, new)]
        p_value = min(1.0, 2.0 * min(p_value, stats.fisher_exact(missing)[1]))
    assert check.p_value == pytest.approx(p_value)
    median = float(check.now.split()[1].rstrip(","))
    assert median == pytest.approx(np.nanmedian(new), rel=1e-3)
    assert float(check.before.split()[1].rstrip(",")) == pytest.approx(np.nanmedian(old), abs=0.03)
    assert ("missing" in check.now) == bool(gaps)
    assert not gaps or f"{np.isnan(new).mean():.1%} missing" in check.now


@pytest.mark.parametrize("seed", range(4))
def test_levels_are_compared_as_by_a_chi_squared_test(seed):
    """Levels of which fewer than five rows are expected are one cell with unseen ones."""
    rng = np.random.default_rng(seed)
    names = np.array(list("abcdefgh"))
    old = np.repeat(names, [300, 200, 100, 50, 6, 6, 3, 3])
    new = rng.choice(np.append(names, "?"), 150, p=[0.4, 0.3, 0.1, 0.1, 0.02, 0.02, 0.02, 0.02, 0.02])
    check = compare_columns(make_levels(old), make_levels(new))
    frequent = [name for name in names if (old == name).sum() * 150 / 668 >= 5.0]
    assert frequent == list("abcd")
    table = np.array([[(values == name).sum() for name in frequent] for values in (old, new)])
    table = np.column_stack([table, [len(old), len(new)] - table.sum(1)])
    assert check.p_value == pytest.approx(stats.chi2_contingency(table, correction=False)[1])
    shares = table / table.sum(1, keepdims=True)
    assert check.effect == pytest.approx(0.5 * np.abs(shares[0] - shares[1]).sum())
    most = names[np.argmax([abs((old == name).mean() - (new == name).mean()) for name in names])]
    assert check.before == f"{most} {(old == most).mean():.1%}"
    assert check.now.startswith(f"{most} {(new == most).mean():.1%}")
    unseen = (new == "?").mean()
    assert ("unseen" in check.now) == bool(unseen)
    assert not unseen or f"{unseen:.1%} unseen" in check.now


def test_two_levels_are_compared_as_by_fisher_and_missing_levels_are_a_level():
    old, new = np.repeat(["a", "b"], [60, 40]), np.repeat(["a", "b"], [20, 30])
    expected = stats.fisher_exact([[60, 40], [20, 30]])[1]
    assert compare_columns(make_levels(old), make_levels(new)).p_value == pytest.approx(expected)

    def with_gaps(values, gaps: int) -> Column:
        column = make_levels(values)
        return column._replace(values=np.r_[column.values, np.full(gaps, -1)])

    check = compare_columns(with_gaps(old, 50), with_gaps(new, 100))
    table = np.array([[60, 40, 50], [20, 30, 100]])
    fisher = stats.fisher_exact([[50, 100], [100, 50]])[1]
    expected = stats.chi2_contingency(table, correction=False)[1]
    assert check.p_value == pytest.approx(min(1.0, 2.0 * min(expected, fisher)))
    assert (check.before, check.now) == (f"missing {1 / 3:.1%}", f"missing {2 / 3:.1%}")


def test_few_rows_of_rare_levels_join_the_rarest_of_the_others():
    """Among 200 and 100 rows, 2 and 1 have a rare level: fewer than five are expected of one of the tables."""
    old, new = np.repeat(list("abcd"), [100, 60, 38, 2]), np.repeat(list("abcd"), [50, 20, 29, 1])
    table = np.array([[100, 60, 40], [50, 20, 30]])
    assert compare_columns(make_levels(old), make_levels(new)).p_value == pytest.approx(
        stats.chi2_contingency(table, correction=False)[1]
    )


# All checks of a model ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows() -> CountRows:
    rng = np.random.default_rng(0)
    X = pl.DataFrame({"a": rng.normal(size=400), "b": rng.normal(size=400), "day": np.arange(400.0)})
    return CountRows(X, rng.poisson(np.exp(1.0 + 0.5 * X["a"].to_numpy())).astype(float))


@pytest.fixture(scope="module")
def predictor(rows) -> Predictor:
    """A Poisson GLM with calibrated intervals, and flags."""
    predictor_with_flags = Predictor({"poisson_glm": PoissonGLM.fit(rows, None, seed=0)})
    folds = Folds(rows, rows)
    fitted = FittedPipeline(predictor_with_flags, folds, 0, {}, predictor_with_flags.predict_held_out(folds))
    calibrate_pipeline(fitted, PipelineOptions(calibration=CalibrationOptions(recalibrate=False)), Schedule())
    return predictor_with_flags


def check_sample(predictor, sample: CountRows, **options) -> dict:
    return {check.name: check for check in compare(predictor, sample.X, sample, **options).checks}


def test_coverage_and_pit_are_compared_with_what_is_expected_of_so_many_rows(predictor, rows):
    """Beta-Binomial by the held-out rows inside; Kolmogorov's distance of the PIT from uniform, as of two samples."""
    some = rows.rows(slice(0, 150)).replace(y=rows.y[:150] + 1.0)
    checks = check_sample(predictor, some)
    mean, levels = predict_means(predictor, some), predictor.calibration.intervals["mixture"]
    level = levels.at(0.9)
    covered = np.mean([share_inside(stats.poisson(m), y, level) for m, y in zip(mean, some.y, strict=True)])
    coverage = checks["coverage of 90% intervals"]
    assert coverage.now == f"{covered:.1%} covered"
    held_out = predictor.predict_held_out(Folds(rows, rows)).rows
    dist = Poisson(torch.from_numpy(predict_means(predictor, held_out)))
    scores = score_counts(dist, torch.from_numpy(held_out.y), np.random.default_rng(0).random(400))
    inside = int((scores <= level).sum())
    assert coverage.effect == pytest.approx(inside / 400 - covered)
    draws = np.random.default_rng(0).beta(inside, 401 - inside, 400_000)
    assert coverage.p_value == pytest.approx(stats.binom.cdf(round(150 * covered), 150, draws).mean(), rel=0.1)
    distance = pit_distance(Poisson(torch.from_numpy(mean)), torch.from_numpy(some.y))
    assert checks["PIT of the counts"].effect == pytest.approx(distance)
    assert checks["PIT of the counts"].p_value == pytest.approx(
        stats.kstwobign.sf(distance * np.sqrt(150 * 400 / (150 + 400)))
    )
    assert checks["PIT of the counts"].drift
    generous = check_sample(predictor, rows.replace(y=np.round(predict_means(predictor, rows))))[
        "coverage of 90% intervals"
    ]
    assert (generous.effect, generous.drift) == (0.0, False)


def test_rows_count_by_their_weights(predictor, rows):
    """Rows of weight 3 are like three rows, also if a part of the rows is drawn in proportion to their weights."""
    rng = np.random.default_rng(1)
    is_odd = rng.uniform(size=len(rows)) < 0.5
    odd = rows.replace(y=np.where(is_odd, rows.y + 4.0, rows.y))
    weight = np.where(is_odd, 1.0, 50.0)
    weighted = check_sample(predictor, odd.replace(weight=weight), max_rows=None)
    alike = check_sample(predictor, rows.rows(~is_odd), max_rows=None)
    unweighted = check_sample(predictor, odd, max_rows=None)
    drawn = check_sample(predictor, odd.replace(weight=weight), max_rows=150)
    name, pit = "coverage of 90% intervals", "PIT of the counts"
    assert abs(weighted[name].effect - alike[name].effect) < 0.02 < unweighted[name].effect - weighted[name].effect
    assert abs(weighted[pit].effect - alike[pit].effect) < 0.03 < unweighted[pit].effect - weighted[pit].effect
    assert abs(weighted[name].effect - drawn[name].effect) < 0.05
    same = check_sample(predictor, odd.replace(weight=np.full(len(odd), 7.0)), max_rows=None)
    assert same == unweighted


def share_inside(dist, y: float, level: float) -> float:
    """The share of a count that is inside the narrowest interval, which takes counts by their probability."""
    counts = np.arange(200)
    order = np.argsort(-dist.pmf(counts), kind="stable")
    before = dist.pmf(counts[order][: int(np.argmax(counts[order] == y))]).sum()
    return float(np.clip((level - before) / dist.pmf(y), 0.0, 1.0))


def test_without_calibration_coverage_is_compared_with_what_is_asked(predictor, rows):
    bare = Predictor(predictor.members)
    bare.calibration = Calibration(profile=predictor.calibration.profile)
    coverage = check_sample(bare, rows.replace(y=rows.y + 3.0))["coverage of 90% intervals"]
    covered = 0.9 - coverage.effect
    assert (coverage.before, coverage.drift) == ("90.0% asked", True)
    assert coverage.p_value == pytest.approx(stats.binom.cdf(round(400 * covered), 400, 0.9))


def test_more_rows_than_a_block_are_compared_as_one_table(predictor, rows):
    """A table of forty copies has the effects of one, and the p-values of so many rows."""
    copies = 40
    assert copies * len(rows) > 2 * BLOCK
    many = CountRows(pl.concat([rows.X] * copies), np.tile(rows.y, copies))
    once, often = (check_sample(predictor, sample, max_rows=None) for sample in (rows, many))
    for name in ("coverage of 90% intervals", "PIT of the counts"):
        assert often[name].effect == pytest.approx(once[name].effect)
    distance, size = often["PIT of the counts"].effect, len(many)
    expected = stats.kstwobign.sf(distance * np.sqrt(size * 400 / (size + 400)))
    assert often["PIT of the counts"].p_value == pytest.approx(expected)


def draw_patients(rng: np.random.Generator, number: int, shift: float = 0.0, factor: float = 1.0) -> CountRows:
    """Overdispersed counts that follow a number, one with missing values, and a category."""
    age, stay = rng.normal(shift, 1.0, number), rng.exponential(size=number)
    ward = rng.choice(list("abcd"), number, p=[0.5, 0.3, 0.15, 0.05])
    mean = factor * np.exp(0.8 + 0.4 * age + 0.2 * stay + 0.5 * (ward == "b"))
    stay = [None if missing else value for missing, value in zip(rng.random(number) < 0.1, stay, strict=True)]
    y = rng.negative_binomial(3, 3 / (3 + mean)).astype(float)
    return CountRows(pl.DataFrame({"age": age, "stay": stay, "ward": ward}), y)


def test_two_hundred_tables_like_the_training_rows_raise_no_more_alarms_than_alpha_says():
    """The share of small p-values is what it says, for each check and, by Holm, for any of them.

    The likelihood of the GLM is wrong for these counts, and the model was fitted to few rows: neither is drift.
    """
    checks = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        train = draw_patients(rng, 300)
        model = CountRegressor(members=["glm"], random_state=seed).fit(train.X, train.y)
        for _ in range(10):
            new = draw_patients(rng, 800)
            options = {"alpha": 0.05, "effect": 1e-9}
            checks.append(compare(model.predictor_, new.X, new.replace(X=model.parse(new.X)), **options).checks)
    # 200 draws with probability 0.05 are above 20 in one of a thousand cases.
    for name in {check.name for check in checks[0]}:
        assert sum(check.p_value < 0.05 for table in checks for check in table if check.name == name) <= 20, name
    assert sum(any(check.drift for check in table) for table in checks) <= 20
    # Where the rows differ, it is noticed at the default level, and in what has changed.
    later, more = draw_patients(rng, 400, shift=0.5), draw_patients(rng, 400, factor=1.6)
    for new, name in ((later, "age"), (more, "PIT of the counts")):
        drifting = compare(model.predictor_, new.X, new.replace(X=model.parse(new.X)))
        assert name in {check.name for check in drifting.checks if check.drift}
    assert {check.name for check in drifting.checks if check.drift} <= {
        "PIT of the counts",
        "coverage of 90% intervals",
    }


def predict_means(predictor, sample: CountRows) -> np.ndarray:
    return predictor.members["poisson_glm"].distribution(sample.X).mean[:, 0].numpy()


def test_the_share_of_flags_is_compared_with_a_beta_binomial(predictor, rows):
    """The share of new rows that n calibration rows flag has a Beta distribution."""
    X = rows.X.head(100).with_columns(a=pl.when(pl.int_range(100) < 12).then(30.0).otherwise("a"))
    monitoring = compare(predictor, X)
    (check,) = (check for check in monitoring.checks if check.kind == "ood")
    flags = predictor.calibration.ood
    flagged = int((predictor.calibration.ood_pvalue(X) <= flags.alpha).sum())
    assert flagged >= 12
    first = int(np.floor(flags.alpha * (len(flags.scores) + 1) + 1e-9))
    draws = np.random.default_rng(0).beta(first, len(flags.scores) + 1 - first, 200_000)
    expected = stats.binom.sf(flagged - 1, 100, draws).mean()
    assert check.p_value == pytest.approx(expected, rel=0.05)
    assert check.effect == pytest.approx(flagged / 100 - flags.alpha)
    assert (check.before, check.now) == ("5.0% expected", f"{flagged / 100:.1%} flagged")


def test_ignored_columns_are_shown_last_and_are_no_drift(predictor, rows):
    later = rows.replace(X=rows.X.with_columns(pl.col("day") + 1000.0))
    plain, ignoring = (compare(predictor, later.X, ignored=names) for names in ((), ("day",)))
    assert plain.drift
    assert plain.checks[0].name == "day"
    last = ignoring.checks[-1]
    assert (last.name, last.ignored, last.drift, last.effect) == ("day", True, False, pytest.approx(1.0, abs=0.01))
    assert last.cells[-3:] == ("-", "-", "ignored")
    assert {check.name for check in ignoring.checks if not check.ignored} == {"a", "b", "out-of-distribution rows"}
    assert "Drift in" in plain.headline
    assert "values of day" in plain.headline
    (dated,) = (check for check in compare(predictor, later.X, days=("day",)).checks if check.name == "day")
    assert dated.now.startswith("median 1973-")


def test_more_checks_ask_for_smaller_p_values_and_coverage_for_half_the_effect():
    """Use Holm's method, and show drift first, then by size, then ignored columns."""
    checks = [
        Check("values", "a", 0.3, 0.004, "", ""),
        Check("values", "b", 0.4, 0.02, "", ""),
        Check("coverage", "c", 0.05, 0.001, "", ""),
        Check("values", "d", 0.049, 1e-9, "", "", ignored=True),
        Check("pit", "e", 0.099, 1e-9, "", ""),
    ]
    decided = decide_drift(checks, 0.01, 0.1)
    order = [("a", True), ("c", True), ("b", False), ("e", False), ("d", False)]
    assert [(check.name, check.drift) for check in decided] == order
    adjusted = {check.name: check.adjusted_p_value for check in decided}
    assert adjusted == pytest.approx({"e": 4e-9, "c": 0.003, "a": 0.008, "b": 0.02, "d": 1.0})
    # What is shown is enough to decide: the result follows from the difference, the threshold and the p-value.
    results = {check.name: check.cells[-3:] for check in decided}
    assert results == {
        "a": ("0.100", "0.008", "drift"),
        "c": ("0.050", "0.003", "drift"),
        "b": ("0.100", "0.02", "chance"),
        "e": ("0.100", "<0.001", "below threshold"),
        "d": ("-", "-", "ignored"),
    }
    monitoring = Monitoring(100, 100, 400, 0, 0, 0.01, 0.1, decided)
    assert monitoring.drift_rule == (
        "Drift is a difference of at least 0.1 (0.05 for coverage) whose p-value, adjusted for 4 checks by Holm's "
        "method, is below 0.01. More than chance but smaller: e."
    )


def test_a_table_is_large_enough_and_levels_are_shares(predictor, rows):
    with pytest.raises(InputError, match="at least 20 rows"):
        compare(predictor, rows.X.head(19))
    compare(predictor, rows.X.head(20))
    for options in ({"alpha": 0.0}, {"alpha": 1.0}, {"effect": 1.5}, {"effect": "0.1"}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            compare(predictor, rows.X, **options)
    with pytest.raises(InputError, match="no summary"):
        compare(Predictor(predictor.members), rows.X)


def test_compared_rows_and_counts_are_reported(predictor, rows):
    monitoring = compare(predictor, rows.X, rows.rows(slice(0, 50)), max_rows=100)
    assert (monitoring.rows, monitoring.total, monitoring.training_rows) == (100, 400, 400)
    assert (monitoring.rows_with_counts, monitoring.total_with_counts) == (50, 50)
    assert monitoring.drawn_rows_note.startswith("Columns and out-of-distribution rows are checked on")
    whole = compare(predictor, rows.X, max_rows=None)
    assert (whole.rows, whole.total, whole.rows_with_counts, whole.drawn_rows_note) == (400, 400, 0, "")
    assert f"{len(whole.checks)} checks of 400 rows" in whole.headline
    # By the inequality of Dvoretzky, Kiefer and Wolfowitz, for all checks.
    checks = len(whole.checks)
    least = np.sqrt(-0.5 * np.log(0.01 / (2 * checks)) * (1 / 400 + 1 / 400))
    assert f"about {least:.2g} in" in whole.detectable
