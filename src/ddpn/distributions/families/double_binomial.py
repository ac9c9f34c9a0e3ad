"""The Double Binomial distribution of Efron (1986): counts k of a known total n, exactly normalised."""

from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions.arguments import as_parameters, check_positive, check_totals, needs_validation
from ddpn.distributions.kernels.scalar import deviance, log_h
from ddpn.distributions.parametric import ParametricDistribution
from ddpn.runtime.errors import InputError


class DoubleBinomialFamily(NamedTuple):
    """A Double Binomial, with the formulas that compiled kernels need (see `kernels.family`).

    Its parameters are the location mu, the inverse dispersion gamma and the total n. The unnormalised probability of k
    is h(k) h(n - k) exp(-gamma D(k)), with h and D as in `DoubleBinomial`.
    """

    mu: float
    gamma: float
    total: float

    @classmethod
    def prepare(cls, a, b, c):
        return DoubleBinomialFamily(a, b, c)

    def is_normalised(self):
        return False

    def log_weight(self, k):
        others = max(self.total - k, 0.0)
        return log_h(k) + log_h(others) - self.gamma * sum_deviances(k, others, self.mu, self.total)

    def score(self, k):
        others = max(self.total - k, 0.0)
        by_mu = self.gamma * (k / self.mu - others / (self.total - self.mu))
        return by_mu, -sum_deviances(k, others, self.mu, self.total), 0.0

    def estimate_shape(self):
        """Return a centre (mu), a rough standard deviation, and the largest possible count (the total)."""
        mu, n = self.mu, self.total
        return mu, min(sqrt(mu * (1.0 - mu / n) / self.gamma), n) + 0.5, n


def sum_deviances(k, others, mu, n):
    """Return D(k) = k log(k / mu) + (n - k) log((n - k) / (n - mu)), where `others` is n - k.

    It is half of the Poisson deviance of k for the mean mu, plus that of n - k for the mean n - mu.
    """
    return deviance(k, mu) + deviance(others, n - mu)


class DoubleBinomial(ParametricDistribution):
    r"""Double Binomial distribution of counts 0, ..., total, with location mu and inverse dispersion gamma.

    Efron (1986) defines it by p(k) proportional to C(n, k) [k^k (n - k)^(n - k) / n^n]^(1 - gamma) q^(gamma k) (1 -
    q)^(gamma (n - k)), where n is the total and q = mu / n. Here it is computed as p(k) = h(k) h(n - k) exp(-gamma
    D(k)) / S, with h(k) = e^-k k^k / k!, D(k) = k log(k / mu) + (n - k) log((n - k) / (n - mu)), and the sum S of all
    weights.

    Counts are under-dispersed for gamma > 1, Binomial for gamma = 1, and over-dispersed for gamma < 1. The mean is
    close to mu, and the variance to mu (1 - mu / n) / gamma where that is large; `mean` and `variance` are exact
    everywhere.

    Shape: total (integers of at least 1), mu (between 0 and the total) and gamma broadcast to `batch_shape`.

    Parameters
    ----------
    total : Tensor or float
        The largest possible count of each row.
    mu : Tensor or float
        Location, strictly between 0 and the total.
    gamma : Tensor or float
        Inverse dispersion, positive.
    validate_args : bool, optional
        Validate values. Default: only on a CPU.

    Examples
    --------
    >>> dist = DoubleBinomial(total=12, mu=9.0, gamma=2.0)
    >>> round(dist.mean.item(), 4), round(dist.variance.item(), 4), dist.interval(0.9)[1].item()
    (8.9922, 1.1174, 11.0)
    >>> dist.log_prob(torch.tensor([12.0, 13.0]))
    tensor([-6.5401,    -inf])
    """

    arg_constraints = {
        "total": constraints.positive_integer,
        "mu": constraints.positive,
        "gamma": constraints.positive,
    }
    family = DoubleBinomialFamily
    _names = ("mu", "gamma", "total")

    def __init__(
        self,
        total: Tensor | float,
        mu: Tensor | float,
        gamma: Tensor | float,
        validate_args: bool | None = None,
    ) -> None:
        self.total, self.mu, self.gamma = as_parameters(total=total, mu=mu, gamma=gamma)
        if needs_validation(validate_args, self.mu):
            check_totals("total", self.total)
            check_positive("mu", self.mu)
            check_positive("gamma", self.gamma)
            if len(bad := (self.mu >= self.total).nonzero()):
                at = tuple(bad[0].tolist())
                got = f"{self.mu[at].item():g} of {self.total[at].item():g}"
                raise InputError(f"mu must be below the total, got {got} at {at[0] if len(at) == 1 else at}.")
        super().__init__(self.mu.shape, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        """Return the constraint that counts are integers from 0 to `total`."""
        return constraints.integer_interval(0, self.total)

    def icdf(self, value: Tensor) -> Tensor:
        """Compute quantiles: the smallest count y with P(Z <= y) >= q. At q = 1 it is the total."""
        return torch.minimum(super().icdf(value), self.total)
