"""Polynomials for moments and sums of Double Poissons, against sums over all counts."""

import numpy as np
import pytest

from ddpn.distributions.family_tables import LONGEST, double_poissons
from ddpn.distributions.shared_moments import shared_moments


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return np.exp(rng.uniform(-2.0, 4.0, 3000)), np.exp(rng.uniform(-1.5, 1.0, 3000))


def test_moments_and_sums_are_those_of_all_counts(drawn):
    mu, gamma = drawn
    found = shared_moments(mu, gamma)
    mean, variance, _, total = (x[:, 0] for x in double_poissons(mu[:, None], gamma[:, None], np.ones((3000, 1)), 768))
    np.testing.assert_allclose(found[0], mean, rtol=1e-12)
    np.testing.assert_allclose(found[1], variance, rtol=1e-10)
    np.testing.assert_allclose(found[2], np.log(total), rtol=1e-12, atol=1e-10)


def test_results_do_not_depend_on_other_components(drawn):
    mu, gamma = drawn
    whole, some = shared_moments(mu, gamma), np.arange(3000)[::-7]
    for part, values in zip(shared_moments(mu[some], gamma[some]), whole, strict=True):
        np.testing.assert_allclose(part, values[some], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    ("mu", "gamma"), [(1e-3, 1.0), (200.0, 1.0), (2.0, 0.01), (2.0, 3.0), (np.nan, 1.0), (2.0, np.inf)]
)
def test_parameters_outside_of_all_squares_have_no_moments(mu, gamma):
    found = shared_moments(np.array([3.0, mu]), np.array([1.0, gamma]))
    for values in found:
        assert np.isnan(values).tolist() == [False, True]


def test_poissons_are_exact_up_to_the_longest_table():
    mu = np.exp(np.linspace(-5.0, 4.99, 60))
    mean, variance, total = shared_moments(mu, np.ones(60))
    assert 2 * mu.max() < LONGEST
    np.testing.assert_allclose(mean, mu, rtol=1e-12)
    np.testing.assert_allclose(variance, mu, rtol=1e-10)
    np.testing.assert_allclose(total, mu, rtol=1e-12, atol=1e-12)
