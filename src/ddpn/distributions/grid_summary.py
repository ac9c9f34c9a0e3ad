"""Quantiles and mode of mixtures at once, from tables or one grid: what a table of predictions has."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import grid_modes, grid_quantiles, mixture_grid, tables
from ddpn.distributions.quantiles import settled
from ddpn.distributions.tables import Table


class Summary:
    """What `Mixture.summary` returns.

    Attributes
    ----------
    quantiles : Tensor
        Counts at the levels, (rows, n).
    mode : Tensor
        The most probable count, (rows,).
    entropy : Tensor
        The entropy, (rows,), which is computed when it is asked for.
    """

    def __init__(self, quantiles: Tensor, mode: Tensor, entropy: Callable[[], Tensor]) -> None:
        self.quantiles, self.mode, self._entropy = quantiles, mode, entropy

    @cached_property
    def entropy(self) -> Tensor:
        """The entropy per row, in nats."""
        return self._entropy()


def quantiles_and_mode(mixture: Any, q: Tensor) -> tuple[Tensor, Tensor]:
    """Of rows of a mixture at levels q in (0, 1). Shape: (rows, n) -> (rows, n) and (rows,)."""
    found = mixture.looked_up(q)
    if found is None:
        quantiles, sure, mode = _on_grid(mixture, q)
    else:
        quantiles, sure, mode, reached = found
        if not bool(reached.all()):
            rest = (~reached).nonzero().squeeze(1)
            quantiles[rest], sure[rest], mode[rest] = _on_grid(mixture.rows(rest), q[rest])
    rest = mode.isnan().nonzero().squeeze(1)
    if len(rest):
        mode[rest] = mixture.rows(rest).mode()
    return settled(mixture, q, quantiles, sure), mode


def _on_grid(mixture: Any, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantiles, whether they are sure, and modes, NaN where these are not."""

    def otherwise(rows: Any, q: Tensor) -> tuple[Tensor, ...]:
        return rows.normal_guess(q)[0], torch.zeros_like(q, dtype=torch.bool), rows.mode(), rows.constant(1.0)

    quantiles, sure, mode, mode_sure = mixture_grid.by_grid(mixture, _on_table, _on_panels, otherwise, q)
    return quantiles, sure, torch.where(mode_sure == 0, torch.nan, mode)


def _on_table(at: Table, q: Tensor) -> tuple[Tensor, ...]:
    (mode,) = tables.mode(at)
    return *grid_quantiles.on_table(at, q), mode, torch.ones_like(mode)


def _on_panels(join: int, count: int, mixture: Any, edges: Tensor, needed: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    ends = mixture_grid.breaks(edges, needed, count)
    p, _ = mixture_grid.grid(join, mixture, ends)
    return *grid_quantiles.of_panels(join, mixture, ends, p, q), *grid_modes.of_panels(join, mixture, p)
