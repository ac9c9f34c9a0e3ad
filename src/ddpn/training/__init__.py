"""Training: settings, the loop, checkpoints."""

from ddpn.sample import Sample
from ddpn.training.batches import Augmented
from ddpn.training.config import TrainingConfig
from ddpn.training.ensemble import Ensemble, fit_ensemble
from ddpn.training.folds import OwnRows
from ddpn.training.loop import fit
from ddpn.training.runtime import Runtime
from ddpn.training.state import History
from ddpn.training.streamed import RowStream, Streamed

__all__ = [
    "Augmented",
    "Ensemble",
    "History",
    "OwnRows",
    "RowStream",
    "Runtime",
    "Sample",
    "Streamed",
    "TrainingConfig",
    "fit",
    "fit_ensemble",
]
