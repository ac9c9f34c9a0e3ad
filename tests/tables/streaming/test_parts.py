"""Tests of finding and reading the files of a table."""

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from ddpn.runtime.errors import InputError
from ddpn.tables.streaming import Parts, find_parts
from ddpn.tables.streaming.memory import fits_memory, free_memory


def test_all_rows_are_read_in_order_with_their_numbers(folder, table):
    parts = Parts(find_parts([str(folder)]))
    batches = list(parts.batches())
    assert pl.concat([batch.frame for batch in batches]).equals(table)
    for batch in batches:
        assert batch.frame["row"][0] == batch.first_of_all
        assert batch.first == batch.first_of_all % 3000
    assert (parts.rows, parts.columns) == (table.height, table.columns)


def test_a_pattern_a_folder_and_names_give_the_same_files(folder):
    names = sorted(str(path) for path in folder.iterdir())
    assert find_parts([str(folder)]) == find_parts([str(folder / "part-*.parquet")]) == find_parts(names)


@pytest.mark.parametrize(
    ("sources", "words"),
    [(["none/*.parquet"], "No file matches none"), (["a.parquet"], "File not found"), (["{f}", "{f}"], "given once")],
)
def test_a_wrong_source_is_named(folder, sources, words):
    with pytest.raises(InputError, match=words):
        find_parts([source.format(f=folder / "part-0.parquet") for source in sources])


def test_hidden_files_and_folders_are_no_parts(folder, tmp_path):
    (tmp_path / "more.parquet").mkdir()
    for name in ("_metadata.parquet", ".part.parquet", "b.PQ", "a.csv"):
        (tmp_path / name).write_bytes(b"")
    assert find_parts([str(tmp_path)]) == [tmp_path / "b.PQ"]
    assert find_parts([str(tmp_path)], (".csv", ".pq"), one_table=False) == [tmp_path / "a.csv", tmp_path / "b.PQ"]


def test_a_folder_without_parquet_files_and_other_formats_are_refused(tmp_path, folder):
    with pytest.raises(InputError, match=r"is a folder without a file that ends in \.parquet or \.pq"):
        find_parts([str(tmp_path)])
    (tmp_path / "a.csv").write_text("y\n1\n")
    with pytest.raises(InputError, match=r"must be Parquet files, got .*a\.csv"):
        find_parts([str(tmp_path / "a.csv"), str(folder)])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop("z"), "without 'z'"),
        (lambda frame: frame.with_columns(pl.col("z").alias("zz")), "with 'zz'"),
        (lambda frame: frame.with_columns(pl.col("y").cast(pl.String)), "'y' of type text instead of int64"),
    ],
)
def test_a_part_of_another_schema_is_named(table, tmp_path, change, words):
    table.write_parquet(tmp_path / "a.parquet")
    change(table).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(InputError, match=rf"b\.parquet must have the columns of .*a\.parquet, got .*{words}"):
        Parts(find_parts([str(tmp_path)]))


def test_text_is_one_type_however_it_is_stored(table, tmp_path):
    table.write_parquet(tmp_path / "a.parquet")
    table.with_columns(pl.col("kind").cast(pl.Categorical)).write_parquet(tmp_path / "b.parquet")
    parts = Parts(find_parts([str(tmp_path)]))
    assert {str(batch.frame.schema["kind"]) for batch in parts.batches()} == {"String"}


def test_a_truncated_part_and_a_damaged_page_are_named(table, tmp_path):
    path = tmp_path / "a.parquet"
    table.write_parquet(path, row_group_size=3000, compression="zstd")
    content = bytearray(path.read_bytes())
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"a\.parquet cannot be read as a Parquet file"):
        Parts([path])
    path.write_bytes(content)
    page = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    content[page : page + 50] = b"\xff" * 50
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.parquet cannot be read after row 3,000"):
        list(Parts([path]).batches())


def test_a_table_fits_half_of_the_free_memory(folder):
    parts = Parts(find_parts([str(folder)]))
    assert parts.bytes == 9000 * (4 * 8 + 32)
    assert fits_memory(parts, free=2 * parts.bytes)
    assert not fits_memory(parts, free=2 * parts.bytes - 2)
    assert np.isfinite(free_memory() or 0)
