"""Exact linear fits: derivatives, the search for a maximum, and columns in units that lose no digit."""

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime, minimize

from ddpn.members.linear import LinearObjective, inverse_information, maximize, standardize
from ddpn.networks.heads import make_head
from ddpn.rows.count_rows import CountRows

RNG = np.random.default_rng(3)
N = 200
X = RNG.normal(size=(N, 2))
Y = RNG.poisson(np.exp(1.0 + 0.5 * X[:, 0] - 0.3 * X[:, 1])).astype(float)
WEIGHT = RNG.uniform(0.5, 2.0, N)
EXPOSURE = RNG.uniform(0.5, 2.0, N)
HEADS = ["poisson", "negative_binomial", "double_poisson", "gaussian", "natural_gaussian"]


def objective_of(name, linear=True, alpha=0.0, x=X, y=Y, exposure=EXPOSURE):
    head = make_head(name)
    sample = CountRows(x, y, WEIGHT[: len(y)], None if exposure is None else exposure[: len(y)]).map(torch.from_numpy)
    return LinearObjective(head, sample, (True, *[linear] * (head.n_raw - 1)), alpha)


@pytest.mark.parametrize("linear", [True, False], ids=["linear", "constant"])
@pytest.mark.parametrize("name", HEADS)
def test_gradient_and_hessian_are_those_of_differences(name, linear):
    objective = objective_of(name, linear, alpha=0.1)
    theta = objective.start() + RNG.normal(scale=0.1, size=len(objective.start()))
    value = lambda t: objective.value_and_gradient(t)[0]
    slope = lambda t: objective.value_and_gradient(t)[1]
    np.testing.assert_allclose(slope(theta), approx_fprime(theta, value, 1e-7), rtol=1e-4, atol=1e-5)
    hessian = objective.hessian(theta)
    np.testing.assert_allclose(hessian, approx_fprime(theta, slope, 1e-6), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", HEADS)
def test_the_search_ends_at_a_maximum(name):
    objective = objective_of(name)
    found = maximize(objective, objective.start())
    assert found.converged
    assert found.gradient_norm <= 1e-6
    value, gradient = objective.value_and_gradient(found.theta)
    assert np.linalg.norm(gradient) == found.gradient_norm
    for step in RNG.normal(scale=0.01, size=(20, len(found.theta))):
        assert objective.value_and_gradient(found.theta + step)[0] >= value


def test_least_squares_of_large_counts_does_not_end_early():
    y = np.rint(1e6 * np.exp(0.5 * X[:, 0]))
    objective = objective_of("gaussian", linear=False, y=y, exposure=None)
    found = maximize(objective, objective.start())
    root = np.sqrt(WEIGHT)[:, None]
    design = np.c_[np.ones(N), X]
    expected = np.linalg.lstsq(root * design, root[:, 0] * y, rcond=None)[0]
    assert found.converged
    np.testing.assert_allclose(found.theta[:3], expected, rtol=1e-8)


def test_a_curved_valley_is_followed_to_its_end():
    # One count a million times the others: from the common mean, the way to the maximum is long and bent.
    objective = objective_of("gaussian", y=np.r_[Y[:-1], 1e7], exposure=None)
    found, start = maximize(objective, objective.start()), objective.start()
    # A quasi-Newton method needs units in which the curvatures are alike.
    units = 1.0 / np.sqrt(np.abs(np.diag(objective.hessian(start))))
    peer = minimize(lambda u: objective.value_and_gradient(u * units)[0], start / units,
                    jac=lambda u: objective.value_and_gradient(u * units)[1] * units, method="BFGS")  # fmt: skip
    assert found.converged
    assert objective.value_and_gradient(found.theta)[0] == pytest.approx(peer.fun, rel=1e-9)


def test_information_is_inverted_in_its_own_units():
    hessian = np.array([[1e-13, 2e-8], [2e-8, 0.5]])
    np.testing.assert_allclose(inverse_information(hessian, 4.0), np.linalg.inv(4.0 * hessian), rtol=1e-9)
    flat = inverse_information(np.array([[1.0, 1.0], [1.0, 1.0]]), 1.0)
    assert np.isfinite(flat).all()
    assert flat[0, 0] > 1e10


# Columns in which a fit is made --------------------------------------------------------------------------------------

WIDE = RNG.normal(size=(40, 3)) * [1.0, 1e12, 1e-9] + [5.0, 1e12, 0.0]


def test_columns_have_weighted_mean_0_and_deviation_1_and_coefficients_go_back():
    weight = RNG.integers(1, 5, 40).astype(float)
    found = standardize(WIDE, weight)
    repeated = np.repeat(found.reduced(WIDE), weight.astype(int), axis=0)
    np.testing.assert_allclose(repeated.mean(0), 0.0, atol=1e-9)
    np.testing.assert_allclose(repeated.std(0), 1.0, rtol=1e-9)
    theta = np.array([0.3, 1.0, -2.0, 0.5])
    intercept, *slopes = found.to_columns(True) @ theta
    np.testing.assert_allclose(intercept + WIDE @ slopes, theta[0] + found.reduced(WIDE) @ theta[1:], rtol=1e-9)


@pytest.mark.parametrize("rows", [2, 20_001])
@pytest.mark.parametrize("value", [0.1, 1e6 / 3, 1e300, 0.0])
def test_a_constant_is_found_whatever_the_number_of_rows(rows, value):
    for reduce in (True, False):
        found = standardize(np.c_[np.arange(rows), np.full(rows, value)], np.linspace(0.1, 3.0, rows), reduce)
        assert found.kept.tolist() == [True, False]
        assert found.is_constant.tolist() == [False, True]


def test_fewer_rows_than_columns_and_no_columns():
    assert standardize(RNG.normal(size=(5, 9)), np.ones(5)).kept.tolist() == [True] * 4 + [False] * 5
    assert standardize(np.empty((5, 0)), np.ones(5)).kept.shape == (0,)
