"""Training: settings, the loop, checkpoints."""

from ddpn.networks.training.batches import OwnRows, RowStream, Streamed
from ddpn.networks.training.config import Runtime, TrainingConfig
from ddpn.networks.training.loop import fit
from ddpn.networks.training.state import History
from ddpn.rows.count_rows import CountRows

__all__ = [
    "CountRows",
    "History",
    "OwnRows",
    "RowStream",
    "Runtime",
    "Streamed",
    "TrainingConfig",
    "fit",
]
