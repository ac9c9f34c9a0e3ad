"""Sums over a whole count law: where to look at its pmf, and with what weights.

A law whose window is short is looked at on every integer of it. A long one gives its `breaks`, increasing positions
between neighbours of which its pmf is smooth enough for a few Gauss-Legendre nodes in sqrt(y).
"""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.dispatch import Case, by_case, constant, is_host
from ddpn.distributions.normalizer import MARGIN
from ddpn.distributions.quadrature import JOIN, between, derivative, prefix, running_integral

if TYPE_CHECKING:
    from ddpn.distributions.count import CountDistribution

#: Windows of at most this many integers are summed one by one.
SHORT = 128
_SIZES = (16, 32, 64, SHORT)
NODES = 8


class Grid(NamedTuple):
    """A law on every integer of its window. Shape: both (rows, n)."""

    y: Tensor
    pmf: Tensor


@cache
def _running_sums(n: int, device: torch.device) -> Tensor:
    """Matrix that takes a pmf (rows, n) to its running sums from the left, then to those from the right."""
    upto = np.triu(np.ones((n, n)))
    return constant(np.concatenate([upto, 1.0 - upto], axis=1), device)


def both_tails(pmf: Tensor) -> tuple[Tensor, Tensor]:
    """P(Z <= y) and P(Z > y) at each integer, each summed from its own end, so that small ones keep their digits."""
    if not is_host(pmf):
        # A GPU multiplies matrices faster than it scans.
        cdf, survival = (pmf @ _running_sums(pmf.shape[1], pmf.device)).chunk(2, dim=1)
        return cdf, survival
    return pmf.cumsum(1), torch.nn.functional.pad(pmf.flip(1).cumsum(1).flip(1)[:, 1:], (0, 1))


def spread_of(at: Grid) -> tuple[Tensor]:
    """E|Z - Z'| / 2 = sum F (1 - F) of a law on every integer of its window."""
    cdf, survival = both_tails(at.pmf)
    return ((cdf * survival).sum(1),)


