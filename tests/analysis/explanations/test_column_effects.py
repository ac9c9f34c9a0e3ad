"""Test accumulated local effects against formulas, for every kind of column, table and model."""

import numpy as np
import polars as pl
import pytest
import torch
from scipy import stats
from torch.distributions import Normal

from ddpn import CountGLM, CountRegressor, CountRows
from ddpn.analysis.explanations import Inputs, effects
from ddpn.analysis.explanations.column_effects import Steps, accumulate_effects, compute_curves
from ddpn.analysis.explanations.effect import Curve, Effect
from ddpn.analysis.explanations.grid import EffectGrid, make_grid
from ddpn.analysis.explanations.inputs import PredictedMoments
from ddpn.members.member import Member
from ddpn.predictor import Predictor
from ddpn.rows.count_range import CountRange
from ddpn.tables.columns import Column, Kind, Levels

WARDS = {"a": 0.0, "b": 0.7, "c": -0.4, None: 0.3}


def ward(c):
    return np.array([WARDS[level] for level in c["ward"]])


def age(c):
    return np.where(np.isnan(c["age"]), 0.9, 0.01 * c["age"])


def additive(c):
    return 0.5 * np.sin(2 * c["x"]) - 0.3 * c["z"] + ward(c) + age(c) + 0.2 * c["few"] ** 2 + 0.4 * c["flag"]


def center_effect(effect, share):
    return effect - share @ effect


def test_effects_of_an_additive_model_are_its_terms_though_columns_are_correlated(formula, frame):
    column_effects = effects(Inputs(formula(additive), frame))
    x = column_effects["x"]
    points = np.array(x.points)
    assert x.continuous
    assert len(points) == 21
    assert np.isin(points, frame["x"]).all(), "values that occur"
    np.testing.assert_allclose(np.diff(x.mean.effect), np.diff(0.5 * np.sin(2 * points)), atol=1e-9)
    z = column_effects["z"]
    np.testing.assert_allclose(np.diff(z.mean.effect), -0.3 * np.diff(z.points), atol=1e-9)
    # A Poisson: no column has an effect on the spread.
    assert max(one.strength("spread") for one in column_effects) < 1e-9
    assert column_effects.by("mean")[0].name == "few"
    assert all(abs(one.share.sum() - 1) < 1e-9 for one in column_effects)


def test_levels_flags_few_values_and_missing_ones_have_the_effects_of_their_terms(formula, frame):
    column_effects = effects(Inputs(formula(additive), frame))
    wards = column_effects["ward"]
    assert wards.points == ["c", "a", "b", "missing"], "by their effect, missing last"
    terms = np.array([WARDS[level] for level in ("c", "a", "b", None)])
    np.testing.assert_allclose(wards.mean.effect, center_effect(terms, wards.share), atol=1e-9)
    np.testing.assert_allclose(wards.share[-1], frame["ward"].isna().mean())
    few, flag = column_effects["few"], column_effects["flag"]
    assert (few.points, flag.points, few.continuous) == ([0.0, 1.0, 2.0, 3.0], [False, True], False)
    np.testing.assert_allclose(few.mean.effect, center_effect(0.2 * np.arange(4.0) ** 2, few.share), atol=1e-9)
    np.testing.assert_allclose(flag.mean.effect, center_effect(np.array([0.0, 0.4]), flag.share), atol=1e-9)
    old = column_effects["age"]
    assert old.points[-1] == "missing"
    values = np.array(old.points[:-1])
    np.testing.assert_allclose(np.diff(old.mean.effect[:-1]), 0.01 * np.diff(values), atol=1e-9)
    np.testing.assert_allclose(old.mean.effect[-1] - old.mean.effect[0], 0.9 - 0.01 * values[0], atol=1e-9)


def test_a_column_may_move_the_spread_only(formula, frame):
    column_effects = effects(Inputs(formula(lambda c: 1.0 + 0 * c["x"], alpha=lambda c: np.exp(c["z"])), frame))
    assert (column_effects["z"].mean.quantity, column_effects["z"].spread.quantity) == ("mean", "variance / mean")
    assert max(one.strength("mean") for one in column_effects) < 1e-9
    z = column_effects["z"]
    # Variance / mean of a Negative Binomial is 1 + alpha mean.
    expected = 1.0 + np.exp(z.points) * np.e
    np.testing.assert_allclose(z.spread.level / z.spread.level[0], expected / expected[0], rtol=1e-6)
    assert column_effects.by("spread")[0] is z
    assert column_effects["x"].strength("spread") < 1e-9


