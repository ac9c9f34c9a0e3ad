"""The Negative Binomial law by its mean and overdispersion."""

from typing import Any, Self

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions.arguments import as_parameters, broadcast_shapes, check_positive, is_checked
from ddpn.distributions.count import CountDistribution
from ddpn.distributions.normalizer import DEPTH
from ddpn.distributions.quadrature import JOIN
from ddpn.distributions.weights import HALF_LOG_TWO_PI, stirling_error

_PANELS = 12
_HALVINGS = 30


def _any_stirling_error(x: Tensor) -> Tensor:
    """log Gamma(x + 1) minus Stirling's formula, for any x > 0."""
    small = x.clamp(max=16.0)
    exact = torch.lgamma(small + 1.0) - (small + 0.5) * small.log() + small - HALF_LOG_TWO_PI
    return torch.where(x < 16.0, exact, stirling_error(x.clamp(min=16.0)))


def unit_deviance(y: Tensor, mu: Tensor, r: Tensor) -> Tensor:
    """y log(y / mu) - (y + r) log((y + r) / (mu + r)), free of cancellation for small and for large r = 1 / alpha."""
    gap = y - mu
    inner = (r * gap / (mu * (y + r))).clamp(min=-1 + 2**-53)
    return y * torch.log1p(inner) - r * torch.log1p(gap / (mu + r))


class NegativeBinomial(CountDistribution):
    """Negative Binomial with mean mu and variance mu + alpha mu^2.

    >>> law = NegativeBinomial(mu=10.0, alpha=0.5)
    >>> law.variance.item(), law.icdf(torch.tensor(0.5)).item()
    (60.0, 8.0)
    """

    arg_constraints = {"mu": constraints.positive, "alpha": constraints.positive}
    _known: tuple[Tensor, ...] = ()

    def __init__(self, mu: Tensor | float, alpha: Tensor | float, validate_args: bool | None = None) -> None:
        self.mu, self.alpha = as_parameters(mu=mu, alpha=alpha)
        if is_checked(validate_args, self.mu):
            check_positive("mu", self.mu, "Emit its logarithm and exponentiate, or clamp it.")
            check_positive("alpha", self.alpha, "Use Poisson for alpha = 0.")
        super().__init__(self.mu.shape, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "NegativeBinomial":
        new = self._get_checked_instance(NegativeBinomial, _instance)
        shape = torch.Size(batch_shape)
        new.mu, new.alpha = self.mu.expand(shape), self.alpha.expand(shape)
        CountDistribution.__init__(new, shape, self._check)
        return new

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(y), differentiable."""
        y = self._counts(value).double()
        broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        return _log_pmf(y, self.mu.double(), 1.0 / self.alpha.double()).to(self._dtype)

    @property
    def mean(self) -> Tensor:
        """mu."""
        return self.mu

    @property
    def variance(self) -> Tensor:
        """mu + alpha mu^2."""
        return self.mu + self.alpha * self.mu**2

    @property
    def mode(self) -> Tensor:
        """The smaller of two where mu (1 - alpha) is an integer."""
        peak = self.mu.double() * (1.0 - self.alpha.double())
        return (peak.ceil() - 1.0).clamp(min=0.0).to(self._dtype)

    @property
    def _dtype(self) -> torch.dtype:
        return self.mu.dtype

    def _tensors(self) -> tuple[Tensor, ...]:
        return self.mu.reshape(-1).double(), self.alpha.reshape(-1).double(), *self._known

    def _of(self, tensors: tuple[Tensor, ...]) -> Self:
        mu, alpha, *known = tensors
        rows = type(self)(mu, alpha, validate_args=False)
        rows._known = tuple(known)
        return rows

    def _prepared(self, far: bool = False) -> Self:
        """With a window of twice the usual depth kept beside the parameters."""
        mu, alpha, *known = self._tensors()
        return self if known else self._of((mu, alpha, *self._of((mu, alpha))._window(2.0 * DEPTH)))

    def _log_pmf(self, y: Tensor) -> Tensor:
        mu, r = (x.view(-1, *[1] * (y.dim() - 1)) for x in (self.mu, 1.0 / self.alpha))
        return _log_pmf(y, mu, r)

    def _depth(self, y: Tensor) -> Tensor:
        return unit_deviance(y, self.mu, 1.0 / self.alpha)

    def _tail_end(self, y: Tensor, lower: Tensor) -> Tensor:
        """Within the window of twice the depth; and as the deviance is convex, no further than its slope at y tells."""
        side = torch.where(lower, -1.0, 1.0).to(y.dtype)
        r = 1.0 / self.alpha
        at = y.clamp(min=0.5)
        slope = torch.log1p((r * (at - self.mu) / (self.mu * (at + r))).clamp(min=-1 + 2**-53))
        by_slope = at + side * DEPTH / (side * slope).clamp(min=1e-300)
        first, last = self._known
        by_window = torch.where(lower, torch.maximum(first, by_slope), torch.minimum(last, by_slope))
        return torch.where(self._depth(y) > DEPTH, by_slope, by_window).clamp(min=0.0)

    def _window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        """Where the unit deviance reaches depth, by halving in the variance-stabilising scale."""
        depth = depth + torch.zeros_like(self.mu)
        centre = self._scale(self.mu)
        tail = 4.0 * (depth + 1.0) / torch.log1p(1.0 / (self.alpha * self.mu))
        bound = self.mu + tail + 20.0 * (depth * self.mu * (1.0 + self.alpha * self.mu)).sqrt()
        outer = {"low": torch.zeros_like(centre), "high": self._scale(bound)}
        for name, out in outer.items():
            inside = centre
            for _ in range(_HALVINGS):
                middle = 0.5 * (inside + out)
                deep = self._depth(self._unscale(middle)) > depth
                inside, out = torch.where(deep, inside, middle), torch.where(deep, middle, out)
            outer[name] = out
        first = torch.where(self._depth(torch.zeros_like(self.mu)) > depth, self._unscale(outer["low"]), 0.0)
        return first, self._unscale(outer["high"])

    def _spread(self, first: Tensor, last: Tensor) -> Tensor:
        low, high = (self._scale(x.clamp(min=JOIN - 0.5)).unsqueeze(1) for x in (first, last))
        share = torch.linspace(0.0, 1.0, _PANELS + 1, dtype=low.dtype, device=low.device)
        inner = self._unscale(torch.lerp(low.expand(-1, _PANELS + 1), high, share), column=True)
        return torch.cat([first.unsqueeze(1), inner[:, 1:-1], last.unsqueeze(1)], dim=1)

    def _scale(self, y: Tensor) -> Tensor:
        """asinh(sqrt(alpha y)) / sqrt(alpha): in it the law has standard deviation about 1/2 everywhere."""
        return torch.asinh((self.alpha * y).sqrt()) / self.alpha.sqrt()

    def _unscale(self, s: Tensor, column: bool = False) -> Tensor:
        alpha = self.alpha.unsqueeze(1) if column else self.alpha
        return torch.sinh(s * alpha.sqrt()).square() / alpha


def _log_pmf(y: Tensor, mu: Tensor, r: Tensor) -> Tensor:
    """log p(y) by Loader's saddle point, Stirling errors and the unit deviance: large counts keep their digits."""
    safe = y.clamp(min=1.0)
    n = safe + r
    saturated = 0.5 * (r / (safe * n)).log() - HALF_LOG_TWO_PI
    saturated = saturated + _any_stirling_error(n) - _any_stirling_error(r) - _any_stirling_error(safe)
    return torch.where(y > 0, saturated - unit_deviance(safe, mu, r), -r * torch.log1p(mu / r))
