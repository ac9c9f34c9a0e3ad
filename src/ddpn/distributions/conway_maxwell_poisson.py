"""The Conway-Maxwell-Poisson distribution by its mean and dispersion, as in Huang (2017)."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import conway_maxwell_sums as sums
from ddpn.distributions.arguments import as_parameters, broadcast_shapes, check_positive, is_checked
from ddpn.distributions.dispatch import take
from ddpn.distributions.double_poisson import weights
from ddpn.distributions.gradients import RowWise, barrier, without_gradient
from ddpn.distributions.parametric import ParametricDistribution
from ddpn.distributions.rows import DEPTH
from ddpn.distributions.special import beside
from ddpn.distributions.tails import ParameterRows
from ddpn.errors import InputError

#: nu is at most so many times the mean, or 1: beyond, nearly all mass is on one count and the mean fixes no rate.
NARROWEST = 20.0


class _LogProb(RowWise):
    """log p(y) and its scores, (y - mu) / Var[Y] and R(y) - E[R] - (y - mu) Cov[Y, R] / Var[Y]."""

    @staticmethod
    def forward(y: Tensor, mu: Tensor, nu: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        solved = sums.solve(mu, nu)
        at = sums.kernel(y, solved.log_m, weights.log_h_of_count(y))
        # A probability: rounding in the normaliser must not lift it above 1.
        value = (nu * at - solved.log_total).clamp(max=0.0)
        return value, *_scores(y, mu, at, solved.kernel, solved.variance, solved.covariance)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs, *output[1:])
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *others: Tensor) -> Any:
        y, mu, nu, by_mu, by_nu = ctx.saved_tensors
        if grad is None:
            return None, None, None
        if torch.is_grad_enabled():  # second derivatives are wanted
            log_m, kernel, variance, covariance = _Moments.apply(mu, nu)
            at = sums.kernel(y, log_m, weights.log_h_of_count(y))
            by_mu, by_nu = _scores(y, mu, at, kernel, variance, covariance)
        return None, grad * by_mu, grad * by_nu


def _scores(
    y: Tensor, mu: Tensor, at: Tensor, kernel: Tensor, variance: Tensor, covariance: Tensor
) -> tuple[Tensor, Tensor]:
    by_mu = (y - mu) / variance
    return by_mu, at - kernel - by_mu * covariance


class _Moments(RowWise):
    """log m, E[R], Var[Y] and Cov[Y, R] as functions of the mean and nu, differentiable once."""

    @staticmethod
    def forward(mu: Tensor, nu: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        log_m, _, kernel, variance, covariance = sums.solve(mu, nu)
        return log_m, kernel, variance, covariance

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        mu, nu, log_m, _, variance, covariance = ctx.saved_tensors
        with torch.no_grad():
            kernel_variance, cubed, squared_kernel, kernel_squared = _Third.apply(log_m, nu)
            by_rate = (
                grads[0]
                + grads[1] * (mu - log_m.exp() + nu * covariance)
                + grads[2] * nu * cubed
                + grads[3] * (variance + nu * squared_kernel)
            )
            direct = grads[1] * kernel_variance + grads[2] * squared_kernel + grads[3] * kernel_squared
            by_mu = by_rate / (nu * variance)
            by_nu = direct - by_mu * covariance
        name = "the second derivative of a Conway-Maxwell-Poisson's moments"
        return barrier(name, by_mu, mu, nu, *grads), barrier(name, by_nu, mu, nu, *grads)


class _Third(RowWise):
    """`third_moments`, without derivatives."""

    @staticmethod
    def forward(log_m: Tensor, nu: Tensor) -> Any:
        return sums.third_moments(log_m, nu)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output)


class ConwayMaxwellPoissonRows(ParameterRows):
    """Rows of the mean and nu; what `solve` finds goes along with them."""

    def __init__(self, mu: Tensor, nu: Tensor, known: tuple[Tensor, ...] = ()) -> None:
        super().__init__(mu, nu, known=known)
        self.mu, self.nu = mu, nu

    @cached_property
    def _solved(self) -> sums.Solved:
        return sums.Solved(*self.known) if self.known else sums.solve(self.mu, self.nu)

    def rows(self, index: Tensor | slice) -> Any:
        mu, nu, *known = (take(x, index) for x in (self.mu, self.nu, *self._solved))
        return ConwayMaxwellPoissonRows(mu, nu, known=tuple(known))

    def _log_pmf(self, y: Tensor, log_h: Tensor) -> Tensor:
        nu, log_m, log_total = (beside(x, y) for x in (self.nu, self._solved.log_m, self._solved.log_total))
        return nu * sums.kernel(y, log_m, log_h) - log_total

    def log_pmf(self, y: Tensor) -> Tensor:
        return self._log_pmf(y, weights.log_h_of_count(y))

    def smooth_log_pmf(self, y: Tensor) -> Tensor:
        return self._log_pmf(y, weights.log_h(y))

    def mean(self) -> Tensor:
        return self.mu

    def mean_variance(self) -> tuple[Tensor, Tensor]:
        return self.mu, self._solved.variance

    def window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        return sums.window(self._solved.log_m, self.nu, depth)

    def _deeper(self, y: Tensor, lower: Tensor) -> Tensor:
        """DEPTH, and how deep y is already on its side."""
        m = self._solved.log_m.exp()
        depth = -self.nu * (sums.kernel(y, self._solved.log_m, weights.log_h_of_count(y)) - weights.log_h_of_count(y))
        return DEPTH + torch.where(torch.where(lower, y < m, y > m), depth, 0.0)

    def tail_end(self, y: Tensor, lower: Tensor) -> Tensor:
        first, last = self.window(self._deeper(y, lower))
        return torch.where(lower, first, last)

    def table_end(self, y: Tensor) -> Tensor:
        return self.window(self._deeper(y, torch.zeros_like(y, dtype=torch.bool)))[1]


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
    _names = ("mu", "nu")
    _rows = ConwayMaxwellPoissonRows

    def __init__(self, mu: Tensor | float, nu: Tensor | float, validate_args: bool | None = None) -> None:
        self.mu, self.nu = as_parameters(mu=mu, nu=nu)
        if is_checked(validate_args, self.mu):
            check_positive("mu", self.mu, "Emit its logarithm and exponentiate, or clamp it.")
            check_positive("nu", self.nu, "Emit its logarithm and exponentiate, or clamp it.")
            if (bad := self.nu > NARROWEST * self.mu.clamp(min=1.0)).any():
                got = f"{self.nu[bad][0].item():g} for a mean of {self.mu[bad][0].item():g}"
                raise InputError(f"nu must be at most {NARROWEST:g} times the mean, or {NARROWEST:g}, got {got}.")
        super().__init__(self.mu.shape, validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(y), normalised; differentiable twice in mu and nu."""
        y = self._counts(value)
        shape = broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        y, mu, nu = (x.expand(shape).reshape(-1).double() for x in (y, self.mu, self.nu))
        return self._shaped(_LogProb.apply(y, mu, nu)[0], shape)

    @property
    def mean(self) -> Tensor:
        """mu."""
        return self.mu

    @property
    @without_gradient
    def variance(self) -> Tensor:
        """Exact Var[Y]."""
        return self._shaped(self._flat().mean_variance()[1])
