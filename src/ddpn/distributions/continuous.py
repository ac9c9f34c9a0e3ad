"""Quantiles, mode, entropy and shortest intervals of a weighted mixture of distributions on the real line."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ddpn.distributions.quadrature import gauss_legendre
from ddpn.distributions.stacking import mapped

#: Halvings of a bracket until float64 can tell no more.
_HALVINGS = 80
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
#: Where a component is evaluated: so many of its standard deviations from its mean, with panels between.
_REACH = (-40.0, -20.0, -10.0, -6.0, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0, 10.0, 20.0, 40.0)


class Parts(NamedTuple):
    """Stacks of torch distributions with the components along their last batch axes, and all their weights."""

    stacks: tuple[Any, ...]
    weights: Tensor

    @property
    def shape(self) -> torch.Size:
        """The mixture's batch shape."""
        return self.stacks[0].batch_shape[:-1]

    def each(self, method: str, y: Tensor | None = None) -> Tensor:
        """A method of each component at y, or its attribute. Shape: y (...) -> (..., K)."""
        found = [getattr(stack, method) for stack in self.stacks]
        values = found if y is None else [call(y.unsqueeze(-1)) for call in found]
        return values[0] if len(values) == 1 else torch.cat(values, dim=-1)

    def log_prob(self, y: Tensor) -> Tensor:
        """Shape: y (..., n) -> (..., n)."""
        columns = Parts(tuple(mapped(s, lambda x: x.unsqueeze(-2)) for s in self.stacks), self.weights.unsqueeze(-2))
        return torch.logsumexp(columns.each("log_prob", y) + columns.weights.log(), dim=-1)


def quantile(parts: Parts, q: Tensor) -> Tensor:
    """By halving between the smallest and the largest quantile of the components."""
    each = parts.each("icdf", q)
    used = parts.weights > 0
    low = torch.where(used, each, torch.inf).amin(-1)
    high = torch.where(used, each, -torch.inf).amax(-1)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        enough = (parts.weights * parts.each("cdf", middle)).sum(-1) >= q
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return torch.where((q > 0) & (q < 1), high, each[..., 0])


def _knots(parts: Parts) -> Tensor:
    """The reach of every component that has weight, in order. Shape: (..., K * len(_REACH))."""
    mean, deviation = parts.each("mean"), parts.each("stddev")
    reach = torch.tensor(_REACH, dtype=mean.dtype, device=mean.device)
    heaviest = parts.weights.expand(mean.shape).argmax(-1, keepdim=True)
    used = parts.weights > 0
    mean = torch.where(used, mean, mean.gather(-1, heaviest))
    deviation = torch.where(used, deviation, deviation.gather(-1, heaviest))
    return (mean.unsqueeze(-1) + deviation.unsqueeze(-1) * reach).flatten(-2).sort(-1).values


def entropy(parts: Parts) -> Tensor:
    """-E[log p] by quadrature between the components' knots."""
    knots = _knots(parts)
    dtype = knots.dtype
    nodes, weights = gauss_legendre(16, knots.device)
    low, length = knots.double()[..., :-1, None], knots.double().diff(dim=-1).unsqueeze(-1)
    y = (low + length * nodes).flatten(-2)
    log_p = parts.log_prob(y.to(dtype)).double()
    return -(log_p.exp() * log_p * (length * weights).flatten(-2)).sum(-1).to(dtype)


def mode(parts: Parts) -> Tensor:
    """The best of the components' modes and of points between them, then golden sections around it."""
    centres = parts.each("mode").sort(-1).values
    steps = torch.linspace(0.0, 1.0, 33, dtype=centres.dtype, device=centres.device)
    between = torch.lerp(centres[..., :-1, None], centres[..., 1:, None], steps).flatten(-2)
    y = torch.cat([centres, between], dim=-1).sort(-1).values
    best = y.gather(-1, parts.log_prob(y).argmax(-1, keepdim=True))
    # Within a standard deviation of the component that rules there, and no further than the neighbouring points.
    rules = (parts.each("log_prob", best.squeeze(-1)) + parts.weights.log()).argmax(-1, keepdim=True)
    reach = parts.each("stddev").gather(-1, rules)
    low = torch.maximum(torch.where(y < best, y, -torch.inf).amax(-1, keepdim=True), best - reach)
    high = torch.minimum(torch.where(y > best, y, torch.inf).amin(-1, keepdim=True), best + reach)
    for _ in range(_HALVINGS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        rising = parts.log_prob(left) < parts.log_prob(right)
        low, high = torch.where(rising, left, low), torch.where(rising, high, right)
    found = 0.5 * (low + high)
    # A maximum is flat: where nothing higher was found, the first point is the better answer.
    return torch.where(parts.log_prob(found) > parts.log_prob(best), found, best).squeeze(-1)


def central(parts: Parts, coverage: float) -> tuple[Tensor, Tensor]:
    """Quantiles that leave half of the rest on either side."""
    weights = parts.weights
    q = torch.full(parts.shape, 0.5 * (1.0 - coverage), dtype=weights.dtype, device=weights.device)
    return quantile(parts, q), quantile(parts, 1.0 - q)


def shortest(parts: Parts, coverage: float) -> tuple[Tensor, Tensor]:
    """The shortest interval, by trying 63 shares of the rest below it and then by golden sections."""
    rest, weights = 1.0 - coverage, parts.weights
    share = torch.linspace(0.0, 1.0, 65, dtype=weights.dtype, device=weights.device)[1:-1] * rest
    widths = torch.stack([_width(parts, s.expand(parts.shape), coverage) for s in share], dim=-1)
    best = share[widths.argmin(-1)]
    low, high = (best - rest / 64).clamp(min=0.0), (best + rest / 64).clamp(max=rest)
    for _ in range(_HALVINGS // 2):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        better = _width(parts, left, coverage) > _width(parts, right, coverage)
        low, high = torch.where(better, left, low), torch.where(better, high, right)
    q = 0.5 * (low + high)
    return quantile(parts, q), quantile(parts, q + coverage)


def _width(parts: Parts, q: Tensor, coverage: float) -> Tensor:
    return quantile(parts, q + coverage) - quantile(parts, q)
