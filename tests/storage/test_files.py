"""Test that files and folders are written whole or not at all."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ddpn.runtime.errors import InputError
from ddpn.storage.files import (
    atomic_folder,
    atomic_path,
    check_writable,
    folder_lock,
    lock,
    recover,
    write_bytes,
    write_text,
)


def test_a_file_is_written_with_its_folders(tmp_path):
    write_text(tmp_path / "a" / "b.txt", "gamma γ")
    assert (tmp_path / "a" / "b.txt").read_bytes() == "gamma γ".encode()
    write_bytes(tmp_path / "a" / "b.txt", b"new")
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"new"


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=type)
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step, error):
    write_text(tmp_path / "x", "old")

    def fail(*arguments):
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        write_text(tmp_path / "x", "new")
    assert (tmp_path / "x").read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


def test_others_may_read_a_file_where_the_umask_allows(tmp_path):
    old = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


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
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_folder(tmp_path, monkeypatch, step, error):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").write_text("old")
    rename = os.rename

    def full(source, target):
        if target == path and source.name == "new":
            raise error("No space left on device")
        rename(source, target)

    def fail():
        with atomic_folder(path) as draft:
            (draft / "new").write_text("half")
            if step == "fill":
                raise error("No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(error, match="No space"):
        fail()
    assert os.listdir(path) == ["old"]
    assert os.listdir(tmp_path) == ["folder"]


def test_a_lock_is_held_by_one(tmp_path):
    path = tmp_path / "folder" / "lock"
    order = []

    def second():
        with pytest.raises(InputError, match="Another process is using"), lock(path, wait=False):
            pass
        with pytest.raises(InputError, match="Busy"), lock(path, wait=False, busy="Busy."):
            pass
        order.append("refused")
        with lock(path):
            order.append("second")

    with lock(path), lock(path):  # again by its holder
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(0.2)
        order.append("first")
    waiting.join()
    assert order == ["refused", "first", "second"]
    assert not path.exists()


# What a killed process leaves, and links -----------------------------------------------------------------------------

#: Replaces the folder "model" in the working directory, and kills itself at the step named by the first argument.
KILLED = """
import os, signal, sys
from pathlib import Path
from ddpn.storage import files

def end():
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[1] == "between":
    rename = os.rename
    os.rename = lambda source, target: (rename(source, target), end())
if sys.argv[1] == "cleaning":
    files.shutil.rmtree = lambda *_, **__: end()
with files.atomic_folder(Path("model")) as draft:
    (draft / "content").write_text("new")
    if sys.argv[1] == "filling":
        end()
"""


@pytest.mark.parametrize(("step", "content"), [("filling", "old"), ("between", "new"), ("cleaning", "new")])
def test_a_killed_process_leaves_nothing_that_is_not_recovered(tmp_path, step, content):
    for name in ("model", "model.other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "content").write_text("old")
    other = tmp_path / ".model.other.abcdefgh.draft"
    other.mkdir()
    killed = subprocess.run([sys.executable, "-c", KILLED, step], cwd=tmp_path, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) > 3
    recover(tmp_path / "model")
    assert (tmp_path / "model" / "content").read_text() == content
    assert sorted(os.listdir(tmp_path)) == [other.name, "model", "model.other"]


def test_a_folder_is_written_by_one_process_at_a_time(tmp_path):
    holder = "import sys; from pathlib import Path; from ddpn.storage.files import folder_lock\n"
    holder += "with folder_lock(Path('model')):\n    print('held', flush=True)\n    sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", holder], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout.readline() == b"held\n"
    busy = pytest.raises(InputError, match=r"Another process is writing to .*model\. Wait")
    with busy, folder_lock(tmp_path / "model"):
        pass
    (tmp_path / "link").symlink_to("model")
    with pytest.raises(InputError, match="Another process"), atomic_folder(tmp_path / "link"):
        pass
    other.kill()
    other.communicate()
    with folder_lock(tmp_path / "model"), folder_lock(tmp_path / "model"), atomic_folder(tmp_path / "model") as draft:
        (draft / "content").touch()
    assert sorted(os.listdir(tmp_path)) == ["link", "model"]


@pytest.mark.parametrize("exists", [True, False], ids=["a link", "a link to nothing"])
def test_links_are_followed(tmp_path, exists):
    (tmp_path / "disk").mkdir()
    for name in ("file", "folder"):
        (tmp_path / name).symlink_to(Path("disk") / name)
    if exists:
        (tmp_path / "disk" / "file").write_text("old")
        (tmp_path / "disk" / "folder").mkdir()
    write_text(tmp_path / "file", "new")
    with atomic_folder(tmp_path / "folder") as draft:
        (draft / "content").touch()
    assert (tmp_path / "file").is_symlink()
    assert (tmp_path / "folder").is_symlink()
    assert (tmp_path / "disk" / "file").read_text() == "new"
    assert os.listdir(tmp_path / "disk" / "folder") == ["content"]
    assert sorted(os.listdir(tmp_path)) == ["disk", "file", "folder"]


def test_a_path_that_cannot_be_written_is_refused_beforehand(tmp_path, monkeypatch):
    check_writable(tmp_path / "a" / "b")
    # Everything is permitted to root, who may run the tests.
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(InputError, match="does not permit writing"):
        check_writable(tmp_path / "a" / "b")


def test_a_file_that_a_killed_process_was_writing_is_removed(tmp_path):
    killed = "import os, signal\nfrom pathlib import Path\nfrom ddpn.storage.files import atomic_path\n"
    killed += "with atomic_path(Path('table.csv')) as draft:\n    draft.write_text('half')\n    os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", killed], cwd=tmp_path, check=False)
    assert [name for name in os.listdir(tmp_path) if name.endswith(".draft")]
    with atomic_path(tmp_path / "table.csv") as first:
        with atomic_path(tmp_path / "table.csv") as second:
            second.write_text("second")
        assert first.exists()  # it is being written: it was not taken for abandoned
        first.write_text("first")
    assert os.listdir(tmp_path) == ["table.csv"]
    assert (tmp_path / "table.csv").read_text() == "first"


def test_files_are_written_on_disks_that_refuse_locks(tmp_path, monkeypatch):
    """Some network disks refuse every lock."""

    def refuse(*arguments):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    write_text(tmp_path / "a.txt", "content")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "content"
