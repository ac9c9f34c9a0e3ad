"""Test predictions that allow for the uncertainty of a GLM's coefficients."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from ddpn import CountGLM
from ddpn.runtime.errors import ConfigError


def simulate_rates(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate rows with two columns, an exposure and a Poisson count each."""
    rng = np.random.default_rng(seed)
    X, exposure = rng.normal(size=(rows, 2)), rng.uniform(1.0, 4.0, rows)
    return X, exposure, rng.poisson(exposure * np.exp(0.5 + X @ [0.4, -0.3]))


NEW = np.array([[0.0, 0.0], [2.0, -2.0], [-1.0, 1.5]])


@pytest.mark.parametrize("covariance", ["model", "robust"])
def test_confidence_intervals_of_means_are_those_of_statsmodels(covariance):
    X, exposure, y = simulate_rates(120, seed=0)
    model = CountGLM("poisson", covariance=covariance).fit(X, y, exposure=exposure)
    glm = sm.GLM(y, sm.add_constant(X), family=sm.families.Poisson(), exposure=exposure)
    fit = glm.fit(cov_type={"model": "nonrobust", "robust": "HC0"}[covariance])
    expected = fit.get_prediction(np.c_[np.ones(3), NEW], exposure=[1.0, 5.0, 500.0]).summary_frame(alpha=0.2)
    intervals = model.predict_mean_interval(NEW, coverage=0.8, exposure=[1.0, 5.0, 500.0])
    np.testing.assert_allclose(intervals, expected[["mean_ci_lower", "mean_ci_upper"]], rtol=1e-5)


@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial", "double_poisson"])
def test_epistemic_variance_of_draws_is_that_of_the_mean(likelihood):
    X, exposure, y = simulate_rates(120, seed=1)
    model = CountGLM(likelihood).fit(X, y, exposure=exposure)
    drawn = model.predict_distribution(NEW, exposure=2.0, coefficient_draws=2_000)
    lower, upper = model.predict_mean_interval(NEW, coverage=0.6826894921, exposure=2.0).T
    np.testing.assert_allclose(np.sqrt(drawn.epistemic), (upper - lower) / 2.0, rtol=0.08)
    np.testing.assert_allclose(drawn.mean, model.predict(NEW, exposure=2.0), rtol=0.03)
    assert (model.predict_distribution(NEW, exposure=2.0).epistemic < 1e-9).all()


def test_intervals_of_draws_cover_the_counts_of_large_new_units():
    """Counts of units with 100 times the exposure vary less than their estimated means do."""
    rng, covered, levels = np.random.default_rng(0), {0: [], 100: []}, []
    for seed in range(60):
        X, exposure, y = simulate_rates(80, seed)
        model = CountGLM("poisson").fit(X, y, exposure=exposure)
        new_rows = rng.normal(size=(20, 2))
        counts = rng.poisson(200.0 * np.exp(0.5 + new_rows @ [0.4, -0.3]))
        for draws in covered:
            prediction = model.predict_distribution(new_rows, exposure=200.0, coefficient_draws=draws)
            lower, upper = prediction.interval(0.9)
            covered[draws].append(((lower <= counts) & (counts <= upper)).mean())
        levels.append(prediction.interval_with_probability(0.9)[2].mean())
    assert np.mean(covered[0]) < 0.75
    # 60 tables: a standard error of about 1.5 points.
    assert np.mean(covered[100]) == pytest.approx(np.mean(levels), abs=0.05)


def test_draws_repeat_with_their_seed_and_leave_the_model_as_it_is(tmp_path):
    X, _, y = simulate_rates(100, seed=2)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(copy=lambda table: table["a"], kind=np.tile(["u", "v"], 50))
    with pytest.warns(UserWarning, match="'copy'"):
        model = CountGLM().fit(frame, y)
    before = model.predict_distribution(frame).pmf(3)
    first, again, other = (
        model.predict_distribution(frame, coefficient_draws=20, random_state=seed).pmf(3) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    np.testing.assert_array_equal(model.predict_distribution(frame).pmf(3), before)
    model.save(tmp_path / "model")
    loaded = CountGLM.load(tmp_path / "model")
    np.testing.assert_array_equal(
        loaded.predict_distribution(frame, coefficient_draws=20, random_state=1).pmf(3), first
    )
    np.testing.assert_array_equal(loaded.predict_mean_interval(frame), model.predict_mean_interval(frame))
    # The column that repeats another one has no coefficient and adds no uncertainty.
    alone = CountGLM().fit(frame.drop(columns="copy"), y)
    np.testing.assert_allclose(
        model.predict_mean_interval(frame), alone.predict_mean_interval(frame.drop(columns="copy")), rtol=1e-6
    )


def test_intervals_of_means_that_do_not_exist_are_refused():
    X, _, y = simulate_rates(100, seed=3)
    with pytest.raises(ConfigError, match="counts are bounded or censored"):
        CountGLM("poisson", upper=40).fit(X, np.minimum(y, 40)).predict_mean_interval(X)
    with pytest.raises(ConfigError, match="coefficients are not those of the log mean"):
        CountGLM("gaussian").fit(X, y).predict_mean_interval(X)
    model = CountGLM("poisson").fit(X, y)
    with pytest.raises(ConfigError, match="coverage"):
        model.predict_mean_interval(X, coverage=1.0)
    with pytest.raises(ConfigError, match="coefficient_draws"):
        model.predict_distribution(X, coefficient_draws=-1)
