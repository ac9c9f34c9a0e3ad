"""All data sets by name: loading and downloading them, and what is in the data folder."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddpn.datasets import coco, texts
from ddpn.datasets.dataset import Dataset
from ddpn.datasets.sources import Source, data_folder, fetch
from ddpn.datasets.tabular import BIKE_SHARING, LENGTH_OF_STAY, LENGTH_OF_STAY_SAMPLE
from ddpn.errors import ConfigError, DDPNError
from ddpn.registry import Registry

#: The loader of each data set.
DATASETS = Registry(
    "data set",
    {
        "rand_health": "ddpn.datasets.tabular:rand_health",
        "length_of_stay": "ddpn.datasets.tabular:length_of_stay",
        "bike_sharing": "ddpn.datasets.tabular:bike_sharing",
        "reviews": "ddpn.datasets.texts:reviews",
        "coco_people": "ddpn.datasets.coco:coco_people",
    },
)


@dataclass(frozen=True)
class Origin:
    """Where a data set comes from: an address or a package, and the files of which it needs at least one.

    A data set with a `source` can be downloaded; others are part of a package, or users put them into the data folder.
    """

    address: str
    license: str
    files: tuple[str, ...] = ()
    source: Source | None = None


ORIGINS: dict[str, Origin] = {
    "rand_health": Origin("statsmodels, the extra data", "public domain"),
    "length_of_stay": Origin(
        LENGTH_OF_STAY.url, LENGTH_OF_STAY.license, (LENGTH_OF_STAY.path, LENGTH_OF_STAY_SAMPLE), LENGTH_OF_STAY
    ),
    "bike_sharing": Origin(BIKE_SHARING.url, BIKE_SHARING.license, (BIKE_SHARING.path,), BIKE_SHARING),
    "reviews": Origin(
        f"{texts.AMAZON_TEXTS} (or women's clothing)", "none given", (*texts.AMAZON_FILES, texts.WOMENS_CLOTHING)
    ),
    "coco_people": Origin(
        coco.IMAGES_URL, coco.LICENSE, tuple(f"{coco.FOLDER}/{name}" for name in (*coco.INSTANCES, coco.COUNTS))
    ),
}


@dataclass(frozen=True)
class DatasetStatus:
    """A data set and what the data folder has of it: `state` is "available", "missing" or "damaged: <reason>".

    `rows` are those that can be loaded; `sample` is true if the public file has more.
    """

    name: str
    address: str
    license: str
    state: str
    rows: int | None = None
    sample: bool = False


def load(name: str = "rand_health", **options: Any) -> Dataset:
    """Load a data set by its name; `options` are those of its loader.

    >>> load("rand_health").y[:5]
    array([0, 2, 0, 0, 0])
    """
    return DATASETS.find(name)(**options)


def dataset_status() -> list[DatasetStatus]:
    """The status of every data set. Nothing is downloaded."""
    return [_status(name, origin, data_folder()) for name, origin in ORIGINS.items()]


def download(name: str) -> str:
    """Download a data set unless the data folder has it, and return one line on its rows and its place.

    If it cannot be downloaded, the error describes which file to put where.
    """
    DATASETS.find(name)
    origin = ORIGINS[name]
    path = fetch(origin.source) if origin.source is not None else None
    data = load(name)
    place = path or (data_folder() if origin.files else "inside statsmodels")
    return f"{name}: {len(data.y):,}{' (sample)' if data.sample else ''} rows, {place}"


def _status(name: str, origin: Origin, folder: Path) -> DatasetStatus:
    missing = DatasetStatus(name, origin.address, origin.license, "missing")
    if origin.files and not any((folder / file).is_file() for file in origin.files):
        return missing
    try:
        data = load(name, may_download=False) if origin.source is not None else load(name)
    except ConfigError:
        # A package that is not installed.
        return missing
    except DDPNError as error:
        return replace(missing, state=f"damaged: {error}")
    # The license of the file that is there: the reviews may be others than the paper's.
    return replace(missing, license=data.license, state="available", rows=len(data.y), sample=data.sample)
