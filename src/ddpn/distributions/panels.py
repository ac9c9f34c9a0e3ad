"""Sums over a long window by quadrature: the first integers one by one, panels of Gauss-Legendre nodes beyond."""

from typing import NamedTuple

import torch
from torch import Tensor

from ddpn.distributions.quadrature import BEYOND_CUT, JOIN, between, derivative, prefix, running_integral
from ddpn.distributions.rows import Rows

#: Nodes of a panel.
NODES = 8


class Panels(NamedTuple):
    """A pmf on the integers 0..join+3 (rows, join + 4) and on panels beyond (rows, P, n), with weights for sums.

    The panels start at join - 1/2. There may be no integers: the head is empty, where all panels are clear of 0.
    """

    head: Tensor
    head_weight: Tensor
    x: Tensor
    weight: Tensor
    pmf: Tensor
    length: Tensor

    def total(self, on_head: Tensor, on_panels: Tensor) -> Tensor:
        """Sum over the integers of a function given on the head and on the panels' nodes."""
        return (self.head_weight * on_head).sum(1) + (self.weight * on_panels).sum((1, 2))


def panels(dist: Rows, breaks: Tensor, nodes: int = NODES) -> Panels:
    """The pmf between `breaks`, and on the first integers where they reach them."""
    touches = breaks[:, :1] < JOIN
    ends = breaks.clamp(min=JOIN - 0.5)
    x, weight = between(ends[:, :-1], ends[:, 1:], nodes)
    pmf = dist.pmf(x.flatten(1)).unflatten(1, x.shape[1:])
    length = ends[:, 1:].sqrt() - ends[:, :-1].sqrt()
    joined = prefix(x.device)[1]
    return Panels(dist.pmf_first(len(joined)), joined * touches, x, weight, pmf, length)


def spread_breaks(first: Tensor, last: Tensor, count: int) -> Tensor:
    """Breaks evenly spaced in sqrt(y); the first panel is cut in three, in proportion, as a pmf may be sharp near 0."""
    low, high = first.clamp(min=JOIN - 0.5).sqrt().unsqueeze(1), last.clamp(min=JOIN).sqrt().unsqueeze(1)
    share = torch.linspace(0.0, 1.0, count + 1, dtype=low.dtype, device=low.device)
    t = torch.lerp(low.expand(-1, count + 1), high, share)
    ratio = (t[:, 1:2] / low) ** (1 / 3)
    start = torch.where(first < JOIN, first, low.squeeze(1).square()).unsqueeze(1)
    return torch.cat([start, torch.cat([low * ratio, low * ratio**2, t[:, 1:]], dim=1).square()], dim=1)


def total_mass(p: Panels) -> Tensor:
    """Sum of the pmf."""
    return p.total(p.head, p.pmf)


def moments(p: Panels, centre: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance, summed around `centre`."""
    counts = prefix(p.x.device)[0]
    head_gap, gap = counts - centre.unsqueeze(1), p.x - centre.view(-1, 1, 1)
    shift = p.total(p.head * head_gap, p.pmf * gap)
    return centre + shift, p.total(p.head * head_gap**2, p.pmf * gap**2) - shift**2


def half_mean_difference(p: Panels, mass: Tensor | None = None) -> Tensor:
    """E|Z - Z'| / 2 = sum F (1 - F) over the integers.

    Between integers F goes on smoothly as the integral of the pmf p, plus p/2 + p'/12 - p'''/720. The last two are
    integrated by parts; together with the square of p'/12 they leave p^2/6 - p'^2/240 and terms at the join. `mass`
    stands for 1: where a narrow component is short of it, by its normaliser, that would count once for each integer of
    a long tail.
    """
    nodes = p.x.shape[2]
    cdf, head_cdf, head_mass = upto(p)
    mass = torch.ones_like(head_mass) if mass is None else mass
    spread = p.total(head_cdf * (mass.unsqueeze(1) - head_cdf), cdf * (mass.view(-1, 1, 1) - cdf))
    slope = (p.pmf @ derivative(nodes, cdf.device)) / (2.0 * p.length.unsqueeze(2) * p.x.sqrt()).clamp(min=1e-9)
    spread = spread + (p.weight * (p.pmf**2 / 6.0 - slope**2 / 240.0)).sum((1, 2))
    if not p.head.shape[1]:
        return spread
    join = p.head.shape[1] - BEYOND_CUT
    a, b, c, d = p.head[:, join - 2 : join + 2].unbind(1)
    at_join, slope_there, curve = (9.0 * (b + c) - a - d) / 16.0, c - b, (a - b - c + d) / 2.0
    boundary = (mass - 2.0 * head_mass) * (curve / 720.0 - at_join / 12.0)
    boundary = boundary + at_join * (at_join / 24.0 + slope_there / 360.0)
    return spread + p.head_weight[:, 0] * boundary


def upto(p: Panels) -> tuple[Tensor, Tensor, Tensor]:
    """At the nodes the integral of the pmf, plus half of it; running sums of the head; and its mass up to the join."""
    density = p.pmf * p.x.sqrt() * (2.0 * p.length).unsqueeze(2)
    mass = (p.weight * p.pmf).sum(2)
    head_mass = (p.head_weight * p.head).sum(1)
    before = (head_mass.unsqueeze(1) + mass.cumsum(1) - mass).unsqueeze(2)
    cdf = before + density @ running_integral(p.x.shape[2], density.device) + 0.5 * p.pmf
    return cdf, p.head.cumsum(1), head_mass


def entropy(p: Panels) -> Tensor:
    """-sum p log p over the integers."""
    return p.total(torch.special.entr(p.head), torch.special.entr(p.pmf))


def merge(breaks: Tensor, panels: int) -> Tensor:
    """One set of `panels` + 1 breaks that resolves every component. Shape: (rows, M, K) -> (rows, panels + 1).

    Breaks are spread evenly in resolution: the largest density of breaks, in sqrt(y), that any component needs.
    """
    edges, resolution = _resolution(breaks.sqrt())
    levels = torch.linspace(0.0, 1.0, panels + 1, dtype=edges.dtype, device=edges.device) * resolution[:, -1:]
    right = torch.searchsorted(resolution, levels).clamp(1, edges.shape[1] - 1)
    low, start = resolution.gather(1, right - 1), edges.gather(1, right - 1)
    share = (levels - low) / (resolution.gather(1, right) - low).clamp(min=1e-300)
    merged = torch.lerp(start, edges.gather(1, right), share.clamp(0.0, 1.0))
    return torch.cat([edges[:, :1], merged[:, 1:-1], edges[:, -1:]], dim=1).square()


def _resolution(t: Tensor) -> tuple[Tensor, Tensor]:
    """All components' breaks in order, and the number of panels needed up to each."""
    edges = t.flatten(1).sort(dim=1).values
    middle = 0.5 * (edges[:, 1:] + edges[:, :-1])
    density = (t[:, :, 1:] - t[:, :, :-1]).clamp(min=1e-300).reciprocal()
    panel = torch.searchsorted(t, middle.unsqueeze(1).expand(-1, t.shape[1], -1).contiguous()) - 1
    inside = (panel >= 0) & (panel < density.shape[2])
    needed = (density.gather(2, panel.clamp(0, density.shape[2] - 1)) * inside).amax(dim=1)
    steps = needed * (edges[:, 1:] - edges[:, :-1])
    return edges, torch.cat([torch.zeros_like(steps[:, :1]), steps.cumsum(dim=1)], dim=1)