def test_bands_show_how_much_members_disagree(formula, frame):
    one = effects(Inputs(formula(lambda c: c["x"]), frame), columns="x")["x"]
    two = effects(Inputs(formula(lambda c: 0.5 * c["x"], lambda c: 1.5 * c["x"]), frame), columns=["x"])["x"]
    assert one.mean.error.max() < 0.1
    ends = np.abs(np.array(two.points) - frame["x"].mean())
    # The slopes 0.5 and 1.5 have a standard deviation of 0.5.
    np.testing.assert_allclose(two.mean.error[[0, -1]], 0.5 * ends[[0, -1]], rtol=0.15)
    assert np.all((two.mean.low <= two.mean.level) & (two.mean.level <= two.mean.high))
    # One member whose effect differs between rows: few rows leave it uncertain.
    varied = Inputs(formula(lambda c: c["x"] * np.where(c["flag"], 2.0, -1.0)), frame)
    assert effects(varied, columns="x", max_rows=100)["x"].mean.error[0] > 0.2


def test_exposures_and_upper_bounds_are_inputs_with_effects(formula, frame):
    days = np.random.default_rng(2).uniform(1, 50, len(frame))
    column_effects = effects(Inputs(formula(lambda c: 0.1 * c["x"], needs_exposure=True), frame, exposure=days))
    points = np.array(column_effects["exposure"].points)
    np.testing.assert_allclose(np.diff(column_effects["exposure"].mean.effect), np.diff(np.log(points)), atol=1e-9)
    np.testing.assert_allclose(
        np.diff(column_effects["x"].mean.effect), 0.1 * np.diff(column_effects["x"].points), atol=1e-9
    )
    bounded = formula(lambda c: 3.0 + c["x"], counts=CountRange(upper_per_row=True))
    beds = np.random.default_rng(3).integers(2, 9, len(frame))
    column_effects = effects(Inputs(bounded, frame, upper=beds), columns=["upper", "x"])
    assert column_effects["upper"].points == list(range(2, 9))
    assert (np.diff(column_effects["upper"].mean.level) > 0).all()
    assert column_effects["x"].mean.level.max() < 8


class Gaussian(Member):
    def distribution(self, X, exposure=None):
        first, second = (torch.from_numpy(column.values).unsqueeze(1) for column in X)
        return Normal(first * 2.0, 1.0 + second**2)

    fit = state = from_state = None


def test_a_gaussian_has_effects_in_counts_and_on_its_standard_deviation():
    X = np.random.default_rng(0).normal(size=(200, 2))
    column_effects = effects(Inputs(Predictor({"g": Gaussian()}), X))
    first = column_effects["x0"]
    assert not first.mean.log
    assert first.spread.quantity == "standard deviation"
    np.testing.assert_allclose(np.diff(first.mean.level), 2 * np.diff(first.points), atol=1e-9)
    np.testing.assert_allclose(
        np.diff(column_effects["x1"].spread.level), np.diff(np.array(column_effects["x1"].points) ** 2), atol=1e-9
    )


def test_a_column_without_values_has_one_point_and_one_of_many_levels_the_most_frequent(formula, frame):
    table = frame[["x"]].assign(none=np.nan, code=[f"level {i % 50}" for i in range(len(frame))])
    column_effects = effects(Inputs(formula(lambda c: c["x"]), table))
    assert column_effects["none"].points == ["missing"]
    assert column_effects["none"].mean.effect.tolist() == [0.0]
    assert len(column_effects["code"].points) == 20
    assert column_effects["code"].share.sum() == pytest.approx(20 / 50)


def test_neighbouring_levels_are_alike_in_the_other_columns():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, 2000)
    centers = np.array([2.0, 0.0, 3.0, 1.0])[codes]
    other = Column("o", Kind.NUMBER, centers + 0.8 * rng.normal(size=2000))
    points = make_grid([Column("c", Kind.CATEGORY, codes, ("p", "q", "r", "s")), other], 0, 20).points
    assert points in (["q", "s", "p", "r"], ["r", "p", "s", "q"])
    sizes = Column("c", Kind.CATEGORY, codes, ("10", "9", "30", "2"))
    assert make_grid([sizes, other], 0, 20).points == ["2", "9", "10", "30"]


