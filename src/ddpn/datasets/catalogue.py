"""All data sets by name: loading them, what of them is here, and getting the rest."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddpn.datasets import coco_people as images
from ddpn.datasets import reviews as text
from ddpn.datasets.coco_people import coco_people
from ddpn.datasets.dataset import Dataset
from ddpn.datasets.rand_health import rand_health
from ddpn.datasets.reviews import reviews
from ddpn.datasets.source import Source, data_folder, fetch
from ddpn.datasets.tabular import BIKE_SHARING, LENGTH_OF_STAY, LENGTH_OF_STAY_SAMPLE, bike_sharing, length_of_stay
from ddpn.errors import ConfigError, DDPNError, InputError

DATASETS: dict[str, Callable[..., Dataset]] = {
    "rand_health": rand_health,
    "length_of_stay": length_of_stay,
    "bike_sharing": bike_sharing,
    "reviews": reviews,
    "coco_people": coco_people,
}


@dataclass(frozen=True)
class Origin:
    """Where a data set comes from: an address or a package, and the files of which one at least is there if it is.

    With a `source` it can be downloaded; without one a package holds it, or a user puts it into the data folder.
    """

    whence: str
    licence: str
    files: tuple[str, ...] = ()
    source: Source | None = None


def _downloaded(source: Source, *others: str) -> Origin:
    return Origin(source.url, source.licence, (source.path, *others), source)


ORIGINS: dict[str, Origin] = {
    "rand_health": Origin("statsmodels, the extra data", "public domain"),
    "length_of_stay": _downloaded(LENGTH_OF_STAY, LENGTH_OF_STAY_SAMPLE),
    "bike_sharing": _downloaded(BIKE_SHARING),
    "reviews": Origin(
        f"{text.AMAZON_TEXTS} (or women's clothing)", "none given", (*text.AMAZON_FILES, text.WOMENS_CLOTHING)
    ),
    "coco_people": Origin(
        images.IMAGES_URL,
        images.LICENCE,
        tuple(f"{images.FOLDER}/{name}" for name in (*images.INSTANCES, images.COUNTS)),
    ),
}


@dataclass(frozen=True)
class Holding:
    """A data set and what of it is here: `state` is "here", "absent" or "damaged: <why>", `rows` what can be loaded."""

    name: str
    whence: str
    licence: str
    state: str
    rows: int | None = None
    sample: bool = False


def load(name: str = "rand_health", **options: Any) -> Dataset:
    """Load a data set by its name; `options` are its loader's.

    >>> load("rand_health").y[:5]
    array([0, 2, 0, 0, 0])
    """
    _check_name(name)
    return DATASETS[name](**options)


def holdings() -> list[Holding]:
    """Every data set of the catalogue and what of it is in the data folder. Nothing is downloaded."""
    return [_holding(name, origin, data_folder()) for name, origin in ORIGINS.items()]


def obtain(name: str) -> str:
    """Bring a data set into the data folder unless it is there, and say in a line what there is and where.

    One that cannot be downloaded is an error that says what to put where.
    """
    _check_name(name)
    source = ORIGINS[name].source
    path = fetch(source) if source is not None else None
    found = load(name)
    where = path or (data_folder() if ORIGINS[name].files else "inside statsmodels")
    return f"{name}: {_count(len(found.y), found.sample)} rows, {where}"


def _count(rows: int, sample: bool) -> str:
    return f"{rows:,}" + (" (sample)" if sample else "")


def _holding(name: str, origin: Origin, folder: Path) -> Holding:
    absent = Holding(name, origin.whence, origin.licence, "absent")
    if origin.files and not any((folder / file).is_file() for file in origin.files):
        return absent
    try:
        found = load(name, may_download=False) if origin.source is not None else load(name)
    except ConfigError:
        # A package that is not installed.
        return absent
    except DDPNError as error:
        return replace(absent, state=f"damaged: {error}")
    # The licence of what is here: reviews may be others than the paper's.
    return Holding(name, origin.whence, found.licence, "here", len(found.y), found.sample)


def _check_name(name: str) -> None:
    if name not in DATASETS:
        raise InputError(f"name must be one of {', '.join(DATASETS)}, got {name!r}. Choose one of them.")
