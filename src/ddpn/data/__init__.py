"""Data sets and simulations: loaded by name, split by seed, checked on arrival."""

from ddpn.data.catalogue import DATASETS, load
from ddpn.data.csv_file import read_csv
from ddpn.data.dataset import Dataset
from ddpn.data.reflected import Reflected
from ddpn.data.source import Source, data_folder, fetch
from ddpn.data.split import Split, split
from ddpn.data.synthetic import SIMULATIONS, Simulation, simulate
from ddpn.data.table import Table

__all__ = [
    "DATASETS",
    "SIMULATIONS",
    "Dataset",
    "Reflected",
    "Simulation",
    "Source",
    "Split",
    "Table",
    "data_folder",
    "fetch",
    "load",
    "read_csv",
    "simulate",
    "split",
]