def test_a_fitted_model_with_recalibration_has_effects(frame):
    rng = np.random.default_rng(0)
    X = frame[["x", "few"]]
    y = rng.negative_binomial(2, 2 / (2 + np.exp(1 + 0.5 * X["x"])))
    model = CountGLM("poisson", covariance="robust").fit(X, y)
    before = effects(Inputs(model, X))["x"].mean.effect
    model.fit_recalibration(X, y, always=True)
    np.testing.assert_allclose(effects(Inputs(model, X))["x"].mean.effect, before)
    slope = np.polyfit(effects(Inputs(model, X))["x"].points, before, 1)[0]
    assert slope == pytest.approx(np.ravel(model.coef_)[0], abs=1e-6)


# By hand --------------------------------------------------------------------------------------------------------------


def make_number_column(values) -> list[Column]:
    return [Column("x", Kind.NUMBER, np.asarray(values, dtype=float))]


def test_the_grid_of_a_number_has_quantiles_and_the_bins_of_its_rows():
    x = np.random.default_rng(0).exponential(size=400)
    x[:40] = np.nan
    grid = make_grid(make_number_column(x), 0, 5)
    values = x[40:]
    edges = np.quantile(values, np.arange(6) / 5, method="inverted_cdf")
    assert not grid.discrete
    assert grid.points == edges.tolist()
    assert (x[grid.source_rows] == edges).all()
    assert grid.missing.sum() == 40
    assert (grid.code[:40] == -1).all()
    code = grid.code[40:]
    assert ((edges[code - 1] < values) | (values == edges[0])).all()
    assert (values <= edges[code]).all()
    assert code.min() == 1
    # A bin's rows count half at either end.
    rows = np.bincount(code, minlength=6) / 400
    shares = grid.compute_shares(np.ones(len(x)))
    np.testing.assert_allclose(shares, 0.5 * (rows + np.append(rows[1:], 0.0)))
    assert shares.sum() == pytest.approx(0.9)


@pytest.mark.parametrize(("values", "discrete"), [(31, True), (32, False)])
def test_few_values_are_points_of_their_own(values, discrete):
    x = np.arange(values * 4) % values
    grid = make_grid(make_number_column(x), 0, 20)
    assert grid.discrete == discrete
    assert len(grid.points) == (values if discrete else 21)
    if discrete:
        assert (grid.code == x).all()
        np.testing.assert_allclose(grid.compute_shares(np.ones(len(x))), 1 / values)
        heavy = np.where(x == 3, 5.0, 1.0)
        np.testing.assert_allclose(grid.compute_shares(heavy)[2:4], [1 / (values + 4), 5 / (values + 4)])


def test_levels_without_numbers_are_ordered_by_what_their_rows_have_in_the_other_columns():
    """Order levels by mean ranks of a number and shares of another category's levels: by their first component."""
    rng = np.random.default_rng(0)
    level = rng.permutation(np.repeat(np.arange(5), [80, 60, 50, 40, 30]))
    centers = np.array([2.0, 0.0, 4.0, 1.0, 3.0])
    number = Column("y", Kind.NUMBER, centers[level] + 0.1 * rng.normal(size=260))
    codes = (rng.uniform(size=260) < centers[level] / 4.0).astype(int)
    other = Column("z", Kind.CATEGORY, codes, Levels(("no", "yes")))
    column = Column("x", Kind.CATEGORY, level, Levels(tuple("abcde")))
    for others in ([number], [other], [number, other]):
        points = "".join(make_grid([column, *others], 0, 20).points)
        assert points in ("bdaec", "ceadb"), others
    assert make_grid([column], 0, 20).points == list("abcde"), "by frequency"
    numbers = column._replace(levels=Levels(("3", "10", "2", "-1", "5")))
    assert make_grid([numbers, number], 0, 20).points == ["-1", "2", "3", "5", "10"]


def test_the_most_frequent_levels_are_measured():
    codes = np.repeat(np.arange(25), np.arange(25, 0, -1))
    levels = tuple(f"l{k:02d}" for k in range(25))
    grid = make_grid([Column("x", Kind.CATEGORY, np.append(codes, -1), Levels(levels))], 0, 20)
    assert grid.points == list(levels[:20])
    assert (grid.code[codes.tolist().index(20) :] == -1).all()
    assert grid.missing.tolist() == [False] * len(codes) + [True]
    assert (codes[grid.source_rows] == np.arange(20)).all()


