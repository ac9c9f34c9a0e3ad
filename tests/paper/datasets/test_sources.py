import errno
import io
import sys
import threading
from dataclasses import replace
from hashlib import sha256
from zipfile import ZipFile

import numpy as np
import pytest

from ddpn.paper.datasets.sources import Source, data_folder, fetch
from ddpn.runtime.errors import ConfigError, InputError

BODY = np.random.default_rng(0).bytes(300_000)


@pytest.fixture
def source(server):
    server.body = BODY
    return Source("none", server.url, "none", "nobody", ("set/file.csv",), len(BODY), sha256(BODY).hexdigest())


def zipped(source):
    packed = io.BytesIO()
    with ZipFile(packed, "w") as archive:
        archive.writestr("Readme.txt", b"read me")
        archive.writestr("file.csv", BODY)
    return replace(source, archive=sha256(packed.getvalue()).hexdigest()), packed.getvalue()


def names(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_a_file_is_downloaded_once(source, server, tmp_path):
    path = fetch(source, tmp_path)
    assert path == tmp_path / "set" / "file.csv"
    assert path.read_bytes() == BODY
    assert fetch(source, tmp_path) == path
    assert server.requests == 1
    assert names(tmp_path) == ["file.csv"]


def test_a_file_from_an_archive(source, server, tmp_path):
    source, server.body = zipped(source)
    assert fetch(source, tmp_path).read_bytes() == BODY
    assert names(tmp_path) == ["file.csv"]


@pytest.mark.parametrize("script", [["status 503"], ["status 429", "status 500"], [100_000], [100_000, 0]])
def test_a_download_that_fails_is_tried_again(source, server, tmp_path, script):
    server.script = list(script)
    assert fetch(source, tmp_path).read_bytes() == BODY
    assert server.requests == 1 + len(script)
    assert names(tmp_path) == ["file.csv"]


@pytest.mark.parametrize(
    ("script", "words"), [(["status 404"] * 9, "status 404 Not Found"), ([70_000] * 9, "no connection")]
)
def test_a_download_that_keeps_failing_describes_what_to_do(source, server, tmp_path, script, words):
    server.script = script
    with pytest.raises(InputError, match=f"^Cannot download {source.url}: {words}") as error:
        fetch(source, tmp_path)
    for needed in (str(source.size), source.sha256, str(tmp_path / "set"), "DDPN_DATA"):
        assert needed in str(error.value)
    assert names(tmp_path) == []
    assert server.requests == 3


def test_no_network(source, server, tmp_path):
    server.shutdown()
    server.server_close()
    with pytest.raises(InputError, match=r"^Cannot download http.*: no connection\. Download http"):
        fetch(source, tmp_path)


@pytest.mark.parametrize("body", [BODY[:-1] + b"x", BODY[:-1], BODY * 2])
def test_a_wrong_checksum(source, server, tmp_path, body):
    server.body = body
    with pytest.raises(InputError, match=rf"sent a file with a wrong checksum, expected SHA-256 {source.sha256}"):
        fetch(source, tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, r"^The disk is full: .*set needs 300,000 bytes"), (errno.EACCES, r"^Cannot write to .*set: ")],
)
def test_a_disk_that_cannot_be_written_to(source, tmp_path, monkeypatch, number, words):
    def fail(path, *arguments):
        raise OSError(number, "no")

    monkeypatch.setattr("pooch.core.shutil.move", fail)
    with pytest.raises(InputError, match=words):
        fetch(source, tmp_path)
    assert names(tmp_path) == []


def test_a_file_in_place_of_the_folder(source, tmp_path):
    (tmp_path / "set").write_text("")
    with pytest.raises(InputError, match=r"^Cannot write to .*set: .*Set DDPN_DATA"):
        fetch(source, tmp_path)


def test_processes_wait_for_each_other(source, server, tmp_path):
    found = []
    threads = [threading.Thread(target=lambda: found.append(fetch(source, tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert server.requests == 1


def test_a_damaged_file_is_neither_used_nor_replaced(source, server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file.csv").write_bytes(BODY[:100])
    with pytest.raises(InputError, match=rf"file\.csv must have the SHA-256 {source.sha256}, got .* Delete the file"):
        fetch(source, tmp_path)
    assert server.requests == 0
    assert len((tmp_path / "set" / "file.csv").read_bytes()) == 100


def test_no_download_without_permission(source, server, tmp_path):
    with pytest.raises(InputError, match=r"^File not found: .*file\.csv\. Download http"):
        fetch(source, tmp_path, may_download=False)
    assert server.requests == 0
    assert list(tmp_path.iterdir()) == []


def test_without_pooch(source, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ConfigError, match=r"^ddpn\[data\] is not installed: pip install 'ddpn\[data\]'$"):
        fetch(source, tmp_path)


def test_the_folder_of_the_environment(source, tmp_path, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path / "here"))
    assert fetch(source) == tmp_path / "here" / "set" / "file.csv"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DDPN_DATA", "~/mine")
    assert data_folder() == tmp_path / "mine"


@pytest.mark.skipif(sys.platform != "linux", reason="platformdirs has other folders on other platforms")
def test_the_cache_of_the_platform(tmp_path, monkeypatch):
    monkeypatch.delenv("DDPN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "ddpn"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() == tmp_path / ".cache" / "ddpn"
