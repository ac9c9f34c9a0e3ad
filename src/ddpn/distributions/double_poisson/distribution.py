"""The Double Poisson distribution of Efron (1986), exact: normalised for any mean and any dispersion."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints, register_kl

from ddpn.distributions.arguments import as_parameters, broadcast_shapes, check_positive, is_checked
from ddpn.distributions.dispatch import is_host
from ddpn.distributions.double_poisson import likelihood
from ddpn.distributions.double_poisson.mode import most_probable_count
from ddpn.distributions.double_poisson.moments import parameters_of_moments
from ddpn.distributions.double_poisson.normalizer import mean_variance
from ddpn.distributions.double_poisson.rows import DoublePoissonRows
from ddpn.distributions.keeping import kept
from ddpn.distributions.parametric import ParametricDistribution

_REMEDY = "Emit its logarithm and exponentiate, or clamp it."


class DoublePoisson(ParametricDistribution):
    r"""Double Poisson with location mu and inverse dispersion gamma.

    p(y) = sqrt(gamma) / c(mu, gamma) * (e^-y y^y / y!) * exp(-gamma (mu - y + y log(y / mu)))   (Eq. 1)

    gamma > 1 is under-, gamma < 1 over-dispersed, gamma = 1 is Poisson(mu). The mean is close to mu and the variance to
    mu / gamma where gamma mu is large; `mean` and `variance` are exact everywhere.

    Shape: mu and gamma broadcast to `batch_shape`. Computation is in float64, results come in the parameters' dtype.

    Parameters
    ----------
    mu : Tensor or float
        Location, positive.
    gamma : Tensor or float
        Inverse dispersion, positive.
    validate_args : bool, optional
        Whether values are checked. Default: only on a CPU.

    Examples
    --------
    >>> dist = DoublePoisson(mu=5.0, gamma=2.0)
    >>> round(dist.mean.item(), 4), round(dist.variance.item(), 4), dist.mode.item()
    (5.0054, 2.4962, 5.0)
    """

    arg_constraints = {"mu": constraints.positive, "gamma": constraints.positive}
    _names = ("mu", "gamma")
    _rows = DoublePoissonRows

    def __init__(self, mu: Tensor | float, gamma: Tensor | float, validate_args: bool | None = None) -> None:
        self.mu, self.gamma = as_parameters(mu=mu, gamma=gamma)
        if is_checked(validate_args, self.mu):
            check_positive("mu", self.mu, _REMEDY)
            check_positive("gamma", self.gamma, _REMEDY)
        super().__init__(self.mu.shape, validate_args)

    @classmethod
    def from_moments(cls, mean: Tensor | float, variance: Tensor | float) -> "DoublePoisson":
        """Make the Double Poisson with exactly this mean and variance.

        Parameters
        ----------
        mean : Tensor or float
            The mean, positive.
        variance : Tensor or float
            The variance, within the limits that `variance_limits` returns.

        Raises
        ------
        InputError
            Where no Double Poisson has these moments.

        Examples
        --------
        >>> dist = DoublePoisson.from_moments(mean=10.0, variance=2.5)
        >>> round(dist.mean.item(), 4), round(dist.variance.item(), 4)
        (10.0, 2.5)
        """
        return cls(*parameters_of_moments(*as_parameters(mean=mean, variance=variance)))

    def log_prob(self, value: Tensor) -> Tensor:
        """Logarithm of the probability of counts, normalised; differentiable twice in mu and gamma.

        Parameters
        ----------
        value : Tensor
            Counts y; their shape broadcasts with `batch_shape`.
        """
        y = self._counts(value)
        shape = broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        y, mu, gamma = (x.expand(shape).reshape(-1).double() for x in (y, self.mu, self.gamma))
        return self._shaped(likelihood.log_prob(y, mu, gamma), shape)

    def log_normalizer(self) -> Tensor:
        """Logarithm of the normalising constant c(mu, gamma), differentiable twice."""
        return self._shaped(likelihood.log_normalizer_and_moments(*_flat(self))[0])

    def _with_gradients(self, shape: torch.Size) -> DoublePoissonRows:
        mu, gamma = (x.expand(shape).reshape(-1).double() for x in (self.mu, self.gamma))
        log_c, mean, _ = likelihood.log_normalizer_and_moments(mu, gamma)
        return DoublePoissonRows(mu, gamma, known=(0.5 * gamma.log() - log_c, mean))

    @kept
    def _constant_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance without gradients."""
        with torch.inference_mode(False), torch.no_grad():
            mean, variance = mean_variance(*_flat(self))
        return self._shaped(mean), self._shaped(variance)

    @property
    def _has_gradient(self) -> bool:
        return torch.is_grad_enabled() and (self.mu.requires_grad or self.gamma.requires_grad)

    @property
    def _is_constant(self) -> bool:
        """Whether moments can be kept: ordinary tensors on a CPU that no gradient is asked for."""
        plain = torch._C._functorch.peek_interpreter_stack() is None
        return plain and not self._has_gradient and is_host(self.mu)

    @property
    def mean(self) -> Tensor:
        """Exact mean E[Z], differentiable."""
        if self._is_constant:
            return self._constant_moments[0]
        return self._shaped(likelihood.log_normalizer_and_moments(*_flat(self))[1])

    @property
    def variance(self) -> Tensor:
        """Exact variance Var[Z], differentiable."""
        if self._is_constant:
            return self._constant_moments[1]
        if self.mu.is_cuda and not self._has_gradient:
            with torch.no_grad():
                return self._shaped(mean_variance(*_flat(self))[1])
        return self._shaped(likelihood.variance(*_flat(self)))

    @property
    def efron_mean(self) -> Tensor:
        """Efron's approximation of the mean, which is mu."""
        return self.mu

    @property
    def efron_variance(self) -> Tensor:
        """Efron's approximation of the variance, which is mu / gamma."""
        return self.mu / self.gamma

    @property
    def mode(self) -> Tensor:
        """The most probable count, the smaller of two."""
        with torch.no_grad():
            return self._shaped(most_probable_count(*_flat(self)))


