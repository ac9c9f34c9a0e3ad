"""The Double Poisson law of Efron (1986), exact: normalised for any mean and any dispersion."""

from typing import Any, Self

import torch
from torch import Tensor
from torch.distributions import constraints, register_kl

from ddpn.distributions import grid, likelihood, normalizer, series
from ddpn.distributions.arguments import as_parameters, broadcast_shapes, check_positive, is_checked
from ddpn.distributions.count import CountDistribution
from ddpn.distributions.cuts import Cut
from ddpn.distributions.dispatch import Case, by_case
from ddpn.distributions.grid import spread_breaks
from ddpn.distributions.modes import double_poisson_mode
from ddpn.distributions.moment_matching import parameters_of_moments
from ddpn.distributions.quadrature import PREFIX
from ddpn.distributions.tails import cut_at, far_distance, sides_of
from ddpn.distributions.weights import deviance, log_h, log_h_of_count, log_weight_table, lower_end, upper_end

#: Panels over a whole window: each about 2.7 standard deviations wide.
_PANELS = 6
#: Nodes of one panel that holds a whole law but its first integers, as in `normalizer`.
_WHOLE_NODES = 40
_REMEDY = "Emit its logarithm and exponentiate, or clamp it."


class DoublePoisson(CountDistribution):
    r"""Double Poisson with location mu and inverse dispersion gamma.

    p(y) = sqrt(gamma) / c(mu, gamma) * (e^-y y^y / y!) * exp(-gamma (mu - y + y log(y / mu)))   (Eq. 1)

    gamma > 1 is under-, gamma < 1 over-dispersed, gamma = 1 is Poisson(mu). The mean is close to mu and the variance to
    mu / gamma where gamma mu is large; `mean` and `variance` are exact everywhere.

    Shape: mu and gamma broadcast to `batch_shape`. Computation is in float64, results come in the parameters' dtype.

    >>> law = DoublePoisson(mu=5.0, gamma=2.0)
    >>> round(law.mean.item(), 4), round(law.variance.item(), 4), law.mode.item()
    (5.0054, 2.4962, 5.0)
    """

    arg_constraints = {"mu": constraints.positive, "gamma": constraints.positive}
    _known: tuple[Tensor, ...] = ()
    # Clear of 0, sums over the integers equal integrals once the standard deviation is above 1.2 (`series`).
    _short = 32

    def __init__(self, mu: Tensor | float, gamma: Tensor | float, validate_args: bool | None = None) -> None:
        self.mu, self.gamma = as_parameters(mu=mu, gamma=gamma)
        if is_checked(validate_args, self.mu):
            check_positive("mu", self.mu, _REMEDY)
            check_positive("gamma", self.gamma, _REMEDY)
        super().__init__(self.mu.shape, validate_args)

    @classmethod
    def from_moments(cls, mean: Tensor | float, variance: Tensor | float) -> "DoublePoisson":
        """The law with exactly this mean and variance; an error where no Double Poisson has them.

        >>> law = DoublePoisson.from_moments(mean=10.0, variance=2.5)
        >>> round(law.mean.item(), 4), round(law.variance.item(), 4)
        (10.0, 2.5)
        """
        return cls(*parameters_of_moments(*as_parameters(mean=mean, variance=variance)))

    def expand(self, batch_shape: Any, _instance: Any = None) -> "DoublePoisson":
        new = self._get_checked_instance(DoublePoisson, _instance)
        shape = torch.Size(batch_shape)
        new.mu, new.gamma = self.mu.expand(shape), self.gamma.expand(shape)
        CountDistribution.__init__(new, shape, self._check)
        return new

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(y), normalised; differentiable twice in mu and gamma."""
        y = self._counts(value)
        shape = broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        y, mu, gamma = (x.expand(shape).reshape(-1).double() for x in (y, self.mu, self.gamma))
        return likelihood.log_prob(y, mu, gamma).reshape(shape).to(self._dtype)

    def log_normalizer(self) -> Tensor:
        """log c(mu, gamma), differentiable twice."""
        return self._shaped(likelihood.log_normalizer_and_moments(*self._tensors()[:2])[0])

    @property
    def mean(self) -> Tensor:
        """Exact E[Z], differentiable."""
        return self._shaped(likelihood.log_normalizer_and_moments(*self._tensors()[:2])[1])

    @property
    def variance(self) -> Tensor:
        """Exact Var[Z], differentiable."""
        return self._shaped(likelihood.variance(*self._tensors()[:2]))

    @property
    def efron_mean(self) -> Tensor:
        """Efron's approximation of the mean: mu."""
        return self.mu

    @property
    def efron_variance(self) -> Tensor:
        """Efron's approximation of the variance: mu / gamma."""
        return self.mu / self.gamma

    @property
    def mode(self) -> Tensor:
        """The most probable count, the smaller of two."""
        with torch.no_grad():
            return self._shaped(double_poisson_mode(*self._tensors()[:2]))

    def _shaped(self, flat: Tensor) -> Tensor:
        return flat.reshape(self.batch_shape).to(self._dtype)

    @property
    def _dtype(self) -> torch.dtype:
        return self.mu.dtype

    @property
    def _device(self) -> torch.device:
        return self.mu.device

    def _tensors(self) -> tuple[Tensor, ...]:
        return self.mu.reshape(-1).double(), self.gamma.reshape(-1).double(), *self._known

    def _of(self, tensors: tuple[Tensor, ...]) -> Self:
        mu, gamma, *known = tensors
        rows = type(self)(mu, gamma, validate_args=False)
        rows._known = tuple(known)
        return rows

    def _prepared(self, far: bool = False) -> Self:
        """With log c and the mean kept beside the parameters, for laws that are looked at more than once."""
        mu, gamma, *known = self._tensors()
        return self if known else self._of((mu, gamma, *normalizer.first_moments(mu, gamma, far)[:2]))

    def _offset(self) -> Tensor:
        """log(sqrt(gamma) / c)."""
        log_c = self._known[0] if self._known else normalizer.first_moments(self.mu, self.gamma)[0]
        return 0.5 * self.gamma.log() - log_c

    def _smooth_log_weight(self, y: Tensor) -> Tensor:
        return torch.addcmul(log_h(y), self.gamma.unsqueeze(1), deviance(y, self.mu.unsqueeze(1)), value=-1.0)

    def _log_pmf(self, y: Tensor) -> Tensor:
        mu, gamma, offset = (x.view(-1, *[1] * (y.dim() - 1)) for x in (self.mu, self.gamma, self._offset()))
        return log_h_of_count(y) - gamma * deviance(y, mu) + offset

    def _smooth_log_pmf(self, y: Tensor) -> Tensor:
        return self._smooth_log_weight(y).add_(self._offset().unsqueeze(1))

    def _pmf_near(self, y: Tensor) -> Tensor:
        return self._smooth_log_weight(y).softmax(1)

    def _pmf_table(self, n: int) -> Tensor:
        return log_weight_table(self.mu, self.gamma, n).softmax(1)

    def _pmf_prefix(self) -> Tensor:
        offset = self._offset() - self.gamma * self.mu
        return log_weight_table(self.mu, self.gamma, PREFIX).add_(offset.unsqueeze(1)).exp_()

    def _mean_variance(self) -> tuple[Tensor, Tensor]:
        found = normalizer.moments(self.mu, self.gamma)
        return found.mean, found.variance

    def _window(self, depth: float | Tensor = normalizer.DEPTH) -> tuple[Tensor, Tensor]:
        return lower_end(self.mu, self.gamma, depth), upper_end(self.mu, self.gamma, depth)

    def _spread(self, first: Tensor, last: Tensor) -> Tensor:
        return spread_breaks(first, last, _PANELS)

    def _cut(self, y: Tensor) -> Cut:
        return cut_at(y, *self._tensors())

    def _sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return sides_of(y, *self._tensors())

    def _far_distance(self, y: Tensor) -> Tensor:
        return far_distance(y, *self._tensors())

    def _half_mean_difference(self) -> Tensor:
        by_series = self.gamma * self.mu >= series.MIN_K

        def expanded(*tensors: Tensor) -> tuple[Tensor]:
            return (series.half_mean_difference(tensors[0], tensors[1]),)

        def summed(*tensors: Tensor) -> tuple[Tensor]:
            rows = self._of(tensors)
            # These laws reach 0, and are smooth enough for one panel beyond the first integers.
            ends = torch.stack(rows._window(), dim=1)
            return (grid.half_mean_difference(grid.panels(rows, ends, _WHOLE_NODES)),)

        found = [Case(by_series, expanded, 20), Case(~by_series, summed, PREFIX + _WHOLE_NODES)]
        return by_case(found, *self._tensors())[0]


