"""Tests of the pass that checks every row: an error names the file and the row."""

import numpy as np
import polars as pl
import pytest

from ddpn.runtime.errors import InputError
from ddpn.tables.table import Table
from ddpn.workflow.large_tables import checked_rows
from ddpn.workflow.plan import Plan


def checked(folder, **plan):
    table = Table([str(folder)])
    return checked_rows(table, Plan(**{"target": "y"} | plan), np.arange(0, table.rows, 3))


def test_rows_are_counted_and_those_that_are_asked_for_returned(folder, table):
    frame, used = checked(folder)
    assert used == 9000
    assert frame.equals(table[::3])


def test_rows_without_a_target_do_not_count(table, tmp_path, write_parts):
    known = (pl.col("row") % 10 != 3) & (pl.col("row") < 6000)
    write_parts(table.with_columns(pl.when(known).then(pl.col("y")).alias("y")), tmp_path)
    assert checked(tmp_path)[1] == 5400


#: Row 7,000 of the table is row 1,001 of the third file.
BAD = {
    "negative": ({"y": -3}, {}, "target 'y' must hold non-negative integers, got -3 at row 1001"),
    "fraction": ({"y": 1.5}, {}, "target 'y' must hold non-negative integers, got 1.5 at row 1001"),
    "infinite": ({"y": float("inf")}, {}, "target 'y' must be finite, got inf at row 1001"),
    "exposure": ({"z": -1.0}, {"exposure": "z"}, "exposure 'z' must be finite and positive, got -1 at row 1001"),
    "weight": ({"z": -1.0}, {"weight": "z"}, "weight 'z' must be finite and not negative, got -1 at row 1001"),
    "bound": ({"y": 999}, {"model": {"upper": 500}}, "target 'y' must be at most upper=500, got 999 at row"),
    "split": ({"part": "x"}, {"split_column": "part"}, "split_column 'part' .*'x' at row 10"),
    "time": ({"z": None}, {"time": "z"}, "time 'z' is missing at row 1001"),
}  # fmt: skip


@pytest.mark.parametrize(("values", "roles", "words"), BAD.values(), ids=BAD.keys())
def test_a_bad_value_is_named_by_file_and_row(table, tmp_path, write_parts, values, roles, words):
    frame = table.with_columns(pl.col("y").cast(pl.Float64), part=pl.lit("train"))
    for name, value in values.items():
        bad = pl.lit(value, dtype=frame.schema[name])
        frame = frame.with_columns(pl.when(pl.col("row") == 7000).then(bad).otherwise(pl.col(name)).alias(name))
    write_parts(frame, tmp_path)
    with pytest.raises(InputError, match=rf"part-2\.parquet: {words}"):
        checked(tmp_path, **roles)


def test_a_target_of_text_and_an_unknown_column_are_refused(folder):
    with pytest.raises(InputError, match=r"part-0\.parquet: target 'kind' must hold numbers, got '[abc]' at rows 1, 2"):
        checked(folder, target="kind")
    with pytest.raises(InputError, match="'yy'"):
        checked(folder, target="yy")


def test_weights_of_zero_alone_are_refused(table, tmp_path, write_parts):
    write_parts(table.with_columns(w=pl.lit(0.0)), tmp_path)
    with pytest.raises(InputError, match="weight 'w' must be positive in some row"):
        checked(tmp_path, weight="w")