def _flat(dist: Any) -> tuple[Tensor, Tensor]:
    """mu and gamma, which is 1 for a Poisson, as float64 vectors, with their gradients."""
    mu = dist.mu.reshape(-1).double()
    return mu, dist.gamma.reshape(-1).double() if isinstance(dist, DoublePoisson) else torch.ones_like(mu)


@register_kl(DoublePoisson, DoublePoisson)
def kl_divergence(p: Any, q: Any) -> Tensor:
    """KL(p || q), also where one is a Poisson.

    The exponential family's closed form: E_p of the log ratio, linear in E[Z] and E[Z log Z] under p.
    KL = log c_q - log c_p + log(gamma_p / gamma_q) / 2 + gamma_q E[D(Z; mu_q)] - gamma_p E[D(Z; mu_p)],
    with D(Z; mu_q) = D(Z; mu_p) + mu_q - mu_p - Z log(mu_q / mu_p).
    """
    shape = broadcast_shapes(p=tuple(p.batch_shape), q=tuple(q.batch_shape))
    (mu_p, gamma_p), (mu_q, gamma_q) = _flat(p.expand(shape)), _flat(q.expand(shape))
    log_c_p, mean, deviance_p = likelihood.log_normalizer_and_moments(mu_p, gamma_p)
    log_c_q, _, _ = likelihood.log_normalizer_and_moments(mu_q, gamma_q)
    deviance_q = deviance_p + (mu_q - mu_p) - mean * torch.log(mu_q / mu_p)
    value = log_c_q - log_c_p + 0.5 * torch.log(gamma_p / gamma_q) + gamma_q * deviance_q - gamma_p * deviance_p
    return value.clamp(min=0.0).reshape(shape).to(torch.promote_types(p._dtype, q._dtype))


def mean_deviation(mean: Tensor | float, variance: Tensor | float) -> Tensor:
    """Error of Efron's approximation of the mean, epsilon_1 of Proposition A.2.

    |E[Z] - mean| for Z ~ DP(mean, mean / variance), Efron's choice of parameters.

    Parameters
    ----------
    mean, variance : Tensor or float
        The moments that are asked for, positive.

    Examples
    --------
    >>> round(mean_deviation(10.0, 5.0).item(), 4)
    0.0023
    """
    mean, variance = as_parameters(mean=mean, variance=variance)
    return (DoublePoisson(mean, mean / variance).mean - mean).abs()


def variance_deviation(mean: Tensor | float, variance: Tensor | float) -> Tensor:
    """Error of Efron's approximation of the variance, epsilon_2 of Proposition A.2.

    |Var[Z] - variance| for Z ~ DP(mean, mean / variance).

    Parameters
    ----------
    mean, variance : Tensor or float
        The moments that are asked for, positive.
    """
    mean, variance = as_parameters(mean=mean, variance=variance)
    return (DoublePoisson(mean, mean / variance).variance - variance).abs()
