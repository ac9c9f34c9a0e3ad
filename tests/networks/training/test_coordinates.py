import numpy as np
import pytest
import statsmodels.api as sm
from ddpn.networks.training.coordinates import standardize
from statsmodels.stats.outliers_influence import variance_inflation_factor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)) * [1.0, 1e12, 1e-9] + [5.0, 1e12, 0.0]


def test_columns_have_weighted_mean_0_and_deviation_1():
    weight = RNG.integers(1, 5, 40).astype(float)
    found = standardize(X, weight)
    repeated = np.repeat(found.reduced(X), weight.astype(int), axis=0)
    np.testing.assert_allclose(repeated.mean(0), 0.0, atol=1e-9)
    np.testing.assert_allclose(repeated.std(0), 1.0, rtol=1e-9)
    assert found.kept.all()
    np.testing.assert_allclose(found.inflation, 1.0, rtol=0.3)


def test_coefficients_go_back_to_the_columns_as_they_were():
    found = standardize(X, np.ones(40))
    theta = np.array([0.3, 1.0, -2.0, 0.5])
    intercept, *slopes = found.to_columns(True) @ theta
    np.testing.assert_allclose(intercept + X @ slopes, theta[0] + found.reduced(X) @ theta[1:], rtol=1e-9)
    assert found.to_columns(False).tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("extra", "kept"),
    [
        (X[:, :1] * 2.0, [True, True, True, False]),
        (np.full((40, 1), 0.1), [True, True, True, False]),
        (1.0 - X[:, :1], [True, True, True, False]),
        (np.hstack([X[:, :1], X[:, 1:2] ** 2]), [True, True, True, False, True]),
    ],
    ids=["a multiple", "a constant", "a complement", "a copy before another column"],
)
def test_a_column_that_those_before_it_determine_is_not_kept(extra, kept):
    found = standardize(np.hstack([X, extra]), np.ones(40))
    assert found.kept.tolist() == kept
    assert found.reduced(np.hstack([X, extra])).shape == (40, sum(kept))
    assert np.isfinite(found.inflation).all()


@pytest.mark.parametrize("rows", [2, 1500, 20_001])
@pytest.mark.parametrize("reduce", [True, False])
@pytest.mark.parametrize("value", [0.1, 7.3, 1e6 / 3, 1e300, 0.0])
def test_a_constant_is_found_whatever_the_number_of_rows(rows, reduce, value):
    found = standardize(np.c_[np.arange(rows), np.full(rows, value)], np.linspace(0.1, 3.0, rows), reduce)
    assert found.kept.tolist() == [True, False]
    assert found.is_constant.tolist() == [False, True]
    assert (found.to_columns(True)[0, 0], found.to_columns(True)[2].tolist()) == (1.0, [0.0, 0.0])


def test_inflation_is_the_root_of_the_variance_inflation_factor():
    rng = np.random.default_rng(2)
    near = np.c_[X[:, 0], X[:, 2], X[:, 0] + 1e-3 * rng.normal(size=40)]
    factors = [variance_inflation_factor(sm.add_constant(near), column) for column in (1, 2, 3)]
    np.testing.assert_allclose(np.square(standardize(near, np.ones(40)).inflation), factors, rtol=1e-5)


def test_a_penalty_may_keep_all_columns_but_constants():
    assert standardize(np.hstack([X, X]), np.ones(40), reduce=False).kept.all()


def test_fewer_rows_than_columns_and_no_columns():
    assert standardize(RNG.normal(size=(5, 9)), np.ones(5)).kept.tolist() == [True] * 4 + [False] * 5
    assert standardize(np.empty((5, 0)), np.ones(5)).kept.shape == (0,)
