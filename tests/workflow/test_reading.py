"""Every format gives the same frame, and what is not a table is reported in one sentence."""

import gzip
import io
import sys
from datetime import date

import polars as pl
import pytest

from ddpn.errors import ConfigError, InputError
from ddpn.workflow.reading import STDIN, read

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
    assert read(str(path)).equals(FRAME)


def test_standard_input(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(TEXT.encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    assert read(STDIN).equals(FRAME)


def test_a_late_text_makes_a_column_of_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "1\n" * 5000 + "x\n")
    assert read(str(path))["a"].dtype == pl.String


def test_digits_stay_as_written_where_asked(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("zip,n\n007,1\n01,2\n")
    assert read(str(path), as_text=["zip", "nowhere"])["zip"].to_list() == ["007", "01"]
    assert read(str(path))["zip"].to_list() == [7, 1]


def test_quoted_separators_are_not_counted(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('"a;b;c;d",e\n1,2\n')
    assert read(str(path)).columns == ["a;b;c;d", "e"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.xlsx", b"x", r"Unsupported file type: .*t\.xlsx\. Supported: \.csv, "),
        ("t.gz", b"x", "Unsupported file type"),
        ("t.parquet.gz", b"x", "Unsupported file type"),
        ("t.csv", b"", "is an empty file"),
        ("t.csv", b"\n\n", "cannot be read as a csv file"),
        ("t.csv", b"a,b\n", "empty table: 0 rows and 2 columns"),
        ("t.csv", b"a,b,a\n1,2,3\n", "columns of the same name: a"),
        ("t.csv", b"a,b\n1,2\n3,4,5\n", "csv file: a row has more fields than the header"),
        ("t.csv", "a,b\n1,é\n".encode("latin1"), "not UTF-8 text"),
        ("t.csv.gz", gzip.compress(TEXT.encode() * 50, mtime=0)[:-30], "cannot be read as a csv file"),
        ("t.parquet", b"garbage", "cannot be read as a parquet file"),
        ("t.feather", b"garbage", "cannot be read as a feather file"),
    ],
)
def test_what_is_not_a_table_is_one_sentence(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=words) as found:
        read(str(path))
    assert "\n" not in str(found.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"File not found: .*none\.csv"):
        read(str(tmp_path / "none.csv"))


def test_a_folder(tmp_path):
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(InputError, match="is a folder, not a file"):
        read(str(tmp_path / "t.csv"))


def test_without_polars(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ConfigError, match=r"ddpn\[files\] is not installed: pip install 'ddpn\[files\]'"):
        read(str(tmp_path / "t.csv"))
