"""Training of networks: settings, the training loop, and checkpoints."""

from ddpn.networks.training.batches import PerNetworkRows, RowStream, StreamedRows, TensorRows
from ddpn.networks.training.config import Runtime, TrainingConfig
from ddpn.networks.training.history import History
from ddpn.networks.training.loop import fit
from ddpn.rows.count_rows import CountRows

__all__ = [
    "CountRows",
    "History",
    "PerNetworkRows",
    "RowStream",
    "Runtime",
    "StreamedRows",
    "TensorRows",
    "TrainingConfig",
    "fit",
]
