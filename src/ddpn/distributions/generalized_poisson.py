"""The Generalised Poisson distribution of Consul and Jain (1973), over-dispersed, by its mean and dispersion."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions.arguments import as_parameters, broadcast_shapes, check_positive, is_checked
from ddpn.distributions.double_poisson import weights
from ddpn.distributions.parametric import ParametricDistribution
from ddpn.distributions.quadrature import JOIN
from ddpn.distributions.rows import DEPTH
from ddpn.distributions.special import beside
from ddpn.distributions.tails import ParameterRows

#: Newton steps to the ends of windows and tails, from outside.
_STEPS = 4
#: Points in each of two scales from which the breaks of a quadrature are interpolated.
_GRID = 40


def _rate(y: Tensor, mu: Tensor, alpha: Tensor) -> Tensor:
    """m(y) = theta + lambda y, with theta = mu / (1 + alpha) and lambda = alpha / (1 + alpha)."""
    return (mu + alpha * y) / (1.0 + alpha)


def _log_weight(y: Tensor, mu: Tensor, alpha: Tensor) -> Tensor:
    """log p(y) - log h(y), with h(y) = e^-y y^y / y!: log(theta / m) - D(y; m), D half the Poisson deviance."""
    return -torch.log1p(alpha * y / mu) - weights.deviance(y, _rate(y, mu, alpha))


class GeneralizedPoissonRows(ParameterRows):
    """Rows of mu and alpha. The depth d(y) = D(y; m(y)) is 0 at mu and convex: d'' = mu^2 / (y (mu + alpha y)^2)."""

    panels = 16
    tail_nodes = 8 * panels + 8

    def __init__(self, mu: Tensor, alpha: Tensor, known: tuple[Tensor, ...] = ()) -> None:
        super().__init__(mu, alpha)
        self.mu, self.alpha = mu, alpha

    def log_pmf(self, y: Tensor) -> Tensor:
        return weights.log_h_of_count(y) + _log_weight(y, beside(self.mu, y), beside(self.alpha, y))

    def smooth_log_pmf(self, y: Tensor) -> Tensor:
        return weights.log_h(y) + _log_weight(y, beside(self.mu, y), beside(self.alpha, y))

    def mean(self) -> Tensor:
        return self.mu

    def mean_variance(self) -> tuple[Tensor, Tensor]:
        return self.mu, self.mu * (1.0 + self.alpha).square()

    def _depth(self, y: Tensor) -> Tensor:
        mu, alpha = beside(self.mu, y), beside(self.alpha, y)
        return weights.deviance(y, _rate(y, mu, alpha))

    def _refined(self, y: Tensor, depth: Tensor | float, side: float | Tensor) -> Tensor:
        """Newton's method from a position that is too deep: d is convex, so every iterate is."""
        rate = _rate(y, self.mu, self.alpha)
        share = self.alpha / (1.0 + self.alpha)
        for _ in range(_STEPS):
            ratio = (y / rate).clamp(min=1e-300)
            slope = share * (1.0 - ratio) + ratio.log()
            y = y - side * (weights.deviance(y, rate) - depth).clamp(min=0.0) / (side * slope).clamp(min=1e-300)
            rate = _rate(y, self.mu, self.alpha)
        return y.clamp(min=0.0)

    def _upper_end(self, depth: Tensor | float) -> Tensor:
        """From d(y) >= (y - mu)^2 / (2 (1 + alpha)^2 y) above the mean, whose second derivative is smaller."""
        q = (1.0 + self.alpha).square() * depth
        return self._refined(self.mu + q + (q * (q + 2.0 * self.mu)).sqrt(), depth, 1.0)

    def _lower_end(self, depth: Tensor | float) -> Tensor:
        """From d(y) >= (sqrt(y) - sqrt(mu))^2 / (1 + alpha)^2 below the mean."""
        reach = (1.0 + self.alpha) * torch.as_tensor(depth, dtype=self.mu.dtype, device=self.device).sqrt()
        return self._refined((self.mu.sqrt() - reach).clamp(min=0.0).square(), depth, -1.0)

    def window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        return self._lower_end(depth), self._upper_end(depth)

    def tail_end(self, y: Tensor, lower: Tensor) -> Tensor:
        beyond = torch.where(lower, y < self.mu, y > self.mu)
        depth = DEPTH + torch.where(beyond, self._depth(y), 0.0)
        return torch.where(lower, self._lower_end(depth), self._upper_end(depth))

    def table_end(self, y: Tensor) -> Tensor:
        return self._upper_end(DEPTH + torch.where(y > self.mu, self._depth(y), 0.0))

    def spread(self, first: Tensor, last: Tensor) -> Tensor:
        """Breaks evenly spaced in sqrt(2 d), signed, plus log y: far below large means p falls like y^-3/2."""
        low = first.clamp(min=JOIN - 0.5)
        high = torch.maximum(last, low + 1e-6)
        share = torch.linspace(0.0, 1.0, _GRID, dtype=low.dtype, device=low.device)
        even, steep = (x.unsqueeze(1) for x in (low.sqrt(), low.log()))
        by_root = torch.lerp(even.expand(-1, _GRID), high.sqrt().unsqueeze(1), share).square()
        by_log = torch.lerp(steep.expand(-1, _GRID), high.log().unsqueeze(1), share).exp()
        y = torch.cat([by_root, by_log], dim=1).sort(dim=1).values
        scale = torch.sign(y - self.mu.unsqueeze(1)) * (2.0 * self._depth(y)).clamp(min=0.0).sqrt() + y.log()
        scale = torch.cummax(scale, dim=1).values
        ends = torch.linspace(0.0, 1.0, self.panels + 1, dtype=low.dtype, device=low.device)
        levels = torch.lerp(scale[:, :1].expand(-1, self.panels + 1), scale[:, -1:], ends)
        inner = _interpolated(scale, y, levels)[:, 1:-1]
        return torch.cat([torch.where(first < JOIN, first, low).unsqueeze(1), inner, high.unsqueeze(1)], dim=1)


