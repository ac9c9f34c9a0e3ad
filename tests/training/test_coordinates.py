import numpy as np
import pytest

from ddpn.training.coordinates import standardize

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)) * [1.0, 1e12, 1e-9] + [5.0, 1e12, 0.0]


def test_columns_have_weighted_mean_0_and_deviation_1():
    weight = RNG.integers(1, 5, 40).astype(float)
    found = standardize(X, weight)
    repeated = np.repeat(found.reduced(X), weight.astype(int), axis=0)
    np.testing.assert_allclose(repeated.mean(0), 0.0, atol=1e-9)
    np.testing.assert_allclose(repeated.std(0), 1.0, rtol=1e-9)
    assert found.is_full
    assert found.determined.all()


def test_coefficients_go_back_to_the_columns_as_they_were():
    found = standardize(X, np.ones(40))
    theta = np.array([0.3, 1.0, -2.0, 0.5])
    intercept, *slopes = found.to_columns(True) @ theta
    np.testing.assert_allclose(intercept + X @ slopes, theta[0] + found.reduced(X) @ theta[1:], rtol=1e-9)
    assert found.to_columns(False).tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("extra", "determined"),
    [
        (X[:, :1] * 2.0, [True, False, True, True, False]),
        (np.full((40, 1), 0.1), [True, True, True, True, False]),
        (1.0 - X[:, :1], [False, False, True, True, False]),
    ],
    ids=["a multiple", "a constant", "a complement, which moves the intercept too"],
)
def test_columns_that_the_rows_do_not_determine_are_known(extra, determined):
    found = standardize(np.hstack([X, extra]), np.ones(40))
    assert found.determined.tolist() == determined
    assert found.basis.shape == (4, 3)
    np.testing.assert_allclose(found.basis.T @ found.basis, np.eye(3), atol=1e-12)


def test_a_penalty_may_keep_all_directions():
    assert standardize(np.hstack([X, X]), np.ones(40), reduce=False).is_full


def test_fewer_rows_than_columns_and_no_columns():
    assert standardize(RNG.normal(size=(5, 9)), np.ones(5)).basis.shape == (9, 4)
    assert standardize(np.empty((5, 0)), np.ones(5)).basis.shape == (0, 0)
