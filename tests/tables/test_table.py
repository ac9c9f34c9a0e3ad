"""Test the files of a table, a uniform sample of its rows, and the shuffled stream."""

from itertools import islice

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

from ddpn.runtime.errors import InputError
from ddpn.tables import shuffling
from ddpn.tables.columns import Kind
from ddpn.tables.conversion import TableColumn, to_times
from ddpn.tables.dates import YEAR_FIRST, DateFormat
from ddpn.tables.files import find_files
from ddpn.tables.roles import Roles
from ddpn.tables.shuffling import shuffle_chunks
from ddpn.tables.table import Table
from ddpn.workflow.config import FitConfig
from ddpn.workflow.large_tables import open_table


def test_all_rows_are_read_in_order_with_their_numbers(folder, table):
    result = Table([str(folder)])
    assert result.read().equals(table)
    for location in result.list_blocks():
        assert result.read_block(location, ["row"])["row"][0] == location.rows_before
        assert location.rows_before_in_file == location.rows_before % 3000
    assert (result.rows, list(result.schema)) == (table.height, table.columns)


def test_a_pattern_a_folder_and_names_give_the_same_files(folder):
    names = sorted(str(path) for path in folder.iterdir())
    assert find_files([str(folder)]) == find_files([str(folder / "part-*.parquet")]) == find_files(names)


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        (["none/*.parquet"], "No file matches none"),
        (["a.parquet", "b.parquet"], "File not found"),
        (["{f}", "{f}"], "given once"),
    ],
)
def test_a_wrong_source_is_named(folder, sources, words):
    with pytest.raises(InputError, match=words):
        open_table([source.format(f=folder / "part-0.parquet") for source in sources], FitConfig(target="y"))


def test_hidden_files_and_folders_are_no_tables(folder, tmp_path):
    (tmp_path / "more.parquet").mkdir()
    for name in ("_metadata.parquet", ".part.parquet", "b.PQ", "a.csv"):
        (tmp_path / name).write_bytes(b"")
    assert find_files([str(tmp_path)]) == [tmp_path / "a.csv", tmp_path / "b.PQ"]


def test_a_folder_without_tables_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("y\n1\n")
    with pytest.raises(InputError, match=r"is a folder without a file that ends in \.parquet or \.pq or \.csv"):
        open_table([str(tmp_path)], FitConfig(target="y"))


def test_files_of_different_formats_are_one_table(table, tmp_path):
    table[:5000].write_parquet(tmp_path / "a.parquet")
    table[5000:].write_csv(tmp_path / "b.csv")
    result = open_table([str(tmp_path)], FitConfig(target="y"))[0]
    assert_frame_equal(result, table)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop("z"), "without 'z'"),
        (lambda frame: frame.with_columns(pl.col("z").alias("zz")), "with 'zz'"),
    ],
)
def test_a_file_of_other_columns_is_named(table, tmp_path, change, words):
    table.write_parquet(tmp_path / "a.parquet")
    change(table).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(InputError, match=rf"b\.parquet must have the columns of .*a\.parquet, got .*{words}"):
        Table([str(tmp_path)])


def test_files_of_several_types_have_one_that_holds_all(table, tmp_path):
    table.write_parquet(tmp_path / "a.parquet")
    changed = {"kind": pl.Categorical, "y": pl.Float64, "row": pl.String}
    table.with_columns(pl.col(name).cast(dtype) for name, dtype in changed.items()).write_parquet(
        tmp_path / "b.parquet"
    )
    result = Table([str(tmp_path)])
    assert [result.schema[name] for name in changed] == [pl.String, pl.Float64, pl.String]
    assert dict(result.read().schema) == result.schema
    assert result.read()["row"].to_list() == 2 * table["row"].cast(pl.String).to_list()


def test_a_truncated_part_and_a_damaged_page_are_named(table, tmp_path):
    path = tmp_path / "a.parquet"
    table.write_parquet(path, row_group_size=3000, compression="zstd")
    content = bytearray(path.read_bytes())
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"a\.parquet cannot be read as a parquet file"):
        Table([str(path)])
    path.write_bytes(content)
    page = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    content[page : page + 50] = b"\xff" * 50
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.parquet cannot be read as a parquet file, rows 1 to 9,000"):
        Table([str(path)]).read()


