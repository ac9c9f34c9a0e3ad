"""Splitting the Double Poisson at y: P(Z <= y), P(Z > y) and E|Z - y|, each to its own relative accuracy.

Where the law lives below 64 its table answers directly. Beyond, only the tail that y cuts off is summed, outwards from
y: integer by integer when it is short, by quadrature with a cut at y + 1/2 when it is long. The rest is 1 minus it.
"""

import math
from functools import partial

import torch
from torch import Tensor

from ddpn.distributions.cuts import Cut
from ddpn.distributions.dispatch import Case, by_case, in_blocks, is_host
from ddpn.distributions.normalizer import DEPTH, MARGIN, TABLES, first_moments
from ddpn.distributions.quadrature import JOIN, PREFIX, cut, gauss_legendre, prefix
from ddpn.distributions.series import MIN_K
from ddpn.distributions.weights import (
    HALF_LOG_TWO_PI,
    count_table,
    deviance,
    log_weight_table,
    short_stirling_error,
    upper_end,
)

#: Tails of at most so many integers are summed one by one.
_SHORT = 48
#: Nodes of a tail (half a law), of a tail that includes the first integers, and integers at the cut on either side.
_TAIL_NODES, _PREFIX_NODES, _CUT = 16, 32, 4
_SQRT_TWO_OVER_PI = math.sqrt(2.0 / math.pi)


def up_to(y: Tensor, n: int) -> Tensor:
    """1 where the column's integer is at most y, else 0. Shape: y (rows,) -> (rows, n)."""
    return (y.unsqueeze(1) - (count_table(n, y.device)[1] - 1.0)).clamp_(0.0, 1.0)


def sides_of(y: Tensor, mu: Tensor, gamma: Tensor, *known: Tensor) -> tuple[Tensor, Tensor]:
    """P(Z <= y) and P(Z > y); `known` may bring log c and the mean. Shape: float64 vectors (rows,)."""
    cdf, survival = in_blocks(partial(_cut, False), 1, y, mu, gamma, *known)
    return cdf, survival


def cut_at(y: Tensor, mu: Tensor, gamma: Tensor, *known: Tensor) -> Cut:
    """As `sides_of`, with E|Z - y|."""
    return Cut(*in_blocks(partial(_cut, True), 1, y, mu, gamma, *known))


def far_distance(y: Tensor, mu: Tensor, gamma: Tensor, *known: Tensor) -> Tensor:
    """E|Z - y| of laws that go beyond the largest table."""
    return in_blocks(partial(_cut_by_tail, True), 1, y, mu, gamma, *known)[2]


def _cut(gap: bool, y: Tensor, mu: Tensor, gamma: Tensor, *known: Tensor) -> tuple[Tensor, ...]:
    if not is_host(y):
        return _cut_near(gap, y, mu, gamma, *known)
    beyond = mu >= TABLES[-1] - MARGIN
    found = [Case(~beyond, partial(_cut_near, gap), 1), Case(beyond, partial(_cut_by_tail, gap), 1)]
    return by_case(found, y, mu, gamma, *known)


def _cut_near(gap: bool, y: Tensor, mu: Tensor, gamma: Tensor, *known: Tensor) -> tuple[Tensor, ...]:
    """Laws that may fit a table: where it holds the law and, to full relative accuracy, its tail above y."""
    above = torch.where(y > mu, deviance(y, mu), torch.zeros_like(mu))
    end = upper_end(mu, gamma, DEPTH + gamma * above)
    found, low = [], 0.0
    for n in TABLES if is_host(y) else TABLES[-1:]:
        found.append(Case((end >= low) & (end < n - MARGIN), partial(_cut_by_table, n, gap), n))
        low = n - MARGIN
    found.append(Case(end >= low, partial(_cut_by_tail, gap), 1))
    return by_case(found, y, mu, gamma, *known)


def _cut_by_table(n: int, gap: bool, y: Tensor, mu: Tensor, gamma: Tensor, *known: Tensor) -> tuple[Tensor, ...]:
    log_w = log_weight_table(mu, gamma, n)
    w = log_w.sub_(log_w.amax(dim=1, keepdim=True)).exp_()
    inside = up_to(y, n).mul_(w)
    distance = (y.unsqueeze(1) - count_table(n, y.device)[1]).abs_().mul_(w).sum(1) if gap else None
    below, above = inside.sum(1), w.sub_(inside).sum(1)
    total = below + above
    both = below / total, above / total
    return both if distance is None else (*both, distance / total)


