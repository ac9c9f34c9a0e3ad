"""Test that contributions add up to the prediction, and are the terms of an additive model."""

import numpy as np
import pytest

from ddpn import CountGLM
from ddpn.analysis.explanations import Inputs, contributions
from ddpn.rows.count_range import CountRange

X = np.random.default_rng(0).normal(size=(30, 3))


def test_contributions_add_up_and_are_the_terms_of_an_additive_model(formula):
    model = formula(lambda c: 0.5 * c["x0"] + np.sin(c["x1"]))
    result = contributions(Inputs(model, X[:5]), Inputs(model, X[5:]))
    np.testing.assert_allclose(result.base + result.values.sum(1), result.prediction, rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.prediction, 0.5 * X[:5, 0] + np.sin(X[:5, 1]), atol=1e-9)
    # All 25 background rows are used, so that the expectation is exact.
    np.testing.assert_allclose(result.values[:, 0], 0.5 * (X[:5, 0] - X[5:, 0].mean()), atol=1e-9)
    np.testing.assert_allclose(result.values[:, 1], np.sin(X[:5, 1]) - np.sin(X[5:, 1]).mean(), atol=1e-9)
    assert np.abs(result.values[:, 2]).max() < 1e-12
    assert (result.quantity, result.log) == ("mean", True)
    assert result.top(0, 1)[0][1] == pytest.approx(X[0, {"x0": 0, "x1": 1}[result.top(0, 1)[0][0]]])
    assert (result.error[:, :2] > 0).all()


def test_contributions_are_exact_shapley_values(formula):
    f = lambda a, b, c: a * b + np.exp(c * b / 2) - a
    model = formula(lambda c: f(c["x0"], c["x1"], c["x2"]))
    x, start = np.array([0.5, 1.0, -0.7]), np.array([-0.2, 0.3, 0.4])
    from itertools import permutations

    exact = np.zeros(3)
    for order in permutations(range(3)):
        row = start.copy()
        for j in order:
            before = f(*row)
            row[j] = x[j]
            exact[j] += (f(*row) - before) / 6
    result = contributions(Inputs(model, [x]), Inputs(model, np.tile(start, (64, 1))))
    np.testing.assert_allclose(result.values[0], exact, atol=4 * result.error.max() + 1e-9)
    assert 0 < result.error.max() < 0.1


def test_the_spread_has_contributions_of_its_own(formula):
    model = formula(lambda c: c["x0"], alpha=lambda c: np.exp(c["x1"] - c["x0"]))
    result = contributions(Inputs(model, X), of="spread")
    np.testing.assert_allclose(result.prediction, np.log1p(np.exp(X[:, 1])), atol=1e-6)
    np.testing.assert_allclose(result.base + result.values.sum(1), result.prediction, atol=1e-12)
    assert np.abs(result.values[:, [0, 2]]).max() < 1e-6
    assert result.quantity == "variance / mean"


def test_exposures_and_upper_bounds_have_contributions(formula):
    days, others = np.array([3.0, 8.0]), np.full(28, 2.0)
    model = formula(lambda c: c["x0"], needs_exposure=True)
    result = contributions(Inputs(model, X[:2], days), Inputs(model, X[2:], exposure=others))
    assert result.columns == ["x0", "x1", "x2", "exposure"]
    np.testing.assert_allclose(result.values[:, 3], np.log(days / 2), atol=1e-9)
    np.testing.assert_allclose(result.prediction, X[:2, 0] + np.log(days))
    bounded = formula(lambda c: 2 + c["x0"], counts=CountRange(upper_per_row=True))
    result = contributions(Inputs(bounded, X, upper=np.arange(30) % 5 + 3))
    assert result.columns[-1] == "upper"
    np.testing.assert_allclose(result.base + result.values.sum(1), result.prediction, atol=1e-12)
    assert np.corrcoef(result.values[:, -1], np.arange(30) % 5)[0, 1] > 0.9


def test_contributions_of_categories_and_missing_values_add_up(formula, frame):
    model = formula(lambda c: np.where(c["ward"] == "b", 0.7, 0.0) + np.where(np.isnan(c["age"]), 0.5, 0.0))
    part = frame[["ward", "age", "flag", "few"]]
    result = contributions(Inputs(model, part[:6]), Inputs(model, part[6:]))
    np.testing.assert_allclose(result.base + result.values.sum(1), result.prediction, atol=1e-12)
    assert np.abs(result.values[:, 2:]).max() < 1e-12
    missing = part["ward"][:6].isna().to_numpy()
    assert [row[0] == "missing" for row in result.cells] == missing.tolist()
    assert all(isinstance(row[2], bool) for row in result.cells)
    document = result.to_dict()
    assert document["table"] == result.table()
    assert document["table"]["row"] == np.repeat(np.arange(6), 4).tolist()
    assert list(document["prediction"].values()) == result.prediction.tolist()


def test_the_prediction_is_that_of_a_recalibrated_model():
    rng = np.random.default_rng(0)
    y = rng.negative_binomial(2, 2 / (2 + np.exp(1 + X[:, 0])))
    model = CountGLM("poisson", covariance="robust").fit(X, y).fit_recalibration(X, y, always=True)
    result = contributions(Inputs(model, X[:3]), Inputs(model, X), max_predictions=200)
    np.testing.assert_allclose(np.exp(result.prediction), model.predict(X[:3]), rtol=1e-9)
    np.testing.assert_allclose(result.base + result.values.sum(1), result.prediction, atol=1e-12)
