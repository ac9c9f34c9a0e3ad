"""Modes of mixtures: from tables where these are short, else from a grid that all components share."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import mixture_grid, tables
from ddpn.distributions.dispatch import Case, by_case
from ddpn.distributions.panels import Panels
from ddpn.distributions.quadrature import JOIN
from ddpn.distributions.rows import MARGIN

#: Another peak of a grid's nodes this high may be the highest between them.
_NEARLY = 0.97
#: Parts that the way around a peak is cut into at once.
_PARTS = 8


def mode(mixture: Any, otherwise: Callable[[Any], tuple[Tensor]]) -> Tensor:
    """The most probable count.

    Where every component is less than 1/(e^2 K) of its own peak, the sum of K of them is less than the largest peak.
    So the mode lies between the ends of windows that are as deep, which a table holds unless it is too long.
    """
    first, last = mixture.windows(2.0 + math.log(mixture.weights.shape[1]))
    start, end = (first.amin(1).floor() - MARGIN).clamp(min=0.0), last.amax(1) + MARGIN
    near = start < JOIN
    length = torch.where(near, end, end - start) + 2.0
    is_short = (length < mixture_grid.SIZES[-1]) & (near | ~mixture_grid.is_far(mixture)) & mixture.smooth
    cases = [Case(~is_short, lambda rows, start: (_by_peaks(rows, otherwise),), 1)]
    low = 0.0
    for n in mixture_grid.SIZES:
        inside = is_short & (length >= low) & (length < n)
        cases.append(Case(inside & near, partial(_first_mode, n), mixture_grid.width(n, mixture)))
        cases.append(Case(inside & ~near, partial(_later_mode, n), mixture_grid.width(n, mixture)))
        low = float(n)
    return by_case(cases, mixture, start, sort=True)[0]


def _by_peaks(mixture: Any, otherwise: Callable[[Any], tuple[Tensor]]) -> Tensor:
    """From the highest node of a grid where no other comes close to it."""

    def none(rows: Any) -> tuple[Tensor, Tensor]:
        return rows.constant(0.0), rows.constant(0.0)

    def on_table(at: tables.Table) -> tuple[Tensor, Tensor]:
        (found,) = tables.mode(at)
        return found, torch.ones_like(found)

    found, sure = mixture_grid.by_grid(mixture, on_table, _on_panels, none)
    rest = (sure == 0).nonzero().squeeze(1)
    if len(rest):
        found[rest] = otherwise(mixture.rows(rest))[0]
    return found


def _on_panels(join: int, count: int, mixture: Any, edges: Tensor, needed: Tensor) -> tuple[Tensor, Tensor]:
    """The highest count, and 1 where it is surely that: where no other peak of the nodes is nearly as high."""
    p, _ = mixture_grid.grid(join, mixture, mixture_grid.breaks(edges, needed, count))
    return of_panels(join, mixture, p)


def of_panels(join: int, mixture: Any, p: Panels) -> tuple[Tensor, Tensor]:
    """The same, of a grid that is known."""
    x, height = p.x.flatten(1), p.pmf.flatten(1)
    top, at = height.max(1, keepdim=True)
    before, after = height[:, :-2], height[:, 2:]
    peak = (height[:, 1:-1] >= before) & (height[:, 1:-1] >= after) & (height[:, 1:-1] > _NEARLY * top)
    sure = (peak.sum(1) == 1) & (at.squeeze(1) > 0) & (at.squeeze(1) < x.shape[1] - 1)
    inside = at.clamp(1, x.shape[1] - 2)
    low, high = x.gather(1, inside - 1).floor(), x.gather(1, inside + 1).ceil()
    share = torch.linspace(0.0, 1.0, _PARTS + 1, dtype=x.dtype, device=x.device)
    while bool((high - low > _PARTS).any()):
        y = torch.lerp(low, high, share).round()
        best = mixture.pmf_on_grid(y).argmax(1, keepdim=True)
        low, high = y.gather(1, (best - 1).clamp(min=0)), y.gather(1, (best + 1).clamp(max=_PARTS))
    y = low + torch.arange(float(_PARTS + 1), dtype=x.dtype, device=x.device)
    (found,) = tables.mode(tables.Table(y, mixture.pmf_on_grid(y)))
    if join:
        counts = torch.arange(float(join), dtype=x.dtype, device=x.device).expand(len(x), join)
        (first,) = tables.mode(tables.Table(counts, p.head[:, :join]))
        highest = p.head[:, :join].amax(1)
        is_first = highest * _NEARLY > top.squeeze(1)
        found = torch.where(is_first, first, found)
        sure = is_first | (sure & (highest < _NEARLY * top.squeeze(1)))
    return found, sure.to(found.dtype)


def _first_mode(n: int, mixture: Any, start: Tensor) -> tuple[Tensor]:
    pmf = mixture.normalised().pmf_first(n)
    return tables.mode(tables.Table(tables.counts(n, pmf.device).expand_as(pmf), pmf))


def _later_mode(n: int, mixture: Any, start: Tensor) -> tuple[Tensor]:
    y = start.unsqueeze(1) + tables.counts(n, start.device)
    return tables.mode(tables.Table(y, mixture.normalised().pmf_on_grid(y)))
