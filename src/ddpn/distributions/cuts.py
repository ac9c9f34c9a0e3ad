"""Splitting any count law at y: P(Z <= y), P(Z > y) and E|Z - y|.

Only the tail that y cuts off, away from the mean, is summed; so both probabilities keep their relative accuracy.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ddpn.distributions import grid
from ddpn.distributions.dispatch import Case, by_case
from ddpn.distributions.quadrature import JOIN, cut, prefix

if TYPE_CHECKING:
    from ddpn.distributions.count import CountDistribution


class Cut(NamedTuple):
    """P(Z <= y), P(Z > y) and E|Z - y|."""

    cdf: Tensor
    survival: Tensor
    distance: Tensor


class Tail(NamedTuple):
    """The part of a law on one side of y: its mass, sum of |z - y| p(z), the side, and the law's mean."""

    mass: Tensor
    distance: Tensor
    lower: Tensor
    mean: Tensor

    def to_cut(self, y: Tensor) -> Cut:
        """Both sides, from this one."""
        rest = 1.0 - self.mass
        return Cut(
            cdf=torch.where(self.lower, self.mass, rest),
            survival=torch.where(self.lower, rest, self.mass),
            distance=torch.where(self.lower, self.mean - y, y - self.mean) + 2.0 * self.distance,
        )


def cut_at(law: "CountDistribution", y: Tensor) -> Cut:
    """Split a flat law at y. Shape: y (rows,)."""
    mean, _ = law._mean_variance()
    lower = y + 0.5 < mean
    law = law._prepared()
    outer = law._tail_end(y, lower)
    start = torch.where(lower, outer, y + 0.5)
    end = torch.where(lower, y + 0.5, outer)
    short = end - start < grid.SHORT - 1
    tensors = law._tensors()

    def integers(y: Tensor, lower: Tensor, start: Tensor, end: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        return _by_integers(law._of(tensors), y, lower)

    def quadrature(y: Tensor, lower: Tensor, start: Tensor, end: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        return _by_panels(law._of(tensors), y, lower, start, end)

    found = [Case(short, integers, grid.SHORT * law._copies), Case(~short, quadrature, grid.SHORT * law._copies)]
    mass, distance = by_case(found, y, lower, start, end, *tensors)
    return Tail(mass, distance, lower, mean).to_cut(y)


def _by_integers(law: "CountDistribution", y: Tensor, lower: Tensor) -> tuple[Tensor, Tensor]:
    steps = torch.arange(float(grid.SHORT), dtype=y.dtype, device=y.device)
    lower = lower.unsqueeze(1)
    z = y.unsqueeze(1) + torch.where(lower, -steps, steps + 1.0)
    p = law._log_pmf(z.clamp(min=0.0)).exp() * (z >= 0)
    return p.sum(1), (p * torch.where(lower, steps, steps + 1.0)).sum(1)


def _by_panels(law: "CountDistribution", y: Tensor, lower: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Panels from one end to the cut; the first integers one by one, with a cut of their own where panels take over."""
    side = torch.where(lower, -1.0, 1.0).to(y.dtype)
    beyond = y >= JOIN
    reaches_zero = torch.where(lower, start < JOIN, ~beyond)
    p = grid.panels(law, law._spread(start, torch.where(lower & ~beyond, start, end)))
    counts, join_weights = prefix(y.device)
    upto = (counts <= y.unsqueeze(1)).to(y.dtype)
    small_head = torch.where(lower.unsqueeze(1), upto, join_weights - upto)
    head = torch.where(beyond.unsqueeze(1), join_weights.expand_as(upto), small_head) * reaches_zero.unsqueeze(1)
    p = p._replace(head_weight=head, weight=p.weight * (beyond | ~lower).view(-1, 1, 1))
    offsets, cut_weights = cut(y.device)
    around = (y.unsqueeze(1) + offsets).clamp(min=JOIN - 4.0)
    at_y = law._pmf(around) * cut_weights * (-side * beyond).unsqueeze(1)
    distance = p.total(p.head * (counts - y.unsqueeze(1)), p.pmf * (p.x - y.view(-1, 1, 1))) + (at_y * offsets).sum(1)
    return p.total(p.head, p.pmf) + at_y.sum(1), side * distance
