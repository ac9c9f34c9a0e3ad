"""Quantiles, mode, entropy and CRPS of Normals.

`mixture` is a `Mixture` whose components are Normals, none of them a mixture itself.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: Halvings of a bracket until float64 can resolve no more.
_HALVINGS = 80
#: Steps to a peak.
_STEPS = 200
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
    """The highest of the peaks that are reached from the components' means, each step to a weighted mean of all."""
    loc, scale = mixture.components.loc, mixture.components.scale
    wide = mixture._reshape((*mixture.batch_shape, 1))
    y = loc
    for _ in range(_STEPS):
        log_share = wide.components.log_prob(y.unsqueeze(-1)) + wide.weights.log()
        share = log_share.softmax(-1) / scale.unsqueeze(-2) ** 2
        y = (share * loc.unsqueeze(-2)).sum(-1) / share.sum(-1)
    return y.gather(-1, wide.log_prob(y).argmax(-1, keepdim=True)).squeeze(-1)


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
