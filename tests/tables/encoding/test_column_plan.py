"""All columns at once: each input is what its column means, and a row has the same inputs alone and among others."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from ddpn.runtime.errors import InputError
from ddpn.tables.encoding import FeatureEncoder, encoder_bytes, encoder_from_bytes
from ddpn.tables.encoding.columns import CategoricalColumn, NumericColumn
from ddpn.tables.encoding.encoder import has_effects
from ddpn.tables.encoding.table import read_as_fitted

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


def number_inputs(column: NumericColumn, x: float, limit: float) -> list[float]:
    """The inputs of a number, one by one."""
    is_missing = np.isnan(x)
    x = column.fill if is_missing else x
    z = float(np.clip((0.5 * x - 0.5 * column.center) / (0.5 * column.scale), -1e18, 1e18))
    value = z if abs(z) <= limit else np.sign(z) * (limit + np.log1p(abs(z) - limit))
    bins = [np.interp(0.5 * x, [0.5 * low, 0.5 * high], [0.0, 1.0]) for low, high in pairwise(column.edges)]
    flags = [is_missing] if column.has_missing else []
    return [value, *flags, *bins, *(x > column.steps), *(x == column.codes)]


def category_inputs(column: CategoricalColumn, level: str | None) -> list[float]:
    """The inputs of a level, one by one."""
    is_known = level in column.levels
    found = [float(level == each) for each in column.levels]
    is_own_missing = level is None and column.has_missing
    found += [float(not is_known and not is_own_missing)] if column.has_other else []
    found += [float(is_own_missing)] if column.has_missing else []
    if column.effects is not None:
        found.append(column.effects.missing if level is None else column.effects.values.get(level, 0.0))
    return found


def expected_inputs(encoder: FeatureEncoder, table: pl.DataFrame) -> np.ndarray:
    rows = []
    for i in range(table.height):
        row: list[float] = []
        for column, cells in zip(encoder.columns_, read_as_fitted(encoder, table), strict=True):
            if isinstance(column, CategoricalColumn):
                code = cells.values[i]
                row += category_inputs(column, None if code < 0 else cells.levels[code])
            else:
                row += number_inputs(column, float(cells.values[i]), encoder.limit)
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize(
    ("numeric", "limit", "categorical"),
    [("standard", np.inf, "one-hot"), ("piecewise", 10.0, "effects"), ("steps", 10.0, "one-hot")],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_inputs_are_those_of_each_cell(numeric, limit, categorical):
    fitted = FeatureEncoder(numeric=numeric, limit=limit, min_frequency=2, categorical=categorical).fit(TABLE, Y)
    assert has_effects(fitted) == (categorical == "effects")
    for table in (TABLE.head(31), STRANGE):
        found = fitted.transform(table)
        np.testing.assert_allclose(found, expected_inputs(fitted, table), rtol=1e-6, atol=1e-7)
        assert found.dtype == np.float32
        assert encoder_from_bytes(encoder_bytes(fitted)).transform(table).tobytes() == found.tobytes()


@pytest.mark.parametrize("numeric", ["standard", "piecewise", "steps"])
def test_a_row_has_the_same_inputs_alone_and_among_others(numeric):
    fitted = FeatureEncoder(numeric=numeric, min_frequency=2).fit(TABLE, Y)
    table = pl.concat([TABLE, STRANGE] * 3)
    whole = fitted.transform(table)
    for part in (slice(0, 1), slice(300, 304), slice(505, 530)):
        assert fitted.transform(table[part]).tobytes() == whole[part].tobytes()


def test_tables_of_text_alone_and_of_numbers_alone():
    for columns in (["ward"], ["age", "huge"]):
        fitted = FeatureEncoder().fit(TABLE.select(columns))
        whole = fitted.transform(TABLE.select(columns))
        assert fitted.transform(TABLE.select(columns)[:2]).tobytes() == whole[:2].tobytes()


def test_an_infinite_number_of_a_single_row_is_named():
    fitted = FeatureEncoder().fit(TABLE)
    with pytest.raises(InputError, match=r"finite.*inf in column 'huge'"):
        fitted.transform(STRANGE[:1].with_columns(huge=pl.lit(np.inf)))
