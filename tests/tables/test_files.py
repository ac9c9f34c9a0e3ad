"""Test that every format gives the same frame, other files are refused, and files are written whole or not at all."""

import gzip
import io
import sys
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from ddpn.runtime.errors import InputError
from ddpn.tables.files import STDIN, check_free, check_output, read_file, write_file

FRAME = pl.DataFrame(
    {
        "a": [1, 2, None],
        "b": ["x", None, "z"],
        "c": [0.5, 1.5, 2.5],
        "d": [date(2024, 1, 2)] * 3,
        "e": [True, False, True],
    }
)
TEXT = "a,b,c,d,e\n1,x,0.5,2024-01-02,true\n2,NA,1.5,2024-01-02,false\n?,z,2.5,2024-01-02,true\n"
WRITERS = {
    "t.csv": lambda path: path.write_text(TEXT),
    "t.CSV": lambda path: path.write_text(TEXT),
    "bom.csv": lambda path: path.write_text("\ufeff" + TEXT),
    "semicolons.csv": lambda path: path.write_text(TEXT.replace(",", ";")),
    "commas.csv": lambda path: path.write_text(TEXT.replace(",", ";").replace("0.5", "0,5").replace("1.5", "1,5")),
    "bars.csv": lambda path: path.write_text(TEXT.replace(",", "|")),
    "t.tsv": lambda path: path.write_text(TEXT.replace(",", "\t")),
    "t.csv.gz": lambda path: path.write_bytes(gzip.compress(TEXT.encode())),
    "t.tsv.gz": lambda path: path.write_bytes(gzip.compress(TEXT.replace(",", "\t").encode())),
    "t.csv.zst": lambda path: FRAME.lazy().sink_csv(path, compression="zstd"),
    "t.parquet": FRAME.write_parquet,
    "t.feather": FRAME.write_ipc,
    "t.arrow": FRAME.write_ipc,
    "with.dots.csv": lambda path: path.write_text(TEXT),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_frame(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    if name == "commas.csv":
        path.write_text(path.read_text().replace("2.5", "2,5"))
    assert read_file(str(path)).equals(FRAME)


def test_a_table_is_read_from_standard_input(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(TEXT.encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    assert read_file(STDIN).equals(FRAME)


def test_a_late_text_makes_a_column_of_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "1\n" * 5000 + "x\n")
    assert read_file(str(path))["a"].dtype == pl.String


def test_digits_stay_as_written_where_asked(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("station,n\n7.0,1\n1,2\n")
    assert read_file(str(path), as_text=["station", "nowhere"])["station"].to_list() == ["7.0", "1"]
    assert read_file(str(path))["station"].to_list() == [7, 1]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["01234", "98765", "00001"], ["01234", "98765", "00001"]),
        (["007", "01", "5"], ["007", "01", "5"]),
        (["0", "10", "5"], [0, 10, 5]),
        (["05", *["7", "12"] * 30], [5, *[7, 12] * 30]),
    ],
    ids=["one length", "many zeros", "zeros that are numbers", "a stray zero"],
)
def test_leading_zeros_that_matter_stay(tmp_path, cells, expected):
    path = tmp_path / "t.csv"
    path.write_text("code,n\n" + "".join(f"{cell},1\n" for cell in cells))
    assert read_file(str(path))["code"].to_list() == expected


def test_other_encodings_are_read_and_reported(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("café,n\né€,1\n".encode("cp1252"))
    with pytest.warns(UserWarning, match=r"t\.csv is not UTF-8; read as Windows-1252\."):
        assert read_file(str(path)).rows(named=True) == [{"café": "é€", "n": 1}]
    path.write_bytes("a,n\n\x81é,1\n".encode("latin-1"))
    with pytest.warns(UserWarning, match="read as Latin-1"):
        assert read_file(str(path))["a"].to_list() == ["\x81é"]
    for encoding in ("utf-16", "utf-8-sig"):
        path.write_bytes("café,n\né,1\n".encode(encoding))
        assert read_file(str(path)).rows(named=True) == [{"café": "é", "n": 1}]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b,\n1,x,\n2,y,\n", [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
        ("a,b\n1,x,\n2,y,\n", [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
        (" a , b\n1,x\n", [{"a": 1, "b": "x"}]),
        (",b\n1,x\n", [{"column_1": 1, "b": "x"}]),
        ('a,"b\nc"\n1,"x\ny"\n', [{"a": 1, "b\nc": "x\ny"}]),
        ("a,b\r\n1,x\r\n\r\n\r\n", [{"a": 1, "b": "x"}]),
        ("a,b\r1,x\r", [{"a": 1, "b": "x"}]),
        ("a\n1\n\n2\n", [{"a": 1}, {"a": None}, {"a": 2}]),
        ("a;b;c\n1,5;1.234;x\n2,5;12.345;y\n", [{"a": 1.5, "b": 1234, "c": "x"}, {"a": 2.5, "b": 12345, "c": "y"}]),
        ('a,b\n"1,234",x\n', [{"a": "1,234", "b": "x"}]),
        ("a,b\n 5 , x \n", [{"a": 5, "b": " x "}]),
        ("a,b\ninf,x\n", [{"a": "inf", "b": "x"}]),
        ('"a;b;c;d",e\n1,2\n', [{"a;b;c;d": 1, "e": 2}]),
    ],
)
def test_untidy_text_is_read(tmp_path, text, rows):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    assert read_file(str(path)).rows(named=True) == rows


def test_empty_rows_between_others_are_left_out_and_counted(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,x\n,\n\n2,y\n")
    with pytest.warns(UserWarning, match="2 empty rows are left out, and not counted in row numbers"):
        assert read_file(str(path))["a"].to_list() == [1, 2]


def test_json_is_read_as_lines_and_as_a_list(tmp_path):
    for name in ("t.jsonl", "t.ndjson"):
        FRAME.write_ndjson(tmp_path / name)
        assert read_file(str(tmp_path / name)).drop("d").equals(FRAME.drop("d"))
    FRAME.drop("d").write_json(tmp_path / "t.json")
    assert read_file(str(tmp_path / "t.json")).equals(FRAME.drop("d"))


def test_a_workbook_is_read():
    with pytest.warns(UserWarning, match="1 empty row is left out"):
        table = read_file(str(Path(__file__).with_name("workbook.xlsx")))
    assert table.rows(named=True) == [{"a": 1, "b": "x", "c": 0.5}, {"a": 2, "b": "n/a", "c": 1.5}]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.docx", b"x", r"Unsupported file type: .*t\.docx\. Supported: \.csv, "),
        ("t.xlsx", b"x", "cannot be read as an Excel file"),
        ("t.json", b'{"a": 1,', "cannot be read as a json file"),
        ("t.csv", b"\x00\x01,b\n1,2\n", "is not a text file: it holds NUL bytes"),
        ("t.csv", b"\xff\xfea\xd8", "cannot be read as UTF-16 text"),
        ("t.gz", b"x", "Unsupported file type"),
        ("t.parquet.gz", b"x", "Unsupported file type"),
        ("t.csv", b"", "is an empty file"),
        ("t.csv", b"\n\n", "is empty: it has 0 rows and 0 columns"),
        ("t.csv", b"a,b\n", "is empty: it has 0 rows and 2 columns"),
        ("t.csv", b"a,b,a\n1,2,3\n", "columns of the same name: a"),
        ("t.csv", b"a,b\n1,2\n3,4,5\n", "a row has more fields than the header"),
        ("t.csv.gz", gzip.compress(TEXT.encode() * 50, mtime=0)[:-30], "cannot be read as a csv file"),
        ("t.parquet", b"garbage", "cannot be read as a parquet file"),
        ("t.feather", b"garbage", "cannot be read as a feather file"),
    ],
)
def test_files_that_are_no_table_are_refused_in_one_sentence(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=words) as result:
        read_file(str(path))
    assert "\n" not in str(result.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    (tmp_path / "t.csv").mkdir()
    for name, words in {"none.csv": r"File not found: .*none\.csv", "t.csv": "is a folder, not a file"}.items():
        with pytest.raises(InputError, match=words):
            read_file(str(tmp_path / name))


@pytest.mark.parametrize(
    ("cells", "first"), [("31,287;18,395", "31,287"), ("31,287;0,395", 31.287), ("31,287;18,3", 31.287)]
)
def test_commas_are_decimal_signs_only_where_a_cell_says_so(tmp_path, cells, first):
    """Since 31,287 may be either, such a column stays text, and whoever reads numbers from it says how."""
    path = tmp_path / "t.csv"
    path.write_text("a;b\n" + "".join(f"x;{cell}\n" for cell in cells.split(";")))
    assert read_file(str(path))["b"][0] == first


# Writing --------------------------------------------------------------------------------------------------------------

WRITTEN = pl.DataFrame({"a": [1, 2], "b": ["x", None], "c": [0.1, 1e-20]})


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.parquet", "t.feather", "t.arrow"])
def test_every_format_that_is_written_is_read_again(tmp_path, name):
    write_file(WRITTEN, str(tmp_path / name))
    assert (tmp_path / name).read_bytes().startswith(b"\x1f\x8b") == name.endswith("gz")
    assert read_file(str(tmp_path / name)).equals(WRITTEN)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_table_is_written_to_standard_output(capsys):
    write_file(WRITTEN, "-")
    assert capsys.readouterr().out == "a,b,c\n1,x,0.1\n2,,1e-20\n"


def test_outputs_are_checked_before_the_work(tmp_path):
    (tmp_path / "t.csv").write_text("old")
    (tmp_path / "folder.csv").mkdir()
    check_output("-", overwrite=False)
    check_output(str(tmp_path / "new.csv"), overwrite=False)
    check_output(str(tmp_path / "t.csv"), overwrite=True)
    for name, words in {
        "t.csv": "already exists. Choose another name, or replace it with `overwrite=True`",
        "t.xlsx": "Unsupported file type",
        "t.csv.zst": "cannot be compressed as .zst",
        "folder.csv": "is a folder, not a file",
    }.items():
        with pytest.raises(InputError, match=words):
            check_output(str(tmp_path / name), overwrite=False)
    with pytest.raises(InputError, match=r"t\.csv is a file, not a folder"):
        check_free(tmp_path / "t.csv" / "x.html", overwrite=False)


@pytest.mark.parametrize("name", ["t.csv", "folder/../t.csv", "link.csv", "hard.csv"])
def test_the_table_itself_is_not_overwritten(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "t.csv").write_text("a\n1\n")
    (tmp_path / "link.csv").symlink_to("t.csv")
    (tmp_path / "hard.csv").hardlink_to("t.csv")
    for source in ("t.csv", str(tmp_path / "t.csv")):
        with pytest.raises(InputError, match=r"is the table .* itself, which is not overwritten"):
            check_output(name, overwrite=True, source=source)
    check_output("new.csv", overwrite=False, source="t.csv")
    check_output(name, overwrite=True, source="none.csv")
    check_output(name, overwrite=True, source="-")
