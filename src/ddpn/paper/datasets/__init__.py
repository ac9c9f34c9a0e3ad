"""The paper's data sets and simulations: loaded by name, validated, and split by a seed."""

from typing import TYPE_CHECKING

from ddpn.paper.datasets.coco import coco_people
from ddpn.paper.datasets.dataset import Dataset, Split, split
from ddpn.paper.datasets.sources import DATASETS, DatasetStatus, data_folder, dataset_status, download, load
from ddpn.paper.datasets.texts import bible, reviews
from ddpn.runtime.extras import import_on_use

if TYPE_CHECKING:
    from ddpn.paper.datasets.beams import inventory
    from ddpn.paper.datasets.shelves import simulate_shelves
    from ddpn.paper.datasets.simulations import SIMULATIONS, Simulation, simulate

#: Names that are imported on first use, because their modules import torch.
_MODULES = dict.fromkeys(("SIMULATIONS", "Simulation", "simulate"), f"{__name__}.simulations") | {
    "simulate_shelves": f"{__name__}.shelves",
    "inventory": f"{__name__}.beams",
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


__getattr__ = import_on_use(__name__, _MODULES)
