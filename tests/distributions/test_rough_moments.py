"""Polynomials in float32 for moments and sums of Double Poissons, against those in float64."""

import numpy as np
import pytest

from ddpn.distributions.rough_moments import rough_moments
from ddpn.distributions.shared_moments import shared_moments

COUNT = 20_000


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    mu, gamma = np.exp(rng.uniform(-5.0, 5.0, COUNT)), np.exp(rng.uniform(-3.0, 1.0, COUNT))
    return mu.astype(np.float32), gamma.astype(np.float32)


def test_moments_and_sums_are_within_their_bounds(drawn):
    found, exact = rough_moments(*drawn), shared_moments(*(x.astype(np.float64) for x in drawn))
    known = ~np.isnan(exact[0])
    assert known.mean() > 0.8
    assert not np.isnan(found[:, known]).any(axis=0).mean() > 0.02  # next to the ends of the range
    known &= ~np.isnan(found[0])
    np.testing.assert_allclose(found[0, known], exact[0][known], rtol=1e-6)
    np.testing.assert_allclose(found[1, known], exact[1][known], rtol=1e-6)
    for values, own in zip(found[:2], exact[:2], strict=True):
        assert np.sqrt(np.mean(np.square(values[known] / own[known] - 1.0))) < 1.5e-7
    np.testing.assert_allclose(found[2, known], exact[2][known], rtol=5e-7, atol=5e-7)


def test_results_do_not_depend_on_other_components(drawn):
    mu, gamma = drawn
    whole, some = rough_moments(mu, gamma), np.arange(COUNT)[::-7]
    np.testing.assert_allclose(rough_moments(mu[some], gamma[some]), whole[:, some], rtol=5e-7, atol=5e-7)


@pytest.mark.parametrize(
    ("mu", "gamma"), [(1e-3, 1.0), (200.0, 1.0), (2.0, 0.01), (2.0, 3.0), (np.nan, 1.0), (2.0, np.inf)]
)
def test_parameters_outside_of_all_squares_have_no_moments(mu, gamma):
    found = rough_moments(np.array([3.0, mu], np.float32), np.array([1.0, gamma], np.float32))
    for values in found:
        assert np.isnan(values).tolist() == [False, True]
