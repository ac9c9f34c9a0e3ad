"""`BoostedCountRegressor`: scikit-learn's checks, arguments, saving."""

import numpy as np
import polars as pl
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from ddpn import BoostedCountRegressor, ConfigError, InputError

FEW = {"n_estimators": 30, "max_leaves": 4, "random_state": 0}
FEWER = FEW | {"n_estimators": 5, "learning_rate": 0.5}


@parametrize_with_checks([BoostedCountRegressor(fractional="round", **FEWER)])
def test_it_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pl.DataFrame({"x": rng.normal(size=300), "ward": rng.choice(["A", "B"], 300).tolist()})
    return X, rng.poisson(np.exp(1.0 + X["x"].to_numpy() + (X["ward"] == "A").to_numpy()))


def test_it_is_saved_and_loaded_bit_for_bit(table, tmp_path):
    X, y = table
    model = BoostedCountRegressor(**FEW).fit(X, y)
    assert model.score(X, y) > 0.5
    model.fit_intervals(X, y)
    model.save(tmp_path / "model")
    again = BoostedCountRegressor.load(tmp_path / "model")
    assert (again.predict(X) == model.predict(X)).all()
    assert (again.predict_interval(X) == model.predict_interval(X)).all()
    assert again.get_params() == model.get_params()


def test_the_mean_follows_monotone_constraints(table):
    X, y = table
    for sign in (1, -1):
        model = BoostedCountRegressor(monotone={"x": sign}, **FEW).fit(X, y)
        line = pl.DataFrame({"x": np.linspace(-3, 3, 50), "ward": ["A"] * 50})
        steps = np.diff(np.log(model.member_.distribution(line).mean.numpy()[:, 0]))
        assert (sign * steps >= -1e-12).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"monotone": {"ward": 1}}, "columns of numbers, got 'ward'"),
        ({"monotone": {"wrd": 1}}, "must name columns of X, got 'wrd'"),
        ({"monotone": {"x": 2}}, "must map columns to 1 or -1"),
        ({"learning_rate": 0.0}, "learning_rate must be .auto. or a number in"),
        ({"max_leaves": 1}, "max_leaves must be"),
    ],
)
def test_invalid_arguments_are_refused(table, options, words):
    with pytest.raises((ConfigError, InputError), match=words):
        BoostedCountRegressor(**options).fit(*table)


def test_counts_that_trees_cannot_fit_are_refused(table):
    X, y = table
    with pytest.raises(InputError, match="no count above 0"):
        BoostedCountRegressor().fit(X, 0 * y)
