"""How far Efron's approximate moments are from the exact ones (Appendix A.3)."""

from torch import Tensor

from ddpn.distributions.arguments import as_parameters
from ddpn.distributions.double_poisson import DoublePoisson


def mean_deviation(mean: Tensor | float, variance: Tensor | float) -> Tensor:
    """epsilon_1 of Proposition A.2: |E[Z] - mean| for Z ~ DP(mean, mean / variance), Efron's choice of parameters.

    >>> round(mean_deviation(10.0, 5.0).item(), 4)
    0.0023
    """
    mean, variance = as_parameters(mean=mean, variance=variance)
    return (DoublePoisson(mean, mean / variance).mean - mean).abs()


def variance_deviation(mean: Tensor | float, variance: Tensor | float) -> Tensor:
    """epsilon_2 of Proposition A.2: |Var[Z] - variance| for Z ~ DP(mean, mean / variance)."""
    mean, variance = as_parameters(mean=mean, variance=variance)
    return (DoublePoisson(mean, mean / variance).variance - variance).abs()
