"""Explanations as methods of estimators."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import ddpn
from ddpn import CountGLM, DDPNRegressor


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.integers(20, 60, 300), "ward": rng.choice(["a", "b"], 300)})
    days = rng.uniform(1, 9, 300)
    y = rng.poisson(days * np.exp(0.02 * X["age"] + 0.5 * (X["ward"] == "b")))
    return CountGLM(likelihood="negative_binomial").fit(X, y, exposure=days), X, y, days


def test_methods_are_the_functions(fitted):
    model, X, y, days = fitted
    found = model.effects(X, days, columns=["age", "exposure"], bins=5)
    assert [one.name for one in found] == ["age", "exposure"]
    age = found["age"]
    slope = np.diff(age.mean.effect) / np.diff(age.points)
    np.testing.assert_allclose(slope, slope[0], rtol=1e-6)
    assert slope[0] == pytest.approx(0.02, abs=0.01)
    assert model.interactions(X, days) == []
    assert {one.name for one in model.importance(X, y, exposure=days, repeats=1).each} == {"age", "ward", "exposure"}
    rows = model.contributions(X[:4], days[:4], background=X, background_exposure=days)
    np.testing.assert_allclose(np.exp(rows.base + rows.values.sum(1)), model.predict(X[:4], days[:4]))
    whole = ddpn.explain(model, X, exposure=days)
    assert whole.importance is None
    assert len(whole.effects) == 3


def test_an_unfitted_model_is_refused():
    for call in ("effects", "interactions", "contributions"):
        with pytest.raises(NotFittedError):
            getattr(DDPNRegressor(), call)(np.zeros((3, 1)))
    with pytest.raises(NotFittedError):
        DDPNRegressor().importance(np.zeros((3, 1)), np.zeros(3))
