"""CountRegressor among scikit-learn's tools: its own checks, pipelines, searches, metadata routing, copies."""

import pickle
from io import BytesIO

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.metrics import d2_tweedie_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ddpn import CountRegressor

FOLDS = KFold(3, shuffle=True, random_state=0)


@parametrize_with_checks([CountRegressor(fractional="round", members=1, hidden=(16,), epochs=15, random_state=0)])
def test_passes_the_checks_of_scikit_learn(estimator, check):
    """All of them: none is expected to fail. Some have targets that are no counts, hence `fractional`."""
    check(estimator)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_options_are_kept_as_they_were_given():
    hidden = [4, 4]
    model = CountRegressor(hidden=hidden, members=3)
    assert model.hidden is hidden
    assert model.get_params()["members"] == 3
    model.set_params(members=4, likelihood="poisson")
    assert (model.members, model.likelihood) == (4, "poisson")
    with pytest.raises(ValueError, match="Invalid parameter 'member'"):
        model.set_params(member=4)


def test_a_clone_is_unfitted_and_fits_the_same(fitted, counts):
    copy = clone(fitted)
    assert not hasattr(copy, "model_")
    assert (copy.fit(*counts).predict(counts[0]) == fitted.predict(counts[0])).all()


@pytest.mark.parametrize("how", ["pickle", "joblib"])
def test_copies_predict_bit_for_bit(fitted, counts, how):
    if how == "pickle":
        copy = pickle.loads(pickle.dumps(fitted))
    else:
        file = BytesIO()
        joblib.dump(fitted, file)
        file.seek(0)
        copy = joblib.load(file)
    assert (copy.predict(counts[0]) == fitted.predict(counts[0])).all()
    assert (copy.predict_interval(counts[0]) == fitted.predict_interval(counts[0])).all()


def test_fits_side_by_side(quick, counts):
    alone = cross_val_score(quick(), *counts, cv=FOLDS)
    with joblib.parallel_config(backend="threading"):  # processes would spend a minute importing torch
        assert cross_val_score(quick(), *counts, cv=FOLDS, n_jobs=2) == pytest.approx(alone, rel=1e-4)


def test_goes_into_a_pipeline(quick):
    X = pd.DataFrame({"ward": list("ABC") * 20, "age": np.linspace(20, 80, 60)})
    y = np.arange(60) % 3 * 4.0
    columns = ColumnTransformer([("ward", OneHotEncoder(), ["ward"]), ("age", StandardScaler(), ["age"])])
    pipe = make_pipeline(columns, quick(epochs=60, lr=0.03)).fit(X, y)
    assert pipe.score(X, y) > 0.8
    assert pipe[-1].predict_interval(pipe[:-1].transform(X)).shape == (60, 2)


def test_a_grid_is_searched_with_numbers_of_numpy(quick, counts):
    grid = {"epochs": np.array([1, 30]), "lr": np.array([1e-2]), "batch_size": np.array([32])}
    search = GridSearchCV(quick(), grid, cv=FOLDS).fit(*counts)
    assert search.best_params_["epochs"] == 30
    assert search.best_estimator_.predict(counts[0]).shape == (90,)


def test_score_is_the_share_of_deviance_explained(fitted, counts):
    X, y = counts
    weight = np.random.default_rng(2).uniform(0.5, 2.0, len(y))
    for weights in (None, weight):
        wanted = d2_tweedie_score(y, fitted.predict(X), power=1, sample_weight=weights)
        assert fitted.score(X, y, weights) == pytest.approx(wanted, rel=1e-10)


@pytest.mark.usefixtures("routing")
def test_weights_and_exposures_find_their_way(quick, counts, exposures):
    """Scores of each fold equal those of a loop by hand that passes both to fit and to score."""
    X, y = counts
    weight = np.random.default_rng(2).integers(1, 4, len(y)).astype(float)
    model = quick().set_fit_request(sample_weight=True, exposure=True)
    model = model.set_score_request(sample_weight=True, exposure=True)
    found = cross_val_score(model, X, y, cv=FOLDS, params={"sample_weight": weight, "exposure": exposures})
    for score, (train, test) in zip(found, FOLDS.split(X), strict=True):
        by_hand = quick().fit(X[train], y[train], weight[train], exposures[train])
        assert score == pytest.approx(by_hand.score(X[test], y[test], weight[test], exposures[test]), abs=1e-12)
        assert score != pytest.approx(by_hand.score(X[test], y[test], None, exposures[test]), abs=1e-6)


@pytest.mark.usefixtures("routing")
def test_exposures_reach_every_step_of_a_search(quick, counts, exposures):
    X, y = counts
    model = quick(likelihood="poisson").set_fit_request(exposure=True).set_score_request(exposure=True)
    model = model.set_predict_request(exposure=True)
    search = GridSearchCV(make_pipeline(StandardScaler(), model), {"countregressor__epochs": [1, 20]}, cv=FOLDS)
    search.fit(X, y, exposure=exposures)
    one, two = (search.best_estimator_.predict(X, exposure=scale * exposures) for scale in (1.0, 2.0))
    inner = search.best_estimator_[-1]
    scaled = search.best_estimator_[:-1].transform(X)
    assert (one == inner.predict(scaled, exposures)).all()
    assert two == pytest.approx(2.0 * one, rel=1e-12)
    assert np.isfinite(search.score(X, y, exposure=exposures))


@pytest.mark.usefixtures("routing")
def test_an_exposure_that_was_not_asked_for_is_told(quick, counts, exposures):
    with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="exposure"):
        cross_validate(quick(), *counts, cv=FOLDS, params={"exposure": exposures})
