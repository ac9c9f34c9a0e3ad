"""Test that inputs are what their column means, and that a row has the same inputs alone and among others."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from ddpn.tables.columns import Column, ColumnTable, Kind
from ddpn.tables.encoding import FeatureEncoder, categories, encoder_from_bytes, encoder_to_bytes
from ddpn.tables.encoding.categories import CategoryEncoding
from ddpn.tables.encoding.columns import ColumnPlan
from ddpn.tables.encoding.numbers import (
    NumberEncoding,
    center_and_scale,
    find_bin_edges,
    find_integer_codes,
    fit_number,
    soft_clip,
    weigh_distinct,
)
from ddpn.tables.encoding.out_of_fold import has_effects


def weigh_equally(*values: float):
    return weigh_distinct(np.array(values, dtype=float), np.ones(len(values)))


def encode_numbers(column: NumberEncoding, x: Sequence[float] | np.ndarray) -> np.ndarray:
    return ColumnPlan([column]).encode(ColumnTable([Column("x", Kind.NUMBER, np.array(x))]))


def test_bounded_is_the_identity_up_to_the_limit_and_increases_smoothly_beyond():
    inside = np.linspace(-10, 10, 101)
    assert soft_clip(inside.copy()).tolist() == inside.tolist()
    z = np.array([10.0, 10.0 + 1e-6, 11.0, 1e3, 1e300, np.inf])
    up, down = soft_clip(z.copy()), soft_clip(-z)
    assert (np.diff(up)[:-1] > 0).all()
    assert up.tolist() == (-down).tolist()
    assert (up[1] - up[0]) / 1e-6 == pytest.approx(1.0, rel=1e-5)
    assert up[-1] < 60


def test_bins_hold_equal_shares_of_the_weight():
    rng = np.random.default_rng(0)
    x, w = rng.lognormal(size=4000), rng.integers(1, 4, 4000)
    edges = find_bin_edges(weigh_distinct(x, w), 10)
    shares = np.histogram(x, edges, weights=w)[0] / w.sum()
    assert edges[[0, -1]].tolist() == [x.min(), x.max()]
    np.testing.assert_allclose(shares, 0.1, atol=0.002)


def test_bins_too_narrow_for_floats_are_dropped():
    tiny = find_bin_edges(weigh_equally(0.0, 5e-324, 1.0, 2.0), 24)
    assert np.isfinite(encode_numbers(NumberEncoding(edges=tiny), [0.0, 5e-324, 0.3, 9.0])).all()
    assert tiny.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [([2, 0, 1], [0, 1, 2]), ([0, 1], []), ([0, 1, 2.5], []), (range(32), list(range(32))), (range(33), [])],
)
def test_few_consecutive_integers_are_codes(values, expected):
    assert find_integer_codes(weigh_equally(*values)).tolist() == expected


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
    assert encode_numbers(column, [5.0, np.nan, -1e308, 1.7e308]).tolist() == [[0.0]] * 4


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
    got = center_and_scale(weigh_distinct(np.array(x), np.ones(len(x))))
    assert got == pytest.approx((center, scale), rel=1e-12)


# All columns at once --------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(8)
N = 300
TABLE = pl.DataFrame(
    {
        "age": [None if RNG.random() < 0.1 else float(v) for v in RNG.normal(50, 9, N)],
        "hour": RNG.integers(0, 24, N),
        "flag": RNG.random(N) < 0.3,
        "ward": RNG.choice(["A", "B", "C", None], N).tolist(),
        "rare": [*(["common"] * (N - 2)), "once", "twice"],
        "huge": 1e12 * (3 + RNG.normal(size=N)),
        "same": np.full(N, 7.0),
    }
)
Y = RNG.poisson(TABLE["hour"].to_numpy() / 3 + 1) + 3 * (TABLE["ward"] == "B").fill_null(False).to_numpy()
#: Values that training did not have: far outside, overflowing, missing, unseen levels.
STRANGE = pl.DataFrame(
    {
        "age": [1e308, -1e308, None, 50.0],
        "hour": [-5, 99, 7, 12],
        "flag": [True, None, False, True],
        "ward": ["Z", None, "A", " B "],
        "rare": ["once", "never", None, "common"],
        "huge": [0.0, -1e300, 3e12, None],
        "same": [7.0, 8.0, None, -7.0],
    },
    schema=TABLE.schema,
)


def compute_number_inputs(column: NumberEncoding, x: float) -> list[float]:
    """Compute the inputs of a number, one by one."""
    is_missing = np.isnan(x)
    x = column.fill if is_missing else x
    z = float(np.clip((0.5 * x - 0.5 * column.center) / (0.5 * column.scale), -1e18, 1e18))
    value = z if abs(z) <= 10.0 else np.sign(z) * (10.0 + np.log1p(abs(z) - 10.0))
    bins = [np.interp(0.5 * x, [0.5 * low, 0.5 * high], [0.0, 1.0]) for low, high in pairwise(column.edges)]
    flags = [is_missing] if column.has_missing else []
    return [value, *flags, *bins, *(x > column.steps), *(x == column.codes)]


def compute_category_inputs(column: CategoryEncoding, level: str | None) -> list[float]:
    """Compute the inputs of a level, one by one."""
    is_known = level in column.levels
    result = [float(level == known_level) for known_level in column.levels]
    is_own_missing = level is None and column.has_missing
    result += [float(not is_known and not is_own_missing)] if column.has_other else []
    result += [float(is_own_missing)] if column.has_missing else []
    if column.effects is not None:
        result.append(column.effects.missing if level is None else column.effects.values.get(level, 0.0))
    return result


def compute_expected_inputs(encoder: FeatureEncoder, table: pl.DataFrame) -> np.ndarray:
    rows = []
    for i in range(table.height):
        row: list[float] = []
        for column, cells in zip(encoder.columns_, encoder.schema_.parse(table), strict=True):
            if isinstance(column, CategoryEncoding):
                code = cells.values[i]
                row += compute_category_inputs(column, None if code < 0 else cells.levels[code])
            else:
                row += compute_number_inputs(column, float(cells.values[i]))
        rows.append(row)
    return np.array(rows)


@pytest.fixture
def pool_rare_levels(monkeypatch):
    """Let levels of one row share an input."""
    monkeypatch.setattr(categories, "_MIN_SHARE", 2 / N)


@pytest.mark.parametrize(
    ("numeric", "categorical"), [("standard", "one-hot"), ("piecewise", "effects"), ("steps", "one-hot")]
)
@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.usefixtures("pool_rare_levels")
def test_inputs_are_those_of_each_cell(numeric, categorical):
    fitted = FeatureEncoder(numeric=numeric, categorical=categorical).fit(TABLE, Y)
    assert has_effects(fitted) == (categorical == "effects")
    for table in (TABLE.head(31), STRANGE):
        result = fitted.transform(table)
        np.testing.assert_allclose(result, compute_expected_inputs(fitted, table), rtol=1e-6, atol=1e-7)
        assert result.dtype == np.float32
        assert encoder_from_bytes(encoder_to_bytes(fitted)).transform(table).tobytes() == result.tobytes()
    # A row has the same inputs alone and among others.
    table = pl.concat([TABLE, STRANGE] * 3)
    whole = fitted.transform(table)
    for part in (slice(0, 1), slice(300, 304), slice(505, 530)):
        assert fitted.transform(table[part]).tobytes() == whole[part].tobytes()
