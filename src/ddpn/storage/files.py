"""Write files and folders atomically (completely or not at all), compute their hashes, and lock them.

This module does not import torch.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from ddpn.runtime.errors import InputError

try:
    import fcntl
except ImportError:  # on Windows, drafts of killed processes are not removed
    fcntl = None  # type: ignore[assignment]

#: The suffix of drafts: temporary files and folders that replace others when they are complete.
_DRAFT = ".draft"


def resolve_links(path: Path) -> Path:
    """Return the path with symbolic links resolved.

    A file that is written there replaces the target of a link, and not the link.
    """
    return Path(os.path.realpath(path))


def check_writable(path: Path) -> None:
    """Raise an `InputError` if no file can be written at `path`.

    That is the case if its nearest existing parent is a file, or a folder without write permission.
    """
    above = next(folder for folder in resolve_links(path).parents if folder.exists())
    if not above.is_dir():
        raise InputError(f"{above} is a file, not a folder. Choose another name.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"{above} does not permit writing. Choose another folder.")


@contextmanager
def atomic_path(path: Path, tidy: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path`. The file written there replaces `path`, but only if the block succeeds.

    Temporary files that killed processes left beside `path` are removed, which requires a listing of the folder. With
    `tidy=False`, they stay.
    """
    path = resolve_links(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for abandoned in _list_drafts(path) if tidy and fcntl is not None else []:
        with (
            suppress(OSError),
            open(abandoned, "rb+") as file,
        ):  # skips folders, and drafts that another process is writing
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            abandoned.unlink()
    draft_file = _create_draft(path)
    draft = Path(draft_file.name)
    try:
        yield draft
        with open(draft, "rb+") as file:
            os.fsync(file.fileno())
        if fcntl is None:
            draft_file.close()  # Windows cannot move an open file
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
        draft_file.close()


def _create_draft(path: Path) -> BinaryIO:
    """Create a temporary file beside `path` and lock it, so that other processes see that it is in use."""
    while True:
        draft_file = open(path.with_name(f".{path.name}.{uuid4().hex}{_DRAFT}"), "xb")  # noqa: SIM115
        if fcntl is None:
            return draft_file
        with suppress(OSError):  # without locks on this disk, drafts of killed processes stay
            fcntl.flock(draft_file, fcntl.LOCK_EX)
        if os.path.exists(draft_file.name):
            return draft_file
        draft_file.close()  # another process removed the draft before it was locked


def write_bytes(path: Path, content: bytes, tidy: bool = True) -> None:
    """Write `content` to `path` atomically: if writing fails, for example on a full disk, the old file stays.

    With `tidy=False`, temporary files of killed processes are not removed (see `atomic_path`).
    """
    with atomic_path(path, tidy) as draft:
        draft.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write text to `path` atomically, in UTF-8."""
    write_bytes(path, content.encode())


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill. It replaces the folder `path`, but only if the block succeeds.

    If the process is killed while it replaces the folder, `recover` completes the replacement later.
    """
    path = resolve_links(path)
    with folder_lock(path):
        recover(path)
        scratch = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=_DRAFT))
        draft, old = scratch / "new", scratch / "old"
        draft.mkdir()  # with the usual permissions, unlike `scratch`
        try:
            yield draft
            # Flushed to disk, so that the folder is complete even after a power cut.
            for file_path in draft.rglob("*"):
                if file_path.is_file():
                    with open(file_path, "rb+") as file:
                        os.fsync(file.fileno())
            if path.exists():
                os.rename(path, old)
            os.rename(draft, path)
        finally:
            # Undo the first rename if Ctrl-C came between the two.
            if old.exists() and not path.exists():
                os.rename(old, path)
            shutil.rmtree(scratch, ignore_errors=True)


def recover(path: Path) -> None:
    """Complete a replacement of the folder `path` during which a process was killed, and remove temporary folders."""
    path = resolve_links(path)
    if not any(draft.is_dir() for draft in _list_drafts(path)):
        return
    with folder_lock(path, wait=True):
        for scratch in [draft for draft in _list_drafts(path) if draft.is_dir()]:
            # The old folder was moved away when the new one was complete.
            if (scratch / "old").exists() and not path.exists():
                os.rename(scratch / "new", path)
            shutil.rmtree(scratch)


def _list_drafts(path: Path) -> list[Path]:
    """List the temporary files and folders that `atomic_path` and `atomic_folder` have created beside `path`."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[^.]+{re.escape(_DRAFT)}")
    if not path.parent.is_dir() or not os.access(path.parent, os.R_OK):
        return []
    return [draft for draft in path.parent.iterdir() if name.fullmatch(draft.name)]


def sha256(content: bytes) -> str:
    """Return the SHA-256 digest of `content` as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def hash_file(path: Path) -> str:
    """Return the SHA-256 digest of a file as 64 hexadecimal digits, without loading the whole file into memory."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def lock(path: Path, wait: bool = True, busy: str = "") -> Iterator[None]:
    """Hold an exclusive lock on the file `path` within this context, and remove the file afterwards.

    The lock also ends if the process is killed. A process that holds the lock may take it again. If another process
    holds it, this function waits. With `wait=False`, it raises an `InputError` with the message `busy` instead.
    """
    from filelock import FileLock, Timeout  # slow to import, and most programs take no lock

    path.parent.mkdir(parents=True, exist_ok=True)
    file_lock = FileLock(path, is_singleton=True)
    try:
        file_lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        raise InputError(busy or f"Another process is using {path}.") from None
    try:
        yield
    finally:
        if file_lock.lock_counter == 1:
            with suppress(PermissionError):  # Windows removes the file itself, after the release
                path.unlink(missing_ok=True)
        file_lock.release()


def folder_lock(path: Path, wait: bool = False) -> AbstractContextManager[None]:
    """Return a context manager that locks the folder `path`, so that only one process at a time writes to it.

    With `wait=False`, it raises an `InputError` if another process holds the lock.
    """
    path = resolve_links(path)
    busy = f"Another process is writing to {path}. Wait until it has finished, or choose another name."
    return lock(path.with_name(f".{path.name}.lock"), wait, busy)
