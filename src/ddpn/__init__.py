"""ddpn: predicting counts with honest uncertainty."""

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
from ddpn.estimator import CountRegressor

__all__ = [
    "ConfigError",
    "Conflation",
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