def _cut_by_tail(gap: bool, y: Tensor, mu: Tensor, gamma: Tensor, *known: Tensor) -> tuple[Tensor, ...]:
    log_c, mean = known or first_moments(mu, gamma)[:2]
    lower = y + 0.5 < mean
    side = torch.where(lower, -1.0, 1.0).to(y.dtype)
    mass, *distance = _outer(gap, y, mu, gamma, 0.5 * gamma.log() - log_c, side)
    rest = 1.0 - mass
    both = torch.where(lower, mass, rest), torch.where(lower, rest, mass)
    return (*both, side * (y - mean) + 2.0 * distance[0]) if gap else both


def _outer(gap: bool, y: Tensor, mu: Tensor, gamma: Tensor, offset: Tensor, side: Tensor) -> tuple[Tensor, ...]:
    """Mass, and for `gap` the sum of |z - y| p(z), of the tail beyond y. For laws that go beyond the largest table."""
    lower = side < 0
    end = tail_end(y, mu, gamma, side)
    in_table = lower & (y < TABLES[-1])
    at_zero = (torch.where(lower, end, y) < JOIN).logical_and_(~in_table)
    short = ((end - y).abs() < _SHORT - 1).logical_and_(~(in_table | at_zero))
    long = ~(in_table | short | at_zero)
    close = (gamma * mu < MIN_K) if is_host(mu) else torch.ones_like(long)
    found = [
        Case(in_table, partial(_by_table, gap), TABLES[-1]),
        Case(short, partial(_by_integers, gap), _SHORT),
        Case(at_zero, partial(_from_zero, gap), PREFIX + _PREFIX_NODES + 2 * _CUT),
        Case(long & close, partial(_by_close_quadrature, gap), _TAIL_NODES + 2 * _CUT),
    ]
    if is_host(mu):
        found.append(Case(long & ~close, partial(_by_quadrature, gap), _TAIL_NODES + 2 * _CUT))
    return by_case(found, y, mu, gamma, offset, side, end)


def tail_end(y: Tensor, mu: Tensor, gamma: Tensor, side: Tensor) -> Tensor:
    """Where the tail beyond y has fallen by DEPTH, in closed form from outside.

    Two bounds, both from D being convex: with u = sqrt(y / mu) - 1, D / mu is 2 u^2 + 2/3 u^3 + ... (below the mean
    between that and u^2); and beyond y, D grows at least at its slope there, log(y / mu).
    """
    log_ratio = torch.log1p(((y - mu) / mu).clamp(min=-1 + 2**-53))
    depth = DEPTH + gamma * torch.addcmul(mu - y, y, log_ratio)
    u = (depth / (2.0 * gamma * mu)).sqrt()
    above = u * (1.0 + u * (u / 12.0 - 1.0 / 6.0)).clamp(max=1.0)
    below = -(u * (1.0 + u * (1.0 / 6.0 + 0.6 * u))).clamp(max=1.0)
    by_curve = mu * (1.0 + torch.where(side > 0, above, below)).square()
    slope = (side * torch.log1p((y.clamp(min=1.0) - mu) / mu)).clamp(min=1e-300)
    by_slope = side * (y.clamp(min=1.0) + side * DEPTH / (gamma * slope))
    return side * torch.minimum(side * by_curve, by_slope)


