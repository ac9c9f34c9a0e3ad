"""The Double Poisson distribution and its numerics."""

from ddpn.distributions.double_poisson.distribution import DoublePoisson, mean_deviation, variance_deviation
from ddpn.distributions.double_poisson.moments import variance_limits

__all__ = ["DoublePoisson", "mean_deviation", "variance_deviation", "variance_limits"]
