"""Splitting a distribution at y: P(Z <= y), P(Z > y) and E|Z - y|, each to its own relative accuracy.

Where a distribution ends within a table, its table answers directly. Beyond, only the tail that y cuts off, away from
the mean, is summed: integer by integer when it is short, by quadrature with a cut at y + 1/2 when it is long. The rest
is 1 minus it.
"""

from abc import abstractmethod
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import panels, peaks, tables
from ddpn.distributions.dispatch import Case, by_case, in_blocks, is_host, take
from ddpn.distributions.quadrature import JOIN, PREFIX, between, cut_weights, prefix
from ddpn.distributions.rows import DEPTH, MARGIN, Cut, Rows

#: The pmf continues smoothly from here on; below the end of a tail its values do not show.
_SMOOTH_FROM = 12.0


class SmoothRows(Rows):
    """Rows whose pmf continues smoothly between the integers, so that long windows and tails are summed by quadrature.

    What follows from a window, its breaks and the ends of its tails; the far methods are for long windows.
    """

    #: A position near the middle; a distribution located beyond a table is not in it.
    location: Tensor
    #: Sizes of the tables; what ends beyond the largest is smooth.
    tables: tuple[int, ...] = (16, 32, 64, 128)
    #: Tails of at most so many integers are summed one by one: longer ones are smooth.
    short_tail = 128
    #: About how many nodes a tail needs.
    tail_nodes = 104
    #: Panels over a whole window.
    panels = 12

    @abstractmethod
    def tail_end(self, y: Tensor, lower: Tensor) -> Tensor:
        """Where the tail of prepared rows beyond y, on the side that `lower` gives, has fallen by DEPTH."""

    def spread(self, first: Tensor, last: Tensor) -> Tensor:
        """Breaks that resolve the pmf between two positions. Shape: (rows,) -> (rows, K)."""
        return panels.spread_breaks(first, last, self.panels)

    def breaks(self) -> Tensor:
        return self.spread(*self.window())

    def resolution(self, t: Tensor) -> Tensor | None:
        if type(self).spread is not SmoothRows.spread:
            return None
        first, last = self.window()
        length = last.clamp(min=JOIN).sqrt() - first.clamp(min=JOIN - 0.5).sqrt()
        return (self.panels / length).unsqueeze(1).expand_as(t)

    def nodes(self, start: Tensor, end: Tensor, from_zero: bool) -> tuple[Tensor, Tensor]:
        """Positions and weights that integrate the pmf from `start` to `end`. Shape: (rows,) -> (rows, n)."""
        ends = self.spread(start, end)
        x, weight = between(ends[:, :-1], ends[:, 1:], panels.NODES)
        return x.flatten(1), weight.flatten(1)

    def table_end(self, y: Tensor) -> Tensor:
        """Where a table must end to hold the distribution and, to full relative accuracy, its tail above y."""
        upper = torch.zeros_like(y, dtype=torch.bool)
        return torch.maximum(self.window(DEPTH)[1], self.prepared().tail_end(y, upper))

    def mean(self) -> Tensor:
        """The mean of prepared rows."""
        return self.mean_variance()[0]

    def mean_variance(self) -> tuple[Tensor, Tensor]:
        mean, variance = tables.by_window(self, tables.moments, lambda rows: rows.far_moments())
        return mean, variance

    def cut(self, y: Tensor) -> Cut:
        return Cut(*in_blocks(partial(_cut, True), 1, self, y))

    def sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        cdf, survival = in_blocks(partial(_cut, False), 1, self, y)
        return cdf, survival

    def far_distance(self, y: Tensor) -> Tensor:
        """E|Z - y| of rows whose window ends beyond the largest table."""
        return in_blocks(partial(_by_tail, True), 1, self, y)[2]

    def far_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance."""
        return panels.moments(panels.panels(self, self.breaks()), self.location.round().clamp(min=0.0))

    def far_half_mean_difference(self) -> Tensor:
        """E|Z - Z'| / 2."""
        return panels.half_mean_difference(panels.panels(self, self.breaks()))

    def far_entropy(self) -> Tensor:
        """-E[log p(Z)]."""
        return panels.entropy(panels.panels(self, self.breaks()))

    def far_mode(self) -> Tensor:
        """The most probable count."""
        return peaks.highest_peak(self)


class ParameterRows(SmoothRows):
    """Smooth rows made of tensors with one entry per row; `known` are those that `prepared` adds."""

    def __init__(self, *parameters: Tensor, known: tuple[Tensor, ...] = ()) -> None:
        self.parameters, self.known = parameters, known
        self.location = parameters[0]

    def __len__(self) -> int:
        return len(self.location)

    @property
    def device(self) -> torch.device:
        return self.location.device

    def rows(self, index: Tensor | slice) -> Any:
        known = tuple(take(t, index) for t in self.known)
        return type(self)(*(take(t, index) for t in self.parameters), known=known)


