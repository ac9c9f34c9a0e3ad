"""Test columns of a table that was read: what is missing, what levels map to, and some of the rows."""

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from ddpn.tables.columns import Column, ColumnTable, Kind, Levels
from ddpn.tables.reading import read_table

FRAME = pl.DataFrame(
    {"age": [31.0, None, 67.5], "smokes": [True, False, None], "ward": ["B", None, "A"], "code": ["7", "x", None]}
)


@pytest.fixture
def table() -> ColumnTable:
    return read_table(FRAME)


def test_a_table_has_the_cells_of_the_frame(table):
    assert table.kinds == [Kind.NUMBER, Kind.BOOLEAN, Kind.CATEGORY, Kind.NUMBER_CATEGORY]
    assert [column.cells().tolist() for column in table] == [FRAME[name].to_list() for name in FRAME.columns]
    assert_frame_equal(table.to_polars(), FRAME)


def test_missing_values_are_those_of_the_frame(table):
    for column in table:
        assert column.is_missing.tolist() == FRAME[column.name].is_null().to_list()
        assert (column.cells("none") == "none").tolist() == column.is_missing.tolist()
    assert table.is_missing().tolist() == [False, True, True]


def test_levels_are_mapped_where_there_is_a_value(table):
    ward = table.column("ward")
    assert ward.map_levels({"A": 1.5}, other=0.0, missing=-1.0).tolist() == [0.0, -1.0, 1.5]
    assert ward.compute_per_level(len, lambda levels: [level * 2 for level in levels], "").tolist() == ["BB", "", "AA"]
    assert ward.count_levels().tolist() == [1, 1]


@pytest.mark.parametrize("index", [np.array([True, False, True]), np.array([2, 0, 0]), slice(1, 3)])
def test_some_rows_keep_the_levels_of_all(table, index):
    rows = table.rows(index)
    assert rows.column("ward").levels is table.column("ward").levels
    expected = [np.array(FRAME[name].to_list(), dtype=object)[index].tolist() for name in FRAME.columns]
    assert [column.cells().tolist() for column in rows] == expected
    assert len(rows) == len(expected[0])


def test_a_column_without_values_is_missing_everywhere():
    column = Column("empty", Kind.CATEGORY, np.full(3, -1), Levels())
    assert column.map_levels({}, other=1.0, missing=0.0).tolist() == [0.0] * 3
    assert column.cells().tolist() == [None] * 3
    assert ColumnTable([column]).to_polars()["empty"].to_list() == [None] * 3


def test_kinds_are_named_as_users_read_them():
    assert [kind for kind in Kind if kind.is_category] == [
        Kind.CATEGORY,
        Kind.NUMBER_CATEGORY,
        Kind.BOOLEAN_CATEGORY,
    ]
    assert str(Kind.NUMBER_CATEGORY) == "category of numbers"
    assert all(kind.words for kind in Kind)
