import gzip

import pytest

from ddpn.paper.datasets.csv_file import read_csv
from ddpn.runtime.errors import InputError


def write(tmp_path, content, encoding="utf-8"):
    path = tmp_path / "file.csv"
    path.write_bytes(content.encode(encoding))
    return path


def test_columns_are_in_the_order_of_the_file(tmp_path):
    path = write(tmp_path, '\ufeffid,who,n\r\n7,"a, b",1.5\r\n8,c, -2e3\r\n')
    table = read_csv(path, numbers=["n"], texts=["who"], ignored=["id", "may be missing"])
    assert table.columns == ["who", "n"]
    assert table.rows() == [("a, b", 1.5), ("c", -2000.0)]


def test_a_compressed_file(tmp_path):
    (tmp_path / "file.csv.gz").write_bytes(gzip.compress(b"a,t\n1,x\n"))
    assert read_csv(tmp_path / "file.csv.gz", numbers=["a"], texts=["t"]).rows() == [(1.0, "x")]


def test_a_file_named_as_if_it_were_compressed(tmp_path):
    path = tmp_path / "file.csv.gz"
    path.write_bytes(b"a,t\n1,x\n")
    assert read_csv(path, numbers=["a"], texts=["t"]).rows() == [(1.0, "x")]
    path.write_bytes(b"a,t\n1,x,2\n")
    with pytest.raises(InputError, match="must have 2 fields per row, got 3 at row 1"):
        read_csv(path, numbers=["a"], texts=["t"])


def test_other_columns_can_be_left_out(tmp_path):
    path = write(tmp_path, "note,a,,t,note,\nx,1,,y,z,\n")
    assert read_csv(path, numbers=["a"], texts=["t"], ignored=None).rows() == [(1.0, "y")]


MANY = "1,2\n" * 20_000
INVALID = {
    "missing column": ("a\n1\n", r"columns of .*file\.csv must be a, b, got missing b"),
    "unknown column": ("a,b,c,d\n1,2,3,4\n", "got unknown c, d"),
    "repeated column": ("a,b,a\n1,2,3\n", "got repeated a"),
    "other case": ("A,b\n1,2\n", "got missing a; unknown A"),
    "empty header": ("\n1,2\n", "got missing a, b"),
    "empty file": ("", "got missing a, b"),
    "no rows": ("a,b\n", "must have rows below its header, got none"),
    "short row": (f"a,b\n{MANY}1\n5,6\n", "b of .* must hold finite numbers, got '' at row 20001"),
    "long row": (f"a,b\n{MANY}1,2,3\n5,6\n", "must have 2 fields per row, got 3 at row 20001"),
    "blank row": ("a,b\n1,2\n\n5,6\n", "a of .* must hold finite numbers, got '' at row 2"),
    "word": (f"a,b\n{MANY}1,x\n", "b of .* must hold finite numbers, got 'x' at row 20001"),
    "nan": ("a,b\n1,nan\n", "got 'nan' at row 1"),
    "infinity": ("a,b\n1,inf\n", "got 'inf' at row 1"),
    "decimal comma": ('a,b\n1,"1,5"\n', "got '1,5' at row 1"),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_file(tmp_path, name):
    content, words = INVALID[name]
    with pytest.raises(InputError, match=words):
        read_csv(write(tmp_path, content), numbers=["a", "b"])


def test_a_missing_text(tmp_path):
    with pytest.raises(InputError, match=r"Column t of .* must hold text, got none at row 2"):
        read_csv(write(tmp_path, "a,t\n1,x\n2,\n"), numbers=["a"], texts=["t"])


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_another_encoding(tmp_path, encoding):
    with pytest.raises(InputError, match=r"file\.csv must be a CSV file in UTF-8, got: "):
        read_csv(write(tmp_path, "a,t\n1,café\n", encoding), numbers=["a"], texts=["t"])
