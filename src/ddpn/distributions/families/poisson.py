"""The Poisson distribution, with the methods that `torch.distributions.Poisson` lacks."""

from math import inf, sqrt
from typing import NamedTuple

from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import torch_formulas
from ddpn.distributions.arguments import as_parameters, check_positive, needs_validation
from ddpn.distributions.kernels.scalar import deviance, log_h
from ddpn.distributions.parametric import ParametricDistribution


class PoissonFamily(NamedTuple):
    """A Poisson distribution with mean mu, with the formulas that compiled kernels need (see `kernels.family`)."""

    mu: float

    @classmethod
    def prepare(cls, a, b, c):
        return PoissonFamily(a)

    def is_normalised(self):
        return True

    def log_weight(self, y):
        return log_h(y) - deviance(y, self.mu)

    def score(self, y):
        return (y - self.mu) / self.mu, 0.0, 0.0

    def estimate_shape(self):
        return self.mu, sqrt(self.mu) + 0.5, inf

    def ratio(self, y):
        return self.mu, y + 1.0


class Poisson(ParametricDistribution):
    """Poisson distribution with mean mu.

    Parameters
    ----------
    mu : Tensor or float
        Mean, positive.
    validate_args : bool, optional
        Validate values. Default: only on a CPU.

    Examples
    --------
    >>> import torch
    >>> Poisson(3.0).cdf(torch.tensor(2.0))
    tensor(0.4232)
    """

    arg_constraints = {"mu": constraints.positive}
    family = PoissonFamily
    _names = ("mu",)

    def __init__(self, mu: Tensor | float, validate_args: bool | None = None) -> None:
        (self.mu,) = as_parameters(mu=mu)
        if needs_validation(validate_args, self.mu):
            check_positive("mu", self.mu)
        super().__init__(self.mu.shape, validate_args)

    @staticmethod
    def torch_log_prob(y: Tensor, mu: Tensor) -> Tensor:
        """Compute log p(y) in torch operations, as log h(y) - D(y; mu).

        h(y) = e^-y y^y / y! and D(y; mu) = mu - y + y log(y / mu).
        """
        return torch_formulas.log_h(y) - torch_formulas.deviance(y, mu)

    @property
    def mean(self) -> Tensor:
        """The mean, mu."""
        return self.mu

    @property
    def variance(self) -> Tensor:
        """The variance, mu."""
        return self.mu

    @property
    def mode(self) -> Tensor:
        """The most probable count. If mu is an integer, mu - 1 and mu are equally probable, and the mode is mu - 1."""
        return (self.mu.ceil() - 1.0).clamp(min=0.0)
