"""Weighted statistics against numpy on repeated rows."""

import numpy as np
import pytest

from ddpn.tables.encoding.numeric import center_and_scale, distinct, midpoints, quantiles

LEVELS = np.array([0.0, 0.01, 0.25, 0.5, 0.8, 0.999, 1.0])


@pytest.fixture
def column() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.integers(-20, 20, 300) / 4, rng.integers(1, 6, 300)


def test_quantiles_are_numpys_inverted_cdf_of_repeated_rows(column):
    x, w = column
    expected = np.quantile(x.repeat(w), LEVELS, method="inverted_cdf")
    assert quantiles(distinct(x, w), LEVELS).tolist() == expected.tolist()


def test_center_and_scale_are_mean_and_deviation_of_repeated_rows(column):
    x, w = column
    center, scale = center_and_scale(distinct(x, w))
    assert center == pytest.approx(x.repeat(w).mean(), rel=1e-13)
    assert scale == pytest.approx(x.repeat(w).std(), rel=1e-13)


def test_weights_and_repetition_agree_in_every_bit(column):
    x, w = column
    again = np.random.default_rng(0).permutation(x.repeat(w))
    assert center_and_scale(distinct(x, w)) == center_and_scale(distinct(again, np.ones(len(again))))


@pytest.mark.parametrize(
    ("x", "center", "scale"),
    [
        ([1e308, -1e308], 0.0, 1e308),
        ([-1.7e308, 1.7e308, 1.7e308], 1.7e308 / 3, 1.7e308 * (np.sqrt(8) / 3)),
        ([1e12, 1e12 + 1, 1e12 + 2], 1e12 + 1, np.sqrt(2 / 3)),
        ([3e-200, 1e-200], 2e-200, 1e-200),
        ([7.25, 7.25, 7.25], 7.25, np.inf),
        ([0.1, 0.1, 0.1], 0.1, np.inf),
    ],
)
def test_center_and_scale_neither_overflow_nor_cancel(x, center, scale):
    got = center_and_scale(distinct(np.array(x), np.ones(len(x))))
    assert got == pytest.approx((center, scale), rel=1e-12)


@pytest.mark.parametrize(
    "values", [[0.0, 5e-324], [1.0, np.nextafter(1.0, 2.0)], [-1.7e308, 1.7e308], [-2.0, 7.0, 7.5]]
)
def test_midpoints_tell_neighbours_apart(values):
    x = np.array(values)
    assert (x[:-1] <= midpoints(x)).all()
    assert (midpoints(x) < x[1:]).all()
