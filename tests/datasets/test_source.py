import io
import os
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest

from ddpn.datasets.source import Source, data_folder, fetch
from ddpn.errors import InputError

BODY = b"a,b\n1,2\n" * 500


@pytest.fixture
def source(server):
    server.body = BODY
    return Source(
        path="set/file.csv",
        url=server.url,
        size=len(BODY),
        sha256=sha256(BODY).hexdigest(),
        licence="none",
        citation="nobody",
    )


def zipped(**members):
    packed = io.BytesIO()
    with ZipFile(packed, "w") as archive:
        for name, body in members.items():
            archive.writestr(name.replace("_", "."), body)
    return packed.getvalue()


def of_archive(source, server, packed):
    server.body = packed
    return replace(source, archive=(len(packed), sha256(packed).hexdigest()))


def test_downloaded_once(source, server, tmp_path):
    path = fetch(source, tmp_path)
    assert path == tmp_path / "set" / "file.csv"
    assert path.read_bytes() == BODY
    assert fetch(source, tmp_path) == path
    assert len(server.asked) == 1


def test_out_of_an_archive(source, server, tmp_path):
    of = of_archive(source, server, zipped(Readme_txt=b"read me", file_csv=BODY))
    assert fetch(of, tmp_path).read_bytes() == BODY
    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == ["file.csv", "file.csv.lock"]


@pytest.mark.parametrize(
    ("packed", "fault"),
    [
        (zipped(other_csv=BODY), "must send a zip archive with file.csv in it"),
        (b"no archive", "must send a zip archive with file.csv in it"),
        (zipped(file_csv=BODY[:-1] + b"9"), "must send 4000 bytes with sha256"),
    ],
)
def test_archives_with_something_else(source, server, tmp_path, packed, fault):
    with pytest.raises(InputError, match=fault):
        fetch(of_archive(source, server, packed), tmp_path)
    assert not (tmp_path / "set" / "file.csv").exists()


def test_a_file_that_was_changed_in_place(source, server, tmp_path):
    path = fetch(source, tmp_path)
    path.write_bytes(BODY[:-1] + b"!")
    with pytest.raises(InputError, match=rf"must be 4000 bytes with sha256 {source.sha256}, got 4000 .* Delete it"):
        fetch(source, tmp_path)
    path.write_bytes(BODY[:-9])
    with pytest.raises(InputError, match="got 3991 bytes"):
        fetch(source, tmp_path)


def says_all(error, source, folder):
    return all(said in str(error) for said in (source.url, str(folder / "set"), source.sha256, "DDPN_DATA"))


def test_offline(source, server, tmp_path):
    gone = replace(source, url="http://127.0.0.1:9/file.csv")
    with pytest.raises(InputError, match=r"file\.csv must lie in .* got no such file and no download") as error:
        fetch(gone, tmp_path, pause=0.0)
    assert says_all(error.value, gone, tmp_path)


def test_not_allowed_to_download(source, server, tmp_path):
    with pytest.raises(InputError, match="a download was not allowed") as error:
        fetch(source, tmp_path, may_download=False)
    assert says_all(error.value, source, tmp_path)
    assert server.asked == []
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be(source, tmp_path):
    (tmp_path / "set").write_text("a file where the folder should be")
    with pytest.raises(InputError, match=r"data folder .*set must be writable, got .* Set DDPN_DATA"):
        fetch(source, tmp_path)


def test_a_folder_without_the_right_to_write(source, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match="must be writable, got no right to write there"):
        fetch(source, tmp_path)


def test_the_folder_of_the_environment(source, server, tmp_path, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path / "here"))
    assert fetch(source) == tmp_path / "here" / "set" / "file.csv"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DDPN_DATA", "~/mine")
    assert data_folder() == tmp_path / "mine"


@pytest.mark.parametrize(
    ("platform", "variable", "set_folder", "default"),
    [
        ("linux", "XDG_CACHE_HOME", "ddpn", ".cache/ddpn"),
        ("win32", "LOCALAPPDATA", "ddpn", "AppData/Local/ddpn"),
        ("darwin", None, None, "Library/Caches/ddpn"),
    ],
)
def test_the_cache_of_the_platform(monkeypatch, tmp_path, platform, variable, set_folder, default):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("DDPN_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    assert data_folder() == tmp_path / default
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "cache"))
        assert data_folder() == tmp_path / "cache" / set_folder