@pytest.mark.parametrize("discrete", [True, False])
def test_effects_accumulate_mean_differences_of_steps(discrete):
    """Repeat with loops: means of differences within a step, their sums, less the mean over the rows."""
    rng = np.random.default_rng(1)
    code = rng.integers(0 if discrete else 1, 4, 60)
    grid = EffectGrid([0.0, 1.0, 2.0, 3.0], np.zeros(4, dtype=int), code, np.zeros(60, dtype=bool), discrete)
    row = np.tile(np.arange(60), 2) if discrete else np.arange(60)
    step = np.concatenate([code, code + 1]) if discrete else code
    inside = (step >= 1) & (step <= 3)
    row, step = row[inside], step[inside]
    delta, weight = rng.normal(size=len(row)), rng.integers(0, 3, (1, 60)).astype(float)
    none = np.zeros(0, dtype=int)
    effect = accumulate_effects(grid, Steps(row, step, delta, none, none, none), delta, none, weight)[0]
    curve = [0.0]
    for number in (1, 2, 3):
        rows_of_step = step == number
        curve.append(curve[-1] + np.average(delta[rows_of_step], weights=weight[0, row[rows_of_step]]))
    curve = np.array(curve)
    format_rows = curve[code] if discrete else 0.5 * (curve[code] + curve[code - 1])
    np.testing.assert_allclose(effect, curve - np.average(format_rows, weights=weight[0]))
    empty = np.where(np.isin(code, (2, 3)) if discrete else code == 2, 0.0, weight)
    again = accumulate_effects(grid, Steps(row, step, delta, none, none, none), delta, none, empty)[0]
    assert again[2] - again[1] == pytest.approx(delta[step == 2].mean()) or discrete
    assert np.isfinite(again).all()


def test_a_missing_value_has_the_mean_difference_to_points_that_are_drawn_for_it():
    code = np.array([0, 0, 1, 1, -1, -1])
    grid = EffectGrid([0.0, 1.0], np.array([0, 2]), code, code < 0, True)
    row, step = np.arange(4), np.ones(4, dtype=int)
    delta, missing_rows, at, gap = np.full(4, 2.0), np.array([4, 5]), np.array([0, 1]), np.array([3.0, 3.0])
    effect = accumulate_effects(grid, Steps(row, step, delta, missing_rows, at, gap), delta, gap, np.ones((1, 6)))[0]
    # Points at -1 and 1 about their own mean; a missing value lies 3 above the mean of both; two of six rows have it.
    assert effect == pytest.approx([-1.0 - 1.0, 1.0 - 1.0, 3.0 - 1.0])


def test_errors_of_rows_and_of_components_add_up():
    rng = np.random.default_rng(0)
    code = np.repeat([0, 1], 50)
    grid = EffectGrid([0.0, 1.0], np.array([0, 50]), code, np.zeros(100, dtype=bool), True)
    row, step = np.arange(100), np.ones(100, dtype=int)
    noise = rng.normal(size=100)
    none = np.zeros((1, 0, 3))
    weights = np.array([0.25, 0.75])
    # The mixture has differences of mean 1; its components of 4 and 0.
    delta = np.stack([1.0 + noise, np.full(100, 4.0), np.zeros(100)], axis=1)[None]
    empty = np.zeros(0, dtype=int)
    ones = np.ones(100)
    steps = Steps(row, step, delta, empty, empty, none)
    effect, error = compute_curves(grid, steps, weights, np.random.default_rng(1), ones)
    mean = 1.0 + noise.mean()
    assert effect[0] == pytest.approx([-mean / 2, mean / 2])
    # Half of a difference: of components sqrt(.25 * 9 + .75 * 1) / 2, of the rows about 1 / sqrt(100) / 2.
    apart = 0.5 * np.sqrt(0.25 * 3.0**2 + 0.75 * 1.0**2)
    alone = compute_curves(
        grid, Steps(row, step, delta[..., [0, 0, 0]], empty, empty, none), weights, np.random.default_rng(1), ones
    )
    assert alone[1][0] == pytest.approx(np.full(2, 0.11), abs=0.06)
    np.testing.assert_allclose(error[0], np.hypot(alone[1][0], apart))


