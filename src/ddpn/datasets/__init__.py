"""Data sets and simulations: loaded by name, split by seed, checked on arrival."""

from ddpn.datasets.catalogue import DATASETS, Holding, holdings, load, obtain
from ddpn.datasets.coco_people import coco_people
from ddpn.datasets.csv_file import read_csv
from ddpn.datasets.dataset import Dataset
from ddpn.datasets.depth_camera import Camera
from ddpn.datasets.inventory import inventory, write_beams
from ddpn.datasets.reflected import Reflected
from ddpn.datasets.reviews import bible, joined, reviews
from ddpn.datasets.shelves import simulate_shelves, write_shelves
from ddpn.datasets.simulations import SIMULATIONS, Simulation, simulate
from ddpn.datasets.source import Source, data_folder, fetch
from ddpn.datasets.split import Split, split
from ddpn.datasets.table import Table
from ddpn.inputs.augmentation import auto_augmented
from ddpn.inputs.images import Pictures, Unreadable, in_memory
from ddpn.inputs.point_clouds import Beam, Clouds, pack, unpack
from ddpn.inputs.tokens import tokenised

__all__ = [
    "DATASETS",
    "SIMULATIONS",
    "Beam",
    "Camera",
    "Clouds",
    "Dataset",
    "Holding",
    "Pictures",
    "Reflected",
    "Simulation",
    "Source",
    "Split",
    "Table",
    "Unreadable",
    "auto_augmented",
    "bible",
    "coco_people",
    "data_folder",
    "fetch",
    "holdings",
    "in_memory",
    "inventory",
    "joined",
    "load",
    "obtain",
    "pack",
    "read_csv",
    "reviews",
    "simulate",
    "simulate_shelves",
    "split",
    "tokenised",
    "unpack",
    "write_beams",
    "write_shelves",
]
