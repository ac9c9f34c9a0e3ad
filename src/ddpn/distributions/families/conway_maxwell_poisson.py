"""The Conway-Maxwell-Poisson distribution, parametrised by its mean and dispersion as in Huang (2017).

Its probabilities are proportional to lambda^y / (y!)^nu. With the rate m = lambda^(1 / nu), this is (m^y / y!)^nu, a
power of Poisson probabilities. So the probabilities are proportional to (h(y) exp(-D(y; m)))^nu with h(y) = e^-y y^y /
y! and D(y; m) = m - y + y log(y / m). The m that gives a prescribed mean has no closed form, so `kernels.by_mean`
solves for it.
"""

from math import log, log1p

from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions.arguments import as_parameters, check_narrowness, check_positive, needs_validation
from ddpn.distributions.kernels.by_mean import MeanParameterizedFamily, solve_rate
from ddpn.distributions.parametric import ParametricDistribution


def guess_log_rate(mu, nu):
    """Guess log m from the mean mu and the inverse dispersion nu, as a start for Newton's method.

    m = lambda^(1 / nu) is the rate. For large nu mu, E[Y] = m - 1/2 + 1 / (2 nu) is a good approximation. Otherwise, nu
    log m is interpolated between three limits: for nu -> 0, the Geometric distribution with lambda = mu / (1 + mu); for
    nu = 1, the Poisson with m = mu; and for nu -> infinity with a mean below 1, the Bernoulli distribution.
    """
    by_mean = log(max(mu + 0.5 - 0.5 / nu, 1e-300))
    if nu < 1.0:
        return by_mean if 2.0 * nu * mu > 3.0 else (log(mu) - (1.0 - nu) * log1p(mu)) / nu
    if mu < 1.0:
        return min(by_mean, (log(mu) - (1.0 - 1.0 / nu) * log1p(-min(mu, 1.0 - 2.0**-53))) / nu)
    return by_mean


class ConwayMaxwellPoissonFamily(MeanParameterizedFamily):
    """A Conway-Maxwell-Poisson distribution, with the formulas that compiled kernels need (see `kernels.family`).

    Its parameters are the mean mu and the inverse dispersion nu. `prepare` solves for the rate m = lambda^(1 / nu);
    p(y) is proportional to (m^y / y!)^nu. `kernels.by_mean` has the formulas.
    """

    @classmethod
    def prepare(cls, a, b, c):
        return solve_rate(a, b, b, 1.0, guess_log_rate(a, b))


class ConwayMaxwellPoisson(ParametricDistribution):
    r"""Conway-Maxwell-Poisson distribution with mean mu: p(y) is proportional to lambda^y / (y!)^nu.

    lambda is solved from the mean mu by Newton's method. Counts are under-dispersed for nu > 1, Poisson for nu = 1, and
    over-dispersed for nu < 1. The limit nu -> 0 is the Geometric distribution, so the variance is always below mu (1 +
    mu). nu must be at most 20 times the larger of mu and 1: beyond, nearly all mass is on one count.

    Shape: mu and nu broadcast to `batch_shape`. Results are computed in float64 and have the dtype of the parameters.

    Parameters
    ----------
    mu : Tensor or float
        Mean, positive.
    nu : Tensor or float
        Inverse dispersion, positive.
    validate_args : bool, optional
        Validate values. Default: only on a CPU.

    Examples
    --------
    >>> dist = ConwayMaxwellPoisson(mu=5.0, nu=2.0)
    >>> dist.mean.item(), round(dist.variance.item(), 4), dist.mode.item()
    (5.0, 2.632, 5.0)
    """

    arg_constraints = {"mu": constraints.positive, "nu": constraints.positive}
    family = ConwayMaxwellPoissonFamily
    _names = ("mu", "nu")

    def __init__(self, mu: Tensor | float, nu: Tensor | float, validate_args: bool | None = None) -> None:
        self.mu, self.nu = as_parameters(mu=mu, nu=nu)
        if needs_validation(validate_args, self.mu):
            check_positive("mu", self.mu)
            check_positive("nu", self.nu)
            check_narrowness("nu", self.nu, self.mu)
        super().__init__(self.mu.shape, validate_args)

    @property
    def mean(self) -> Tensor:
        """The mean, mu."""
        return self.mu