def test_rows_count_by_their_weights():
    """Effects of integer weights are those of repeated rows, whatever the number of rows that are drawn."""
    rng = np.random.default_rng(3)
    frame = pl.DataFrame({"x": rng.integers(0, 6, 400).astype(float), "ward": rng.choice(["a", "b", "c"], 400)})
    y = rng.poisson(np.exp(0.3 * frame["x"].to_numpy())).astype(float)
    model = CountRegressor(members=["glm"], random_state=0).fit(frame, y)
    weight = np.where(frame["x"].to_numpy() > 3.0, 4, 1)
    repeated = np.repeat(np.arange(400), weight)
    weighted, often, drawn = (
        effects(Inputs.from_sample(model, rows), max_rows=max_rows)
        for rows, max_rows in (
            (CountRows(frame, y, weight), None),
            (CountRows(frame[repeated], y[repeated]), None),
            (CountRows(frame, y, weight), 300),
        )
    )
    for one, other, some in zip(weighted.results, often.results, drawn.results, strict=True):
        assert one.points == other.points
        np.testing.assert_allclose(one.share, other.share)
        np.testing.assert_allclose(one.mean.effect, other.mean.effect, atol=1e-9)
        assert one.mean.typical == pytest.approx(other.mean.typical)
        assert some.mean.typical == pytest.approx(one.mean.typical, rel=0.08)
    unweighted = effects(Inputs.from_sample(model, CountRows(frame, y)), max_rows=None)
    assert weighted.results[0].mean.typical > 1.2 * unweighted.results[0].mean.typical


@pytest.mark.parametrize("log", [True, False])
def test_curves_have_levels_and_bands_on_their_scale(log):
    curve = Curve("mean", np.array([-0.5, 0.5]), np.array([0.1, 0.2]), 2.0, log)
    scale = np.exp if log else lambda values: values
    np.testing.assert_allclose(curve.level, scale(np.array([1.5, 2.5])))
    np.testing.assert_allclose(curve.low, scale(np.array([1.5, 2.5]) - stats.norm.ppf(0.95) * curve.error), rtol=1e-4)
    np.testing.assert_allclose(curve.high, scale(np.array([1.5, 2.5]) + stats.norm.ppf(0.95) * curve.error), rtol=1e-4)
    assert curve.typical == pytest.approx(scale(2.0))
    effect = Effect("x", "number", [0.0, 1.0], np.array([0.5, 0.5]), curve, curve, True, False)
    assert effect.strength() == pytest.approx(0.5)
    assert effect.strength("spread") == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("kind", "points", "has_missing", "is_line"),
    [
        ("number", 6, False, False),
        ("number", 7, False, True),
        ("number", 7, True, False),
        ("category", 9, False, False),
    ],
)
def test_a_number_with_more_than_six_points_is_a_line(kind, points, has_missing, is_line):
    curve = Curve("mean", np.zeros(points), np.zeros(points), 0.0, True)
    share = np.arange(points) / 10.0
    effect = Effect("x", kind, list(range(points)), share, curve, curve, True, has_missing)
    assert effect.is_line == is_line
    assert effect.frequent == list(range(points))
    many = Effect("x", kind, list(range(20)), np.arange(20) % 7 / 10.0, curve, curve, True, False)
    assert many.frequent == [2, 3, 4, 5, 6, 10, 11, 12, 13, 17, 18, 19]


def test_moments_are_explained_as_logarithms_or_as_they_are():
    mean, variance = np.array([[2.0, 4.0], [0.0, 1.0]]), np.array([[4.0, 2.0], [0.0, 9.0]])
    logs = PredictedMoments(mean, variance, np.ones(1), True).quantities
    np.testing.assert_allclose(logs[0, [0, 0, 1], [0, 1, 1]], np.log([2.0, 4.0, 1.0]))
    np.testing.assert_allclose(logs[1, [0, 0, 1], [0, 1, 1]], np.log([2.0, 0.5, 9.0]))
    assert np.isfinite(logs).all()
    plain = PredictedMoments(mean, variance, np.ones(1), False).quantities
    np.testing.assert_allclose(plain, [mean, np.sqrt(variance)])
