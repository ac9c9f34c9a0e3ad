"""Test columns that are continuous, points in their units, and clumps of near points."""

import numpy as np
import polars as pl
import pytest

from ddpn.tables.near_rows import (
    choose_near_rows,
    find_clumps,
    find_columns_with_near_rows,
    find_continuous_columns,
    scale_points,
)

RNG = np.random.default_rng(0)


def test_continuous_columns_have_many_values_that_are_no_codes():
    n = 500
    X = pl.DataFrame(
        {
            "real": RNG.normal(size=n),
            "rounded": (np.arange(n) % 50) + 0.5,
            "coarse": (np.arange(n) % 49) + 0.5,
            "codes": np.arange(n) % 249,
            "whole": np.arange(n) % 250,
            "gaps": np.where(np.arange(n) % 2, np.nan, RNG.normal(size=n)),
            "text": ["a"] * n,
        }
    )
    assert find_continuous_columns(X) == ["real", "rounded", "whole", "gaps"]
    few = X.head(40).with_columns(rounded=(pl.int_range(40) % 29) + 0.5, coarse=(pl.int_range(40) % 30) + 0.5)
    assert find_continuous_columns(few.select("rounded", "coarse")) == ["coarse"]


def test_points_are_in_units_of_the_middle_half_and_missing_ones_far_away():
    x = np.arange(101.0)
    X = pl.DataFrame(
        {"a": x, "b": 1000.0 * x, "c": np.where(x == 3.0, np.nan, x), "d": np.where(x == 0.0, 8.0, 0.0),
         "e": np.full(101, 7.0), "f": np.full(101, np.nan)}
    )  # fmt: skip
    points = scale_points(X, X.columns)
    np.testing.assert_allclose(points[:, 0], x / 50.0)
    np.testing.assert_allclose(points[:, 1], points[:, 0])
    assert points[3, 2] == 1e6
    assert points[4, 2] == pytest.approx(4.0 / np.ptp(np.nanquantile(X["c"].to_numpy(), [0.25, 0.75])))
    assert points[:2, 3].tolist() == [1.0, 0.0]
    assert (points[:, 4] == 7.0).all()
    assert (points[:, 5] == 1e6).all()


@pytest.mark.parametrize("columns", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_clumps_are_the_groups_that_points_were_drawn_from(columns, seed):
    rng = np.random.default_rng(seed)
    centres, label = rng.normal(size=(60, columns)), np.repeat(np.arange(60), 5)
    points = centres[label] + 1e-3 * (0.01 if columns == 1 else 1.0) * rng.normal(size=(300, columns))
    clumps = find_clumps(points)
    assert clumps is not None
    together = clumps[:, None] == clumps[None]
    expected = label[:, None] == label[None]
    assert (together & ~expected).sum() <= 0.1 * expected.sum()
    assert (expected & ~together).sum() <= 0.1 * expected.sum()


@pytest.mark.parametrize("columns", [1, 2, 5])
@pytest.mark.parametrize("draw", ["uniform", "normal", "exponential"])
def test_points_of_a_smooth_distribution_form_no_clumps(columns, draw):
    for seed in range(3):
        assert find_clumps(getattr(np.random.default_rng(seed), draw)(size=(400, columns))) is None


def test_equal_points_are_one_and_few_points_show_no_clumps():
    centres = np.random.default_rng(0).normal(size=(25, 2))
    points = np.repeat(centres, 4, axis=0) + 1e-4 * np.random.default_rng(1).normal(size=(100, 2))
    whole = find_clumps(np.concatenate([points, points]))
    assert whole is not None
    assert (whole[:100] == whole[100:]).all()
    assert find_clumps(np.concatenate([points[:59]] * 5)) is None


def test_large_clumps_are_found_by_more_neighbours():
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(40), 25)
    points = rng.uniform(size=(40, 2))[label] + 1e-4 * rng.normal(size=(1000, 2))
    clumps = find_clumps(points)
    assert clumps is not None
    assert len(np.unique(clumps)) == 40
    assert all(len(np.unique(clumps[label == k])) == 1 for k in range(40))


def test_columns_that_repeat_together_are_proposed_and_then_all_columns():
    rng = np.random.default_rng(0)
    coordinates = rng.normal(size=(60, 2))[np.repeat(np.arange(60), 5)]
    X = pl.DataFrame(
        {"lon": coordinates[:, 0] + 1e-5 * rng.normal(size=300), "x": rng.normal(size=300),
         "lat": coordinates[:, 1] + 1e-5 * rng.normal(size=300), "z": rng.normal(size=300)}
    )  # fmt: skip
    assert find_columns_with_near_rows(X) == [("lon", "lat"), ("lon", "x", "lat", "z")]
    assert find_columns_with_near_rows(X.select("lon", "lat")) == [("lon", "lat")]
    assert find_columns_with_near_rows(X.select("lon")) == []
    assert find_columns_with_near_rows(X.select("x", "z")) == [("x", "z")]


def test_near_rows_are_from_the_middle_of_a_column():
    X = pl.DataFrame({"x": np.random.default_rng(0).permutation(np.arange(100.0))})
    chosen = choose_near_rows(X, "x", 20)
    assert sorted(X["x"].to_numpy()[chosen].tolist()) == list(range(40, 60))
    assert choose_near_rows(X, "x", 100).tolist() == list(range(100))
    assert len(choose_near_rows(X, "x", 99)) == 99
