"""The Conway-Maxwell-Poisson distribution by its mean and dispersion, as in Huang (2017).

With m = lambda^(1 / nu), p(y) = exp(nu R(y)) / S with R(y) = y log m - m - log y! = log h(y) - D(y; m). The rate of a
mean has no closed form: `kernels.by_mean` solves for it.
"""

from math import exp, inf, log, log1p, sqrt
from typing import NamedTuple

from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions.arguments import as_parameters, check_positive, is_checked
from ddpn.distributions.kernels.by_mean import Rate, differentiate, log_probability, solve
from ddpn.distributions.parametric import ParametricDistribution
from ddpn.runtime.errors import InputError

#: nu is at most so many times the mean, or 1: beyond, nearly all mass is on one count and the mean fixes no rate.
NARROWEST = 20.0


def guess_log_rate(mu, nu):
    """Return log m by the mean's expansion where that is close, else between the rates of the limits.

    nu = 0 is the Geometric with lambda = mu / (1 + mu), nu = infinity the Bernoulli.
    """
    by_mean = log(max(mu + 0.5 - 0.5 / nu, 1e-300))
    if nu < 1.0:
        return by_mean if 2.0 * nu * mu > 3.0 else (log(mu) - (1.0 - nu) * log1p(mu)) / nu
    if mu < 1.0:
        return min(by_mean, (log(mu) - (1.0 - 1.0 / nu) * log1p(-min(mu, 1.0 - 2.0**-53))) / nu)
    return by_mean


class ConwayMaxwellPoissonWeights(NamedTuple):
    """Probabilities exp(nu R(y)) / S of a Conway-Maxwell-Poisson, see `kernels.family`."""

    rate: Rate

    @classmethod
    def prepare(cls, a, b, c):
        return ConwayMaxwellPoissonWeights(solve(a, b, b, 1.0, guess_log_rate(a, b)))

    def is_normalised(self):
        return True

    def log_mass(self, y):
        return log_probability(self.rate, y, self.rate.c)

    def score(self, y):
        return differentiate(self.rate, y, 1.0)

    def shape(self):
        return exp(self.rate.log_m), sqrt(self.rate.variance) + 0.5, inf


class ConwayMaxwellPoisson(ParametricDistribution):
    r"""Conway-Maxwell-Poisson with mean mu: p(y) proportional to lambda^y / (y!)^nu.

    lambda is the one that gives the mean mu, found by Newton's method. nu > 1 is under-, nu < 1 over-dispersed, nu = 1
    is Poisson(mu), nu = 0 would be the Geometric distribution: the variance never exceeds mu (1 + mu). nu must be at
    most 20 times the larger of mu and 1: beyond, nearly all mass is on one count.

    Shape: mu and nu broadcast to `batch_shape`. Computation is in float64, results come in the parameters' dtype.

    Parameters
    ----------
    mu : Tensor or float
        Mean, positive.
    nu : Tensor or float
        Inverse dispersion, positive.
    validate_args : bool, optional
        Whether values are checked. Default: only on a CPU.

    Examples
    --------
    >>> dist = ConwayMaxwellPoisson(mu=5.0, nu=2.0)
    >>> dist.mean.item(), round(dist.variance.item(), 4), dist.mode.item()
    (5.0, 2.632, 5.0)
    """

    arg_constraints = {"mu": constraints.positive, "nu": constraints.positive}
    family = ConwayMaxwellPoissonWeights
    _names = ("mu", "nu")

    def __init__(self, mu: Tensor | float, nu: Tensor | float, validate_args: bool | None = None) -> None:
        self.mu, self.nu = as_parameters(mu=mu, nu=nu)
        if is_checked(validate_args, self.mu):
            check_positive("mu", self.mu, "Emit its logarithm and exponentiate, or clamp it.")
            check_positive("nu", self.nu, "Emit its logarithm and exponentiate, or clamp it.")
            if (bad := self.nu > NARROWEST * self.mu.clamp(min=1.0)).any():
                got = f"{self.nu[bad][0].item():g} for a mean of {self.mu[bad][0].item():g}"
                raise InputError(f"nu must be at most {NARROWEST:g} times the mean, or {NARROWEST:g}, got {got}.")
        super().__init__(self.mu.shape, validate_args)

    @property
    def mean(self) -> Tensor:
        """mu."""
        return self.mu
