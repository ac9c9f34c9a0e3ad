"""Quantiles, mode, entropy and shortest intervals of a uniform mixture of laws on the real line.

`members` is a torch distribution with the members along its last batch axis.
"""

import math

import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions.quadrature import gauss_legendre

#: Halvings of a bracket until float64 can tell no more.
_HALVINGS = 80
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
#: Where a member is looked at: so many of its standard deviations from its mean, with panels between.
_REACH = (-40.0, -20.0, -10.0, -6.0, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0, 10.0, 20.0, 40.0)


def _log_prob(members: Distribution, y: Tensor) -> Tensor:
    """Shape: y (..., n) -> (..., n)."""
    parts = torch.stack([_member(members, i, y) for i in range(members.batch_shape[-1])])
    return torch.logsumexp(parts, dim=0) - math.log(members.batch_shape[-1])


def _member(members: Distribution, index: int, y: Tensor) -> Tensor:
    """One member's log density at y (..., n)."""
    parameters = {name: getattr(members, name)[..., index, None] for name in members.arg_constraints}
    return type(members)(**parameters, validate_args=False).log_prob(y)


def quantile(members: Distribution, q: Tensor) -> Tensor:
    """By halving between the smallest and the largest member's quantile."""
    each = members.icdf(q.unsqueeze(-1))
    low, high = each.amin(-1), each.amax(-1)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        enough = members.cdf(middle.unsqueeze(-1)).mean(-1) >= q
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return torch.where((q > 0) & (q < 1), high, each[..., 0])


def _knots(members: Distribution) -> Tensor:
    """Every member's reach, in order. Shape: (..., M * len(_REACH))."""
    reach = torch.tensor(_REACH, dtype=members.mean.dtype, device=members.mean.device)
    return (members.mean.unsqueeze(-1) + members.stddev.unsqueeze(-1) * reach).flatten(-2).sort(-1).values


def entropy(members: Distribution) -> Tensor:
    """-E[log p] by quadrature between the members' knots."""
    knots = _knots(members).double()
    nodes, weights = gauss_legendre(16, knots.device)
    low, length = knots[..., :-1, None], knots.diff(dim=-1).unsqueeze(-1)
    y = (low + length * nodes).flatten(-2)
    log_p = _log_prob(members, y.to(members.mean.dtype)).double()
    total = -(log_p.exp() * log_p * (length * weights).flatten(-2)).sum(-1)
    return total.to(members.mean.dtype)


def mode(members: Distribution) -> Tensor:
    """The best of the members' knots and modes, then golden sections around it."""
    centres = members.mode.sort(-1).values
    steps = torch.linspace(0.0, 1.0, 33, dtype=centres.dtype, device=centres.device)
    between = torch.lerp(centres[..., :-1, None], centres[..., 1:, None], steps).flatten(-2)
    y = torch.cat([centres, between], dim=-1).sort(-1).values
    best = y.gather(-1, _log_prob(members, y).argmax(-1, keepdim=True))
    # Within a standard deviation of the member that rules there, and no further than the neighbours looked at.
    reach = members.stddev.gather(-1, members.log_prob(best).argmax(-1, keepdim=True))
    low = torch.maximum(torch.where(y < best, y, -torch.inf).amax(-1, keepdim=True), best - reach)
    high = torch.minimum(torch.where(y > best, y, torch.inf).amin(-1, keepdim=True), best + reach)
    for _ in range(_HALVINGS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        rising = _log_prob(members, left) < _log_prob(members, right)
        low, high = torch.where(rising, left, low), torch.where(rising, high, right)
    found = 0.5 * (low + high)
    # A maximum is flat: where nothing higher was found, the place looked at first is the better answer.
    return torch.where(_log_prob(members, found) > _log_prob(members, best), found, best).squeeze(-1)


def central(members: Distribution, coverage: float) -> tuple[Tensor, Tensor]:
    """Quantiles that leave half of the rest on either side."""
    q = torch.full(
        members.batch_shape[:-1], 0.5 * (1.0 - coverage), dtype=members.mean.dtype, device=members.mean.device
    )
    return quantile(members, q), quantile(members, 1.0 - q)


def shortest(members: Distribution, coverage: float) -> tuple[Tensor, Tensor]:
    """The shortest interval, by looking at 65 shares of the rest below it and then by golden sections."""
    rest = 1.0 - coverage
    shape = members.batch_shape[:-1]
    share = torch.linspace(0.0, 1.0, 65, dtype=members.mean.dtype, device=members.mean.device)[1:-1] * rest
    widths = torch.stack([_width(members, s.expand(shape), coverage) for s in share], dim=-1)
    best = share[widths.argmin(-1)]
    low, high = (best - rest / 64).clamp(min=0.0), (best + rest / 64).clamp(max=rest)
    for _ in range(_HALVINGS // 2):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        better = _width(members, left, coverage) > _width(members, right, coverage)
        low, high = torch.where(better, left, low), torch.where(better, high, right)
    q = 0.5 * (low + high)
    return quantile(members, q), quantile(members, q + coverage)


def _width(members: Distribution, q: Tensor, coverage: float) -> Tensor:
    return quantile(members, q + coverage) - quantile(members, q)
