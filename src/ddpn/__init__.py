"""ddpn: predicting counts with honest uncertainty."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddpn.errors import ConfigError, DDPNError, InputError, TrainingError

if TYPE_CHECKING:
    from ddpn.distributions import (
        Conflation,
        Discretized,
        DoublePoisson,
        Mixture,
        NegativeBinomial,
        Poisson,
        discretized,
    )
    from ddpn.estimators import CountGLM, CountRegressor

_LAWS = (
    "Conflation", "Discretized", "DoublePoisson", "Mixture", "NegativeBinomial", "Poisson", "discretized"
)  # fmt: skip
#: Loaded on first use: `ddpn --help` should not wait for torch, nor laws for scikit-learn.
_LATER = dict.fromkeys(_LAWS, "ddpn.distributions") | dict.fromkeys(("CountGLM", "CountRegressor"), "ddpn.estimators")

__all__ = [
    "ConfigError",
    "Conflation",
    "CountGLM",
    "CountRegressor",
    "DDPNError",
    "Discretized",
    "DoublePoisson",
    "InputError",
    "Mixture",
    "NegativeBinomial",
    "Poisson",
    "TrainingError",
    "discretized",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
