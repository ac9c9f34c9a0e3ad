"""Sums over a mixture on one grid that all components share: the pmf of each is evaluated once at each position.

Short windows that start near 0 are tables. Longer ones have all integers up to a join, so far as a component is too
narrow for panels, and beyond it panels of nodes, as dense as the component that needs most at each place. Windows far
from 0 have panels only.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import panels, tables
from ddpn.distributions.dispatch import Case, by_case, constant
from ddpn.distributions.panels import NODES, Panels
from ddpn.distributions.quadrature import BEYOND_CUT, JOIN, between, cut_weights, prefix
from ddpn.distributions.rows import MARGIN

#: Sizes of tables of all integers from 0 on, and where panels may begin.
SIZES = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_JOINS = (JOIN, 32, 64, 128, 256, 512, 1024, 2048)
#: Windows of up to so many integers are summed one by one where a component is narrow.
LONGEST_TABLE = 2048
#: Rows up to which one table serves all.
_FEW = 4
#: Numbers of panels that rows are sorted into.
_PANELS = (6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256, 384)
#: Positions, beside the ends of the components' windows, where the density of panels is read off.
_MORE_EDGES = 8
#: The union of the windows, in sqrt(y), is at most so many times the shortest of them: beyond, a centre that all
#: components share would cost more than the last six digits of their log pmf.
_STRETCH = 64.0
#: Near 0 a pmf may start as a power of y: panels reach at most so many times as far as they begin.
_PER_POSITION = 1.0

#: Blocks are so many times as large as others: beside the pmf of all components most operations are small.
_LARGER_BLOCKS = 4

OnTable = Callable[..., tuple[Tensor, ...]]
OnPanels = Callable[..., tuple[Tensor, ...]]


def by_grid(
    mixture: Any, on_table: OnTable, on_panels: OnPanels, otherwise: Any, *extra: Tensor, finer: float = 1.0
) -> tuple[Tensor, ...]:
    """`on_table(table, *extra)` or `on_panels(join, count, rows, density, *extra)`, whichever suits a row.

    `otherwise(rows, *extra)` is for rows that have no grid. Panels are `finer` than each component needs by itself.
    """
    if mixture.device.type == "cpu" and 0 < len(mixture) <= _FEW:
        # For few rows one table of all takes less time than sorting them, and even than the ends of their windows.
        most = mixture.upper_bound().max().item()
        if most < SIZES[-1] - MARGIN:
            return _on_table(next(n for n in SIZES if most < n - MARGIN), on_table, mixture, *extra)
    first, last = mixture.windows()
    start, end = first.amin(1), last.amax(1)
    rough = mixture.rough(first, last)
    cases, low = [], 0.0
    for n in SIZES:
        inside = (end >= low) & (end < n - MARGIN)
        cases.append(Case(inside, partial(_on_table, n, on_table), width(n, mixture)))
        low = n - MARGIN
    rest = end >= low
    dense = torch.where(rough, last + MARGIN + BEYOND_CUT, 0.0).amax(1)
    clear, any_rough = start >= JOIN, rough.any(1)
    near = rest & clear & any_rough & (end - start < LONGEST_TABLE - MARGIN - 2)
    cases += tables.by_length(near, end - start.floor() + MARGIN + 1, partial(_from_first, on_table), mixture.copies)
    # Rough components have no mass beyond the join, and up to it each is evaluated by itself.
    far = is_far(mixture, besides=rough) | ~mixture.on_grid() | (not mixture.resolved)
    apart = rest & ~near & ((clear & any_rough) | (dense > _JOINS[-1]) | far)
    cases.append(Case(apart, otherwise, 1))
    joined = rest & ~near & ~apart
    below = -1.0
    for join in _JOINS:
        here = joined & ~clear & (dense > below) & (dense <= join)
        cases.append(Case(here, partial(_by_density, join, on_panels, finer), 1))
        below = float(join)
    cases.append(Case(joined & clear, partial(_by_density, 0, on_panels, finer), 1))
    return by_case(cases, mixture, *extra, sort=True)


def is_far(mixture: Any, besides: Tensor | None = None) -> Tensor:
    """Whether components, `besides` some of them (rows, K), are too far apart for a common centre. Shape: (rows,)."""
    first, last = (x.sqrt() for x in mixture.windows())
    length = last - first
    shortest = length if besides is None else length.masked_fill(besides, torch.inf)
    return last.amax(1) - first.amin(1) > _STRETCH * shortest.amin(1)


def _on_table(n: int, on_table: OnTable, mixture: Any, *extra: Tensor) -> tuple[Tensor, ...]:
    pmf = mixture.pmf_table(n)
    return on_table(tables.Table(tables.counts(n, pmf.device).expand_as(pmf), pmf), *extra)


def _from_first(on_table: OnTable, n: int) -> OnTable:
    """`on_table` on n integers from the window's start, which is clear of 0."""

    def method(mixture: Any, *extra: Tensor) -> tuple[Tensor, ...]:
        mixture = mixture.normalised()
        first = mixture.window()[0]
        y = (first.floor() - 1.0).clamp(min=JOIN).unsqueeze(1) + tables.counts(n, first.device)
        return on_table(tables.Table(y, mixture.pmf_window(y)), *extra)

    return method


def _by_density(join: int, on_panels: OnPanels, finer: float, mixture: Any, *extra: Tensor) -> tuple[Tensor, ...]:
    """Rows by the number of panels that they need."""
    mixture = mixture.normalised()
    edges, needed = _needed(mixture, join)
    count = needed[:, -1] * finer
    cases, low = [], -1.0
    for n in _PANELS:
        inside = (count > low) & (count <= n)
        cases.append(Case(inside, partial(on_panels, join, n), width((n + 1) * NODES + join, mixture)))
        low = float(n)
    most = max(int(count.max().item()) + 1, _PANELS[-1]) if len(count) else _PANELS[-1]
    cases.append(Case(count > low, partial(on_panels, join, most), width((most + 1) * NODES + join, mixture)))
    return by_case(cases, mixture, edges, needed, *extra, sort=True)


