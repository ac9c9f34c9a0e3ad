import numpy as np
import pandas as pd
import polars as pl
import pytest

from ddpn.errors import InputError
from ddpn.estimators import CountGLM
from ddpn.features.table import read_table
from ddpn.members.design import check_complete, design_of

COLUMNS = {"age": [31.0, 67.0, 40.0], "ward": ["B", "A", "C"], "smokes": [True, False, True]}


def tables(frame, later):
    """Columns at fit, and at prediction."""
    estimator = CountGLM()
    return read_table(estimator, frame, reset=True), read_table(estimator, later, reset=False)


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_categories_are_told_from_the_first_level(library):
    table, _ = tables(library.DataFrame(COLUMNS), library.DataFrame(COLUMNS))
    design = design_of(table)
    assert design.names == ["age", "ward = B", "ward = C", "smokes"]
    expected = pd.get_dummies(pd.DataFrame(COLUMNS), columns=["ward"], drop_first=True)
    expected = expected[["age", "ward_B", "ward_C", "smokes"]].to_numpy(dtype=float)
    np.testing.assert_array_equal(design.matrix(table), expected)


def test_levels_keep_their_place_in_another_table():
    table, later = tables(pd.DataFrame(COLUMNS), pd.DataFrame({"age": [1.0], "ward": ["C"], "smokes": [False]}))
    assert design_of(table).matrix(later).tolist() == [[1.0, 0.0, 1.0, 0.0]]


@pytest.mark.parametrize(
    ("later", "message"),
    [
        ({"ward": ["A", "Z", "A"]}, r"levels that fit has seen in column 'ward', got 'Z' at row 1\. Recode or drop"),
        ({"ward": [1.0, 2.0, 3.0]}, "X must hold text in column 'ward' as in fit, got numbers"),
        ({"age": ["x", "y", "z"]}, "X must hold numbers in column 'age' as in fit, got text"),
    ],
    ids=["an unseen level", "numbers for text", "text for numbers"],
)
def test_a_table_unlike_that_of_fit_is_refused(later, message):
    table, other = tables(pd.DataFrame(COLUMNS), pd.DataFrame(COLUMNS | later))
    with pytest.raises(InputError, match=message):
        design_of(table).matrix(other)


@pytest.mark.parametrize(
    ("column", "what"), [({"age": [1.0, 2.0, np.nan]}, "NaN"), ({"ward": ["A", "B", None]}, "none")]
)
def test_a_missing_value_is_named(column, what):
    name = next(iter(column))
    table, _ = tables(pd.DataFrame(COLUMNS | column), pd.DataFrame(COLUMNS | column))
    with pytest.raises(InputError, match=f"a value in every cell, got {what} in column '{name}' at row 2"):
        check_complete(table)
