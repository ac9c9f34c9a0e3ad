"""All data sets by name."""

from collections.abc import Callable
from typing import Any

from ddpn.data.dataset import Dataset
from ddpn.data.health import rand_health
from ddpn.data.tabular import bike_sharing, length_of_stay
from ddpn.errors import InputError

DATASETS: dict[str, Callable[..., Dataset]] = {
    "rand_health": rand_health,
    "length_of_stay": length_of_stay,
    "bike_sharing": bike_sharing,
}


def load(name: str = "rand_health", **options: Any) -> Dataset:
    """Load a data set by its name; `options` are its loader's.

    >>> load("rand_health").y[:5]
    array([0, 2, 0, 0, 0])
    """
    if name not in DATASETS:
        raise InputError(f"name must be one of {', '.join(DATASETS)}, got {name!r}. Choose one of them.")
    return DATASETS[name](**options)
