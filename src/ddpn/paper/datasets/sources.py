"""The registry of data sets by name: their origins, and functions to download and load them."""

import errno
import os
import tomllib
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from ddpn.runtime.errors import ConfigError, DDPNError, InputError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.validation import Registry
from ddpn.storage.files import hash_file, lock, write_bytes

#: Attempts after the first one that fails.
_RETRIES = 2


@dataclass(frozen=True)
class Source:
    """The origin of a data set, as read from `catalogue.toml`.

    - `loader` is the function that loads the data set, and `url` is an address or a package.
    - `files` are paths in the data folder. At least one of these files is needed. The first one can be downloaded if
      its checksum `sha256` and its `size` in bytes are known.
    - `archive` is the checksum of the zip archive at `url`, if the file is in an archive.
    - `unverified` is True if the first file can be downloaded although its checksum is not known.
    - `rows` is the number of rows of the paper's data.
    - `license` and `citation` are the license of the data and the publication to cite.
    """

    loader: str
    url: str
    license: str
    citation: str
    files: tuple[str, ...] = ()
    size: int = 0
    sha256: str | None = None
    archive: str | None = None
    unverified: bool = False
    rows: int = 0

    def describe_rows(self, n: int, noun: str) -> str:
        """Return a phrase that compares `n`, the number of loaded rows, with the number in the paper's data.

        `noun` names the rows, such as "images". If the numbers are equal, return "".
        """
        if n == self.rows:
            return ""
        return f"{n:,} {'of the' if n < self.rows else 'instead of the'} {self.rows:,} {noun} of the paper's data"

    def find_file(self, remedy: str) -> Path:
        """Return the path of the first of `files` that is in the data folder.

        If none is, raise an `InputError` that names them. `remedy` is a sentence that says how to get one.
        """
        folder = data_folder()
        paths = [folder / name for name in self.files]
        for path in paths:
            if path.is_file():
                return path
        names = " or ".join(map(str, paths))
        raise InputError(f"File not found: {names}. {remedy} Or set DDPN_DATA to another data folder than {folder}.")


_CATALOGUE = tomllib.loads((files(__package__) / "catalogue.toml").read_text(encoding="utf-8"))
#: Every data set by name.
SOURCES = {name: Source(**row | {"files": tuple(row.get("files", ()))}) for name, row in _CATALOGUE.items()}
#: The loader of each data set.
DATASETS = Registry("data set", {name: source.loader for name, source in SOURCES.items()})


def data_folder() -> Path:
    """Return the folder of all data sets: the environment variable DDPN_DATA, or `ddpn` in the user's cache folder."""
    if folder := os.environ.get("DDPN_DATA"):
        return Path(folder).expanduser()
    return import_extra("platformdirs", "data").user_cache_path("ddpn", appauthor=False, opinion=False)


def fetch(source: Source) -> Path:
    """Download the first file of a data set if it is missing, and return its path.

    If its checksum is known, the file is verified on every call. If another process is downloading the file, wait for
    it.
    """
    path = data_folder() / source.files[0]
    if not path.is_file():
        try:
            with lock(path.with_name(f"{path.name}.lock")):
                # Another process may have downloaded it while this one waited.
                if not path.is_file():
                    _download(source, path)
        except OSError as error:
            raise InputError(_describe_failure(source, path, error)) from error
    if source.sha256 is not None and (checksum := hash_file(path)) != source.sha256:
        raise InputError(
            f"{path} must have the SHA-256 {source.sha256}, got {checksum}. "
            f"Delete the file to have it downloaded again from {source.url}."
        )
    return path


def _download(source: Source, path: Path) -> None:
    """Download a file to `path`, or download a zip archive and extract the file from it.

    pooch verifies the checksum and deletes a file that fails.
    """
    pooch = import_extra("pooch", "data")
    name, sha256 = (path.name, source.sha256) if source.archive is None else (f"{path.name}.zip", source.archive)
    cache = pooch.create(path.parent, "", registry={name: sha256}, urls={name: source.url}, retry_if_failed=_RETRIES)
    try:
        downloaded = Path(cache.fetch(name))
    except ValueError as error:
        raise InputError(
            f"{source.url} sent a file with a wrong checksum, expected SHA-256 {sha256}. If it does so again, "
            f"the file at this address has changed."
        ) from error
    if source.archive is not None:
        with ZipFile(downloaded) as members:
            write_bytes(path, members.read(path.name))
        downloaded.unlink()


def _describe_failure(source: Source, path: Path, error: OSError) -> str:
    """Return a message that says why a download failed, and which file to put into which folder instead."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"The disk is full: {path.parent} needs {source.size:,} bytes. Free some space, or set DDPN_DATA."
    # Only errors of requests have this attribute: None where the server did not answer or the connection broke.
    if not hasattr(error, "response"):
        return f"Cannot write to {path.parent}: {error}. Set DDPN_DATA to another folder."
    response = error.response
    why = "no connection" if response is None else f"status {response.status_code} {response.reason}"
    checks = f" ({source.size} bytes, SHA-256 {source.sha256})" if source.sha256 else ""
    return (
        f"Cannot download {source.url}: {why}. Download it on a machine with a network and put {path.name}{checks} "
        f"into {path.parent}, or set DDPN_DATA to its parent folder."
    )


@dataclass(frozen=True)
class DatasetStatus:
    """The origin of a data set, and whether it is in the data folder.

    Attributes
    ----------
    name, address, license : str
        The name of the data set, where it comes from, and its license.
    state : str
        "available", "missing", or "damaged: " followed by the reason.
    rows : int or None
        The number of rows that can be loaded; None if the data set is missing or damaged.
    sample : bool
        Whether the data folder has only a sample of the rows of the public file.
    """

    name: str
    address: str
    license: str
    state: str
    rows: int | None = None
    sample: bool = False


def load(name: str = "rand_health") -> Any:
    """Load a data set by name.

    Parameters
    ----------
    name : str
        A name in `ddpn.paper.datasets.DATASETS`, such as "rand_health" or "bike_sharing".

    Returns
    -------
    Dataset, or `Texts` for "bible"

    Examples
    --------
    >>> load("rand_health").y[:5]
    array([0, 2, 0, 0, 0])
    """
    return DATASETS.find(name)()


def dataset_status() -> list[DatasetStatus]:
    """Return the status of every data set, without downloading anything."""
    folder, statuses = data_folder(), []
    for name, source in SOURCES.items():
        status = missing = DatasetStatus(name, source.url, source.license, "missing")
        if not source.files or any((folder / file).is_file() for file in source.files):
            try:
                data = load(name)
                # The license of the file that is there: the reviews may be others than the paper's.
                more: dict[str, Any] = {"license": data.license, "rows": len(data), "sample": data.sample}
                status = replace(missing, state="available", **more)
            except ConfigError:
                status = missing  # a package that is not installed
            except DDPNError as error:
                status = replace(missing, state=f"damaged: {error}")
        statuses.append(status)
    return statuses


def download(name: str) -> str:
    """Download a data set unless the data folder has it; return a line with its number of rows and its path.

    Some data sets cannot be downloaded automatically. The error then says which file to put into which folder.

    Parameters
    ----------
    name : str
        A name that `load` takes.
    """
    DATASETS.find(name)
    source = SOURCES[name]
    path = fetch(source) if source.sha256 or source.unverified else None
    data = load(name)
    location = path or (data_folder() if source.files else "inside statsmodels")
    note = f" ({data.note})" if data.note else ""
    return f"{name}: {len(data):,}{' (sample)' if data.sample else ''} rows, {location}{note}"
