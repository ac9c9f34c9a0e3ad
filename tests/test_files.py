"""Files and folders are written whole or not at all."""

import hashlib
import os
import stat
import threading

import pytest

from ddpn.errors import InputError
from ddpn.files import atomic_folder, atomic_path, lock, sha256, sha256_of_file, write_bytes, write_text


def test_a_file_is_written_with_its_folders(tmp_path):
    write_text(tmp_path / "a" / "b.txt", "gamma γ")
    assert (tmp_path / "a" / "b.txt").read_bytes() == "gamma γ".encode()
    write_bytes(tmp_path / "a" / "b.txt", b"new")
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"new"


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")

    def fail():
        with atomic_path(path) as draft:
            draft.write_text("half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    for content in ("old", "new"):
        with atomic_folder(tmp_path / "deep" / "folder") as draft:
            (draft / content).write_text(content)
    assert os.listdir(tmp_path / "deep" / "folder") == ["new"]
    assert os.listdir(tmp_path / "deep") == ["folder"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "deep" / "folder").stat().st_mode) == 0o777 & ~umask


@pytest.mark.parametrize("step", ["fill", "move"])
def test_a_failure_leaves_the_old_folder(tmp_path, monkeypatch, step):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").write_text("old")
    rename = os.rename

    def full(source, target):
        if target == path and source.name == "new":
            raise OSError("No space left on device")
        rename(source, target)

    def fail():
        with atomic_folder(path) as draft:
            (draft / "new").write_text("half")
            if step == "fill":
                raise OSError("No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="No space"):
        fail()
    assert os.listdir(path) == ["old"]
    assert os.listdir(tmp_path) == ["folder"]


def test_hashes_are_those_of_hashlib(tmp_path):
    content = os.urandom(3_000_000)
    (tmp_path / "x").write_bytes(content)
    assert sha256(content) == sha256_of_file(tmp_path / "x") == hashlib.sha256(content).hexdigest()


def test_a_lock_is_held_by_one(tmp_path):
    path = tmp_path / "folder" / "lock"
    order = []

    def second():
        with lock(path):
            order.append("second")

    with lock(path):
        with pytest.raises(InputError, match="Another process is using"), lock(path, wait=False):
            pass
        with pytest.raises(InputError, match=r"busy: .*lock"), lock(path, wait=False, busy="busy: {path}"):
            pass
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(0.2)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]
    with lock(path, wait=False):
        pass
