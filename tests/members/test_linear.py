"""Exact linear fits against statsmodels, and in units that lose no digit."""

import numpy as np
import pytest
import statsmodels.api as sm
from statsmodels.stats.outliers_influence import variance_inflation_factor

from ddpn.members.linear import fit_linear, standardize
from ddpn.networks.heads import make_head
from ddpn.sample import Sample

RNG = np.random.default_rng(3)
X = RNG.normal(size=(200, 2))
Y = RNG.poisson(np.exp(0.5 + 0.4 * X[:, 0])).astype(float)
WEIGHT = RNG.integers(1, 4, 200).astype(float)


def fit(matrix=X, head="poisson", dispersion="linear", alpha=0.0):
    return fit_linear(make_head(head), matrix, Sample(matrix, Y, WEIGHT), dispersion, alpha)


def test_it_is_the_model_of_statsmodels():
    found = fit()
    peer = sm.GLM(Y, sm.add_constant(X), sm.families.Poisson(), freq_weights=WEIGHT).fit(tol=1e-13)
    np.testing.assert_allclose(np.r_[found.intercept, found.coef[0]], peer.params, rtol=1e-6)
    np.testing.assert_allclose(found.covariance, peer.cov_params(), rtol=1e-5)
    assert found.loglik == pytest.approx(peer.llf, rel=1e-9)
    np.testing.assert_allclose(np.exp(found.linear.raw(X))[:, 0], peer.fittedvalues, rtol=1e-6)
    assert (found.n_parameters, found.follows) == (3, (True,))


def test_columns_far_from_zero_lose_no_digit():
    far = np.round(X * 1024) + 1e12
    assert fit(far).linear.raw(far) == pytest.approx(fit(np.round(X * 1024)).linear.raw(np.round(X * 1024)), rel=1e-4)


def test_a_constant_dispersion_is_an_intercept():
    found = fit(head="negative_binomial", dispersion="constant", alpha=1e-3)
    assert found.follows == (True, False)
    assert (found.coef[1] == 0).all()
    assert np.ptp(found.linear.raw(X)[:, 1]) == 0.0
    assert found.covariance.shape == (4, 4)
    assert [len(each) for each in found.standard_deviations] == [3, 1]


def test_a_coefficient_that_the_rows_do_not_determine_is_0():
    found, plain = fit(np.c_[X[:, 0], X]), fit()
    assert found.coordinates.kept.tolist() == [True, False, True]
    np.testing.assert_allclose(found.coef, np.insert(plain.coef, 1, 0.0, axis=1), rtol=1e-9)
    known = [0, 1, 3]
    np.testing.assert_allclose(found.covariance[np.ix_(known, known)], plain.covariance, rtol=1e-9)
    assert np.isnan(found.covariance[2]).all()
    assert fit(np.c_[X, X[:, 0]], alpha=1e-3).coordinates.kept.all()


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


@pytest.mark.parametrize(
    ("extra", "kept"),
    [
        (WIDE[:, :1] * 2.0, [False]),
        (np.full((40, 1), 0.1), [False]),
        (1.0 - WIDE[:, :1], [False]),
        (np.hstack([WIDE[:, :1], WIDE[:, 1:2] ** 2]), [False, True]),
    ],
    ids=["a multiple", "a constant", "a complement", "a copy before another column"],
)
def test_a_column_that_those_before_it_determine_is_not_kept(extra, kept):
    found = standardize(np.hstack([WIDE, extra]), np.ones(40))
    assert found.kept.tolist() == [True, True, True, *kept]
    assert np.isfinite(found.inflation).all()


@pytest.mark.parametrize("rows", [2, 20_001])
@pytest.mark.parametrize("value", [0.1, 1e6 / 3, 1e300, 0.0])
def test_a_constant_is_found_whatever_the_number_of_rows(rows, value):
    for reduce in (True, False):
        found = standardize(np.c_[np.arange(rows), np.full(rows, value)], np.linspace(0.1, 3.0, rows), reduce)
        assert found.kept.tolist() == [True, False]
        assert found.is_constant.tolist() == [False, True]


def test_inflation_is_the_root_of_the_variance_inflation_factor():
    near = np.c_[WIDE[:, 0], WIDE[:, 2], WIDE[:, 0] + 1e-3 * RNG.normal(size=40)]
    factors = [variance_inflation_factor(sm.add_constant(near), column) for column in (1, 2, 3)]
    np.testing.assert_allclose(np.square(standardize(near, np.ones(40)).inflation), factors, rtol=1e-5)


def test_fewer_rows_than_columns_and_no_columns():
    assert standardize(RNG.normal(size=(5, 9)), np.ones(5)).kept.tolist() == [True] * 4 + [False] * 5
    assert standardize(np.empty((5, 0)), np.ones(5)).kept.shape == (0,)
