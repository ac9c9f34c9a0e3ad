"""Tuning: a search for better settings of a model within a budget of time (`ddpn tune`).

Importing this package imports neither torch nor Optuna.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddpn.workflow.tuning.space import SETTINGS

if TYPE_CHECKING:
    from ddpn.workflow.tuning.result import TrialSummary, TuningResult
    from ddpn.workflow.tuning.tuning import Tuned, tune

__all__ = ["SETTINGS", "TrialSummary", "Tuned", "TuningResult", "tune"]

_LAZY = {"TrialSummary": "ddpn.workflow.tuning.result", "TuningResult": "ddpn.workflow.tuning.result"}
_LAZY |= {"Tuned": "ddpn.workflow.tuning.tuning", "tune": "ddpn.workflow.tuning.tuning"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
