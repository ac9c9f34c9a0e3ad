"""Quantiles, mode and entropy of mixtures from one grid: what a table of predictions has."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ddpn.distributions import grid_modes, grid_quantiles, mixture_grid, panels, tables
from ddpn.distributions.quantiles import settled
from ddpn.distributions.tables import Table

#: Panels per panel that a component needs by itself, for entropies.
_FINER = 2.0


class Summary(NamedTuple):
    """Counts at the levels (rows, n), the most probable count (rows,), and the entropy (rows,)."""

    quantiles: Tensor
    mode: Tensor
    entropy: Tensor


def summary(mixture: Any, q: Tensor) -> Summary:
    """Of rows of a mixture at levels q in (0, 1). Shape: (rows, n)."""

    def otherwise(rows: Any, q: Tensor) -> tuple[Tensor, ...]:
        unsure = torch.zeros_like(q, dtype=torch.bool)
        return rows.normal_guess(q)[0], unsure, rows.mode(), rows.constant(1.0), rows.entropy()

    found = mixture_grid.by_grid(mixture, _on_table, _on_panels, otherwise, q, finer=_FINER)
    quantiles, sure, mode, mode_sure, entropy = found
    rest = (mode_sure == 0).nonzero().squeeze(1)
    if len(rest):
        mode[rest] = mixture.rows(rest).mode()
    return Summary(settled(mixture, q, quantiles, sure), mode, entropy)


def _on_table(at: Table, q: Tensor) -> tuple[Tensor, ...]:
    (mode,) = tables.mode(at)
    return *grid_quantiles.on_table(at, q), mode, torch.ones_like(mode), *tables.entropy(at)


def _on_panels(join: int, count: int, mixture: Any, edges: Tensor, needed: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    ends = mixture_grid.breaks(edges, needed, count)
    p, _ = mixture_grid.grid(join, mixture, ends)
    quantiles = grid_quantiles.of_panels(join, mixture, ends, p, q)
    return *quantiles, *grid_modes.of_panels(join, mixture, p), panels.entropy(p)
