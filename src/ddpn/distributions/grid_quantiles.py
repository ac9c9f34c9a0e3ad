"""Quantiles of mixtures on a grid that all components share, and whether a grid can decide on them.

A grid's cdf is exact to about 1e-8. Where it comes closer than that to the level of a quantile, right below or at it,
the count is not sure: `ddpn.distributions.quantiles` then compares the exact cdf with the level.
"""

from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import mixture_grid, panels
from ddpn.distributions.quadrature import between, cut_weights
from ddpn.distributions.tables import Table

#: What a grid's cdf, and the exact one in a tail, may be off by: relatively, absolutely in a table and on panels.
_RELATIVE, _IN_TABLE, _ON_PANELS = 2e-6, 1e-12, 1e-7
#: Steps of Newton's method to a quantile from a guess between two nodes.
_STEPS = 4
#: Nodes of the part of a panel below a quantile.
_NODES = 8


def on_table(at: Table, q: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest counts y with P(Z <= y) >= q, and whether they are sure. Shape: q (rows, n)."""
    return _looked_up(at.pmf.cumsum(1), at.y, q)


def _looked_up(cdf: Tensor, y: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    place = torch.searchsorted(cdf, q.contiguous())
    inside = place.clamp(max=cdf.shape[1] - 1)
    upto = cdf.gather(1, inside)
    before = torch.where(inside > 0, cdf.gather(1, (inside - 1).clamp(min=0)), 0.0)
    sure = _is_sure(before, upto, q, _IN_TABLE) & (place == inside)
    return y.expand_as(cdf).gather(1, inside), sure


def _is_sure(before: Tensor, upto: Tensor, q: Tensor, least: float) -> Tensor:
    slack = least + _RELATIVE * torch.minimum(q, 1.0 - q)
    return (upto - q > slack) & (q - before > slack)


def on_panels(join: int, count: int, mixture: Any, edges: Tensor, needed: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """The same on the integers before `join` and panels beyond."""
    ends = mixture_grid.breaks(edges, needed, count)
    return of_panels(join, mixture, ends, mixture_grid.grid(join, mixture, ends)[0], q)


def of_panels(join: int, mixture: Any, ends: Tensor, p: panels.Panels, q: Tensor) -> tuple[Tensor, Tensor]:
    """The same, of a grid that is known."""
    cdf, head_cdf, head_mass = panels.upto(p)
    mass = (p.weight * p.pmf).sum(2)
    before = head_mass.unsqueeze(1) + mass.cumsum(1) - mass
    y = _between_nodes(cdf.flatten(1), p.x.flatten(1), p.pmf.flatten(1), q).clamp(min=float(max(join, 12)))
    found, sure = _refined(mixture, ends, before, y, q)
    if join:
        head_cdf = head_cdf[:, :join].contiguous()
        counts = torch.arange(float(join), dtype=q.dtype, device=q.device)
        low, low_sure = _looked_up(head_cdf, counts, q)
        in_head = q <= head_cdf[:, -1:]
        found, sure = torch.where(in_head, low, found), torch.where(in_head, low_sure, sure)
    return found, sure


def _between_nodes(cdf: Tensor, x: Tensor, pmf: Tensor, q: Tensor) -> Tensor:
    """A guess from the nodes on either side, by the cubic through both with the slopes there."""
    right = torch.searchsorted(cdf, q).clamp(1, cdf.shape[1] - 1)
    low, high, start, end, slow, shigh = (z.gather(1, at) for z in (cdf, x, pmf) for at in (right - 1, right))
    step = (high - low).clamp(min=1e-300)
    s = ((q - low) / step).clamp(0.0, 1.0)
    gap = end - start
    a, b = step / slow.clamp(min=1e-300) - gap, gap - step / shigh.clamp(min=1e-300)
    t = start + s * gap + s * (1.0 - s) * ((1.0 - s) * a + s * b)
    return torch.minimum(torch.maximum(t, start), end).ceil()


def _refined(mixture: Any, ends: Tensor, before: Tensor, y: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Newton's method with the cdf of the panels, each cut at y + 1/2, and the pmf at the counts around y."""
    offsets, cut = cut_weights(y.device)
    found, sure = y.clone(), torch.zeros_like(y, dtype=torch.bool)
    for _ in range(_STEPS):
        here = (y + 0.5).contiguous()
        panel = torch.searchsorted(ends, here).clamp(1, ends.shape[1] - 1) - 1
        x, weight = between(ends.gather(1, panel), here, _NODES)
        around = (y.unsqueeze(2) + offsets).clamp(min=12.0)
        pmf = mixture.pmf_on_grid(torch.cat([x, around], dim=2).flatten(1)).unflatten(1, (y.shape[1], -1))
        inner, near = pmf[..., :_NODES], pmf[..., _NODES:]
        upto = before.gather(1, panel) + (weight * inner).sum(2) + near @ cut
        # At y - 4, ..., y + 4.
        sums = torch.nn.functional.pad(near.cumsum(2), (1, 0))
        cdf = (upto.unsqueeze(2) - sums[..., 4:5] + sums).contiguous()
        place = torch.searchsorted(cdf, q.unsqueeze(2)).squeeze(2)
        inside = (place > 0) & (place < cdf.shape[2])
        place = place.clamp(1, cdf.shape[2] - 1).unsqueeze(2)
        low, high = cdf.gather(2, place - 1).squeeze(2), cdf.gather(2, place).squeeze(2)
        found = torch.where(inside, y + place.squeeze(2) - 4.0, found)
        sure = inside & _is_sure(low, high, q, _ON_PANELS)
        if bool(inside.all()):
            break
        step = ((q - upto) / near[..., 3].clamp(min=1e-300)).round()
        y = torch.where(inside, y, torch.minimum(torch.maximum(y + step, ends[:, :1].ceil()), ends[:, -1:].floor()))
    return found, sure
