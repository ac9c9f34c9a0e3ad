"""Splitting the Double Poisson at y: P(Z <= y), P(Z > y) and E|Z - y|, each to its own relative accuracy.

Where the law lives below 64 its table answers directly. Beyond, only the tail that y cuts off is summed, outwards from
y: integer by integer when it is short, by quadrature with a cut at y + 1/2 when it is long. The rest is 1 minus it.
"""

from typing import Any

import torch
from torch import Tensor

from ddpn.distributions.cuts import Cut, Tail
from ddpn.distributions.normalizer import DEPTH, MARGIN, TABLES, first_moments
from ddpn.distributions.quadrature import JOIN, PREFIX, between, cut, prefix
from ddpn.distributions.rows import Case, by_case, is_host
from ddpn.distributions.weights import (
    HALF_LOG_TWO_PI,
    count_table,
    deviance,
    log_weight_table,
    lower_end,
    stirling_error,
    upper_end,
)

_SHORT = 32
_TAIL_NODES = 16
_PREFIX_NODES = 32


def reach(y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
    """Upper end of a window that holds both the law and, to full relative accuracy, its tail above y."""
    return upper_end(mu, gamma, DEPTH + gamma * torch.where(y > mu, deviance(y, mu), torch.zeros_like(mu)))


def up_to(y: Tensor, n: int) -> Tensor:
    """1 where the column's integer is at most y, else 0. Shape: y (rows,) -> (rows, n)."""
    return (y.unsqueeze(1) - (count_table(n, y.device)[1] - 1.0)).clamp_(0.0, 1.0)


def _cut_by_table(n: int) -> Any:
    def method(y: Tensor, mu: Tensor, gamma: Tensor) -> Cut:
        log_w = log_weight_table(mu, gamma, n)
        w = log_w.sub_(log_w.amax(dim=1, keepdim=True)).exp_()
        gap = (y.unsqueeze(1) - count_table(n, y.device)[1]).abs_().mul_(w).sum(1)
        inside = up_to(y, n).mul_(w)
        below, above = inside.sum(1), w.sub_(inside).sum(1)
        total = below + above
        return Cut(below / total, above / total, gap / total)

    return method


def _cut_by_tail(y: Tensor, mu: Tensor, gamma: Tensor) -> Cut:
    return outer_tail(y, mu, gamma).to_cut(y)


def cut_at(y: Tensor, mu: Tensor, gamma: Tensor) -> Cut:
    """Split the law at y. Shape: float64 vectors (rows,)."""
    end = reach(y, mu, gamma)
    found, low = [], 0.0
    for n in TABLES if is_host(y) else TABLES[-1:]:
        found.append(Case((end >= low) & (end < n - MARGIN), _cut_by_table(n), n))
        low = n - MARGIN
    found.append(Case(end >= low, _cut_by_tail, 1))
    return Cut(*by_case(found, y, mu, gamma))


def outer_tail(y: Tensor, mu: Tensor, gamma: Tensor) -> Tail:
    """The tail beyond y, away from the mean. For laws whose window ends beyond the largest table."""
    log_c, mean, _ = first_moments(mu, gamma)
    offset = 0.5 * gamma.log() - log_c
    lower = y + 0.5 < mean
    depth = DEPTH + gamma * deviance(y, mu)
    end = torch.where(lower, lower_end(mu, gamma, depth), upper_end(mu, gamma, depth))
    in_table = lower & (y < TABLES[-1])
    at_zero = torch.where(lower, end < JOIN, y < JOIN) & ~in_table
    short = ((end - y).abs() < _SHORT - 1) & ~in_table & ~at_zero
    side = torch.where(lower, -1.0, 1.0)
    found = [
        Case(in_table, _by_table, TABLES[-1]),
        Case(short, _by_integers, _SHORT),
        Case(~(in_table | short | at_zero), _by_quadrature, _TAIL_NODES + 8),
        Case(at_zero, _from_zero, PREFIX + _PREFIX_NODES),
    ]
    mass, distance = by_case(found, y, mu, gamma, offset, side, end)
    return Tail(mass, distance, lower, mean)


def _weight_at(z: Tensor, mu: Tensor, gamma: Tensor, offset: Tensor) -> Tensor:
    """pmf at real z >= 12, given offset = log(sqrt(gamma) / c).

    With x = z / mu - 1, k = gamma mu and u = log(1 + x):
    log w = k x - (k + k x + 1/2) u - log(2 pi mu) / 2 - Stirling's error.
    """
    k = (gamma * mu).unsqueeze(1)
    x = (z * torch.reciprocal(mu).unsqueeze(1)).sub_(1.0)
    u = torch.log1p(x)
    kx = x.mul_(k)
    log_w = torch.addcmul(kx, kx + (k + 0.5), u, value=-1.0)
    return log_w.sub_(stirling_error(z)).add_((offset - 0.5 * mu.log() - HALF_LOG_TWO_PI).unsqueeze(1)).exp_()


def _sums(p: Tensor, z: Tensor, y: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
    return p.sum(1), (p * (z - y.unsqueeze(1))).sum(1) * side


def _by_table(y: Tensor, mu: Tensor, gamma: Tensor, offset: Tensor, side: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    n = TABLES[-1]
    p = log_weight_table(mu, gamma, n).add_((offset - gamma * mu).unsqueeze(1)).exp_().mul_(up_to(y, n))
    return _sums(p, count_table(n, y.device)[1], y, side)


def _by_integers(
    y: Tensor, mu: Tensor, gamma: Tensor, offset: Tensor, side: Tensor, end: Tensor
) -> tuple[Tensor, Tensor]:
    steps = torch.arange(float(_SHORT), dtype=y.dtype, device=y.device)
    first = y + side.clamp(min=0.0)
    z = (first.unsqueeze(1) + side.unsqueeze(1) * steps).clamp_(min=12.0)
    return _sums(_weight_at(z, mu, gamma, offset), z, y, side)


def _by_quadrature(
    y: Tensor, mu: Tensor, gamma: Tensor, offset: Tensor, side: Tensor, end: Tensor
) -> tuple[Tensor, Tensor]:
    here = y + 0.5
    offsets, cut_weights = cut(y.device)
    x, weight = between(torch.minimum(here, end), torch.maximum(here, end), _TAIL_NODES)
    z = torch.cat([x, (y.unsqueeze(1) + offsets)], dim=1).clamp_(min=12.0)
    weight = torch.cat([weight, -side.unsqueeze(1) * cut_weights], dim=1)
    return _sums(_weight_at(z, mu, gamma, offset).mul_(weight), z, y, side)


def _from_zero(
    y: Tensor, mu: Tensor, gamma: Tensor, offset: Tensor, side: Tensor, end: Tensor
) -> tuple[Tensor, Tensor]:
    """A tail that includes some of the first integers: 0..y below, or y+1.. above with y < 16."""
    join = torch.full_like(y, JOIN - 0.5)
    start, stop = join, torch.where(side < 0, y + 0.5, end)
    x, weight = between(start, stop, _PREFIX_NODES)
    offsets, cut_weights = cut(y.device)
    z = torch.cat([x, (y.unsqueeze(1) + offsets)], dim=1).clamp_(min=12.0)
    at_y = torch.where(side < 0, 1.0, 0.0).unsqueeze(1) * cut_weights
    outer = _sums(_weight_at(z, mu, gamma, offset).mul_(torch.cat([weight, at_y], dim=1)), z, y, side)
    integers, join_weights = prefix(y.device)
    kept = torch.where((side > 0).unsqueeze(1), join_weights - up_to(y, PREFIX), join_weights)
    p = log_weight_table(mu, gamma, PREFIX).add_((offset - gamma * mu).unsqueeze(1)).exp_().mul_(kept)
    first = _sums(p, integers, y, side)
    return outer[0] + first[0], outer[1] + first[1]
