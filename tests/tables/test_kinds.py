"""Test that a level has one name, whatever type it arrives as."""

from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpn.tables.columns import Kind
from ddpn.tables.kinds import detect_column
from ddpn.tables.levels import canonical_level, canonical_number, parse_boolean_level, parse_number_level


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ([1, 1.0, np.int8(1), np.float32(1), Decimal("1.00"), "1", " 1 ", b"1"], "1"),
        ([0.1, np.float32(0.1), np.float64(0.1), Decimal("0.1"), "0.1"], "0.1"),
        ([True, np.bool_(True), "true"], "true"),
        ([-0.0, 0, "0"], "0"),
        ([2**60, float(2**60)], str(2**60)),
        ([10**20, "100000000000000000000"], "100000000000000000000"),
        ([1e300], "1e+300"),
        (["007", b" 007"], "007"),
    ],
)
def test_equal_values_of_any_type_have_one_name(values, name):
    assert {canonical_level(value) for value in values} == {name}


@settings(deadline=None)
@given(st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_number_keeps_its_name_through_text(value):
    name = canonical_number(value)
    assert canonical_number(name) == canonical_number(str(value)) == canonical_number(float(value)) == name
    assert parse_number_level(name) == value


@pytest.mark.parametrize("text", ["007", "7.0", "+7", " 7", "7.", 7, 7.0, "0.7e1"])
def test_among_numbers_other_spellings_are_the_same(text):
    assert canonical_number(text) == "7"


@pytest.mark.parametrize("text", ["", "x", "1_000", "inf", "nan", "0x7", "7 kg", "--7", "٧"])
def test_text_that_is_no_number_stays(text):
    assert canonical_number(text) == text
    assert parse_number_level(text) is None


def test_only_words_for_true_and_false_are_booleans():
    assert [parse_boolean_level(word) for word in ("true", "True", "1", "1.0", "false", "0", "no")] == [
        1,
        1,
        1,
        1,
        0,
        0,
        None,
    ]


@pytest.mark.parametrize(("odd", "kind"), [(8, Kind.NUMBER), (12, Kind.NUMBER_CATEGORY)])
def test_text_is_numbers_if_at_least_90_in_100_cells_are(odd, kind):
    """With 100 different cells 90 suffice; with few levels, one other cell in a hundred is enough against it."""
    cells = pl.Series("x", [f"word {k}" for k in range(odd)] + [f"{k}.5" for k in range(100 - odd)])
    assert detect_column(cells, (), as_category=False).kind == kind
    few = pl.Series("x", [f"word {k % 2}" for k in range(odd)] + [f"{k % 9}.5" for k in range(100 - odd)])
    assert detect_column(few, (), as_category=False).kind == Kind.NUMBER_CATEGORY
