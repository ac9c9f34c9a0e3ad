"""Data sets and simulations: loaded by name, split by seed, checked on arrival."""

from ddpn.data.augmentation import auto_augmented
from ddpn.data.beam_folders import inventory, write_beams
from ddpn.data.catalogue import DATASETS, Holding, holdings, load, obtain
from ddpn.data.csv_file import read_csv
from ddpn.data.dataset import Dataset
from ddpn.data.depth_camera import Camera
from ddpn.data.images import coco_people
from ddpn.data.pictures import Pictures, Unreadable, in_memory
from ddpn.data.point_clouds import Beam, Clouds, pack, unpack
from ddpn.data.reflected import Reflected
from ddpn.data.shelves import simulate_shelves, write_shelves
from ddpn.data.source import Source, data_folder, fetch
from ddpn.data.split import Split, split
from ddpn.data.synthetic import SIMULATIONS, Simulation, simulate
from ddpn.data.table import Table
from ddpn.data.text import bible, joined, reviews
from ddpn.data.tokens import tokenised

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
