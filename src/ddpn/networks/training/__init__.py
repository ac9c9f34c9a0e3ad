"""Training: settings, the loop, checkpoints."""

from ddpn.networks.training.batches import OwnRows, RowStream, Streamed
from ddpn.networks.training.config import Runtime, TrainingConfig
from ddpn.networks.training.loop import fit
from ddpn.networks.training.state import History
from ddpn.sample import Sample

__all__ = [
    "History",
    "OwnRows",
    "RowStream",
    "Runtime",
    "Sample",
    "Streamed",
    "TrainingConfig",
    "fit",
]
