"""Numbers written as text: every usual spelling is read, and what is no number is not."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpn.tables.numbers import PLAIN, NumberFormat, find_number_format, parse_numbers


def parse_cells(cells: list[str | None]) -> list[float | None]:
    """Parse the cells in the format that is found in them."""
    text = pl.Series("x", cells, dtype=pl.String)
    return parse_numbers(text, find_number_format(text) or PLAIN).to_list()


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1", "-2.5", "+3", "1e3", ".5", "5."], [1, -2.5, 3, 1000, 0.5, 5]),
        (["1,234", "12", "1,234,567.5"], [1234, 12, 1234567.5]),
        (["1.234,5", "12", "1.234.567"], [1234.5, 12, 1234567]),
        (["3,14", "2,5", "1"], [3.14, 2.5, 1]),
        (["1 234", "12 345,5", "7,5"], [1234, 12345.5, 7.5]),
        (["1\u00a0234", "5\u202f000", "\u22127"], [1234, 5000, -7]),
        (["1'234.50", "12"], [1234.5, 12]),
        (["12,34,567", "1,234"], [1234567, 1234]),
        (["12%", "7.5 %", "3"], [12, 7.5, 3]),
        (["€5", "€ 7", "9"], [5, 7, 9]),
        (["$1,200.50", "-$3", "$-4", "($5)"], [1200.5, -3, -4, -5]),
        (["5 EUR", "1.000,50 EUR"], [5, 1000.5]),
        (["(5)", "7", "5-"], [-5, 7, -5]),
        (["5 kg", "7kg", "8"], [5, 7, 8]),
        (["21.5°C", "-3 °C"], [21.5, -3]),
        (["5 kg", "6 kg", "7 lb"], [5, 6, None]),
        (["1", "2", None, "n/a", "x1", "1.2.3", "1,2,3", "10-20", "--5", "12:30", "(5", "inf", "1e999"],
         [1, 2, *[None] * 11]),
    ],
)  # fmt: skip
def test_every_spelling_of_numbers_is_read(cells, numbers):
    assert parse_cells(cells) == numbers


@pytest.mark.parametrize("name", [["p12", "p13"], ["a", "b"], ["12:30", "13:30"], ["31.01.2021", "01.02.2021"]])
def test_names_times_and_dates_are_no_numbers(name):
    assert parse_cells(name) == [None, None]


def test_blanks_and_minus_signs_of_typesetters_are_read_among_plain_cells():
    text = pl.Series(["1\u202f000", "7", "\u22125", "12"])
    assert parse_numbers(text, PLAIN).to_list() == [1000.0, 7.0, -5.0, 12.0]


def test_the_decimal_sign_is_decided_by_all_cells():
    assert find_number_format(pl.Series(["1,234", "5,678"])) == NumberFormat(".", ambiguous="1,234")
    assert find_number_format(pl.Series(["1,234"] * 5000 + ["5,6"])).decimal == ","
    assert find_number_format(pl.Series(["1,234"] * 5000 + ["5.6"])) == PLAIN


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(-1e9, 1e9).map(lambda x: round(x, 2)), min_size=3, max_size=30), st.sampled_from([".", ","]))
def test_thousands_are_read_in_both_styles(values, decimal):
    texts = [f"{value:,.2f}" for value in values]
    if decimal == ",":
        texts = [text.translate(str.maketrans(",.", ".,")) for text in texts]
    assert parse_numbers(pl.Series(texts), NumberFormat(decimal=decimal)).to_list() == values
