"""Where a file comes from and where it lies: a declared address, a folder, and a checksum between the two."""

import os
import sys
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from ddpn.datasets.download import download, locked, verified
from ddpn.errors import InputError


@dataclass(frozen=True)
class Source:
    """A public file, or one in a public zip archive: its address, and what it must be when it has arrived.

    `path` is its place below the data folder; `size` and `sha256` are the file's own. Where `archive` is
    given, the address sends a zip archive of that size and sha256 that holds the file under its name.
    """

    path: str
    url: str
    size: int
    sha256: str
    licence: str
    citation: str
    archive: tuple[int, str] | None = None

    def is_in(self, folder: Path) -> bool:
        """Whether the file is there, whatever it holds."""
        return (folder / self.path).is_file()


def data_folder() -> Path:
    """The folder of all data: `DDPN_DATA`, or `ddpn` in the platform's cache folder."""
    if named := os.environ.get("DDPN_DATA"):
        return Path(named).expanduser()
    if sys.platform == "win32":
        cache = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        cache = Path.home() / "Library" / "Caches"
    else:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "ddpn"


def fetch(
    source: Source, folder: Path | None = None, *, may_download: bool = True, progress: bool = True, pause: float = 1.0
) -> Path:
    """The source's file below `folder`: the one that is there, checked, or else downloaded.

    A download that broke off is taken up where it ended, by this call or by a later one. `pause` is the wait in seconds
    before the second attempt; it doubles for each one after.
    """
    folder = data_folder() if folder is None else folder
    path = folder / source.path
    if not path.is_file():
        if not may_download:
            raise InputError(_absent(source, path, "no such file, and a download was not allowed"))
        _make_folder(path.parent)
        with locked(path.with_name(f"{path.name}.lock")):
            # Another process may have brought it while this one waited.
            if not path.is_file():
                _bring(source, path, progress, pause)
    return _checked(source, path)


def _bring(source: Source, path: Path, progress: bool, pause: float) -> None:
    archive = source.archive
    target = path.with_name(f"{path.name}.zip") if archive else path
    size, sha256 = archive or (source.size, source.sha256)
    try:
        download(source.url, target, size=size, sha256=sha256, progress=progress, pause=pause)
    except OSError as error:
        raise InputError(_absent(source, path, f"no such file and no download ({error})")) from error
    if archive:
        _unpack(source, target, path)


def _unpack(source: Source, archive: Path, path: Path) -> None:
    part = path.with_name(f"{path.name}.part")
    try:
        with ZipFile(archive) as zipped:
            part.write_bytes(zipped.read(path.name))
    except (KeyError, BadZipFile):
        raise InputError(
            f"{source.url} must send a zip archive with {path.name} in it, got another. Report the address as changed."
        ) from None
    verified(part, source.size, source.sha256, source.url)
    os.replace(part, path)
    archive.unlink()


def _checked(source: Source, path: Path) -> Path:
    size = path.stat().st_size
    with path.open("rb") as file:
        found = file_digest(file, "sha256").hexdigest()
    if (size, found) != (source.size, source.sha256):
        raise InputError(
            f"{path} must be {source.size} bytes with sha256 {source.sha256}, got {size} bytes with sha256 {found}. "
            f"Delete it and it will be downloaded again from {source.url}."
        )
    return path


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError("no right to write there")
    except OSError as error:
        raise InputError(
            f"the data folder {folder} must be writable, got {error}. Set DDPN_DATA to another folder."
        ) from error


def _absent(source: Source, path: Path, why: str) -> str:
    return (
        f"{path.name} must lie in {path.parent}, got {why}. Download {source.url} on a machine with a network, "
        f"put {path.name} ({source.size} bytes, sha256 {source.sha256}) into {path.parent}, or set DDPN_DATA to the "
        f"folder above it."
    )
