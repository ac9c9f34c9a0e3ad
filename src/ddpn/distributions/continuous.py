"""Quantiles, mode, entropy, intervals and CRPS of Normals.

`mixture` is a `Mixture` whose components are Normals, none of them a mixture itself.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: Halvings of a bracket until float64 can resolve no more.
_HALVINGS = 80
#: Refinements of a minimum: its place is then right to 1e-9 of the range.
_ZOOMS = 6
#: Where a component is evaluated: so many of its standard deviations from its mean, with panels between.
_REACH = (-40.0, -20.0, -10.0, -6.0, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0, 10.0, 20.0, 40.0)
_SQRT_TWO_OVER_PI = math.sqrt(2.0 / math.pi)
_SQRT_TWO = math.sqrt(2.0)


def _log_prob(mixture: Any, y: Tensor) -> Tensor:
    """Shape: y (..., n) -> (..., n)."""
    return mixture._reshape((*mixture.batch_shape, 1)).log_prob(y)


def quantile(mixture: Any, q: Tensor) -> Tensor:
    """By halving between the smallest and the largest quantile of the components."""
    each, used = mixture.components.icdf(q.unsqueeze(-1)), mixture.weights > 0
    low, high = torch.where(used, each, torch.inf).amin(-1), torch.where(used, each, -torch.inf).amax(-1)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        enough = mixture.cdf(middle) >= q
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return torch.where((q > 0) & (q < 1), high, each[..., 0])


def entropy(mixture: Any) -> Tensor:
    """-E[log p] by quadrature between the components' knots."""
    each = torch.stack([mixture.components.loc, mixture.components.scale])
    # The reach of every component, in order; those without weight repeat the heaviest.
    heaviest = mixture.weights.expand(each.shape).argmax(-1, keepdim=True)
    mean, deviation = torch.where(mixture.weights > 0, each, each.gather(-1, heaviest)).unsqueeze(-1)
    reach = torch.tensor(_REACH, dtype=mean.dtype, device=mean.device)
    knots = (mean + deviation * reach).flatten(-2).sort(-1).values
    nodes, weights = (torch.tensor(x, device=knots.device) / 2.0 for x in np.polynomial.legendre.leggauss(16))
    nodes = nodes + 0.5
    low, length = knots.double()[..., :-1, None], knots.double().diff(dim=-1).unsqueeze(-1)
    log_p = _log_prob(mixture, (low + length * nodes).flatten(-2).to(knots.dtype)).double()
    return -(log_p.exp() * log_p * (length * weights).flatten(-2)).sum(-1).to(knots.dtype)


def mode(mixture: Any) -> Tensor:
    """The best of the components' modes and of points between them, then ever closer around it."""
    centres = mixture.components.loc.sort(-1).values
    steps = torch.linspace(0.0, 1.0, 33, dtype=centres.dtype, device=centres.device)
    between = torch.lerp(centres[..., :-1, None], centres[..., 1:, None], steps).flatten(-2)
    y = torch.cat([centres, between], dim=-1).sort(-1).values
    best = y.gather(-1, _log_prob(mixture, y).argmax(-1, keepdim=True))
    # Within a standard deviation of the component that rules there, and no further than the neighbouring points.
    rules = (mixture.components.log_prob(best) + mixture.weights.log()).argmax(-1, keepdim=True)
    reach = mixture.components.scale.gather(-1, rules)
    low = torch.maximum(torch.where(y < best, y, -torch.inf).amax(-1, keepdim=True), best - reach)
    high = torch.minimum(torch.where(y > best, y, torch.inf).amin(-1, keepdim=True), best + reach)
    found = _lowest(lambda y: -_log_prob(mixture, y), low, high)
    # A maximum is flat: where nothing higher was found, the first point is the better answer.
    return torch.where(_log_prob(mixture, found) > _log_prob(mixture, best), found, best).squeeze(-1)


def _lowest(of: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """Where `of` is lowest: the best of 65 points, ever closer together around the best. Shape: (..., 1)."""
    share = torch.linspace(0.0, 1.0, 65, dtype=low.dtype, device=low.device)
    for _ in range(_ZOOMS):
        x = torch.lerp(low, high, share)
        best = of(x).argmin(-1, keepdim=True)
        low, high = x.gather(-1, (best - 1).clamp(min=0)), x.gather(-1, (best + 1).clamp(max=64))
    return x.gather(-1, best)


def central(mixture: Any, coverage: float) -> tuple[Tensor, Tensor]:
    """Quantiles that leave half of the rest on either side."""
    q = torch.full_like(mixture.mean, 0.5 * (1.0 - coverage))
    return quantile(mixture, q), quantile(mixture, 1.0 - q)


def shortest(mixture: Any, coverage: float) -> tuple[Tensor, Tensor]:
    """The shortest interval, by the share of the rest that is below it."""
    wide = mixture._reshape((*mixture.batch_shape, 1))

    def ends(q: Tensor) -> tuple[Tensor, Tensor]:
        return quantile(wide, q), quantile(wide, (q + coverage).clamp(max=1.0))

    none = torch.zeros_like(wide.mean)
    first, last = ends(_lowest(lambda q: torch.sub(*reversed(ends(q))), none, none + (1.0 - coverage)))
    return first.squeeze(-1), last.squeeze(-1)


def _mean_absolute(loc: Tensor, scale: Tensor) -> Tensor:
    """E|X| for X ~ Normal(loc, scale): scale sqrt(2/pi) exp(-z^2/2) + loc erf(z / sqrt 2), z = loc / scale."""
    z = loc / scale
    return scale * _SQRT_TWO_OVER_PI * torch.exp(-0.5 * z * z) + loc * torch.erf(z / _SQRT_TWO)


def normal_crps(loc: Tensor, scale: Tensor, y: Tensor) -> Tensor:
    """E|X - y| - E|X - X'| / 2 with E|X - X'| = 2 scale / sqrt(pi)."""
    return _mean_absolute(loc - y, scale) - scale / math.sqrt(math.pi)


def normal_mixture_crps(loc: Tensor, scale: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """CRPS of the weighted mixture over the last axis (Grimit et al., 2006).

    Shape: y (...), loc and scale (..., K), weights (K,) or (..., K).
    """
    to_y = (weights * _mean_absolute(loc - y.unsqueeze(-1), scale)).sum(-1)
    gaps = loc.unsqueeze(-1) - loc.unsqueeze(-2)
    scales = torch.hypot(scale.unsqueeze(-1), scale.unsqueeze(-2))
    pairs = weights.unsqueeze(-1) * weights.unsqueeze(-2)
    return to_y - 0.5 * (pairs * _mean_absolute(gaps, scales)).sum((-1, -2))
