"""The Double Binomial distribution of Efron (1986): counts k of a known total n, exactly normalised."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions.arguments import as_parameters, broadcast_shapes, check_positive, check_totals, is_checked
from ddpn.distributions.binomial_sums import deviance, log_base, log_total_and_moments, second_moments, window
from ddpn.distributions.dispatch import take
from ddpn.distributions.gradients import without_gradient
from ddpn.distributions.parametric import ParametricDistribution
from ddpn.distributions.rows import DEPTH
from ddpn.distributions.special import beside
from ddpn.distributions.tables import Table, TabulatedRows, both_tails, by_window
from ddpn.errors import InputError

#: Tables go this deep below the peak, so that tails down to e^-60 are right relatively.
_DEEPEST = 3.0 * DEPTH


class DoubleBinomialRows(TabulatedRows):
    """Rows of mu, gamma and the total; `log_total` is the normaliser, where it is known already."""

    def __init__(self, mu: Tensor, gamma: Tensor, total: Tensor, log_total: Tensor | None = None) -> None:
        self.mu, self.gamma, self.total = mu, gamma, total
        self._known = log_total

    def __len__(self) -> int:
        return len(self.mu)

    @property
    def device(self) -> torch.device:
        return self.mu.device

    def rows(self, index: Tensor | slice) -> "DoubleBinomialRows":
        return DoubleBinomialRows(*(take(x, index) for x in (self.mu, self.gamma, self.total, self._log_total)))

    @cached_property
    def _log_total(self) -> Tensor:
        if self._known is not None:
            return self._known
        return log_total_and_moments(self.mu, self.gamma, self.total)[0]

    def log_pmf(self, y: Tensor) -> Tensor:
        mu, gamma, total, log_total = (beside(x, y) for x in (self.mu, self.gamma, self.total, self._log_total))
        k = torch.minimum(y, total)
        value = log_base(k, total) - gamma * deviance(k, mu, total) - log_total
        return torch.where(y <= total, value, -torch.inf)

    def window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        deepest = depth.clamp(min=_DEEPEST) if isinstance(depth, Tensor) else max(depth, _DEEPEST)
        return window(self.mu, self.gamma, self.total, deepest)

    def mean_variance(self) -> tuple[Tensor, Tensor]:
        mean = log_total_and_moments(self.mu, self.gamma, self.total)[1]
        return mean, second_moments(self.mu, self.gamma, self.total)[0]

    def sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        cdf, survival = by_window(self, _sides, None, y)
        return cdf, survival

    def quantile(self, q: Tensor) -> Tensor:
        """The smallest count y with P(K <= y) >= q, by the same sums as `sides`: it undoes a cdf."""
        return by_window(self, _quantile, None, q)[0]


def _both(at: Table) -> tuple[Tensor, Tensor]:
    """P(K <= y) and P(K > y) at each integer, the larger as 1 minus the smaller."""
    cdf, survival = both_tails(at.pmf)
    total = cdf[:, -1:]
    cdf, survival = cdf / total, survival / total
    lower = cdf < 0.5
    return torch.where(lower, cdf, 1.0 - survival), torch.where(lower, 1.0 - cdf, survival)


def _sides(at: Table, y: Tensor) -> tuple[Tensor, Tensor]:
    index = (y - at.y[:, 0]).clamp(-1.0, at.y.shape[1] - 1.0).long().unsqueeze(1)
    cdf, survival = (x.gather(1, index.clamp(min=0)).squeeze(1) for x in _both(at))
    below = index.squeeze(1) < 0
    return torch.where(below, 0.0, cdf), torch.where(below, 1.0, survival)


def _quantile(at: Table, q: Tensor) -> tuple[Tensor]:
    place = torch.searchsorted(_both(at)[0].contiguous(), q.unsqueeze(1)).clamp(max=at.y.shape[1] - 1)
    return (at.y.gather(1, place).squeeze(1),)


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
        Whether values are checked. Default: only on a CPU.

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
    _names = ("mu", "gamma", "total")
    _rows = DoubleBinomialRows

    def __init__(
        self,
        total: Tensor | float,
        mu: Tensor | float,
        gamma: Tensor | float,
        validate_args: bool | None = None,
    ) -> None:
        self.total, self.mu, self.gamma = as_parameters(total=total, mu=mu, gamma=gamma)
        if is_checked(validate_args, self.mu):
            check_totals("total", self.total)
            remedy = "Emit its logarithm and exponentiate, or clamp it."
            check_positive("mu", self.mu, remedy)
            check_positive("gamma", self.gamma, remedy)
            if len(bad := (self.mu >= self.total).nonzero()):
                at = tuple(bad[0].tolist())
                got = f"{self.mu[at].item():g} of {self.total[at].item():g}"
                raise InputError(f"mu must be below the total, got {got} at {at[0] if len(at) == 1 else at}.")
        super().__init__(self.mu.shape, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        """The integers 0..total."""
        return constraints.integer_interval(0, self.total)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(k), minus infinity above the total; differentiable twice in mu and gamma."""
        y = self._counts(value)
        shape = broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        y, mu, gamma, total = (x.expand(shape).reshape(-1).double() for x in (y, self.mu, self.gamma, self.total))
        k = torch.minimum(y, total)
        log_total = log_total_and_moments(mu, gamma, total)[0]
        # A probability: rounding in the normaliser must not lift it above 1.
        value = (log_base(k, total) - gamma * deviance(k, mu, total) - log_total).clamp(max=0.0)
        return self._shaped(torch.where(y <= total, value, -torch.inf), shape)

    @property
    def mean(self) -> Tensor:
        """Exact E[K], differentiable."""
        flat = (x.reshape(-1).double() for x in (self.mu, self.gamma, self.total))
        return self._shaped(log_total_and_moments(*flat)[1])

    @property
    @without_gradient
    def variance(self) -> Tensor:
        """Exact Var[K]."""
        return self._shaped(self._flat().mean_variance()[1])

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """First and last integer of a window outside of which about e^-depth of the mass lies, within 0..total."""
        first, last = super().bracket(depth)
        return first, torch.minimum(last, self.total)

    def icdf(self, value: Tensor) -> Tensor:
        """The smallest count y with P(K <= y) >= q; the total at q = 1."""
        return torch.minimum(super().icdf(value), self.total)
