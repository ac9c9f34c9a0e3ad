"""Count distributions as torch distributions: exact for any mean and any dispersion."""

from ddpn.distributions.count import CountDistribution
from ddpn.distributions.discretized import Discretized, discretize
from ddpn.distributions.families.conway_maxwell_poisson import ConwayMaxwellPoisson
from ddpn.distributions.families.double_binomial import DoubleBinomial
from ddpn.distributions.families.double_poisson import DoublePoisson, variance_limits
from ddpn.distributions.families.generalized_poisson import GeneralizedPoisson
from ddpn.distributions.families.mean_double_poisson import MeanDoublePoisson
from ddpn.distributions.families.negative_binomial import NegativeBinomial
from ddpn.distributions.families.poisson import Poisson
from ddpn.distributions.limits import Censored, Truncated, log_mass
from ddpn.distributions.mixture import Mixture
from ddpn.distributions.recalibrated import MonotoneMap, Recalibrated
from ddpn.distributions.zeros import Hurdle, ZeroInflated

__all__ = [
    "Censored",
    "ConwayMaxwellPoisson",
    "CountDistribution",
    "Discretized",
    "DoubleBinomial",
    "DoublePoisson",
    "GeneralizedPoisson",
    "Hurdle",
    "MeanDoublePoisson",
    "Mixture",
    "MonotoneMap",
    "NegativeBinomial",
    "Poisson",
    "Recalibrated",
    "Truncated",
    "ZeroInflated",
    "discretize",
    "log_mass",
    "variance_limits",
]
