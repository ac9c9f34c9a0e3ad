"""The Generalised Poisson distribution of Consul and Jain (1973), with its mean and over-dispersion as parameters."""

from math import inf, log1p, sqrt
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import torch_formulas
from ddpn.distributions.arguments import as_parameters, check_positive, needs_validation
from ddpn.distributions.kernels.scalar import deviance, log_h
from ddpn.distributions.parametric import ParametricDistribution


class GeneralizedPoissonFamily(NamedTuple):
    """A Generalised Poisson, with the formulas that compiled kernels need (see `kernels.family`).

    Its parameters are the mean mu and the dispersion alpha, as in `GeneralizedPoisson`.
    """

    mu: float
    alpha: float

    @classmethod
    def prepare(cls, a, b, c):
        return GeneralizedPoissonFamily(a, b)

    def is_normalised(self):
        return True

    def log_weight(self, y):
        """Return log p(y) = log h(y) + log(theta / m) - D(y; m), where m = theta + lambda y.

        Here h(y) = e^-y y^y / y! and D(y; m) = m - y + y log(y / m). theta and lambda are defined in
        `GeneralizedPoisson`. In this form, no large terms cancel.
        """
        mu, alpha = self.mu, self.alpha
        return log_h(y) - log1p(alpha * y / mu) - deviance(y, (mu + alpha * y) / (1.0 + alpha))

    def score(self, y):
        mu, alpha = self.mu, self.alpha
        wide = 1.0 + alpha
        rate = (mu + alpha * y) / wide
        slope = (y - 1.0) / rate - 1.0
        return (wide / mu + slope) / wide, (y * slope - mu * (wide / mu + slope)) / (wide * wide), 0.0

    def estimate_shape(self):
        return self.mu, sqrt(self.mu) * (1.0 + self.alpha) + 0.5, inf


class GeneralizedPoisson(ParametricDistribution):
    r"""Generalised Poisson distribution with mean mu and variance mu (1 + alpha)^2.

    p(y) = theta (theta + lambda y)^(y - 1) exp(-theta - lambda y) / y! with theta = mu / (1 + alpha) and lambda = alpha
    / (1 + alpha). This is statsmodels' `GeneralizedPoisson` with p = 1 (GP-1). Its p = 2 (GP-2) has alpha mu in place
    of alpha.

    Only over-dispersion (alpha > 0) is supported: with alpha < 0 the formula does not sum to 1 unless it is cut off and
    rescaled. Use `DoublePoisson` for under-dispersed counts and `Poisson` for alpha = 0.

    Parameters
    ----------
    mu : Tensor or float
        Mean, positive.
    alpha : Tensor or float
        Dispersion, positive.
    validate_args : bool, optional
        Validate values. Default: only on a CPU.

    Examples
    --------
    >>> dist = GeneralizedPoisson(mu=10.0, alpha=0.5)
    >>> dist.variance.item(), dist.icdf(torch.tensor(0.5)).item()
    (22.5, 9.0)
    """

    arg_constraints = {"mu": constraints.positive, "alpha": constraints.positive}
    family = GeneralizedPoissonFamily
    _names = ("mu", "alpha")

    def __init__(self, mu: Tensor | float, alpha: Tensor | float, validate_args: bool | None = None) -> None:
        self.mu, self.alpha = as_parameters(mu=mu, alpha=alpha)
        if needs_validation(validate_args, self.mu):
            check_positive("mu", self.mu)
            check_positive("alpha", self.alpha, "Use Poisson for alpha = 0, DoublePoisson for under-dispersed counts.")
        super().__init__(self.mu.shape, validate_args)

    @staticmethod
    def torch_log_prob(y: Tensor, mu: Tensor, alpha: Tensor) -> Tensor:
        """Compute log p(y) in torch operations, by the formula of `GeneralizedPoissonFamily.log_weight`."""
        rate = (mu + alpha * y) / (1.0 + alpha)
        return torch_formulas.log_h(y) - torch.log1p(alpha * y / mu) - torch_formulas.deviance(y, rate)

    @property
    def mean(self) -> Tensor:
        """The mean, mu."""
        return self.mu

    @property
    def variance(self) -> Tensor:
        """The variance, mu (1 + alpha)^2."""
        return self.mu * (1.0 + self.alpha).square()