def _exponent(z: Tensor, mu: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """-gamma D(z; mu) minus Stirling's error, and u = log(z / mu), at real z >= 12.

    With k = gamma mu and x = z / mu - 1: -gamma D = k x - (k + k x) u.
    """
    k = (gamma * mu).unsqueeze(1)
    x = (z * torch.reciprocal(mu).unsqueeze(1)).sub_(1.0)
    u = torch.log1p(x)
    kx = x.mul_(k)
    return torch.addcmul(kx, kx + k, u, value=-1.0).sub_(short_stirling_error(z)), u


def _at_integers(z: Tensor, mu: Tensor, gamma: Tensor, offset: Tensor) -> Tensor:
    """pmf at integers z >= 12, given offset = log(sqrt(gamma) / c)."""
    exponent, u = _exponent(z, mu, gamma)
    log_scale = offset - 0.5 * mu.log() - HALF_LOG_TWO_PI
    return exponent.add_(u, alpha=-0.5).add_(log_scale.unsqueeze(1)).exp_()


def _integral(
    gap: bool, y: Tensor, mu: Tensor, gamma: Tensor, offset: Tensor, start: Tensor, end: Tensor, n: int
) -> tuple[Tensor, ...]:
    """The integral of p(z), and of (z - y) p(z), in t = sqrt(z), where 2t cancels h's 1/sqrt(z)."""
    nodes, weights = gauss_legendre(n, y.device)
    low = start.sqrt()
    length = (end.sqrt() - low).clamp_(min=0.0)
    t = torch.addcmul(low.unsqueeze(1), length.unsqueeze(1), nodes)
    z = t.mul_(t)
    density = _exponent(z, mu, gamma)[0].exp_()
    scale = length * (_SQRT_TWO_OVER_PI * offset.exp())
    mass = (density @ weights) * scale
    return (mass, (density.mul_(z.sub_(y.unsqueeze(1))) @ weights) * scale) if gap else (mass,)


def _at_cut(gap: bool, y: Tensor, mu: Tensor, gamma: Tensor, offset: Tensor) -> tuple[Tensor, ...]:
    """The cut's correction B at y + 1/2 of p(z), and of (z - y) p(z)."""
    offsets, weights = cut(y.device, _CUT)
    p = _at_integers((y.unsqueeze(1) + offsets).clamp_(min=12.0), mu, gamma, offset)
    return (p @ weights, p @ (weights * offsets)) if gap else (p @ weights,)


def _by_table(
    gap: bool, y: Tensor, mu: Tensor, gamma: Tensor, offset: Tensor, side: Tensor, end: Tensor
) -> tuple[Tensor, ...]:
    n = TABLES[-1]
    p = log_weight_table(mu, gamma, n).add_((offset - gamma * mu).unsqueeze(1)).exp_().mul_(up_to(y, n))
    return (p.sum(1), (p * (y.unsqueeze(1) - count_table(n, y.device)[1])).sum(1)) if gap else (p.sum(1),)


def _by_integers(
    gap: bool, y: Tensor, mu: Tensor, gamma: Tensor, offset: Tensor, side: Tensor, end: Tensor
) -> tuple[Tensor, ...]:
    steps = count_table(_SHORT, y.device)[1]
    first = side.clamp(min=0.0).unsqueeze(1)
    z = ((y.unsqueeze(1) + first).addcmul(side.unsqueeze(1), steps)).clamp_(min=12.0)
    p = _at_integers(z, mu, gamma, offset)
    return (p.sum(1), (p * (steps + first)).sum(1)) if gap else (p.sum(1),)


def _by_quadrature(
    gap: bool, y: Tensor, mu: Tensor, gamma: Tensor, offset: Tensor, side: Tensor, end: Tensor
) -> tuple[Tensor, ...]:
    here = y + 0.5
    whole = _integral(gap, y, mu, gamma, offset, torch.minimum(here, end), torch.maximum(here, end), _TAIL_NODES)
    sums = [i - side * c for i, c in zip(whole, _at_cut(gap, y, mu, gamma, offset), strict=True)]
    return (sums[0], side * sums[1]) if gap else (sums[0],)


def _by_close_quadrature(
    gap: bool, y: Tensor, mu: Tensor, gamma: Tensor, offset: Tensor, side: Tensor, end: Tensor
) -> tuple[Tensor, ...]:
    """Close to 0 the bounds on the end are loose: tighten it first."""
    depth = DEPTH + gamma * deviance(y, mu)
    tight = torch.where(side > 0, upper_end(mu, gamma, depth, steps=2, start=end.clamp(min=mu)), end)
    return _by_quadrature(gap, y, mu, gamma, offset, side, tight)


def _from_zero(
    gap: bool, y: Tensor, mu: Tensor, gamma: Tensor, offset: Tensor, side: Tensor, end: Tensor
) -> tuple[Tensor, ...]:
    """A tail that includes some of the first integers: 0..y below, or y+1.. above with y < 16."""
    lower = side < 0
    stop = torch.where(lower, y + 0.5, upper_end(mu, gamma, DEPTH, start=end.clamp(min=mu)))
    beyond = _integral(gap, y, mu, gamma, offset, torch.full_like(y, JOIN - 0.5), stop, _PREFIX_NODES)
    integers, join_weights = prefix(y.device)
    kept = torch.where(lower.unsqueeze(1), join_weights, join_weights - up_to(y, PREFIX))
    p = log_weight_table(mu, gamma, PREFIX).add_((offset - gamma * mu).unsqueeze(1)).exp_().mul_(kept)
    head = (p.sum(1), (p * (integers - y.unsqueeze(1))).sum(1)) if gap else (p.sum(1),)
    at_y = _at_cut(gap, y, mu, gamma, offset)
    sums = [a + b + torch.where(lower, c, 0.0) for a, b, c in zip(beyond, head, at_y, strict=True)]
    return (sums[0], side * sums[1]) if gap else (sums[0],)
