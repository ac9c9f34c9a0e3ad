"""All data sets by name: where they come from, the folder they are kept in, downloads by pooch, and loading them."""

import errno
import os
import tomllib
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from ddpn.paper.datasets.dataset import Dataset
from ddpn.runtime.errors import ConfigError, DDPNError, InputError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.validation import Registry
from ddpn.storage.files import lock, sha256_of_file, write_bytes

#: Attempts after the first one that fails.
_RETRIES = 2


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
#: The loader of each data set.
DATASETS = Registry("data set", {name: source.loader for name, source in SOURCES.items()})


def data_folder() -> Path:
    """The folder of all data sets: `DDPN_DATA`, or `ddpn` in the platform's cache folder."""
    if folder := os.environ.get("DDPN_DATA"):
        return Path(folder).expanduser()
    return import_extra("platformdirs", "data").user_cache_path("ddpn", appauthor=False, opinion=False)


def fetch(source: Source, folder: Path | None = None) -> Path:
    """Return the path of the source's first file below `folder`, downloaded if it is missing, with a verified checksum.

    Processes that need the same file wait for each other.
    """
    path = (data_folder() if folder is None else Path(folder)) / source.files[0]
    if not path.is_file():
        try:
            with lock(path.with_name(f"{path.name}.lock")):
                # Another process may have downloaded it while this one waited.
                if not path.is_file():
                    _download(source, path)
        except OSError as error:
            raise InputError(_failure(source, path, error)) from error
    if (found := sha256_of_file(path)) != source.sha256:
        raise InputError(
            f"{path} must have the SHA-256 {source.sha256}, got {found}. "
            f"Delete the file to have it downloaded again from {source.url}."
        )
    return path


def _download(source: Source, path: Path) -> None:
    if source.archive is None:
        _retrieve(source.url, source.sha256, path)
        return
    archive = path.with_name(f"{path.name}.zip")
    _retrieve(source.url, source.archive, archive)
    with ZipFile(archive) as members:
        write_bytes(path, members.read(path.name))
    archive.unlink()


def _retrieve(url: str, sha256: str | None, path: Path) -> None:
    """Download to `path`: pooch moves a file there only if its checksum is right."""
    pooch = import_extra("pooch", "data")
    cache = pooch.create(path.parent, "", registry={path.name: sha256}, urls={path.name: url}, retry_if_failed=_RETRIES)
    try:
        cache.fetch(path.name)
    except ValueError as error:
        raise InputError(
            f"{url} sent a file with a wrong checksum, expected SHA-256 {sha256}. If it does so again, "
            f"the file at this address has changed."
        ) from error


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


@dataclass(frozen=True)
class DatasetStatus:
    """A data set and what the data folder has of it.

    Attributes
    ----------
    name, address, license : str
        The name of the data set, where it comes from, and its license.
    state : str
        "available", "missing" or "damaged: <reason>".
    rows : int or None
        The rows that can be loaded.
    sample : bool
        Whether the public file has more.
    """

    name: str
    address: str
    license: str
    state: str
    rows: int | None = None
    sample: bool = False


def load(name: str = "rand_health", **options: Any) -> Dataset:
    """Load a data set by its name.

    Parameters
    ----------
    name : str
        A name in `ddpn.paper.datasets.DATASETS`, such as "rand_health" or "bike_sharing".
    **options
        Options of its loader.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> load("rand_health").y[:5]
    array([0, 2, 0, 0, 0])
    """
    return DATASETS.find(name)(**options)


def dataset_status() -> list[DatasetStatus]:
    """The status of every data set. Nothing is downloaded."""
    return [_status(name) for name in SOURCES]


def download(name: str) -> str:
    """Download a data set unless the data folder has it, and return one line on its rows and its place.

    If it cannot be downloaded, the error describes which file to put where.

    Parameters
    ----------
    name : str
        A name that `load` takes.
    """
    DATASETS.find(name)
    source = SOURCES[name]
    path = fetch(source) if source.sha256 else None
    data = load(name)
    place = path or (data_folder() if source.files else "inside statsmodels")
    return f"{name}: {len(data.y):,}{' (sample)' if data.sample else ''} rows, {place}"


def _status(name: str) -> DatasetStatus:
    source, folder = SOURCES[name], data_folder()
    missing = DatasetStatus(name, source.url, source.license, "missing")
    if source.files and not any((folder / file).is_file() for file in source.files):
        return missing
    try:
        data = load(name)
    except ConfigError:
        # A package that is not installed.
        return missing
    except DDPNError as error:
        return replace(missing, state=f"damaged: {error}")
    # The license of the file that is there: the reviews may be others than the paper's.
    return replace(missing, license=data.license, state="available", rows=len(data.y), sample=data.sample)
