import pytest

from ddpn.datasets.csv_file import _BLOCK, other_columns, read_csv
from ddpn.errors import InputError


def written(tmp_path, text):
    path = tmp_path / "file.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_in_the_order_of_the_file(tmp_path):
    path = written(tmp_path, '\ufeffid,who,n\r\n7,"a, b",1.5\r\n8,c,-2e3\r\n')
    table = read_csv(path, numbers=["n"], texts=["who"], ignored=["id", "never there"])
    assert table.names == ("who", "n")
    assert table["who"].tolist() == ["a, b", "c"]
    assert table["n"].tolist() == [1.5, -2000.0]


def test_more_rows_than_a_block(tmp_path):
    n = 2 * _BLOCK + 5
    path = written(tmp_path, "i,t\n" + "".join(f"{i},t{i}\n" for i in range(n)))
    table = read_csv(path, numbers=["i"], texts=["t"])
    assert table["i"].tolist() == list(range(n))
    assert table["t"][-1] == f"t{n - 1}"


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        ("a", "got no b"),
        ("a,b,c,d", "got unknown c, d"),
        ("a,b,a", "got repeated a"),
        ("A,b", "got no a; unknown A"),
        ("", "got no a, b"),
    ],
)
def test_a_wrong_header(tmp_path, header, fault):
    with pytest.raises(InputError, match=rf"the header of .*file\.csv must name its columns, {fault}\."):
        read_csv(written(tmp_path, f"{header}\n1,2\n"), numbers=["a", "b"])


@pytest.mark.parametrize(("row", "count"), [("1", 1), ("1,2,3", 3), ("", 0)])
def test_a_ragged_row_is_told_by_its_number(tmp_path, row, count):
    rows = ["1,2"] * _BLOCK + ["3,4", row, "5,6"]
    with pytest.raises(InputError, match=f"must have 2 fields in every row, got {count} in row {_BLOCK + 2}"):
        read_csv(written(tmp_path, "a,b\n" + "\n".join(rows) + "\n"), numbers=["a", "b"])


@pytest.mark.parametrize("field", ["x", "", "nan", "inf", "1;5"])
def test_a_number_that_is_none_is_told_by_its_row(tmp_path, field):
    rows = ["1,2"] * (_BLOCK + 3) + [f"1,{field}", "5,6"]
    fault = f"column b of .* must hold finite numbers, got '{field}' in row {_BLOCK + 4}"
    with pytest.raises(InputError, match=fault):
        read_csv(written(tmp_path, "a,b\n" + "\n".join(rows)), numbers=["a", "b"])


def test_text_that_is_missing(tmp_path):
    with pytest.raises(InputError, match=r"column t of .* must hold text, got nothing in row 2"):
        read_csv(written(tmp_path, "a,t\n1,x\n2,\n"), numbers=["a"], texts=["t"])


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_text_that_is_no_utf8(tmp_path, encoding):
    path = tmp_path / "file.csv"
    path.write_bytes("a,t\n1,café\n".encode(encoding))
    with pytest.raises(InputError, match=r"file\.csv must be a csv file of utf-8 text, got another \(.*\)\. Save it"):
        read_csv(path, numbers=["a"], texts=["t"])


def test_a_field_without_an_end(tmp_path):
    path = written(tmp_path, f"a,t\n1,{'x' * 140_000}\n")
    with pytest.raises(InputError, match=r"must be a csv file of utf-8 text, got another \(field larger"):
        read_csv(path, numbers=["a"], texts=["t"])


def test_columns_that_are_not_asked_for(tmp_path):
    path = written(tmp_path, "note,a,,t,note,\nx,1,,y,z,\n")
    others = other_columns(path, ["t", "a"])
    assert others == ["note", "", "note", ""]
    assert read_csv(path, numbers=["a"], texts=["t"], ignored=others).names == ("a", "t")
    with pytest.raises(InputError, match=r"the header of .* must name b, a, got no b\. Name the columns so\."):
        other_columns(path, ["b", "a"])


def test_no_rows(tmp_path):
    with pytest.raises(InputError, match="must hold rows, got a header alone"):
        read_csv(written(tmp_path, "a,b\n"), numbers=["a", "b"])
