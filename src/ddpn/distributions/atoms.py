"""Mixtures with components that no panel resolves, such as narrow ones, and windows too long for one table: exactly.

Those rough components are summed on their own integers (atoms), the smooth ones together by quadrature.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import tables
from ddpn.distributions.dispatch import by_case
from ddpn.distributions.rows import MARGIN

#: A window this short means a standard deviation below 6: its pmf is not smooth enough from integer to integer.
NARROW = 96.0


def summed(method: Callable[..., tuple[Tensor]], mixture: Any) -> Tensor:
    """`half_mean_difference` or `entropy` per row of `MixtureRows`, in blocks of rows with about as many atoms."""
    first, last = mixture.windows()
    rough = mixture.rough(first, last)
    length = torch.where(rough, last - first, 0.0).amax(1) + MARGIN + 1
    every = torch.ones_like(length, dtype=torch.bool)
    cases = tables.by_length(every, length, lambda n: partial(method, n), mixture.copies**2)
    return by_case(cases, mixture, rough, first, sort=True)[0]


def _atoms(n: int, mixture: Any, rough: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """Integers of the rough components' windows, in order, and the weighted pmf there. Shape: (rows, atoms)."""
    positions, masses, start = [], [], 0
    for stack, k in zip(mixture.stacks, mixture.sizes, strict=True):
        own = slice(start, start + k)
        start += k
        if rough[:, own].any():
            steps = torch.arange(float(tables.SHORT if stack.smooth else n), dtype=first.dtype, device=first.device)
            z = (first[:, own].floor() - 1.0).unsqueeze(2) + steps
            inside, z = (z >= 0) & rough[:, own].unsqueeze(2), z.clamp(min=0.0)
            p = stack.log_pmf(z.flatten(0, 1)).exp().unflatten(0, z.shape[:2]) * mixture.weights[:, own].unsqueeze(2)
            positions.append(z.flatten(1))
            masses.append(torch.where(inside, p, 0.0).flatten(1))
    at, order = torch.cat(positions, dim=1).sort(dim=1)
    return at, torch.cat(masses, dim=1).gather(1, order)


def half_mean_difference(n: int, mixture: Any, rough: Tensor, first: Tensor) -> tuple[Tensor]:
    """E|Z - Z'| / 2 from the atoms, from the smooth part, and between the two."""
    z, p = _atoms(n, mixture, rough, first)
    below, above = p.cumsum(1), p.flip(1).cumsum(1).flip(1)
    total = (below[:, :-1] * above[:, 1:] * z.diff(dim=1)).sum(1)
    rows, share, part = _smooth_part(mixture, rough)
    if part is not None:
        row, column = (p[rows] > 0).nonzero(as_tuple=True)
        at = rows[row]
        distance = p[at, column] * part.rows(row).cut(z[at, column]).distance
        between = torch.zeros_like(share).index_add(0, row, distance)
        total[rows] += share * (share * tables.half_mean_difference_of(part) + between)
    return (total,)


def entropy(n: int, mixture: Any, rough: Tensor, first: Tensor) -> tuple[Tensor]:
    """The smooth part's entropy, and what the rough components change on their own integers."""
    z, _ = _atoms(n, mixture, rough, first)
    first_of_equals = torch.nn.functional.pad(z.diff(dim=1) > 0, (1, 0), value=True)
    each = mixture.each("log_pmf", z)[0].exp() * mixture.weights.unsqueeze(2)
    smooth = torch.where(rough.unsqueeze(2), 0.0, each).sum(1)
    change = torch.special.entr(each.sum(1)) - torch.special.entr(smooth)
    total = (change * first_of_equals).sum(1)
    rows, share, part = _smooth_part(mixture, rough)
    if part is not None:
        total[rows] += share * (tables.entropy_of(part) - share.log())
    return (total,)


def _smooth_part(mixture: Any, rough: Tensor) -> tuple[Tensor, Tensor, Any]:
    """Rows with smooth components, the weight of those, and their mixture."""
    weights = torch.where(rough, 0.0, mixture.weights)
    share = weights.sum(1)
    rows = (share > 0).nonzero().squeeze(1)
    return rows, share[rows], mixture.rows(rows).smooth_part(weights[rows]) if len(rows) else None