@register_kl(DoublePoisson, DoublePoisson)
def _kl_double_poisson(p: DoublePoisson, q: DoublePoisson) -> Tensor:
    """The exponential family's closed form: E_p of the log ratio, linear in E[Z] and E[Z log Z] under p.

    KL = log c_q - log c_p + log(gamma_p / gamma_q) / 2 + gamma_q E[D(Z; mu_q)] - gamma_p E[D(Z; mu_p)],
    with D(Z; mu_q) = D(Z; mu_p) + mu_q - mu_p - Z log(mu_q / mu_p).
    """
    shape = broadcast_shapes(p=tuple(p.batch_shape), q=tuple(q.batch_shape))
    p_rows, q_rows = p.expand(shape)._tensors()[:2], q.expand(shape)._tensors()[:2]
    log_c_p, mean, deviance_p = likelihood.log_normalizer_and_moments(*p_rows)
    log_c_q, _, _ = likelihood.log_normalizer_and_moments(*q_rows)
    (mu_p, gamma_p), (mu_q, gamma_q) = p_rows, q_rows
    deviance_q = deviance_p + (mu_q - mu_p) - mean * torch.log(mu_q / mu_p)
    value = log_c_q - log_c_p + 0.5 * torch.log(gamma_p / gamma_q) + gamma_q * deviance_q - gamma_p * deviance_p
    return value.clamp(min=0.0).reshape(shape).to(torch.promote_types(p._dtype, q._dtype))
