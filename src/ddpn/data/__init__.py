"""Data sets and simulations: loaded by name, split by seed, checked on arrival."""

from ddpn.data.catalogue import DATASETS, Holding, holdings, load, obtain
from ddpn.data.csv_file import read_csv
from ddpn.data.dataset import Dataset
from ddpn.data.images import coco_people
from ddpn.data.pictures import Pictures, Unreadable, in_memory
from ddpn.data.reflected import Reflected
from ddpn.data.source import Source, data_folder, fetch
from ddpn.data.split import Split, split
from ddpn.data.synthetic import SIMULATIONS, Simulation, simulate
from ddpn.data.table import Table
from ddpn.data.text import bible, joined, reviews
from ddpn.data.tokens import tokenised

__all__ = [
    "DATASETS",
    "SIMULATIONS",
    "Dataset",
    "Holding",
    "Pictures",
    "Reflected",
    "Simulation",
    "Source",
    "Split",
    "Table",
    "Unreadable",
    "bible",
    "coco_people",
    "data_folder",
    "fetch",
    "holdings",
    "in_memory",
    "joined",
    "load",
    "obtain",
    "read_csv",
    "reviews",
    "simulate",
    "split",
    "tokenised",
]
