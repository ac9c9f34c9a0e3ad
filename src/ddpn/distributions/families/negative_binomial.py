"""The Negative Binomial distribution, with its mean and over-dispersion as parameters."""

from math import inf, log, log1p, sqrt
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import torch_formulas
from ddpn.distributions.arguments import as_parameters, check_positive, needs_validation
from ddpn.distributions.kernels.scalar import HALF_LOG_TWO_PI, log_h, stirling_error, stirling_slope
from ddpn.distributions.parametric import ParametricDistribution


class NegativeBinomialFamily(NamedTuple):
    """A Negative Binomial, with the formulas that compiled kernels need (see `kernels.family`).

    Its parameters are the mean mu and the dispersion alpha, as in `NegativeBinomial`. It stores mu and r = 1 / alpha.
    """

    mu: float
    r: float
    stirling_error_of_r: float

    @classmethod
    def prepare(cls, a, b, c):
        return NegativeBinomialFamily(a, 1.0 / b, stirling_error(1.0 / b))

    def is_normalised(self):
        return True

    def log_weight(self, y):
        """Compute log p(y) by Loader's saddle-point expansion, which is accurate even for large counts.

        log p(y) is computed from a unit deviance and from the errors of Stirling's formula for the three gamma
        functions.
        """
        mu, r = self.mu, self.r
        if y <= 0.0:
            return -r * log1p(mu / r)
        n = y + r
        scale = stirling_error(n) - self.stirling_error_of_r - 0.5 * log(n / r)
        return log_h(y) + scale - unit_deviance(y, mu, r)

    def score(self, y):
        """Compute the derivatives of log p(y) in mu and alpha, and 0 for the third parameter, which does not exist.

        The derivative in r = 1 / alpha contains a difference of digamma functions, whose leading terms cancel for large
        r. So each is written as a logarithm plus a correction, `scalar.stirling_slope`.
        """
        mu, r = self.mu, self.r
        n, q = y + r, (y - mu) / (mu + r)
        by_r = log_ratio(n, mu + r, y - mu) - q + 0.5 * y / (n * r) + stirling_slope(n) - stirling_slope(r)
        return q * r / mu, -r * r * by_r, 0.0

    def estimate_shape(self):
        mu, r = self.mu, self.r
        return max(mu - mu / r, 0.0), sqrt(mu + mu * mu / r) + 0.5, inf

    def ratio(self, y):
        return self.mu * (y + self.r), (self.mu + self.r) * (y + 1.0)


def unit_deviance(y, mu, r):
    """Return y log(y / mu) - (y + r) log((y + r) / (mu + r)), accurately for small and for large r.

    It is half of the deviance of a Negative Binomial with mean mu and r = 1 / alpha.
    """
    if y <= 0.0:
        return r * log1p(mu / r)
    gap = y - mu
    return y * log1p(max(r * gap / (mu * (y + r)), -1.0 + 2.0**-53)) - r * log_ratio(y + r, mu + r, gap)


def log_ratio(x, y, gap):
    """Return log(x / y), given `gap` = x - y, with a small relative error even if x and y are close."""
    return log(x / y) if gap < -0.5 * y else log1p(gap / y)


class NegativeBinomial(ParametricDistribution):
    """Negative Binomial distribution with mean mu and variance mu + alpha mu^2.

    Parameters
    ----------
    mu : Tensor or float
        Mean, positive.
    alpha : Tensor or float
        Dispersion, positive; close to a Poisson if alpha is close to 0.
    validate_args : bool, optional
        Validate values. Default: only on a CPU.

    Examples
    --------
    >>> dist = NegativeBinomial(mu=10.0, alpha=0.5)
    >>> dist.variance.item(), dist.icdf(torch.tensor(0.5)).item()
    (60.0, 8.0)
    """

    arg_constraints = {"mu": constraints.positive, "alpha": constraints.positive}
    family = NegativeBinomialFamily
    _names = ("mu", "alpha")

    def __init__(self, mu: Tensor | float, alpha: Tensor | float, validate_args: bool | None = None) -> None:
        self.mu, self.alpha = as_parameters(mu=mu, alpha=alpha)
        if needs_validation(validate_args, self.mu):
            check_positive("mu", self.mu)
            check_positive("alpha", self.alpha, "Use Poisson for alpha = 0.")
        super().__init__(self.mu.shape, validate_args)

    @staticmethod
    def torch_log_prob(y: Tensor, mu: Tensor, alpha: Tensor) -> Tensor:
        """Compute log p(y) in torch operations, by the formula of `NegativeBinomialFamily.log_weight`."""
        r, safe = 1.0 / alpha, y.clamp(min=1.0)
        n, gap = safe + r, safe - mu
        inner = (r * gap / (mu * n)).clamp(min=-1 + 2**-53)
        q = gap / (mu + r)
        log_ratio = torch.where(q < -0.5, (n / (mu + r)).log(), torch.log1p(q.clamp(min=-0.5)))
        unit = safe * torch.log1p(inner) - r * log_ratio
        saturated = 0.5 * (r / (safe * n)).log() - HALF_LOG_TWO_PI
        saturated = saturated + _stirling_error(n) - _stirling_error(r) - _stirling_error(safe)
        return torch.where(y > 0, saturated - unit, -r * torch.log1p(mu / r))

    @property
    def mean(self) -> Tensor:
        """The mean, mu."""
        return self.mu

    @property
    def variance(self) -> Tensor:
        """The variance, mu + alpha mu^2."""
        return self.mu + self.alpha * self.mu**2

    @property
    def mode(self) -> Tensor:
        """The most probable count. If two counts are equally probable, it is the smaller one."""
        peak = self.mu.double() * (1.0 - self.alpha.double())
        return (peak.ceil() - 1.0).clamp(min=0.0).to(self.dtype)


def _stirling_error(x: Tensor) -> Tensor:
    """Compute the error of Stirling's formula, log x! - log(sqrt(2 pi x) x^x e^-x), for each element of a tensor."""
    small, large = x.clamp(max=16.0), x.clamp(min=16.0)
    exact = torch.lgamma(small + 1.0) - (small + 0.5) * small.log() + small - HALF_LOG_TWO_PI
    return torch.where(x < 16.0, exact, -torch_formulas.approximate_log_h(large) - 0.5 * large.log() - HALF_LOG_TWO_PI)
