"""Accumulated local effects against formulas; every kind of column, table and model."""

import numpy as np
import pytest
import torch
from torch.distributions import Normal

from ddpn import CountGLM
from ddpn.analysis.explanations import Inputs, effects
from ddpn.analysis.explanations.column_effects import grid_of
from ddpn.members.member import Member
from ddpn.predictor import Predictor
from ddpn.rows.count_range import CountRange
from ddpn.tables.encoding.table import Column

WARDS = {"a": 0.0, "b": 0.7, "c": -0.4, None: 0.3}


def ward(c):
    return np.array([WARDS[level] for level in c["ward"]])


def age(c):
    return np.where(np.isnan(c["age"]), 0.9, 0.01 * c["age"])


def additive(c):
    return 0.5 * np.sin(2 * c["x"]) - 0.3 * c["z"] + ward(c) + age(c) + 0.2 * c["few"] ** 2 + 0.4 * c["flag"]


def centred(effect, share):
    return effect - share @ effect


def test_effects_of_an_additive_model_are_its_terms_though_columns_are_correlated(formula, frame):
    found = effects(Inputs(formula(additive), frame))
    x = found["x"]
    points = np.array(x.points)
    assert x.continuous
    assert len(points) == 21
    assert np.isin(points, frame["x"]).all(), "values that occur"
    np.testing.assert_allclose(np.diff(x.mean.effect), np.diff(0.5 * np.sin(2 * points)), atol=1e-9)
    z = found["z"]
    np.testing.assert_allclose(np.diff(z.mean.effect), -0.3 * np.diff(z.points), atol=1e-9)
    # A Poisson: no column has an effect on the spread.
    assert max(one.strength("spread") for one in found) < 1e-9
    assert found.by("mean")[0].name == "few"
    assert all(abs(one.share.sum() - 1) < 1e-9 for one in found)


def test_levels_flags_few_values_and_missing_ones_have_the_effects_of_their_terms(formula, frame):
    found = effects(Inputs(formula(additive), frame))
    wards = found["ward"]
    assert wards.points == ["c", "a", "b", "missing"], "by their effect, missing last"
    terms = np.array([WARDS[level] for level in ("c", "a", "b", None)])
    np.testing.assert_allclose(wards.mean.effect, centred(terms, wards.share), atol=1e-9)
    np.testing.assert_allclose(wards.share[-1], frame["ward"].isna().mean())
    few, flag = found["few"], found["flag"]
    assert (few.points, flag.points, few.continuous) == ([0.0, 1.0, 2.0, 3.0], [False, True], False)
    np.testing.assert_allclose(few.mean.effect, centred(0.2 * np.arange(4.0) ** 2, few.share), atol=1e-9)
    np.testing.assert_allclose(flag.mean.effect, centred(np.array([0.0, 0.4]), flag.share), atol=1e-9)
    old = found["age"]
    assert old.points[-1] == "missing"
    values = np.array(old.points[:-1])
    np.testing.assert_allclose(np.diff(old.mean.effect[:-1]), 0.01 * np.diff(values), atol=1e-9)
    np.testing.assert_allclose(old.mean.effect[-1] - old.mean.effect[0], 0.9 - 0.01 * values[0], atol=1e-9)


def test_a_column_may_move_the_spread_only(formula, frame):
    found = effects(Inputs(formula(lambda c: 1.0 + 0 * c["x"], alpha=lambda c: np.exp(c["z"])), frame))
    assert (found["z"].mean.quantity, found["z"].spread.quantity) == ("mean", "variance / mean")
    assert max(one.strength("mean") for one in found) < 1e-9
    z = found["z"]
    # Variance / mean of a Negative Binomial is 1 + alpha mean.
    expected = 1.0 + np.exp(z.points) * np.e
    np.testing.assert_allclose(z.spread.level / z.spread.level[0], expected / expected[0], rtol=1e-6)
    assert found.by("spread")[0] is z
    assert found["x"].strength("spread") < 1e-9


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
    found = effects(Inputs(formula(lambda c: 0.1 * c["x"], needs_exposure=True), frame, exposure=days))
    points = np.array(found["exposure"].points)
    np.testing.assert_allclose(np.diff(found["exposure"].mean.effect), np.diff(np.log(points)), atol=1e-9)
    np.testing.assert_allclose(np.diff(found["x"].mean.effect), 0.1 * np.diff(found["x"].points), atol=1e-9)
    bounded = formula(lambda c: 3.0 + c["x"], counts=CountRange(upper_per_row=True))
    beds = np.random.default_rng(3).integers(2, 9, len(frame))
    found = effects(Inputs(bounded, frame, upper=beds), columns=["upper", "x"])
    assert found["upper"].points == list(range(2, 9))
    assert (np.diff(found["upper"].mean.level) > 0).all()
    assert found["x"].mean.level.max() < 8


class Gaussian(Member):
    def distribution(self, X, exposure=None):
        x = torch.from_numpy(np.asarray(X, dtype=float))
        return Normal(x[:, :1] * 2.0, 1.0 + x[:, 1:] ** 2)

    fit = state = from_state = None


def test_a_gaussian_has_effects_in_counts_and_on_its_standard_deviation():
    X = np.random.default_rng(0).normal(size=(200, 2))
    found = effects(Inputs(Predictor({"g": Gaussian()}), X))
    first = found["x0"]
    assert not first.mean.log
    assert first.spread.quantity == "standard deviation"
    np.testing.assert_allclose(np.diff(first.mean.level), 2 * np.diff(first.points), atol=1e-9)
    np.testing.assert_allclose(np.diff(found["x1"].spread.level), np.diff(np.array(found["x1"].points) ** 2), atol=1e-9)


def test_a_column_without_values_and_one_with_many_levels(formula, frame):
    table = frame[["x"]].assign(none=np.nan, code=[f"level {i % 50}" for i in range(len(frame))])
    found = effects(Inputs(formula(lambda c: c["x"]), table))
    assert found["none"].points == ["missing"]
    assert found["none"].mean.effect.tolist() == [0.0]
    assert len(found["code"].points) == 20
    assert found["code"].share.sum() == pytest.approx(20 / 50)


def test_neighbouring_levels_are_alike_in_the_other_columns():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, 2000)
    place = np.array([2.0, 0.0, 3.0, 1.0])[codes]
    other = Column("o", "number", place + 0.8 * rng.normal(size=2000))
    points = grid_of([Column("c", "category", codes, ("p", "q", "r", "s")), other], 0, 20).points
    assert points in (["q", "s", "p", "r"], ["r", "p", "s", "q"])
    sizes = Column("c", "category", codes, ("10", "9", "30", "2"))
    assert grid_of([sizes, other], 0, 20).points == ["2", "9", "10", "30"]


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
