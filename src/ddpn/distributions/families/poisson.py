"""The Poisson distribution, with the methods that torch's own lacks."""

from math import inf, sqrt

from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import rule
from ddpn.distributions.arguments import as_parameters, check_positive, is_checked
from ddpn.distributions.components import Family
from ddpn.distributions.kernels.scalar import deviance, log_h
from ddpn.distributions.parametric import ParametricDistribution


def log_mass(y, p):
    """log p(y)."""
    return log_h(y) - deviance(y, p[0])


def score(y, p):
    """d log p / d mu."""
    return (y - p[0]) / p[0], 0.0, 0.0


def shape(p):
    """Mean and standard deviation."""
    return p[0], sqrt(p[0]) + 0.5, inf


def ratio(y, p):
    """p(y + 1) over p(y)."""
    return p[0], y + 1.0


class Poisson(ParametricDistribution):
    """The Poisson distribution with mean mu.

    Parameters
    ----------
    mu : Tensor or float
        Mean, positive.
    validate_args : bool, optional
        Whether values are checked. Default: only on a CPU.

    Examples
    --------
    >>> import torch
    >>> Poisson(3.0).cdf(torch.tensor(2.0))
    tensor(0.4232)
    """

    arg_constraints = {"mu": constraints.positive}
    family = Family("poisson", log_mass, score, shape, ratio=ratio, normalised=True)
    _names = ("mu",)

    def __init__(self, mu: Tensor | float, validate_args: bool | None = None) -> None:
        (self.mu,) = as_parameters(mu=mu)
        if is_checked(validate_args, self.mu):
            check_positive("mu", self.mu, "Emit its logarithm and exponentiate, or clamp it.")
        super().__init__(self.mu.shape, validate_args)

    @staticmethod
    def torch_log_prob(y: Tensor, mu: Tensor) -> Tensor:
        """log h(y) - D(y; mu)."""
        return rule.log_h_of_count(y) - rule.deviance(y, mu)

    @property
    def mean(self) -> Tensor:
        """The parameter mu."""
        return self.mu

    @property
    def variance(self) -> Tensor:
        """The parameter mu."""
        return self.mu

    @property
    def mode(self) -> Tensor:
        """The largest count below mu; the smaller of two where mu is an integer."""
        return (self.mu.ceil() - 1.0).clamp(min=0.0)
