"""Columns of numbers: bounds, bins, steps, codes."""

from collections.abc import Sequence

import numpy as np
import pytest

from ddpn.tables.encoding.columns import (
    ColumnPlan,
    NumericColumn,
    bin_edges,
    bounded,
    center_and_scale,
    distinct,
    every_step,
    fit_number,
    integer_codes,
    midpoints,
)
from ddpn.tables.encoding.table import Column


def of(*values: float):
    return distinct(np.array(values, dtype=float), np.ones(len(values)))


def written(column: NumericColumn, x: Sequence[float] | np.ndarray, limit: float = 10.0) -> np.ndarray:
    return ColumnPlan([column]).encode([Column("x", "number", np.array(x))], limit)


def test_bounded_is_the_identity_up_to_the_limit_and_increases_smoothly_beyond():
    inside = np.linspace(-4, 4, 101)
    assert bounded(inside.copy(), 4.0).tolist() == inside.tolist()
    z = np.array([4.0, 4.0 + 1e-6, 5.0, 1e3, 1e300, np.inf])
    up, down = bounded(z.copy(), 4.0), bounded(-z, 4.0)
    assert (np.diff(up)[:-1] > 0).all()
    assert up.tolist() == (-down).tolist()
    assert (up[1] - up[0]) / 1e-6 == pytest.approx(1.0, rel=1e-5)
    assert up[-1] < 50


def test_bins_hold_equal_shares_of_the_weight():
    rng = np.random.default_rng(0)
    x, w = rng.lognormal(size=4000), rng.integers(1, 4, 4000)
    edges = bin_edges(distinct(x, w), 10)
    shares = np.histogram(x, edges, weights=w)[0] / w.sum()
    assert edges[[0, -1]].tolist() == [x.min(), x.max()]
    np.testing.assert_allclose(shares, 0.1, atol=0.002)


def test_few_values_are_edges_themselves_and_two_need_none():
    assert bin_edges(of(3, 1, 2), 24).tolist() == [1, 2, 3]
    assert bin_edges(of(3, 1), 24).size == bin_edges(of(5), 24).size == 0


def test_a_column_that_is_mostly_one_value_has_no_empty_bin():
    edges = bin_edges(of(*[0.0] * 90, *range(1, 60)), 10)
    assert (np.diff(edges) > 0).all()


def test_bins_too_narrow_for_floats_are_dropped():
    tiny = bin_edges(of(0.0, 5e-324, 1.0, 2.0), 24)
    assert np.isfinite(written(NumericColumn(edges=tiny), [0.0, 5e-324, 0.3, 9.0])).all()
    assert tiny.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [([2, 0, 1], [0, 1, 2]), ([0, 1], []), ([0, 1, 2.5], []), (range(32), list(range(32))), (range(33), [])],
)
def test_integer_codes(values, expected):
    assert integer_codes(of(*values)).tolist() == expected


def test_every_step_tells_all_values_apart():
    assert every_step(of(4, 1, 2)).tolist() == [1.5, 3.0]
    assert every_step(of(4, 1)).size == 0


def test_missing_values_are_the_median_in_fit_as_in_use():
    x = np.array([1.0, np.nan, 4.0, 4.0, np.nan, 7.0])
    column, values = fit_number(x, np.ones(6))
    filled = np.where(np.isnan(x), 4.0, x)
    assert (column.fill, column.has_missing) == (4.0, True)
    assert (column.center, column.scale) == pytest.approx((filled.mean(), filled.std()), rel=1e-14)
    assert values.values.tolist() == [1, 4, 7]


@pytest.mark.parametrize("x", [[np.nan, np.nan], [5.0, 5.0], [1e12, 1e12]])
def test_a_column_without_variation_is_zero_whatever_comes_later(x):
    column, _ = fit_number(np.array(x), np.ones(2))
    assert written(column, [5.0, np.nan, -1e308, 1.7e308]).tolist() == [[0.0]] * 4


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
