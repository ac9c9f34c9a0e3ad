"""Training: settings, the loop, checkpoints."""

from ddpn.networks.training.batches import Augmented, OwnRows, RowStream, Streamed
from ddpn.networks.training.config import Runtime, TrainingConfig
from ddpn.networks.training.loop import fit
from ddpn.networks.training.state import History
from ddpn.sample import Sample

__all__ = [
    "Augmented",
    "History",
    "OwnRows",
    "RowStream",
    "Runtime",
    "Sample",
    "Streamed",
    "TrainingConfig",
    "fit",
]