def _cut(gap: bool, dist: SmoothRows, y: Tensor) -> tuple[Tensor, ...]:
    """P(Z <= y) and P(Z > y), for `gap` also E|Z - y|."""
    if not is_host(y):
        return _near(gap, dist, y)
    beyond = dist.location >= dist.tables[-1] - MARGIN
    cases = [Case(~beyond, partial(_near, gap), 1), Case(beyond, partial(_by_tail, gap), 1)]
    return by_case(cases, dist, y)


def _near(gap: bool, dist: SmoothRows, y: Tensor) -> tuple[Tensor, ...]:
    """Distributions that may fit a table."""
    end = dist.table_end(y)
    cases, low = [], 0.0
    for n in dist.tables if is_host(y) else dist.tables[-1:]:
        cases.append(Case((end >= low) & (end < n - MARGIN), partial(_by_table, n, gap), n))
        low = n - MARGIN
    cases.append(Case(end >= low, partial(_by_tail, gap), 1))
    return by_case(cases, dist, y)


def _by_table(n: int, gap: bool, dist: SmoothRows, y: Tensor) -> tuple[Tensor, ...]:
    pmf = dist.pmf_table(n)
    return tables.cut(tables.Table(tables.counts(n, y.device).expand_as(pmf), pmf), y, gap)


def _by_tail(gap: bool, dist: SmoothRows, y: Tensor) -> tuple[Tensor, ...]:
    dist = dist.prepared()
    mean = dist.mean()
    lower = y + 0.5 < mean
    side = torch.where(lower, -1.0, 1.0).to(y.dtype)
    mass, *distance = _outer(gap, dist, y, side, dist.tail_end(y, lower))
    rest = 1.0 - mass
    both = torch.where(lower, mass, rest), torch.where(lower, rest, mass)
    return (*both, side * (y - mean) + 2.0 * distance[0]) if gap else both


def _outer(gap: bool, dist: SmoothRows, y: Tensor, side: Tensor, end: Tensor) -> tuple[Tensor, ...]:
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


def _tail_by_table(gap: bool, dist: SmoothRows, y: Tensor, side: Tensor, end: Tensor) -> tuple[Tensor, ...]:
    n = dist.tables[-1]
    counts = tables.counts(n, y.device)
    p = tables.up_to(y, counts, dist.pmf_first(n))
    mass = p.sum(1)
    return (mass, y * mass - p @ counts) if gap else (mass,)


def _tail_by_integers(gap: bool, dist: SmoothRows, y: Tensor, side: Tensor, end: Tensor) -> tuple[Tensor, ...]:
    steps, first = tables.counts(dist.short_tail, y.device), side.clamp(min=0.0)
    p = dist.pmf(torch.addcmul((y + first).unsqueeze(1), side.unsqueeze(1), steps).clamp_(min=_SMOOTH_FROM))
    mass = p.sum(1)
    return (mass, first * mass + p @ steps) if gap else (mass,)


def _tail_by_nodes(gap: bool, dist: SmoothRows, y: Tensor, side: Tensor, end: Tensor) -> tuple[Tensor, ...]:
    here = y + 0.5
    integral = _integral(gap, dist, y, torch.minimum(here, end), torch.maximum(here, end), from_zero=False)
    mass, *distance = (i - side * c for i, c in zip(integral, _at_cut(gap, dist, y), strict=True))
    return (mass, *(side * x for x in distance))


def _tail_from_zero(gap: bool, dist: SmoothRows, y: Tensor, side: Tensor, end: Tensor) -> tuple[Tensor, ...]:
    """A tail that includes some of the first integers: 0..y below, or y+1.. above with y < 16."""
    lower = side < 0
    stop = torch.where(lower, y + 0.5, end)
    beyond = _integral(gap, dist, y, torch.full_like(y, JOIN - 0.5), stop, from_zero=True)
    counts, joined = prefix(y.device)
    first = dist.pmf_first(PREFIX)
    p = first * joined - tables.up_to(torch.where(lower, -1.0, y), counts, first)
    head = (p.sum(1), p @ counts - y * p.sum(1)) if gap else (p.sum(1),)
    parts = zip(head, beyond, _at_cut(gap, dist, y), strict=True)
    mass, *distance = (a + b + torch.where(lower, c, 0.0) for a, b, c in parts)
    return (mass, *(side * x for x in distance))


def _integral(
    gap: bool, dist: SmoothRows, y: Tensor, start: Tensor, end: Tensor, from_zero: bool
) -> tuple[Tensor, ...]:
    """The integral of p(z), and for `gap` of (z - y) p(z)."""
    z, weight = dist.nodes(start, end, from_zero)
    p = dist.pmf(z).mul_(weight)
    return (p.sum(1), z.sub_(y.unsqueeze(1)).mul_(p).sum(1)) if gap else (p.sum(1),)


def _at_cut(gap: bool, dist: SmoothRows, y: Tensor) -> tuple[Tensor, ...]:
    """The correction B of a cut at y + 1/2 for the same functions."""
    offsets, weights = cut_weights(y.device)
    p = dist.pmf((y.unsqueeze(1) + offsets).clamp_(min=_SMOOTH_FROM))
    return (p @ weights, p @ (weights * offsets)) if gap else (p @ weights,)