def _by_integers(
    law: "CountDistribution", count: int, n: int, short: Callable[..., tuple[Tensor, ...]]
) -> Callable[..., tuple[Tensor, ...]]:
    """`short` on the integers 0..n-1."""

    def method(first: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        pmf = law._of(tensors[:count])._pmf_table(n)
        y = torch.arange(float(n), dtype=pmf.dtype, device=pmf.device).expand_as(pmf)
        return short(Grid(y, pmf), *tensors[count:])

    return method


def _by_near_integers(
    law: "CountDistribution", count: int, short: Callable[..., tuple[Tensor, ...]]
) -> Callable[..., tuple[Tensor, ...]]:
    """`short` on the integers from the window's start."""

    def method(first: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        steps = torch.arange(float(law._short), dtype=first.dtype, device=first.device)
        y = (first.floor() - 1.0).clamp(min=JOIN).unsqueeze(1) + steps
        return short(Grid(y, law._of(tensors[:count])._pmf_near(y)), *tensors[count:])

    return method


def by_window(
    law: "CountDistribution",
    short: Callable[..., tuple[Tensor, ...]],
    long: Callable[..., tuple[Tensor, ...]],
    *extra: Tensor,
    window: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """`short(grid, *extra)` for rows with a short window, `long(law, *extra)` for the others."""
    tensors = law._tensors()
    first, last = window or law._window()
    count, found, low = len(tensors), [], 0.0
    for n in _SIZES if is_host(first) or law._copies > 1 else _SIZES[-1:]:
        found.append(Case((last >= low) & (last < n - MARGIN), _by_integers(law, count, n, short), n * law._copies))
        low = n - MARGIN
    near = (last >= low) & (last - first < law._short - MARGIN - 1) & (first >= JOIN)
    found.append(Case(near, _by_near_integers(law, count, short), law._short * law._copies))

    def far(first: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        return long(law._of(tensors[:count]), *tensors[count:])

    found.append(Case((last >= low) & ~near, far, 1))
    return by_case(found, first, *tensors, *extra, sort=law._copies > 1)


class Panels(NamedTuple):
    """A law on the integers 0..PREFIX-1 (rows, PREFIX) and on panels beyond (rows, P, n), with weights for sums."""

    head: Tensor
    head_weight: Tensor
    x: Tensor
    weight: Tensor
    pmf: Tensor
    length: Tensor

    def total(self, on_head: Tensor, on_panels: Tensor) -> Tensor:
        """Sum over the integers of a function given on the head and on the panels' nodes."""
        return (self.head_weight * on_head).sum(1) + (self.weight * on_panels).sum((1, 2))


def panels(law: "CountDistribution", breaks: Tensor, nodes: int = NODES) -> Panels:
    """The law between `breaks`, and on the first integers where it reaches them."""
    touches = breaks[:, :1] < JOIN
    ends = breaks.clamp(min=JOIN - 0.5)
    x, weight = between(ends[:, :-1], ends[:, 1:], nodes)
    pmf = law._pmf(x.flatten(1)).unflatten(1, x.shape[1:])
    length = ends[:, 1:].sqrt() - ends[:, :-1].sqrt()
    return Panels(law._pmf_prefix(), prefix(x.device)[1] * touches, x, weight, pmf, length)


def spread_breaks(first: Tensor, last: Tensor, count: int) -> Tensor:
    """Breaks evenly spaced in sqrt(y); the first panel is cut in three, in proportion, for what h(y) does near 0."""
    low, high = first.clamp(min=JOIN - 0.5).sqrt().unsqueeze(1), last.clamp(min=JOIN).sqrt().unsqueeze(1)
    share = torch.linspace(0.0, 1.0, count + 1, dtype=low.dtype, device=low.device)
    t = torch.lerp(low.expand(-1, count + 1), high, share)
    ratio = (t[:, 1:2] / low) ** (1 / 3)
    start = torch.where(first < JOIN, first, low.squeeze(1).square()).unsqueeze(1)
    return torch.cat([start, torch.cat([low * ratio, low * ratio**2, t[:, 1:]], dim=1).square()], dim=1)


def half_mean_difference(p: Panels) -> Tensor:
    """E|Z - Z'| / 2 = sum F (1 - F) over the integers, for a long window.

    Between integers F goes on smoothly as the integral of the pmf p, plus p/2 + p'/12 - p'''/720. The last two are
    integrated by parts; together with the square of p'/12 they leave p^2/6 - p'^2/240 and terms at the join.
    """
    nodes = p.x.shape[2]
    density = p.pmf * p.x.sqrt() * (2.0 * p.length).unsqueeze(2)
    mass = (p.weight * p.pmf).sum(2)
    head_mass = (p.head_weight * p.head).sum(1)
    before = (head_mass.unsqueeze(1) + mass.cumsum(1) - mass).unsqueeze(2)
    cdf = before + density @ running_integral(nodes, density.device) + 0.5 * p.pmf
    head_cdf = p.head.cumsum(1)
    spread = p.total(head_cdf * (1.0 - head_cdf), cdf * (1.0 - cdf))
    a, b, c, d = p.head[:, JOIN - 2 : JOIN + 2].unbind(1)
    at_join, slope_there, curve = (9.0 * (b + c) - a - d) / 16.0, c - b, (a - b - c + d) / 2.0
    boundary = (1.0 - 2.0 * head_mass) * (curve / 720.0 - at_join / 12.0)
    boundary = boundary + at_join * (at_join / 24.0 + slope_there / 360.0)
    slope = (p.pmf @ derivative(nodes, density.device)) / (2.0 * p.length.unsqueeze(2) * p.x.sqrt()).clamp(min=1e-9)
    return spread + (p.weight * (p.pmf**2 / 6.0 - slope**2 / 240.0)).sum((1, 2)) + p.head_weight[:, 0] * boundary


def entropy(p: Panels) -> Tensor:
    """-sum p log p over the integers."""
    return p.total(torch.special.entr(p.head), torch.special.entr(p.pmf))


def merge(breaks: Tensor, panels: int) -> Tensor:
    """One set of `panels` + 1 breaks that resolves every member. Shape: (rows, M, K) -> (rows, panels + 1).

    Breaks are spread evenly in resolution: the largest density of breaks, in sqrt(y), that any member asks for.
    """
    edges, resolution = _resolution(breaks.sqrt())
    levels = torch.linspace(0.0, 1.0, panels + 1, dtype=edges.dtype, device=edges.device) * resolution[:, -1:]
    right = torch.searchsorted(resolution, levels).clamp(1, edges.shape[1] - 1)
    low, start = resolution.gather(1, right - 1), edges.gather(1, right - 1)
    share = (levels - low) / (resolution.gather(1, right) - low).clamp(min=1e-300)
    merged = torch.lerp(start, edges.gather(1, right), share.clamp(0.0, 1.0))
    return torch.cat([edges[:, :1], merged[:, 1:-1], edges[:, -1:]], dim=1).square()


def _resolution(t: Tensor) -> tuple[Tensor, Tensor]:
    """All members' breaks in order, and the number of panels asked for up to each."""
    edges = t.flatten(1).sort(dim=1).values
    middle = 0.5 * (edges[:, 1:] + edges[:, :-1])
    density = (t[:, :, 1:] - t[:, :, :-1]).clamp(min=1e-300).reciprocal()
    panel = torch.searchsorted(t, middle.unsqueeze(1).expand(-1, t.shape[1], -1).contiguous()) - 1
    inside = (panel >= 0) & (panel < density.shape[2])
    asked = (density.gather(2, panel.clamp(0, density.shape[2] - 1)) * inside).amax(dim=1)
    steps = asked * (edges[:, 1:] - edges[:, :-1])
    return edges, torch.cat([torch.zeros_like(steps[:, :1]), steps.cumsum(dim=1)], dim=1)
