"""Test zero-inflated and hurdle heads: parameters are recovered, and likelihoods agree with sums of two parts."""

import numpy as np
import pytest

from ddpn import CountGLM


@pytest.fixture(scope="module")
def zeros_and_counts():
    """Columns, Poisson means, and zeros of their own that follow another column."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 2))
    is_zero = rng.random(3000) < 1 / (1 + np.exp(0.5 - 0.8 * X[:, 1]))
    return X, rng.poisson(np.exp(1.0 + 0.5 * X[:, 0])), is_zero


TRUTH = {"log mu": [1.0, 0.5, 0.0], "logit pi": [-0.5, 0.0, 0.8], "log gamma": [0.0, 0.0, 0.0]}


@pytest.mark.parametrize("name", ["zero_inflated_poisson", "zero_inflated_double_poisson"])
def test_a_glm_recovers_zero_inflated_counts(name, zeros_and_counts):
    X, counts, is_zero = zeros_and_counts
    model = CountGLM(likelihood=name).fit(X, np.where(is_zero, 0, counts))
    assert model.converged_
    check_coefficients(model)


def test_a_glm_recovers_hurdle_counts(zeros_and_counts):
    X, counts, is_zero = zeros_and_counts
    used = (counts > 0) | is_zero  # positive Poisson counts, and zeros that owe nothing to the Poisson
    y = np.where(is_zero, 0, counts)[used]
    model = CountGLM(likelihood="hurdle_poisson").fit(X[used], y)
    estimates = np.c_[model.intercept_, model.coef_]
    errors = model.standard_errors_.reshape(estimates.shape)
    assert (np.abs(estimates[0] - TRUTH["log mu"]) < 3.5 * errors[0]).all()
    # Given that a row is there, its odds of a zero are those of its own zeros over those of a positive count.
    assert estimates[1, 2] > 5 * errors[1, 2]


def check_coefficients(model):
    for name, estimates in zip(model.head_.parameter_names, np.c_[model.intercept_, model.coef_], strict=True):
        table = model.coefficient_table()
        errors = np.array(
            [error for error, p in zip(model.standard_errors_, table.parameter, strict=True) if p == name]
        )
        assert (np.abs(estimates - TRUTH[name]) < 3.5 * errors).all()


def test_large_counts_with_zeros_converge():
    """A search that starts at zero overflows on these counts."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1000, 1))
    y = np.where(rng.random(1000) < 0.3, 0, rng.poisson(np.exp(9.0 + 0.8 * X[:, 0])))
    model = CountGLM(likelihood="zero_inflated_poisson", dispersion="constant").fit(X, y)
    assert model.converged_
    assert model.intercept_ == pytest.approx([9.0, np.log(0.3 / 0.7)], abs=0.25)
    assert model.coef_[0] == pytest.approx([0.8], abs=0.01)
    low, high = model.predict_interval(X, 0.9).T
    assert ((low <= y) & (y <= high)).mean() >= 0.88
