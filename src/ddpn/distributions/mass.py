"""The logarithm of the mass between two counts, with exact gradients: the loss of truncated and censored counts."""

from numbers import Real
from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import sums
from ddpn.distributions.arguments import broadcast_shapes
from ddpn.distributions.count import CountDistribution
from ddpn.distributions.dispatch import Case, by_case, is_host
from ddpn.errors import InputError

Bound = Tensor | float | None
#: Beyond this share of the mass, the rest is summed instead, and log1p keeps the digits of a mass close to 1.
_MOST = 0.5
#: The location and so much of the way from it to the ends of the window, half a standard deviation, is the middle.
_MIDDLE = 1 / 16


def log_mass(dist: CountDistribution, low: Bound = 0, high: Bound = None) -> Tensor:
    """log P(low <= Z <= high), differentiable in the distribution's parameters, accurate in both tails.

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
    The cost is bounded for the families of this package: at most 128 counts are summed one by one, longer ranges by
    quadrature. For other distributions the sum runs over all counts of the range within their `bracket`.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> mu = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    >>> censored = log_mass(Poisson(mu), low=5)  # all that is known: at least 5
    >>> censored.backward()
    >>> round(censored.item(), 4), round(mu.grad.item(), 4)
    (-2.9436, 1.7131)
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


def of_rows(rows: Any, low: Tensor, high: Tensor) -> Tensor:
    """log P(low <= Z <= high) per row. rows: as in `sums.over`, prepared."""
    with torch.no_grad():
        first, last = rows.window()
        middle = 0.5 * (first + last) if rows.tabulated else rows.location
        # Where the middle lies inside, what is left out is summed: that is exact, and often shorter.
        inside = (low <= 0) | (low < middle - _MIDDLE * (middle - first))
        inside &= torch.isinf(high) | (high > middle + _MIDDLE * (last - middle))
    zero = torch.zeros_like(low)
    none, every = torch.full_like(low, -1.0), torch.full_like(low, torch.inf)
    # One sum per row, but where both sides are left out.
    lower, upper = inside & (low > 0), inside & torch.isfinite(high)
    start = torch.where(inside, torch.where(lower, zero, high + 1.0), low)
    end = torch.where(inside, torch.where(lower, low - 1.0, torch.where(upper, every, none)), high)
    start = torch.where(torch.isfinite(start), start, zero)
    found = sums.over(rows, start, end, sums.log_total)[0]
    both = lower & upper
    if not is_host(both) or bool(both.any()):
        more = sums.over(rows, torch.where(both, high + 1.0, zero), torch.where(both, every, none), sums.log_total)[0]
        found = torch.where(both, _log_add(found, more), found)
    return _inverted(rows, found, inside, low, high)


def _inverted(rows: Any, found: Tensor, inside: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """log(1 - exp(found)) where `found` is what is left out; and where that is most of the mass, a sum of the rest."""
    few = inside & (found.detach().exp() <= _MOST)
    rest = torch.where(few, torch.log1p(-torch.where(few, found, -1.0).exp()), found)

    def kept(rows: Any, low: Tensor, high: Tensor, rest: Tensor) -> tuple[Tensor]:
        return (rest,)

    def summed(rows: Any, low: Tensor, high: Tensor, rest: Tensor) -> tuple[Tensor]:
        return sums.over(rows, low, high, sums.log_total)

    wrong = inside & ~few
    return by_case([Case(~wrong, kept, 1), Case(wrong, summed, 1)], rows, low, high, rest)[0]


def _log_add(a: Tensor, b: Tensor) -> Tensor:
    """log(e^a + e^b), where both may be minus infinity, with gradients that are never NaN."""
    top = torch.maximum(a, b).detach()
    top = torch.where(torch.isfinite(top), top, 0.0)
    total = (a - top).exp() + (b - top).exp()
    return torch.where(total > 0, torch.where(total > 0, total, 1.0).log() + top, -torch.inf)
