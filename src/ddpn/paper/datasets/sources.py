"""Where data sets come from: their addresses and checksums, the folder they are kept in, and downloads by pooch."""

import errno
import os
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from ddpn.runtime.errors import InputError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.progress import ProgressBar, progress_bar
from ddpn.storage.files import lock, sha256_of_file, write_bytes

#: Attempts after the first one that fails.
_RETRIES = 2
_TIMEOUT = 30.0
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Source:
    """A data set of `catalogue.toml`, which explains these fields."""

    loader: str
    url: str
    license: str
    citation: str
    files: tuple[str, ...] = ()
    size: int = 0
    sha256: str | None = None
    archive: str | None = None


_CATALOGUE = tomllib.loads((files(__package__) / "catalogue.toml").read_text(encoding="utf-8"))
#: Every data set by name.
SOURCES = {name: Source(**row | {"files": tuple(row.get("files", ()))}) for name, row in _CATALOGUE.items()}


def data_folder() -> Path:
    """The folder of all data sets: `DDPN_DATA`, or `ddpn` in the platform's cache folder."""
    if folder := os.environ.get("DDPN_DATA"):
        return Path(folder).expanduser()
    return import_extra("platformdirs", "data").user_cache_path("ddpn", appauthor=False, opinion=False)


def fetch(source: Source, folder: Path | None = None, *, may_download: bool = True, progress: bool = True) -> Path:
    """Return the path of the source's first file below `folder`, downloaded if it is missing, with a verified checksum.

    A download that breaks off is resumed, now or by the next call, from the bytes that it left in `<file>.part`.
    Processes that need the same file wait for each other.
    """
    path = (data_folder() if folder is None else Path(folder)) / source.files[0]
    if not path.is_file():
        if not may_download:
            raise InputError(f"File not found: {path}. {_by_hand(source, path)}")
        try:
            with lock(path.with_name(f"{path.name}.lock")):
                # Another process may have downloaded it while this one waited.
                if not path.is_file():
                    _download(source, path, progress)
        except OSError as error:
            raise InputError(_failure(source, path, error)) from error
    if (found := sha256_of_file(path)) != source.sha256:
        raise InputError(
            f"{path} must have the SHA-256 {source.sha256}, got {found}. "
            f"Delete the file to have it downloaded again from {source.url}."
        )
    return path


def _download(source: Source, path: Path, progress: bool) -> None:
    if source.archive is None:
        _retrieve(source.url, source.sha256, path, source.size, progress)
        return
    archive = path.with_name(f"{path.name}.zip")
    _retrieve(source.url, source.archive, archive, source.size, progress)
    with ZipFile(archive) as members:
        write_bytes(path, members.read(path.name))
    archive.unlink()


def _retrieve(url: str, sha256: str | None, path: Path, size: int, progress: bool) -> None:
    """Download to `path`: pooch moves a file there only if its checksum is right."""
    pooch = import_extra("pooch", "data")
    pooch.get_logger().setLevel("WARNING")
    cache = pooch.create(path.parent, "", registry={path.name: sha256}, urls={path.name: url}, retry_if_failed=_RETRIES)
    try:
        with progress_bar(path.name, size, progress, in_bytes=True) as bar:
            cache.fetch(path.name, downloader=_Resuming(path.with_name(f"{path.name}.part"), bar))
    except ValueError as error:
        raise InputError(
            f"{url} sent a file with a wrong checksum, expected SHA-256 {sha256}. If it does so again, "
            f"the file at this address has changed."
        ) from error


class _Resuming:
    """A downloader for pooch that collects bytes in the file `part`, which remains if the connection breaks.

    The next attempt asks only for the bytes that are missing, and starts again if the server sends all of them.
    """

    def __init__(self, part: Path, bar: ProgressBar) -> None:
        self._part, self._bar, self._shown = part, bar, 0

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        requests = import_extra("requests", "data")
        have = self._part.stat().st_size if self._part.exists() else 0
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            if response.status_code == 416:
                # No bytes after those of `part`, which is complete or of another file: the next attempt starts again.
                self._part.unlink()
            response.raise_for_status()
            is_rest = response.status_code == 206
            self._show(have if is_rest else 0)
            with self._part.open("ab" if is_rest else "wb") as file:
                for chunk in response.iter_content(_CHUNK):
                    file.write(chunk)
                    self._show(self._shown + len(chunk))
        os.replace(self._part, output_file)

    def _show(self, done: int) -> None:
        self._bar.advance(done - self._shown)
        self._shown = done


def _failure(source: Source, path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"The disk is full: {path.parent} needs {source.size:,} bytes. Free some space, or set DDPN_DATA."
    # Only errors of requests have this attribute: None where the server did not answer or the connection broke.
    if not hasattr(error, "response"):
        return f"Cannot write to {path.parent}: {error}. Set DDPN_DATA to another folder."
    response = error.response
    why = "no connection" if response is None else f"status {response.status_code} {response.reason}"
    return f"Cannot download {source.url}: {why}. {_by_hand(source, path)}"


def _by_hand(source: Source, path: Path) -> str:
    return (
        f"Download {source.url} on a machine with a network and put {path.name} ({source.size} bytes, SHA-256 "
        f"{source.sha256}) into {path.parent}, or set DDPN_DATA to the folder above it."
    )
