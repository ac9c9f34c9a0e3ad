"""Test permutation importance against scikit-learn's, and with columns that move the mean or the spread alone."""

import numpy as np
import pandas as pd
import pytest
from sklearn.inspection import permutation_importance

from ddpn import CountGLM
from ddpn.analysis.explanations import Inputs, importance
from ddpn.analysis.explanations import inputs as inputs_module
from ddpn.analysis.explanations import permutation as module
from ddpn.rows.count_rows import CountRows


def join_counts(model, X, y, sample_weight=None, exposure=None, censored=None) -> Inputs:
    """Join a model with rows and their counts."""
    counts = getattr(model, "predictor_", model).counts
    return Inputs.from_sample(model, counts.apply(CountRows(X, y, sample_weight, exposure, censored=censored)))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = pd.DataFrame({"x": rng.normal(size=500), "ward": rng.choice(["a", "b"], 500), "noise": rng.normal(size=500)})
    return X, rng.poisson(np.exp(1 + 0.8 * X["x"] + 0.3 * (X["ward"] == "b")))


@pytest.fixture(scope="module")
def poisson_glm(data):
    return CountGLM(likelihood="poisson").fit(*data)


def test_the_importances_agree_with_scikit_learn(poisson_glm, data):
    X, y = data
    theirs = permutation_importance(
        poisson_glm, X, y, scoring=lambda m, X, y: -m.crps(X, y), n_repeats=4, random_state=4
    )
    shares = dict(zip(X.columns, theirs.importances_mean / poisson_glm.crps(X, y), strict=True))
    importances = importance(join_counts(poisson_glm, X, y))
    assert importances.by("crps")[0].name == "x"
    assert importances.by("crps")[0].crps.mean() == pytest.approx(shares["x"], rel=0.2)
    for one in importances.results:
        assert one.crps.mean() == pytest.approx(shares[one.name], rel=0.2, abs=0.06)
        assert one.mean.min() >= 0.0
        assert one.crps.shape == (3,)
    # A Poisson: the spread is the mean.
    assert max(one.spread.max() for one in importances.results) < 1e-6
    table = importances.to_dict()
    assert table["column"][0] == "x"
    assert table["crps_low"][0] <= table["crps"][0] <= table["crps_high"][0]


def test_mean_and_spread_have_columns_of_their_own(formula):
    X = np.random.default_rng(0).normal(size=(300, 3))
    model = formula(lambda c: 1 + c["x0"], alpha=lambda c: 0.2 * np.exp(c["x1"]) / np.exp(1 + c["x0"]))
    importances = {one.name: one for one in importance(join_counts(model, X, np.ones(300)), repeats=2).results}
    assert importances["x0"].mean.mean() > 0.5
    assert importances["x0"].spread.max() < 1e-9
    assert importances["x1"].mean.max() < 1e-9
    assert importances["x1"].spread.mean() > 0.1
    assert [
        float(np.abs(values).max())
        for values in (importances["x2"].mean, importances["x2"].spread, importances["x2"].crps)
    ] == [0] * 3
    # By the definition: the mean absolute change over the average.
    rng = np.random.default_rng(1)
    mean = np.exp(1 + X[:, 0])
    changes = [np.abs(rng.permutation(mean) - mean).mean() / mean.mean() for _ in range(50)]
    assert importances["x0"].mean.mean() == pytest.approx(np.mean(changes), rel=0.15)


def test_a_constant_column_changes_nothing_and_an_exposure_is_shuffled_too():
    rng = np.random.default_rng(0)
    X, days = rng.normal(size=(160, 1)), rng.uniform(0.1, 20.0, 160)
    y = rng.poisson(days)
    model = CountGLM(likelihood="poisson").fit(X, y, exposure=days)
    same, shuffled = importance(join_counts(model, np.full((80, 1), 0.5), y[:80], exposure=days[:80])).results
    assert (shuffled.name, shuffled.position) == ("exposure", 1)
    assert shuffled.crps.min() > 0.5
    assert np.abs([getattr(same, name) for name in module.MEASURES]).max() == pytest.approx(0.0, abs=1e-9)


def test_rows_without_weight_do_not_count_and_censored_counts_do(poisson_glm, data):
    X, y = data
    weight = (np.arange(500) < 100).astype(float)
    with_weight = importance(join_counts(poisson_glm, X, np.where(weight > 0, y, 999), sample_weight=weight), repeats=1)
    assert with_weight.rows == 100
    assert with_weight.to_dict() == importance(join_counts(poisson_glm, X[:100], y[:100]), repeats=1).to_dict()
    censored = importance(join_counts(poisson_glm, X[:100], y[:100], censored=np.ones(100, dtype=bool)), repeats=1)
    assert censored.results[0].crps != with_weight.results[0].crps


def test_of_many_columns_those_that_change_predictions_most_are_measured(monkeypatch, formula):
    X, y = np.random.default_rng(0).normal(size=(50, 6)), np.ones(50)
    model = formula(lambda c: c["x1"] + c["x4"])
    monkeypatch.setattr(inputs_module, "MAX_COLUMNS", 2)
    kept = importance(join_counts(model, X, y), repeats=1)
    assert [one.name for one in kept.results] == ["x1", "x4"]
    assert kept.columns == 6
    monkeypatch.setattr(module, "_MAX_SCREENED_COLUMNS", 3)
    assert importance(join_counts(model, X, y)).results == []
    assert len(importance(join_counts(model, X, y), columns=["x0", "x1", "x2", "x3"], repeats=1).results) == 4
