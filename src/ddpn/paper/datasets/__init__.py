"""Data sets and simulations: loaded by name, split by seed, validated on loading."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddpn.paper.datasets.coco import coco_people
from ddpn.paper.datasets.dataset import Dataset, Split, split
from ddpn.paper.datasets.sources import DATASETS, DatasetStatus, data_folder, dataset_status, download, load
from ddpn.paper.datasets.texts import bible, reviews

if TYPE_CHECKING:
    from ddpn.paper.datasets.beams import inventory
    from ddpn.paper.datasets.shelves import simulate_shelves
    from ddpn.paper.datasets.simulations import SIMULATIONS, Simulation, simulate

#: Imported on first use, since they import torch.
_LAZY = {
    "beams": ("inventory",),
    "shelves": ("simulate_shelves",),
    "simulations": ("SIMULATIONS", "Simulation", "simulate"),
}

__all__ = [
    "DATASETS",
    "SIMULATIONS",
    "Dataset",
    "DatasetStatus",
    "Simulation",
    "Split",
    "bible",
    "coco_people",
    "data_folder",
    "dataset_status",
    "download",
    "inventory",
    "load",
    "reviews",
    "simulate",
    "simulate_shelves",
    "split",
]


def __getattr__(name: str) -> Any:
    for module, names in _LAZY.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
