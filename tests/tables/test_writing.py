"""Tables are written whole or not at all, and read again as they were."""

import errno
import os

import polars as pl
import pytest

from ddpn.runtime.errors import InputError
from ddpn.tables.files import check_free, check_output, read, write

FRAME = pl.DataFrame({"a": [1, 2], "b": ["x", None], "c": [0.1, 1e-20]})


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.parquet", "t.feather", "t.arrow"])
def test_every_format_is_read_again(tmp_path, name):
    write(FRAME, str(tmp_path / name))
    assert read(str(tmp_path / name)).equals(FRAME)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_gz_is_compressed(tmp_path):
    write(FRAME, str(tmp_path / "t.csv.gz"))
    assert (tmp_path / "t.csv.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_standard_output(capsys):
    write(FRAME, "-")
    assert capsys.readouterr().out == "a,b,c\n1,x,0.1\n2,,1e-20\n"


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(FRAME, str(tmp_path / "t.csv"))
    assert (tmp_path / "t.csv").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


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