def width(n: int, mixture: Any) -> int:
    """Numbers per row that a block is measured by, of n positions: few temporaries are larger than the positions."""
    return max(n * mixture.copies // _LARGER_BLOCKS, 1)


def _needed(mixture: Any, join: int) -> tuple[Tensor, Tensor]:
    """Positions in t = sqrt(y), increasing, and how many panels are needed up to each. Shape: both (rows, n)."""
    least = max(join - 0.5, 0.5)
    first, last = (x.clamp(min=least).sqrt() for x in mixture.windows())
    low, high = first.amin(1, keepdim=True), last.amax(1, keepdim=True)
    if join:
        low = torch.full_like(low, least**0.5)
    share = torch.linspace(0.0, 1.0, _MORE_EDGES, dtype=low.dtype, device=low.device)
    more = torch.lerp(low, high, share)
    # Of large counts most positions are close to 0 on this scale, and need edges of their own.
    near_zero = low * (high / low) ** torch.linspace(0.0, 1.0, 2 * _MORE_EDGES, dtype=low.dtype, device=low.device)
    edges = torch.cat([first, last, more, near_zero], dim=1).sort(dim=1).values
    left, width = edges[:, :-1], edges.diff(dim=1)
    density = _PER_POSITION / left
    start = 0
    for stack, k in zip(mixture.stacks, mixture.sizes, strict=True):
        own = slice(start, start + k)
        start += k
        at = left.unsqueeze(1).expand(-1, k, -1)
        inside = (first[:, own].unsqueeze(2) <= at) & (at < last[:, own].unsqueeze(2))
        each = stack.resolution(at.reshape(-1, at.shape[2])).view_as(at)
        density = torch.maximum(density, (each * inside).amax(1))
    steps = (density * width).cumsum(dim=1)
    return edges, torch.nn.functional.pad(steps, (1, 0))


def breaks(edges: Tensor, needed: Tensor, count: int) -> Tensor:
    """`count` + 1 breaks that share out the need evenly. Shape: (rows, count + 1)."""
    share = constant([i / count for i in range(count + 1)], edges.device)
    levels = needed[:, -1:] * share
    right = torch.searchsorted(needed, levels).clamp(1, edges.shape[1] - 1)
    low, start = needed.gather(1, right - 1), edges.gather(1, right - 1)
    part = (levels - low) / (needed.gather(1, right) - low).clamp(min=1e-300)
    t = torch.lerp(start, edges.gather(1, right), part.clamp(0.0, 1.0))
    return torch.cat([edges[:, :1], t[:, 1:-1], edges[:, -1:]], dim=1).square()


def grid(join: int, mixture: Any, ends: Tensor, at: Tensor | None = None) -> tuple[Panels, Tensor]:
    """The pmf on the integers before `join`, on panels between `ends`, and at the positions `at` (rows, n)."""
    x, weight = between(ends[:, :-1], ends[:, 1:], NODES)
    flat, shape = x.flatten(1), x.shape[1:]
    found = mixture.pmf_on_grid(flat if at is None else torch.cat([flat, at], dim=1))
    pmf, rest = found[:, : flat.shape[1]].unflatten(1, shape), found[:, flat.shape[1] :]
    length = ends[:, 1:].sqrt() - ends[:, :-1].sqrt()
    if not join:
        none = x.new_zeros((len(x), 0))
        return Panels(none, none, x, weight, pmf, length), rest
    head = mixture.pmf_first(join + BEYOND_CUT)
    return Panels(head, prefix(x.device, join)[1].expand_as(head), x, weight, pmf, length), rest


def crps(join: int, count: int, mixture: Any, edges: Tensor, needed: Tensor, y: Tensor) -> tuple[Tensor]:
    """E|Z - y| - E|Z - Z'| / 2 from panels that are cut at y + 1/2."""
    ends = breaks(edges, needed, count)
    here = (y + 0.5).unsqueeze(1)
    ends = torch.cat([ends, here.clamp(ends[:, :1], ends[:, -1:])], dim=1).sort(dim=1).values
    offsets, cut = cut_weights(y.device)
    p, around = grid(join, mixture, ends, (y.unsqueeze(1) + offsets).clamp(min=12.0))
    mean = mixture.mean()
    # The lower part of y + 1/2: integers of the head, nodes of panels, and the correction of the cut.
    gap = y.view(-1, 1, 1) - p.x
    below = (p.weight * p.pmf * gap * (gap > -0.5)).sum((1, 2))
    inside = (here.squeeze(1) > ends[:, 0]) & (here.squeeze(1) < ends[:, -1])
    below = below - torch.where(inside, around @ (cut * offsets), 0.0)
    if join:
        counts = prefix(y.device, join)[0]
        head_gap = y.unsqueeze(1) - counts
        joined = (p.head_weight * p.head * head_gap).sum(1)
        alone = (p.head * head_gap.clamp(min=0.0)).sum(1)
        below = torch.where(here.squeeze(1) > ends[:, 0], below + joined, alone)
    distance = mean - y + 2.0 * below
    return ((distance - panels.half_mean_difference(p, panels.total_mass(p))).clamp(min=0.0),)


def entropy(join: int, count: int, mixture: Any, edges: Tensor, needed: Tensor) -> tuple[Tensor]:
    """-sum p log p over the integers."""
    return (panels.entropy(grid(join, mixture, breaks(edges, needed, count))[0]),)
