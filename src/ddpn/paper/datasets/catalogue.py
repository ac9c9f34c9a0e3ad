"""All data sets by name: loading and downloading them, and what is in the data folder."""

from dataclasses import dataclass, replace
from typing import Any

from ddpn.paper.datasets.dataset import Dataset
from ddpn.paper.datasets.sources import SOURCES, data_folder, fetch
from ddpn.runtime.errors import ConfigError, DDPNError
from ddpn.runtime.registry import Registry

#: The loader of each data set.
DATASETS = Registry("data set", {name: source.loader for name, source in SOURCES.items()})


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
        A name in `ddpn.paper.datasets.catalogue.DATASETS`, such as "rand_health" or "bike_sharing".
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
        data = load(name, may_download=False) if source.sha256 else load(name)
    except ConfigError:
        # A package that is not installed.
        return missing
    except DDPNError as error:
        return replace(missing, state=f"damaged: {error}")
    # The license of the file that is there: the reviews may be others than the paper's.
    return replace(missing, license=data.license, state="available", rows=len(data.y), sample=data.sample)
