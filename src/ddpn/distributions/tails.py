"""Splitting a distribution at y: P(Z <= y), P(Z > y) and E|Z - y|, each to its own relative accuracy.

Where a distribution ends within a table, its table answers directly. Beyond, only the tail that y cuts off, away from
the mean, is summed: integer by integer when it is short, by quadrature with a cut at y + 1/2 when it is long. The rest
is 1 minus it.
"""

from abc import abstractmethod
from functools import cache, partial

import torch
from torch import Tensor

from ddpn.distributions.dispatch import Case, by_case, constant, in_blocks, is_host
from ddpn.distributions.quadrature import JOIN, PREFIX, cut_weights, prefix
from ddpn.distributions.rows import MARGIN, Cut, Rows

#: The pmf continues smoothly from here on; below the end of a tail its values do not show.
_SMOOTH_FROM = 12.0


class TailRows(Rows):
    """Rows with what the tails need to know."""

    #: Sizes of the tables; what ends beyond the largest is smooth.
    tables: tuple[int, ...] = (16, 32, 64, 128)
    #: Tails of at most so many integers are summed one by one: longer ones are smooth.
    short_tail = 128
    #: About how many nodes a tail needs.
    tail_nodes = 104

    @abstractmethod
    def location(self) -> Tensor:
        """A position near the middle; a distribution located beyond a table is not in it."""

    @abstractmethod
    def table_end(self, y: Tensor) -> Tensor:
        """Where a table must end to hold the distribution and, to full relative accuracy, its tail above y."""

    @abstractmethod
    def tail_end(self, y: Tensor, lower: Tensor) -> Tensor:
        """Where the tail of prepared rows beyond y, on the side that `lower` gives, has fallen by DEPTH."""

    @abstractmethod
    def nodes(self, start: Tensor, end: Tensor, from_zero: bool) -> tuple[Tensor, Tensor]:
        """Positions and weights that integrate the pmf from `start` to `end`. Shape: (rows,) -> (rows, n)."""

    def mean(self) -> Tensor:
        """The mean of prepared rows."""
        return self.mean_variance()[0]

    def cut(self, y: Tensor) -> Cut:
        return Cut(*in_blocks(partial(_cut, True), 1, self, y))

    def sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        cdf, survival = in_blocks(partial(_cut, False), 1, self, y)
        return cdf, survival

    def far_distance(self, y: Tensor) -> Tensor:
        """E|Z - y| of rows whose window ends beyond the largest table."""
        return in_blocks(partial(_by_tail, True), 1, self, y)[2]


def _cut(gap: bool, dist: TailRows, y: Tensor) -> tuple[Tensor, ...]:
    """P(Z <= y) and P(Z > y), for `gap` also E|Z - y|."""
    if not is_host(y):
        return _near(gap, dist, y)
    beyond = dist.location() >= dist.tables[-1] - MARGIN
    cases = [Case(~beyond, partial(_near, gap), 1), Case(beyond, partial(_by_tail, gap), 1)]
    return by_case(cases, dist, y)


def _near(gap: bool, dist: TailRows, y: Tensor) -> tuple[Tensor, ...]:
    """Distributions that may fit a table."""
    end = dist.table_end(y)
    cases, low = [], 0.0
    for n in dist.tables if is_host(y) else dist.tables[-1:]:
        cases.append(Case((end >= low) & (end < n - MARGIN), partial(_by_table, n, gap), n))
        low = n - MARGIN
    cases.append(Case(end >= low, partial(_by_tail, gap), 1))
    return by_case(cases, dist, y)


@cache
def _counts(n: int, device: torch.device) -> Tensor:
    return constant(list(range(n)), device)


def _up_to(y: Tensor, p: Tensor) -> Tensor:
    """p where the column's integer is at most y, else 0. Shape: y (rows,), p (rows, n)."""
    counts = _counts(p.shape[1], p.device)
    if not is_host(p):
        return torch.where(counts <= y.unsqueeze(1), p, 0.0)
    # A CPU multiplies faster than it selects.
    return (y.unsqueeze(1) - (counts - 1.0)).clamp_(0.0, 1.0).mul_(p)


def _by_table(n: int, gap: bool, dist: TailRows, y: Tensor) -> tuple[Tensor, ...]:
    p = dist.pmf_table(n)
    inside = _up_to(y, p)
    distance = [(y.unsqueeze(1) - _counts(n, y.device)).abs_().mul_(p).sum(1)] if gap else []
    sums = [inside.sum(1), p.sub_(inside).sum(1), *distance]
    total = sums[0] + sums[1]
    return tuple(x / total for x in sums)


