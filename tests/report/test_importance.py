"""Permutation importance against scikit-learn's, and what must not move anything."""

import numpy as np
import pandas as pd
import pytest
from sklearn.inspection import permutation_importance

from ddpn.report import importance as room
from ddpn.report.evidence import gather
from ddpn.report.importance import importances

QUIET = lambda stage: None


@pytest.fixture(scope="module")
def found(fitted, evidence):
    return importances(fitted, evidence, QUIET)


def test_the_driving_column_comes_first_and_shares_agree_with_scikit_learn(fitted, data, evidence, found):
    frame, y = data
    crps = lambda model, X, y: -model.crps(X, y)
    theirs = permutation_importance(fitted, frame, y, scoring=crps, n_repeats=5, random_state=4)
    shares = dict(zip(frame.columns, theirs.importances_mean / fitted.crps(frame, y), strict=True))
    assert found.by("crps")[0].name == "x"
    assert found.by("crps")[0].crps == pytest.approx(shares["x"], rel=0.2)
    for one in found.each:
        assert one.crps == pytest.approx(shares[one.name], abs=0.06)
        assert one.crps_spread[0] <= one.crps <= one.crps_spread[1]


def test_a_column_the_model_ignores_changes_nothing(quick):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=120), "same": 1.0})
    y = rng.poisson(np.exp(frame["x"]))
    model = quick().fit(frame, y)
    each = {one.name: one for one in importances(model, gather(model, frame, y, None, None, {}, QUIET), QUIET).each}
    assert (each["same"].crps, each["same"].deviation, each["same"].epistemic) == pytest.approx((0, 0, 0), abs=1e-9)
    assert each["x"].deviation > 0.05


def test_an_exposure_is_shuffled_too(quick):
    rng = np.random.default_rng(1)
    frame, exposure = pd.DataFrame({"x": rng.normal(size=200)}), rng.uniform(0.1, 20.0, 200)
    y = rng.poisson(exposure)
    model = quick().fit(frame, y, exposure=exposure)
    evidence = gather(model, frame, y, exposure, None, {}, QUIET)
    best = importances(model, evidence, QUIET, "days").by("crps")[0]
    assert (best.name, best.column) == ("days", -1)
    assert best.crps > 0.5


def test_of_many_columns_those_that_move_predictions_are_measured(monkeypatch, fitted, evidence):
    monkeypatch.setattr(room, "_MAX_COLUMNS", 2)
    kept = importances(fitted, evidence, QUIET)
    assert "x" in [one.name for one in kept.each]
    assert (len(kept.each), kept.columns) == (2, 4)
    monkeypatch.setattr(room, "_MAX_LOOKED_AT", 3)
    assert importances(fitted, evidence, QUIET).each == []
