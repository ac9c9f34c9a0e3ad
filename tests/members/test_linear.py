"""Exact linear fits against statsmodels, and in units that lose no digit."""

import numpy as np
import pytest
import statsmodels.api as sm

from ddpn.members.linear import fit_linear
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
