"""Sheets of workbooks, and titles above headers: read as asked, or one sentence that names the option."""

import gzip
import io
import re

import polars as pl
import pytest

from ddpn.runtime.errors import ConfigError, InputError
from ddpn.tables import blocks as table_module
from ddpn.tables.files import read_file
from ddpn.tables.layout import Layout, find_header
from ddpn.tables.table import Table

HEADER = ["age", "visits", "ward & floor"]
DATA = [[31 + i, i % 4, "AB"[i % 2]] for i in range(12)]
FRAME = pl.DataFrame(DATA, HEADER, orient="row")
TITLED = [["Visits of 2024", None, None], [None] * 3, HEADER, *DATA]
#: The same table, with lines as text files have them, and what separates its cells.
LINES = {"t.csv": ",", "t.tsv": "\t", "semicolons.csv": ";", "t.csv.gz": ",", "t.csv.zst": ","}


@pytest.fixture
def workbook(tmp_path, write_workbook):
    """Three sheets: a text, the table, and the table below a title."""
    path = tmp_path / "visits.xlsx"
    write_workbook(path, {"Read me": [["Data of the clinic"]], "2024 & more": [HEADER, *DATA], "May": TITLED})
    return str(path)


@pytest.mark.parametrize("layout", [Layout("2024 & more"), Layout(2), Layout("2"), Layout("May", 2), Layout(3, 2)])
def test_a_sheet_is_read_by_name_or_number_below_its_title(workbook, layout):
    assert read_file(workbook, layout=layout).equals(FRAME)
    assert Table([workbook], layout=layout).read().equals(FRAME)


def test_the_first_of_several_sheets_is_read_with_a_warning_that_names_them(tmp_path, write_workbook):
    path = str(tmp_path / "t.xlsx")
    write_workbook(tmp_path / "t.xlsx", {"May": [HEADER, *DATA], "Notes": [["Late"]]})
    words = 't.xlsx has 2 sheets: May, Notes. The first is read; choose with `sheet="Notes"`.'
    with pytest.warns(UserWarning, match=re.escape(words)):
        assert read_file(path).equals(FRAME)


def test_the_name_of_a_sheet_comes_before_its_number(tmp_path, write_workbook):
    path = tmp_path / "t.xlsx"
    write_workbook(path, {"2": [HEADER, *DATA], "1": [["a", "b"], [1, 2], [3, 4]]})
    assert read_file(str(path), layout=Layout("2")).equals(FRAME)


@pytest.mark.parametrize("sheet", ["June", "4", 0])
def test_a_sheet_that_is_not_there_is_an_error_with_the_names(workbook, sheet):
    with pytest.raises(InputError, match=r"visits.xlsx has no sheet .*Read me, 2024 & more, May"):
        read_file(workbook, layout=Layout(sheet))


def test_a_title_in_a_sheet_is_an_error_that_says_how_to_read_it(workbook):
    with pytest.raises(
        InputError, match=r"a title, 'Visits of 2024', and row 3 .* `skip_rows=2`, or with `skip_rows=0`"
    ):
        read_file(workbook, layout=Layout("May"))
    with pytest.warns(UserWarning, match="1 empty row"):
        assert read_file(workbook, layout=Layout("May", 0)).columns[0] == "Visits of 2024"


def test_rows_above_a_table_that_begins_further_right_are_counted_as_in_excel(tmp_path, write_workbook):
    path = tmp_path / "t.xlsx"
    write_workbook(path, {"May": [[None] * 4, ["Title"], [None] * 4, [None, *HEADER], *([None, *row] for row in DATA)]})
    with pytest.raises(InputError, match=r"`skip_rows=3`"):
        read_file(str(path))
    assert read_file(str(path), layout=Layout(skip_rows=3)).equals(FRAME)


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("padded", [True, False])
def test_text_below_a_title(tmp_path, name, padded):
    separator = LINES[name]
    blank = separator * 2 if padded else ""
    lines = [f"Visits of 2024{blank}", blank, *(separator.join(map(str, row)) for row in (HEADER, *DATA))]
    text, path = "\n".join(lines) + "\n", tmp_path / name
    if name.endswith(".zst"):
        pl.DataFrame({"x": lines}).lazy().sink_csv(path, include_header=False, quote_style="never", compression="zstd")
    else:
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        with pytest.raises(InputError, match=r"row 3 looks like the header. Read it with `skip_rows=2`"):
            read_file(str(path))
    assert read_file(str(path), layout=Layout(skip_rows=2)).equals(FRAME)


def test_a_long_text_file_below_a_title_is_read_block_by_block(tmp_path, monkeypatch):
    path, rows = tmp_path / "t.csv", "".join(f"{i},{i % 5 + 9000},x\n" for i in range(3000))
    path.write_text(f"Visits of 2024\n\n{','.join(HEADER)}\n{rows}")
    monkeypatch.setattr(table_module, "MAX_WHOLE_FILE_BYTES", 100)
    monkeypatch.setattr(table_module, "_MIN_BLOCK_BYTES", 4096)
    monkeypatch.setattr(table_module, "BLOCK_ROWS", 500)
    with pytest.raises(InputError, match=r"`skip_rows=2`"):
        Table([str(path)])
    table = Table([str(path)], layout=Layout(skip_rows=2))
    assert len(table.list_blocks()) > 3
    assert table.read().equals(pl.read_csv(io.StringIO(rows), has_header=False, new_columns=HEADER))
    assert table.describe_files() != Table([str(path)], layout=Layout(skip_rows=3)).describe_files()


@pytest.mark.parametrize(
    "text",
    [
        ",name\n1,Ann\n2,Bob\n",
        "name;note\nAnn;tall, blond\nBob;small, dark\n",
        "a;b\n1,5;2,5\n1,7;3,5\n",
        "a,b,c,d,\n1,2,3,4,\n5,6,7,8,\n",
        "a\nx\ny\n",
        'a,b\n"x\ny",1\nz,2\n',
        "name,2019,2020\nAnn,1,2\nBob,3,4\n",
    ],
)
def test_a_table_without_a_title_is_read(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert read_file(str(path)).height in (1, 2)


@pytest.mark.parametrize(
    ("rows", "header"),
    [
        ([["Title"], ["a", "b"], ["1", "2"]], 1),
        ([["Title"], ["by Ann"], [], ["a", "b", "c"], ["1", "2", "3"]], 3),
        ([["a", "b"], ["1", "2"]], None),
        ([["Title"], ["1", "2"], ["3", "4"]], None),
        ([["Title"], ["a", "b"]], None),
        ([["a"], ["1"]], None),
        ([], None),
    ],
)
def test_find_header(rows, header):
    assert find_header(rows) == header


def test_what_a_file_does_not_have_is_refused(tmp_path):
    csv, parquet = tmp_path / "t.csv", tmp_path / "t.parquet"
    FRAME.write_csv(csv)
    FRAME.write_parquet(parquet)
    with pytest.raises(InputError, match=r"t.csv is no workbook with sheets. Leave out `sheet`."):
        read_file(str(csv), layout=Layout("May"))
    for read in (read_file, lambda path, layout: Table([path], layout=layout)):
        with pytest.raises(InputError, match=r"t.parquet has no rows above its columns. Leave out `skip_rows`."):
            read(str(parquet), layout=Layout(skip_rows=1))
    with pytest.raises(ConfigError, match="skip_rows must be an integer of at least 0, got -1"):
        Layout(skip_rows=-1)
