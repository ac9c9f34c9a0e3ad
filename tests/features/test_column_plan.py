"""All columns of a few rows at once: the same inputs as column by column, to the bit."""

import numpy as np
import polars as pl
import pytest

from ddpn.features import FeatureEncoder, encoder, encoder_bytes, encoder_from_bytes
from ddpn.features.cross_fitted import has_effects
from ddpn.runtime.errors import InputError

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


@pytest.mark.parametrize("numeric", ["standard", "piecewise", "steps"])
@pytest.mark.parametrize("limit", [10.0, np.inf])
@pytest.mark.parametrize("categorical", ["one-hot", "effects"])
def test_inputs_are_those_of_each_column(numeric, limit, categorical, monkeypatch):
    fitted = FeatureEncoder(numeric=numeric, limit=limit, min_frequency=2, categorical=categorical).fit(TABLE, Y)
    assert has_effects(fitted) == (categorical == "effects")
    for table in (TABLE.head(31), STRANGE):
        monkeypatch.setattr(encoder, "_FEW_ROWS", 0)
        expected = fitted.transform(table)
        monkeypatch.undo()
        found = fitted.transform(table)
        assert found.tobytes() == expected.tobytes()
        assert found.dtype == np.float32
        assert encoder_from_bytes(encoder_bytes(fitted)).transform(table).tobytes() == expected.tobytes()


def test_tables_of_text_alone_and_of_numbers_alone():
    for columns in (["ward"], ["age", "huge"]):
        fitted = FeatureEncoder().fit(TABLE.select(columns))
        whole = fitted.transform(TABLE.select(columns))
        assert fitted.transform(TABLE.select(columns)[:2]).tobytes() == whole[:2].tobytes()


def test_an_infinite_number_of_a_single_row_is_named():
    fitted = FeatureEncoder().fit(TABLE)
    with pytest.raises(InputError, match=r"finite.*inf in column 'huge'"):
        fitted.transform(STRANGE[:1].with_columns(huge=pl.lit(np.inf)))
