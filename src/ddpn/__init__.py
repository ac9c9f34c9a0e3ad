"""ddpn: predicting counts with honest uncertainty."""

from ddpn.distributions import Conflation, DoublePoisson, NegativeBinomial, Poisson, UniformMixture
from ddpn.errors import ConfigError, DDPNError, InputError

__all__ = [
    "ConfigError",
    "Conflation",
    "DDPNError",
    "DoublePoisson",
    "InputError",
    "NegativeBinomial",
    "Poisson",
    "UniformMixture",
]
