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


class DoubleBinomialWeights(NamedTuple):
    """Weights h(k) h(n - k) exp(-gamma D(k)) of a Double Binomial with total n, see `kernels.family`."""

    mu: float
    gamma: float
    total: float

    @classmethod
    def prepare(cls, a, b, c):
        return DoubleBinomialWeights(a, b, c)

    def is_normalised(self):
        return False

    def log_mass(self, k):
        others = max(self.total - k, 0.0)
        return log_h(k) + log_h(others) - self.gamma * sum_deviances(k, others, self.mu, self.total)

    def score(self, k):
        others = max(self.total - k, 0.0)
        by_mu = self.gamma * (k / self.mu - others / (self.total - self.mu))
        return by_mu, -sum_deviances(k, others, self.mu, self.total), 0.0

    def shape(self):
        """Return mu, a standard deviation that is at most the width of the support, and the total."""
        mu, n = self.mu, self.total
        return mu, min(sqrt(mu * (1.0 - mu / n) / self.gamma), n) + 0.5, n


def sum_deviances(k, others, mu, n):
    """Return D(k) as the sum of the Poisson deviances of k and of n - k."""
    return deviance(k, mu) + deviance(others, n - mu)


class DoubleBinomial(ParametricDistribution):
    r"""Double Binomial: counts 0..total with location mu and inverse dispersion gamma.

    p(k) = h(k) h(n - k) exp(-gamma D(k)) / S, with n the total, h(k) = e^-k k^k / k! and
    D(k) = k log(k / mu) + (n - k) log((n - k) / (n - mu)). This is Efron's (1986)
    C(n, k) [k^k (n - k)^(n - k) / n^n]^(1 - gamma) q^(gamma k) (1 - q)^(gamma (n - k)) with q = mu / n, normalised.

    gamma = 1 is the Binomial, gamma > 1 is under-, gamma < 1 over-dispersed. The mean is close to mu, the variance to
    mu (1 - mu / n) / gamma where that is large; `mean` and `variance` are exact everywhere.

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
    family = DoubleBinomialWeights
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
        """Return the constraint of integers from 0 to `total`."""
        return constraints.integer_interval(0, self.total)

    def icdf(self, value: Tensor) -> Tensor:
        """Compute a quantile: the smallest count y with P(K <= y) >= q; the total at q = 1."""
        return torch.minimum(super().icdf(value), self.total)
