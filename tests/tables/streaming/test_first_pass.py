"""Tests of the pass that checks every row: an error names the file and the row."""

import polars as pl
import pytest

from ddpn.runtime.errors import InputError
from ddpn.tables.count_range import CountRange
from ddpn.tables.streaming import Parts, find_parts, survey
from ddpn.tables.streaming.checks import RoleColumns


def test_rows_are_counted_and_sampled(folder, table):
    found = survey(Parts(find_parts([str(folder)])), RoleColumns(target="y"), seed=0, rows=500)
    assert (found.used, found.is_whole, found.frame.height) == (9000, False, 500)
    assert found.frame.equals(table[found.numbers])


#: Row 7,000 of the table is row 1,001 of the third file.
BAD = {
    "negative": ({"y": -3}, {}, "target 'y' must hold non-negative integers, got -3 at row 1001"),
    "fraction": ({"y": 1.5}, {}, "target 'y' must hold non-negative integers, got 1.5 at row 1001"),
    "missing": ({"y": None}, {}, "target 'y' is missing at row 1001"),
    "infinite": ({"y": float("inf")}, {}, "target 'y' must be finite, got inf at row 1001"),
    "exposure": ({"z": -1.0}, {"exposure": "z"}, "exposure 'z' must be finite and positive, got -1 at row 1001"),
    "weight": ({"z": -1.0}, {"weight": "z"}, "weight 'z' must be finite and not negative, got -1 at row 1001"),
    "bound": ({"y": 999}, {"counts": CountRange(upper=500)}, "target 'y' must be at most `upper=500`, got 999 at row"),
    "split": ({"kind": "x"}, {"split": "kind", "split_words": ["a", "b", "c"]}, "split_column 'kind' .*'x' at row 10"),
    "time": ({"z": None}, {"time": "z"}, "time 'z' is missing at row 1001"),
}  # fmt: skip


@pytest.mark.parametrize(("values", "roles", "words"), BAD.values(), ids=BAD.keys())
def test_a_bad_value_is_named_by_file_and_row(table, tmp_path, write_parts, values, roles, words):
    frame = table.with_columns(pl.col("y").cast(pl.Float64))
    for name, value in values.items():
        bad = pl.lit(value, dtype=frame.schema[name])
        frame = frame.with_columns(pl.when(pl.col("row") == 7000).then(bad).otherwise(pl.col(name)).alias(name))
    write_parts(frame, tmp_path)
    with pytest.raises(InputError, match=rf"part-2\.parquet: {words}"):
        survey(Parts(find_parts([str(tmp_path)])), RoleColumns(target="y", **roles), seed=0)


def test_a_target_of_text_and_an_unknown_column_are_refused(folder):
    parts = Parts(find_parts([str(folder)]))
    with pytest.raises(InputError, match="'kind' must be a column of numbers"):
        survey(parts, RoleColumns(target="kind"), seed=0)
    with pytest.raises(InputError, match="'yy'"):
        survey(parts, RoleColumns(target="yy"), seed=0)


def test_weights_of_zero_alone_are_refused(table, tmp_path, write_parts):
    write_parts(table.with_columns(w=pl.lit(0.0)), tmp_path)
    with pytest.raises(InputError, match="weight 'w' must be positive in some row"):
        survey(Parts(find_parts([str(tmp_path)])), RoleColumns(target="y", weight="w"), seed=0)