def _by_tail(gap: bool, dist: TailRows, y: Tensor) -> tuple[Tensor, ...]:
    dist = dist.prepared()
    mean = dist.mean()
    lower = y + 0.5 < mean
    side = torch.where(lower, -1.0, 1.0).to(y.dtype)
    mass, *distance = _outer(gap, dist, y, side, dist.tail_end(y, lower))
    rest = 1.0 - mass
    both = torch.where(lower, mass, rest), torch.where(lower, rest, mass)
    return (*both, side * (y - mean) + 2.0 * distance[0]) if gap else both


def _outer(gap: bool, dist: TailRows, y: Tensor, side: Tensor, end: Tensor) -> tuple[Tensor, ...]:
    """Mass, and for `gap` the sum of |z - y| p(z), of the tail beyond y. For rows beyond the largest table."""
    lower = side < 0
    in_table = lower & (y < dist.tables[-1])
    at_zero = (torch.where(lower, end, y) < JOIN).logical_and_(~in_table)
    short = ((end - y).abs() < dist.short_tail - 1).logical_and_(~(in_table | at_zero))
    cases = [
        Case(in_table, partial(_tail_by_table, gap), dist.tables[-1]),
        Case(short, partial(_tail_by_integers, gap), dist.short_tail),
        Case(at_zero, partial(_tail_from_zero, gap), PREFIX + dist.tail_nodes),
        Case(~(in_table | short | at_zero), partial(_tail_by_nodes, gap), dist.tail_nodes),
    ]
    return by_case(cases, dist, y, side, end)


def _tail_by_table(gap: bool, dist: TailRows, y: Tensor, side: Tensor, end: Tensor) -> tuple[Tensor, ...]:
    p = _up_to(y, dist.pmf_first(dist.tables[-1]))
    mass = p.sum(1)
    return (mass, y * mass - p @ _counts(p.shape[1], y.device)) if gap else (mass,)


def _tail_by_integers(gap: bool, dist: TailRows, y: Tensor, side: Tensor, end: Tensor) -> tuple[Tensor, ...]:
    steps, first = _counts(dist.short_tail, y.device), side.clamp(min=0.0)
    p = dist.pmf(torch.addcmul((y + first).unsqueeze(1), side.unsqueeze(1), steps).clamp_(min=_SMOOTH_FROM))
    mass = p.sum(1)
    return (mass, first * mass + p @ steps) if gap else (mass,)


def _tail_by_nodes(gap: bool, dist: TailRows, y: Tensor, side: Tensor, end: Tensor) -> tuple[Tensor, ...]:
    here = y + 0.5
    integral = _integral(gap, dist, y, torch.minimum(here, end), torch.maximum(here, end), from_zero=False)
    mass, *distance = (i - side * c for i, c in zip(integral, _at_cut(gap, dist, y), strict=True))
    return (mass, *(side * x for x in distance))


def _tail_from_zero(gap: bool, dist: TailRows, y: Tensor, side: Tensor, end: Tensor) -> tuple[Tensor, ...]:
    """A tail that includes some of the first integers: 0..y below, or y+1.. above with y < 16."""
    lower = side < 0
    stop = torch.where(lower, y + 0.5, end)
    beyond = _integral(gap, dist, y, torch.full_like(y, JOIN - 0.5), stop, from_zero=True)
    counts, joined = prefix(y.device)
    first = dist.pmf_first(PREFIX)
    p = first * joined - _up_to(torch.where(lower, -1.0, y), first)
    head = (p.sum(1), p @ counts - y * p.sum(1)) if gap else (p.sum(1),)
    parts = zip(head, beyond, _at_cut(gap, dist, y), strict=True)
    mass, *distance = (a + b + torch.where(lower, c, 0.0) for a, b, c in parts)
    return (mass, *(side * x for x in distance))


def _integral(
    gap: bool, dist: TailRows, y: Tensor, start: Tensor, end: Tensor, from_zero: bool
) -> tuple[Tensor, ...]:
    """The integral of p(z), and for `gap` of (z - y) p(z)."""
    z, weight = dist.nodes(start, end, from_zero)
    p = dist.pmf(z).mul_(weight)
    return (p.sum(1), z.sub_(y.unsqueeze(1)).mul_(p).sum(1)) if gap else (p.sum(1),)


def _at_cut(gap: bool, dist: TailRows, y: Tensor) -> tuple[Tensor, ...]:
    """The correction B of a cut at y + 1/2 for the same functions."""
    offsets, weights = cut_weights(y.device)
    p = dist.pmf((y.unsqueeze(1) + offsets).clamp_(min=_SMOOTH_FROM))
    return (p @ weights, p @ (weights * offsets)) if gap else (p @ weights,)
