"""ddpn: predicting counts with honest uncertainty."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddpn.distributions import (
    Conflation,
    Discretized,
    DoublePoisson,
    NegativeBinomial,
    Poisson,
    UniformMixture,
    discretized,
)
from ddpn.errors import ConfigError, DDPNError, InputError, TrainingError

if TYPE_CHECKING:
    from ddpn.estimator import CountGLM, CountRegressor

#: Loaded on first use: laws alone should not wait for scikit-learn.
_LATER = {"CountGLM": "ddpn.estimator", "CountRegressor": "ddpn.estimator"}

__all__ = [
    "ConfigError",
    "Conflation",
    "CountGLM",
    "CountRegressor",
    "DDPNError",
    "Discretized",
    "DoublePoisson",
    "InputError",
    "NegativeBinomial",
    "Poisson",
    "TrainingError",
    "UniformMixture",
    "discretized",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