def test_a_table_fits_half_of_the_free_memory(folder, monkeypatch):
    table = Table([str(folder)])
    size = table.rows * table.estimate_row_bytes()
    assert size == 9000 * (4 * 8 + 32)
    assert shuffling.measure_free_memory() is None or shuffling.measure_free_memory() > 0
    for free, fits in ((2 * size, True), (2 * size - 2, False), (None, True)):
        monkeypatch.setattr(shuffling, "measure_free_memory", lambda free=free: free)
        assert shuffling.fits_in_memory(table) == fits


# A sample of rows, and a stream of all -----------------------------------------------------------------------------


def keep_all_rows(frame, numbers):
    return np.ones(len(numbers), dtype=bool)


def test_a_pass_has_every_row_once_in_an_order_that_the_seed_decides(folder):
    table = Table([str(folder)])
    order = [c["row"].to_numpy() for c in islice(shuffle_chunks(table, ["row"], keep_all_rows, 1000, seed=1), 18)]
    again = [c["row"].to_numpy() for c in islice(shuffle_chunks(table, ["row"], keep_all_rows, 1000, seed=1), 18)]
    other = next(shuffle_chunks(table, ["row"], keep_all_rows, 1000, seed=2))["row"].to_numpy()
    assert all(len(chunk) == 1000 for chunk in order)
    first, second = np.concatenate(order[:9]), np.concatenate(order[9:])
    assert np.array_equal(np.sort(first), np.arange(9000))
    assert np.array_equal(np.sort(second), np.arange(9000))
    assert not np.array_equal(first, second)
    assert np.array_equal(first, np.concatenate(again[:9]))
    assert not np.array_equal(order[0], other)
    assert abs(np.corrcoef(first, np.arange(9000))[0, 1]) < 0.05


def test_left_over_rows_begin_the_next_chunk_and_rows_that_are_not_kept_never_come(folder):
    table = Table([str(folder)])
    chunks = shuffle_chunks(table, ["row"], lambda frame, numbers: numbers % 3 > 0, 4000, seed=0)
    rows = np.concatenate([chunk["row"].to_numpy() for chunk in islice(chunks, 3)])
    assert (rows % 3 > 0).all()
    assert (np.bincount(rows, minlength=9000)[np.arange(9000) % 3 > 0] == 2).all()


def test_a_stream_without_rows_ends_with_an_error(folder):
    table = Table([str(folder)])
    with pytest.raises(InputError, match="must have training rows"):
        next(shuffle_chunks(table, ["row"], lambda frame, numbers: numbers < 0, 10, seed=0))


@pytest.mark.parametrize("fitted", ["", "year first"])
def test_dates_have_one_order_of_day_and_month_in_all_blocks(fitted, tmp_path, monkeypatch):
    """Of dates that are sorted, a block may have no day above 12, and would be read with the month first."""
    days = pl.date_range(pl.date(2021, 1, 1), pl.date(2021, 6, 30), "1d", eager=True).alias("day")
    pl.DataFrame({"day": days.dt.strftime("%d/%m/%Y")}).write_csv(tmp_path / "days.csv")
    monkeypatch.setattr("ddpn.tables.blocks.MAX_WHOLE_FILE_BYTES", 0)
    monkeypatch.setattr("ddpn.tables.blocks.BLOCK_ROWS", 10)
    monkeypatch.setattr("ddpn.tables.blocks._MIN_BLOCK_BYTES", 1)
    column = TableColumn("day", Kind.DATE, parts=("number",), date=DateFormat(YEAR_FIRST if fitted else ""))
    table = Table([str(tmp_path / "days.csv")])
    assert table.is_long
    roles = table.find_date_formats(Roles(None, None, None, (column,)))
    (date_format,) = (column.date for column in roles.columns)
    read = pl.concat(
        [to_times(table.read_block(block)["day"], date_format, ("",), "day").values for block in table.list_blocks()]
    )
    assert read.cast(pl.Date).to_list() == days.to_list()
    assert Table.from_rows(table.read()).find_date_formats(roles) is roles


def test_times_of_a_text_file_keep_their_distance_from_utc(tmp_path):
    """The same instant is read as local time in the zone that the column had in fit."""
    local = ["2021-01-31 23:30:00", "2021-02-01 00:15:00"]
    frame = pl.DataFrame({"at": ["2021-01-31T23:30:00Z", "2021-01-31T19:15:00-05:00"], "local": local})
    frame.write_csv(tmp_path / "times.csv")
    read = Table([str(tmp_path / "times.csv")]).read()
    assert read.schema == {"at": pl.String, "local": pl.Datetime("us")}
    times = to_times(read["at"], DateFormat(zone="UTC"), ("",), "at").values
    assert times.to_list() == read["local"].to_list()
