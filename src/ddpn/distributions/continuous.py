"""Compute quantiles of mixtures of Normals, and the CRPS of Normals and their mixtures."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ddpn.distributions.mixture import ContinuousMixture

#: The number of halvings after which float64 cannot resolve a bracket further.
_HALVINGS = 80
_SQRT_TWO_OVER_PI = math.sqrt(2.0 / math.pi)
_SQRT_TWO = math.sqrt(2.0)


def find_mixture_quantile(mixture: "ContinuousMixture", q: Tensor) -> Tensor:
    """Find the q-quantile of a mixture of Normals by bisection.

    The quantile lies between the smallest and the largest q-quantile of the components. `mixture` must not be nested.
    """
    quantiles, used = mixture.components.icdf(q.unsqueeze(-1)), mixture.weights > 0
    low, high = torch.where(used, quantiles, torch.inf).amin(-1), torch.where(used, quantiles, -torch.inf).amax(-1)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        enough = mixture.cdf(middle) >= q
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return torch.where((q > 0) & (q < 1), high, quantiles[..., 0])


def _compute_mean_absolute(loc: Tensor, scale: Tensor) -> Tensor:
    """Compute E|X| for X ~ Normal(loc, scale).

    With z = loc / scale, it is scale sqrt(2 / pi) exp(-z^2 / 2) + loc erf(z / sqrt(2)).
    """
    z = loc / scale
    return scale * _SQRT_TWO_OVER_PI * torch.exp(-0.5 * z * z) + loc * torch.erf(z / _SQRT_TWO)


def normal_crps(loc: Tensor, scale: Tensor, y: Tensor) -> Tensor:
    """Compute the CRPS of Normals, E|X - y| - E|X - X'| / 2, where X and X' are independent draws.

    Here, E|X - X'| = 2 scale / sqrt(pi).
    """
    return _compute_mean_absolute(loc - y, scale) - scale / math.sqrt(math.pi)


def normal_mixture_crps(loc: Tensor, scale: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """Compute the CRPS of mixtures of K Normals in closed form (Grimit et al., 2006).

    It is E|X - y| - E|X - X'| / 2 with independent draws X and X' from the mixture. The first expectation is a weighted
    mean over the components, the second one over all pairs of components. Shapes: y (...), loc and scale (..., K),
    weights (K,) or (..., K).
    """
    to_y = (weights * _compute_mean_absolute(loc - y.unsqueeze(-1), scale)).sum(-1)
    gaps = loc.unsqueeze(-1) - loc.unsqueeze(-2)
    scales = torch.hypot(scale.unsqueeze(-1), scale.unsqueeze(-2))
    pairs = weights.unsqueeze(-1) * weights.unsqueeze(-2)
    return to_y - 0.5 * (pairs * _compute_mean_absolute(gaps, scales)).sum((-1, -2))
