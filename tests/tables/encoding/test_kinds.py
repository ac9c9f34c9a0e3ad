"""Types that change between fit and prediction give the same inputs, or one sentence."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ddpn.runtime.errors import InputError
from ddpn.tables.encoding import FeatureEncoder

CODES = [1, 2, 3, 1, 2, 1]


def levels(values) -> np.ndarray:
    """The inputs of later values by an encoder that was fitted to a category of integers."""
    encoder = FeatureEncoder().fit(pd.DataFrame({"c": pd.Series(CODES, dtype="category")}))
    return encoder.transform(values if isinstance(values, pl.DataFrame | pa.Table) else pd.DataFrame({"c": values}))


@pytest.mark.parametrize(
    "later",
    [
        CODES,
        [float(code) for code in CODES],
        [str(code) for code in CODES],
        [f"{code}.0" for code in CODES],
        [f"0{code}" for code in CODES],
        pd.Series(CODES, dtype="Int64"),
        pd.Series(CODES, dtype=object),
        pd.Series([str(code) for code in CODES], dtype="category"),
        pl.DataFrame({"c": CODES}),
        pl.DataFrame({"c": [float(code) for code in CODES]}),
        pa.table({"c": [str(code) for code in CODES]}),
    ],
    ids=str,
)
def test_categories_of_numbers_by_any_type(later):
    expected = np.eye(3)[[code - 1 for code in CODES]]
    assert levels(later).tolist() == expected.tolist()


def test_a_missing_value_that_turns_integers_into_floats():
    later = pd.Series([1, None, 2])
    assert later.dtype == np.float64
    assert levels(later).tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_booleans_by_any_type():
    flags = [True, False, None]
    encoder = FeatureEncoder().fit(pd.DataFrame({"f": pd.Series([True, False, True], dtype="boolean")}))
    expected = encoder.transform(pd.DataFrame({"f": pd.Series(flags, dtype="boolean")})).tolist()
    for later in ([1.0, 0.0, None], ["True", "false", None], ["1", "0", None], pd.Series(flags, dtype=object)):
        assert encoder.transform(pd.DataFrame({"f": later})).tolist() == expected
    with pytest.raises(InputError, match="'f' must hold booleans as in fit, got 'maybe' at row 1"):
        encoder.transform(pd.DataFrame({"f": ["true", "maybe"]}))


def test_numbers_by_any_type():
    encoder = FeatureEncoder().fit(pd.DataFrame({"n": [1.0, 2.5, 4.0]}))
    expected = encoder.transform(pd.DataFrame({"n": [1.0, None, 4.0]})).tolist()
    for later in (["1", None, "4.0"], [" 1", None, "4e0"], pd.Series(["1", None, "4"], dtype="category")):
        assert encoder.transform(pd.DataFrame({"n": later})).tolist() == expected
    with pytest.raises(InputError, match="'n' must hold numbers as in fit, got 'n/a' at rows 1, 2"):
        encoder.transform(pd.DataFrame({"n": ["1", "n/a", "n/a"]}))


@pytest.mark.parametrize("known", [["a", "b"], ["007", "12"]])
def test_text_is_not_guessed_from_numbers(known):
    encoder = FeatureEncoder().fit(pd.DataFrame({"c": known}))
    with pytest.raises(InputError, match="'c' must hold text as in fit, got numbers"):
        encoder.transform(pd.DataFrame({"c": [7, 12]}))
    with pytest.raises(InputError, match="'c' must hold text as in fit, got booleans"):
        encoder.transform(pd.DataFrame({"c": [True, False]}))
