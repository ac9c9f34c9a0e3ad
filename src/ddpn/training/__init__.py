"""Training: settings, the loop, checkpoints."""

from ddpn.training.batches import Changing, Rows
from ddpn.training.config import TrainingConfig
from ddpn.training.ensemble import Ensemble, fit_ensemble
from ddpn.training.history import History
from ddpn.training.loop import fit
from ddpn.training.runtime import Runtime

__all__ = ["Changing", "Ensemble", "History", "Rows", "Runtime", "TrainingConfig", "fit", "fit_ensemble"]
