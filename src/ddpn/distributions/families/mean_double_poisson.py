"""The Double Poisson distribution of Efron (1986), parametrised by its exact mean and gamma.

The parameter mu of a `DoublePoisson` is close to its mean only where gamma mu is large. Here, mu is solved from the
mean (`kernels.by_mean`). The derivative of log p(y) in the mean is then (y - mean) / Var[Y], as in every GLM. So
coefficients of a log-linear mean are estimated consistently even if counts follow another distribution.
"""

from math import log, log1p, sqrt

from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions.arguments import as_parameters, check_narrowness, check_positive, needs_validation
from ddpn.distributions.kernels.by_mean import MeanParameterizedFamily, solve_rate
from ddpn.distributions.parametric import ParametricDistribution


def guess_log_rate(mean, gamma):
    """Guess log mu of a Double Poisson from its mean and gamma, as a start for Newton's method.

    gamma log mu is nearly linear in gamma, so it is interpolated between three cases.

    - For gamma -> 0, probabilities tend to multiples of h(y) x^y, with h(y) = e^-y y^y / y! and x = T e^(1 - T), where
      T < 1 solves T = mean (1 - T)^2.
    - For gamma = 1, the distribution is Poisson, and mu is the mean.
    - For gamma -> infinity and a mean below 1, it tends to a Bernoulli distribution. There, mu^gamma tends to e^(1 -
      gamma) mean / (1 - mean).
    """
    if gamma < 1.0:
        tree = 2.0 * mean / (2.0 * mean + 1.0 + sqrt(4.0 * mean + 1.0))
        return log(mean) + (1.0 - gamma) / gamma * (log(tree) + 1.0 - tree)
    if mean < 1.0:
        odds = log(mean) - (1.0 - 1.0 / gamma) * log1p(-min(mean, 1.0 - 2.0**-53))
        return min(0.0, (odds + 1.0 - gamma) / gamma)
    return log(mean)


class MeanDoublePoissonFamily(MeanParameterizedFamily):
    """A Double Poisson with a given mean, with the formulas that compiled kernels need (see `kernels.family`)."""

    @classmethod
    def prepare(cls, a, b, c):
        return solve_rate(a, b, 1.0, 0.0, guess_log_rate(a, b))


class MeanDoublePoisson(ParametricDistribution):
    r"""Double Poisson distribution with mean mu: the `DoublePoisson` whose location is solved from this mean.

    Counts are under-dispersed for gamma > 1, Poisson for gamma = 1, and over-dispersed for gamma < 1. The variance is
    close to mu / gamma where gamma mu is large, and always within `variance_limits(mu)`. gamma must be at most 20 times
    the larger of mu and 1: beyond, nearly all mass is on one count.

    Shape: mu and gamma broadcast to `batch_shape`. Results are computed in float64 and have the dtype of the
    parameters.

    Parameters
    ----------
    mu : Tensor or float
        The mean, positive.
    gamma : Tensor or float
        Inverse dispersion, positive.
    validate_args : bool, optional
        Validate values. Default: only on a CPU.

    Examples
    --------
    >>> dist = MeanDoublePoisson(mu=2.0, gamma=0.3)
    >>> dist.mean.item(), round(dist.variance.item(), 4)
    (2.0, 5.0258)
    """

    arg_constraints = {"mu": constraints.positive, "gamma": constraints.positive}
    family = MeanDoublePoissonFamily
    _names = ("mu", "gamma")

    def __init__(self, mu: Tensor | float, gamma: Tensor | float, validate_args: bool | None = None) -> None:
        self.mu, self.gamma = as_parameters(mu=mu, gamma=gamma)
        if needs_validation(validate_args, self.mu):
            check_positive("mu", self.mu)
            check_positive("gamma", self.gamma)
            check_narrowness("gamma", self.gamma, self.mu)
        super().__init__(self.mu.shape, validate_args)

    @property
    def mean(self) -> Tensor:
        """The mean, mu."""
        return self.mu
