"""Tuning: a search for better settings of a model within a budget of time (`ddpn tune`).

Importing this package imports neither torch nor Optuna.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddpn.tuning.space import SETTINGS

if TYPE_CHECKING:
    from ddpn.tuning.result import TrialSummary, TuningResult
    from ddpn.tuning.tuning import Tuned, tune

__all__ = ["SETTINGS", "TrialSummary", "Tuned", "TuningResult", "tune"]

_LAZY = {"TrialSummary": "ddpn.tuning.result", "TuningResult": "ddpn.tuning.result"}
_LAZY |= {"Tuned": "ddpn.tuning.tuning", "tune": "ddpn.tuning.tuning"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
