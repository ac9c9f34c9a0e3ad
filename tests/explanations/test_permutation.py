"""Permutation importance against scikit-learn's, and columns without effect."""

import numpy as np
import polars as pl
import pytest
from ddpn.report.importance import importances
from sklearn.inspection import permutation_importance

from ddpn.report import importance as module
from ddpn.report.evidence import gather

QUIET = lambda stage: None


def test_the_importances_agree_with_scikit_learn(fitted, data, evidence):
    frame, y = data
    crps = lambda model, X, y: -model.crps(X, y)
    theirs = permutation_importance(fitted, frame, y, scoring=crps, n_repeats=4, random_state=4)
    shares = dict(zip(frame.columns, theirs.importances_mean / fitted.crps(frame, y), strict=True))
    found = importances(fitted, evidence, QUIET)
    assert found.by("crps")[0].name == "x"
    assert found.by("crps")[0].crps.mean() == pytest.approx(shares["x"], rel=0.2)
    for one in found.each:
        assert one.crps.mean() == pytest.approx(shares[one.name], abs=0.06)
        assert one.deviation.min() >= 0.0
        assert one.crps.shape == (3,)


def test_frames_of_all_libraries_give_the_same_numbers(monkeypatch, fitted, data):
    monkeypatch.setattr(module, "REPEATS", 1)
    pandas, y = data[0].iloc[:60], data[1][:60]
    found = []
    for X, counts in ((pandas, y), (pl.from_pandas(pandas), pl.Series(y))):
        evidence = gather(fitted, X, counts, None, None, {}, QUIET)
        found.append((evidence, importances(fitted, evidence, QUIET)))
    (one, each), (other, others) = found
    assert one.fingerprint == other.fingerprint
    assert one.model.crps.tolist() == other.model.crps.tolist()
    assert [a.crps.tolist() for a in each.each] == [b.crps.tolist() for b in others.each]


def test_a_constant_column_changes_nothing_and_an_exposure_is_shuffled_too(with_exposure):
    model, given = with_exposure
    sample = {name: values[:80] for name, values in given.items()}
    evidence = gather(model, **sample | {"X": np.full((80, 1), 0.5)}, weight=None, baselines={}, progress=QUIET)
    found = importances(model, evidence, QUIET, "days")
    days, same = found.by("crps")
    assert (days.name, days.column) == ("days", -1)
    assert days.crps.min() > 0.5
    assert days.deviation.mean() > 0.05
    assert np.abs([same.crps, same.deviation, same.aleatoric, same.epistemic]).max() == pytest.approx(0.0, abs=1e-9)


def test_of_many_columns_those_that_change_predictions_most_are_measured(monkeypatch, fitted, evidence):
    monkeypatch.setattr(module, "_MAX_COLUMNS", 2)
    monkeypatch.setattr(module, "REPEATS", 1)
    kept = importances(fitted, evidence, QUIET)
    assert "x" in [one.name for one in kept.each]
    assert (len(kept.each), kept.columns) == (2, 4)
    monkeypatch.setattr(module, "_MAX_SCREENED", 3)
    assert importances(fitted, evidence, QUIET).each == []
