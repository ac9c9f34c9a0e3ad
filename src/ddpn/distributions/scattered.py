"""Mixtures whose members are too narrow for quadrature and too far apart for one table: member by member, exactly.

A narrow member is summed over its own integers; what the others contribute there is theirs to say.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ddpn.distributions import grid
from ddpn.distributions.count import CountDistribution, entropy_of
from ddpn.distributions.dispatch import in_blocks

if TYPE_CHECKING:
    from ddpn.distributions.mixture_rows import MixtureRows

#: A window this short means a standard deviation below 6: its pmf is not smooth enough from integer to integer.
NARROW = 96.0


def _own_half_mean_difference(law: CountDistribution) -> Tensor:
    return grid.by_window(law, grid.spread_of, lambda rows: (rows._half_mean_difference(),))[0]


def _integers_of(law: CountDistribution) -> tuple[Tensor, Tensor]:
    """The integers of a short window and the pmf there; 0 stands for those below, with pmf 0. Shape: (rows, SHORT)."""
    first, _ = law._window()
    z = (first.floor() - 1.0).unsqueeze(1) + torch.arange(float(grid.SHORT), dtype=first.dtype, device=first.device)
    return z.clamp(min=0.0), law._log_pmf(z.clamp(min=0.0)).exp() * (z >= 0)


def _distance_to(law: CountDistribution, z: Tensor) -> Tensor:
    """E|Z - z| at many z a row. Shape: (rows, n) -> (rows, n)."""
    n = z.shape[1]
    repeated = law._of(tuple(t.repeat_interleave(n, dim=0) for t in law._tensors()))
    return repeated._cut(z.reshape(-1))[2].reshape(-1, n)


def half_mean_difference(mixture: "MixtureRows") -> Tensor:
    """E|Z - Z'| / 2 as a sum over pairs of members: E|Z_i - Z_j| = sum over z of p_i(z) E|Z_j - z|, i the narrower."""
    mixture = _widest_first(mixture)
    members = [mixture._member(i) for i in range(mixture._size)]
    own = [_own_half_mean_difference(law) for law in members]
    total = torch.stack(own).sum(0)
    for i, narrower in enumerate(members):
        for j in range(i):
            total = total + _between(members[j], narrower, own[j], own[i], mixture._pair(j, i))
    return total / mixture._size**2


def _between(
    wider: CountDistribution, narrower: CountDistribution, own_w: Tensor, own_n: Tensor, pair: "MixtureRows"
) -> Tensor:
    """E|Z_i - Z_j| of two members."""
    first, last = narrower._window()
    count = len(wider._tensors())
    result = torch.empty_like(first)

    def by_integers(*tensors: Tensor) -> tuple[Tensor]:
        z, p = _integers_of(narrower._of(tensors[count:]))
        return ((p * _distance_to(wider._of(tensors[:count]), z)).sum(1),)

    rows = (last - first < NARROW).nonzero().squeeze(1)
    if len(rows):
        tensors = tuple(t[rows] for t in (*wider._tensors(), *narrower._tensors()))
        result[rows] = in_blocks(by_integers, grid.SHORT, *tensors)[0]
    # Two smooth laws: the half mean difference of their mixture is (own_w + own_n + E|Z_i - Z_j|) / 4.
    rows = (last - first >= NARROW).nonzero().squeeze(1)
    if len(rows):
        both = pair._of(tuple(t[rows] for t in pair._tensors()))
        result[rows] = 4.0 * _own_half_mean_difference(both) - own_w[rows] - own_n[rows]
    return result


def _widest_first(mixture: "MixtureRows") -> "MixtureRows":
    first, last = (mixture._fold(x) for x in mixture._each()._window())
    order = (last - first).argsort(dim=1, descending=True)
    return mixture._of(
        tuple(t.gather(1, order.view(*order.shape, *[1] * (t.dim() - 2)).expand_as(t)) for t in mixture._tensors())
    )


def entropy(mixture: "MixtureRows") -> Tensor:
    """The smooth members' entropy, then what each narrow member changes on its own integers."""
    mixture = _widest_first(mixture)
    first, last = (mixture._fold(x) for x in mixture._each()._window())
    smooth_members = (last - first >= NARROW).sum(1)
    result = torch.zeros_like(first[:, 0])
    for count in range(mixture._size + 1):
        rows = (smooth_members == count).nonzero().squeeze(1)
        if len(rows):
            result[rows] = _entropy_with(mixture._of(tuple(t[rows] for t in mixture._tensors())), count)
    return result


def _entropy_with(mixture: "MixtureRows", smooth: int) -> Tensor:
    """Entropy where the first `smooth` members are smooth and the others narrow."""
    size = mixture._size
    total = torch.zeros(len(mixture._tensors()[0]), dtype=torch.float64, device=mixture._tensors()[0].device)
    if smooth:
        share = smooth / size
        part = mixture._of(tuple(t[:, :smooth] for t in mixture._tensors()))
        total = share * (entropy_of(part) - math.log(share))
    for i in range(smooth, size):
        z, own = _integers_of(mixture._member(i))
        before = torch.zeros_like(own)
        for j in range(i):
            before = before + mixture._member(j)._log_pmf(z).exp()
        change = torch.special.entr((before + own) / size) - torch.special.entr(before / size)
        total = total + change.sum(1)
    return total