def _interpolated(x: Tensor, y: Tensor, at: Tensor) -> Tensor:
    """y at the positions `at` of increasing x, linearly. Shape: (rows, n), (rows, n), (rows, k) -> (rows, k)."""
    right = torch.searchsorted(x.contiguous(), at.contiguous()).clamp(1, x.shape[1] - 1)
    low, high = x.gather(1, right - 1), x.gather(1, right)
    share = ((at - low) / (high - low).clamp(min=1e-300)).clamp(0.0, 1.0)
    return torch.lerp(y.gather(1, right - 1), y.gather(1, right), share)


class GeneralizedPoisson(ParametricDistribution):
    r"""Generalised Poisson with mean mu and variance mu (1 + alpha)^2.

    p(y) = theta (theta + lambda y)^(y - 1) exp(-theta - lambda y) / y! with theta = mu / (1 + alpha) and
    lambda = alpha / (1 + alpha). This is statsmodels' `GeneralizedPoisson` with p = 1 (GP-1); its p = 2 (GP-2) has
    alpha mu for alpha.

    Only alpha > 0, over-dispersion: with alpha < 0 the formula does not sum to 1 unless it is cut off and rescaled.
    Use `DoublePoisson` for under-dispersed counts and `Poisson` for alpha = 0.

    Parameters
    ----------
    mu : Tensor or float
        Mean, positive.
    alpha : Tensor or float
        Dispersion, positive.
    validate_args : bool, optional
        Whether values are checked. Default: only on a CPU.

    Examples
    --------
    >>> dist = GeneralizedPoisson(mu=10.0, alpha=0.5)
    >>> dist.variance.item(), dist.icdf(torch.tensor(0.5)).item()
    (22.5, 9.0)
    """

    arg_constraints = {"mu": constraints.positive, "alpha": constraints.positive}
    _names = ("mu", "alpha")
    _rows = GeneralizedPoissonRows

    def __init__(self, mu: Tensor | float, alpha: Tensor | float, validate_args: bool | None = None) -> None:
        self.mu, self.alpha = as_parameters(mu=mu, alpha=alpha)
        if is_checked(validate_args, self.mu):
            check_positive("mu", self.mu, "Emit its logarithm and exponentiate, or clamp it.")
            check_positive("alpha", self.alpha, "Use Poisson for alpha = 0, DoublePoisson for under-dispersed counts.")
        super().__init__(self.mu.shape, validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(y), differentiable."""
        y: Any = self._counts(value).double()
        broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        mu, alpha = self.mu.double(), self.alpha.double()
        return (weights.log_h_of_count(y) + _log_weight(y, mu, alpha)).to(self._dtype)

    @property
    def mean(self) -> Tensor:
        """mu."""
        return self.mu

    @property
    def variance(self) -> Tensor:
        """mu (1 + alpha)^2."""
        return self.mu * (1.0 + self.alpha).square()
