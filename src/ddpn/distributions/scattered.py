"""Mixtures whose components are too narrow for quadrature and too far apart for one table, exactly.

The narrow components are summed on their own integers (atoms), the smooth ones together by quadrature.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ddpn.distributions import grid
from ddpn.distributions.count import entropy_of
from ddpn.distributions.dispatch import in_blocks

if TYPE_CHECKING:
    from ddpn.distributions.mixture_rows import MixtureRows

#: A window this short means a standard deviation below 6: its pmf is not smooth enough from integer to integer.
NARROW = 96.0


def _is_narrow(mixture: "MixtureRows") -> Tensor:
    first, last, _ = mixture._windows()
    return last - first < NARROW


def _atoms(mixture: "MixtureRows", narrow: Tensor) -> tuple[Tensor, Tensor]:
    """Integers of the narrow components' windows and the weighted pmf of the component there. Shape: (rows, n)."""
    positions, masses = [], []
    for i in range(mixture._size):
        law = mixture._component(i)
        first, _ = law._window()
        z = (first.floor() - 1.0).unsqueeze(1) + torch.arange(float(grid.SHORT), dtype=first.dtype, device=first.device)
        weight = (mixture._weights[:, i] * narrow[:, i]).unsqueeze(1)
        z, inside = z.clamp(min=0.0), z >= 0
        positions.append(z)
        masses.append(law._log_pmf(z).exp() * inside * weight)
    return torch.cat(positions, dim=1), torch.cat(masses, dim=1)


def _blocks(mixture: "MixtureRows", method: object) -> Tensor:
    width = grid.SHORT * mixture._size**2
    return in_blocks(lambda *tensors: (method(mixture._of(tensors)),), width, *mixture._tensors())[0]


def half_mean_difference(mixture: "MixtureRows") -> Tensor:
    """E|Z - Z'| / 2 from the atoms, from the smooth part, and between the two."""
    return _blocks(mixture, _half_mean_difference)


def _half_mean_difference(mixture: "MixtureRows") -> Tensor:
    narrow = _is_narrow(mixture)
    z, p = _atoms(mixture, narrow)
    order = z.argsort(dim=1)
    at, mass = z.gather(1, order), p.gather(1, order)
    below, above = mass.cumsum(1), mass.flip(1).cumsum(1).flip(1)
    total = (below[:, :-1] * above[:, 1:] * at.diff(dim=1)).sum(1)
    smooth = mixture._weights * ~narrow
    share = smooth.sum(1)
    rows = (share > 0).nonzero().squeeze(1)
    if len(rows):
        part = mixture._of(tuple(t[rows] for t in mixture._tensors()))._reweighted(smooth[rows])
        own = grid.by_window(part, grid.spread_of, lambda law: (law._half_mean_difference(),))[0]
        row, column = (p[rows] > 0).nonzero(as_tuple=True)
        repeated = part._of(tuple(t[row] for t in part._tensors()))
        distance = p[rows][row, column] * repeated._cut(z[rows][row, column]).distance
        between = torch.zeros_like(own).index_add(0, row, distance)
        total[rows] = total[rows] + share[rows] ** 2 * own + share[rows] * between
    return total


def entropy(mixture: "MixtureRows") -> Tensor:
    """The smooth part's entropy, and what the narrow components change on their own integers."""
    return _blocks(mixture, _entropy)


def _entropy(mixture: "MixtureRows") -> Tensor:
    narrow = _is_narrow(mixture)
    z = _atoms(mixture, narrow)[0].sort(dim=1).values
    first_of_equals = torch.nn.functional.pad(z.diff(dim=1) > 0, (1, 0), value=True)
    each = mixture._all("_log_pmf", z).exp() * mixture._weights.unsqueeze(2)
    before = (each * ~narrow.unsqueeze(2)).sum(1)
    change = torch.special.entr(each.sum(1)) - torch.special.entr(before)
    total = (change * first_of_equals).sum(1)
    smooth = mixture._weights * ~narrow
    share = smooth.sum(1)
    rows = (share > 0).nonzero().squeeze(1)
    if len(rows):
        part = mixture._of(tuple(t[rows] for t in mixture._tensors()))._reweighted(smooth[rows])
        total[rows] = total[rows] + share[rows] * (entropy_of(part) - share[rows].log())
    return total
