"""Downloading one file over HTTP: taken up where it broke off, checked, and moved into place whole."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import file_digest
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ddpn.errors import InputError

_TRIES = 4
_TIMEOUT = 30.0
_CHUNK = 1 << 16
#: Answers that may be different a moment later; other errors of a server are final.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class _BrokenOffError(OSError):
    """Less than the whole file came."""


def download(url: str, target: Path, *, size: int, sha256: str, progress: bool = True, pause: float = 1.0) -> None:
    """Bring `url` to `target`. OSError where the network fails for good, InputError where the wrong bytes come.

    Bytes gather in `<target>.part`, which outlives a failure: the next attempt asks for the rest.
    """
    part = target.with_name(f"{target.name}.part")
    with _bar(target.name, size, progress) as show:
        for attempt in range(_TRIES):
            try:
                resumed = _receive(url, part, size, show)
            except (OSError, HTTPException) as error:
                final = isinstance(error, HTTPError) and error.code not in _PASSING
                if isinstance(error, HTTPError):
                    error.close()
                if final or attempt == _TRIES - 1:
                    raise error if isinstance(error, OSError) else OSError(str(error)) from error
                time.sleep(pause * 2**attempt)
                continue
            if resumed and not _matches(part, size, sha256):
                # What was there before may be of another version of the file: once more, from the start.
                part.unlink()
                continue
            verified(part, size, sha256, url)
            os.replace(part, target)
            return
    raise _BrokenOffError(f"{url} broke off {_TRIES} times")


def verified(part: Path, size: int, sha256: str, url: str) -> None:
    """Delete what came and raise, unless it is what was declared."""
    if not _matches(part, size, sha256):
        got = part.stat().st_size
        with part.open("rb") as file:
            found = file_digest(file, "sha256").hexdigest()
        part.unlink()
        raise InputError(
            f"{url} must send {size} bytes with sha256 {sha256}, got {got} bytes with sha256 {found}. "
            f"Try again; if it stays so, the file behind the address has changed."
        )


def _matches(part: Path, size: int, sha256: str) -> bool:
    if part.stat().st_size != size:
        return False
    with part.open("rb") as file:
        return file_digest(file, "sha256").hexdigest() == sha256


def _receive(url: str, part: Path, size: int, show: Callable[[int], None]) -> bool:
    """Write what the server sends behind what is there; whether something was there and was kept."""
    have = part.stat().st_size if part.exists() else 0
    if have > size:
        part.unlink()
        have = 0
    if have == size:
        return True
    headers = {"User-Agent": "ddpn", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=_TIMEOUT)
    except HTTPError as error:
        if have and error.code == 416:
            error.close()
            part.unlink()
            raise _BrokenOffError(f"{url} has no byte {have}") from error
        raise
    with response:
        kept = have if response.status == 206 else 0
        if kept and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            part.unlink()
            raise _BrokenOffError(f"{url} sent other bytes than those from {have} on")
        with part.open("ab" if kept else "wb") as file:
            _copy(response, file, kept, size, show)
    if part.stat().st_size < size:
        raise _BrokenOffError(f"{url} ended after {part.stat().st_size} of {size} bytes")
    return kept > 0


def _copy(response: HTTPResponse, file: IO[bytes], have: int, size: int, show: Callable[[int], None]) -> None:
    show(have)
    # One byte beyond the declared size is enough to know that it is wrong; no need to fill the disk.
    while have <= size and (chunk := response.read(min(_CHUNK, size + 1 - have))):
        file.write(chunk)
        have += len(chunk)
        show(have)


@contextmanager
def _bar(name: str, size: int, progress: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal's stderr, gone when it is done; nothing elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not (progress and console.is_terminal)) as bar:
        task = bar.add_task(name, total=size)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold the file `path` alone among processes: two that append to one .part would spoil it.

    Where another holds it and it is not to `wait`, that is a BlockingIOError.
    """
    with path.open("a+b") as file:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
            except OSError as error:
                raise BlockingIOError(f"{path} is held by another process") from error
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
