"""The logarithm of the mass between two counts, with exact gradients: the loss of truncated and censored counts."""

from numbers import Real
from typing import Any

import torch
from torch import Tensor

from ddpn.distributions.arguments import broadcast_shapes
from ddpn.distributions.count import CountDistribution
from ddpn.runtime.errors import InputError

Bound = Tensor | float | None


def log_mass(dist: CountDistribution, low: Bound = 0, high: Bound = None) -> Tensor:
    """Logarithm of P(low <= Z <= high), differentiable in the distribution's parameters, accurate in both tails.

    Parameters
    ----------
    dist : CountDistribution
        A count distribution, or a `Mixture` of such; its `log_prob` must be differentiable if gradients are needed.
    low : Tensor or float
        The first count of the range. Default: 0.
    high : Tensor or float, optional
        The last count of the range. None and infinity: no upper end.

    Returns
    -------
    Tensor
        The broadcast shape of `low`, `high` and `dist.batch_shape`; minus infinity for an empty range.

    Notes
    -----
    The cost is bounded for the families of this package. For other distributions the sum runs over all counts of the
    range within their `bracket`.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> mu = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    >>> censored = log_mass(Poisson(mu), low=5)  # all that is known: at least 5
    >>> censored.backward()
    >>> round(censored.item(), 4), round(mu.grad.item(), 4)
    (-2.944, 1.7135)
    """
    if not isinstance(dist, CountDistribution):
        raise InputError(f"dist must be a count distribution of ddpn.distributions, got {type(dist).__name__}.")
    bounds = as_bounds(dist, low, high)
    shape = broadcast_shapes(low=tuple(bounds[0].shape), high=tuple(bounds[1].shape), batch=tuple(dist.batch_shape))
    if is_everything(low, high):
        return dist._like.new_zeros(shape)
    return dist._log_mass(*bounds).to(dist._dtype)


def is_everything(low: Bound, high: Bound) -> bool:
    """Whether two bounds, by what is known without reading a tensor, leave nothing out."""
    no_end = high is None or (isinstance(high, Real) and float(high) == torch.inf)
    return no_end and isinstance(low, Real) and float(low) <= 0


def as_bounds(dist: Any, low: Bound, high: Bound) -> tuple[Tensor, Tensor]:
    """Bounds as float64 tensors on the device of the distribution."""
    high = torch.inf if high is None else high
    first, last = (torch.as_tensor(x, dtype=torch.float64, device=dist._device) for x in (low, high))
    return first.detach(), last.detach()
