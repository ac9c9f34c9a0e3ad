"""Columns of a GLM: categories are differences from the first level."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ddpn.members.glm import Design, check_complete, design_of
from ddpn.members.member import TableReader
from ddpn.runtime.errors import InputError

COLUMNS = {"age": [31.0, 67.0, 40.0], "ward": ["B", "A", "C"], "smokes": [True, False, True]}


def tables(frame, later):
    """Columns at fit, and at prediction."""
    reader = TableReader()
    return reader.fit(frame), reader.read(later)


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_categories_are_differences_from_the_first_level(library):
    table, _ = tables(library.DataFrame(COLUMNS), library.DataFrame(COLUMNS))
    design = design_of(table)
    assert design.names == ["age", "ward = B", "ward = C", "smokes"]
    expected = pd.get_dummies(pd.DataFrame(COLUMNS), columns=["ward"], drop_first=True)
    expected = expected[["age", "ward_B", "ward_C", "smokes"]].to_numpy(dtype=float)
    np.testing.assert_array_equal(design.matrix(table), expected)
    assert Design.from_dict(design.as_dict()) == design


def test_levels_keep_their_place_in_another_table():
    table, later = tables(pd.DataFrame(COLUMNS), pd.DataFrame({"age": [1.0], "ward": ["C"], "smokes": [False]}))
    assert design_of(table).matrix(later).tolist() == [[1.0, 0.0, 1.0, 0.0]]


@pytest.mark.parametrize(("labels", "row"), [(None, "1"), (["p", "q", "r"], "q")])
def test_an_unseen_level_is_refused(labels, row):
    table, other = tables(pd.DataFrame(COLUMNS), pd.DataFrame(COLUMNS | {"ward": ["A", "Z", "A"]}))
    with pytest.raises(InputError, match=f"levels that fit has seen in column 'ward', got 'Z' at row {row}. Recode"):
        design_of(table).matrix(other, labels)


@pytest.mark.parametrize(("labels", "row"), [(None, "2"), (["p", "q", "r"], "r")])
@pytest.mark.parametrize("column", [{"age": [1.0, 2.0, np.nan]}, {"ward": ["A", "B", None]}])
def test_a_missing_value_is_refused(column, labels, row):
    name = next(iter(column))
    table, _ = tables(pd.DataFrame(COLUMNS | column), pd.DataFrame(COLUMNS | column))
    with pytest.raises(InputError, match=f"no missing values, got NaN in column '{name}' at row {row}"):
        check_complete(table, labels)
