"""Files and folders that are written whole or not at all, hashes, and locks. Imports no torch."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from ddpn.errors import InputError


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` to write to; it replaces `path` only if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        yield draft
        with open(draft, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write all of `content` to `path`, or nothing: a full disk leaves the old file as it was."""
    with atomic_path(path) as draft:
        draft.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """As `write_bytes`, in UTF-8."""
    write_bytes(path, content.encode())


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path` to fill; it replaces `path` only if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    draft, old = scratch / "new", scratch / "old"
    draft.mkdir()  # with the usual permissions, unlike `scratch`
    try:
        yield draft
        if path.exists():
            os.rename(path, old)
        try:
            os.rename(draft, path)
        except OSError:
            if old.exists():
                os.rename(old, path)
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def sha256(content: bytes) -> str:
    """The SHA-256 digest of `content` as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def sha256_of_file(path: Path) -> str:
    """The SHA-256 digest of a file, read in blocks."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def lock(path: Path, wait: bool = True, busy: str = "Another process is using {path}.") -> Iterator[None]:
    """Hold an exclusive lock on the file `path`; without `wait`, raise an `InputError` (`busy`) if another has it."""
    from filelock import FileLock, Timeout  # slow to import, and most programs take no lock

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path, timeout=-1 if wait else 0):
            yield
    except Timeout:
        raise InputError(busy.format(path=path)) from None
