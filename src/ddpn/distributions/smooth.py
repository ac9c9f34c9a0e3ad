"""Rows whose pmf continues smoothly between the integers, so that long windows are summed by quadrature."""

from abc import abstractmethod

import torch
from torch import Tensor

from ddpn.distributions import panels, peaks, tables
from ddpn.distributions.rows import DEPTH, ParameterRows
from ddpn.distributions.tails import TailRows


class SmoothRows(TailRows):
    """What follows from a window, its breaks and the ends of its tails; the far methods are for long windows."""

    @abstractmethod
    def spread(self, first: Tensor, last: Tensor) -> Tensor:
        """Breaks that resolve the pmf between two positions. Shape: (rows,) -> (rows, K)."""

    def breaks(self) -> Tensor:
        return self.spread(*self.window())

    def nodes(self, start: Tensor, end: Tensor, from_zero: bool) -> tuple[Tensor, Tensor]:
        ends = self.spread(start, end)
        x, weight = panels.between(ends[:, :-1], ends[:, 1:], panels.NODES)
        return x.flatten(1), weight.flatten(1)

    def table_end(self, y: Tensor) -> Tensor:
        upper = torch.zeros_like(y, dtype=torch.bool)
        return torch.maximum(self.window(DEPTH)[1], self.prepared().tail_end(y, upper))

    def mean_variance(self) -> tuple[Tensor, Tensor]:
        mean, variance = tables.by_window(self, tables.moments, lambda rows: rows.far_moments())
        return mean, variance

    def far_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance."""
        return panels.moments(panels.panels(self, self.breaks()), self.location().round().clamp(min=0.0))

    def far_half_mean_difference(self) -> Tensor:
        """E|Z - Z'| / 2."""
        return panels.half_mean_difference(panels.panels(self, self.breaks()))

    def far_entropy(self) -> Tensor:
        """-E[log p(Z)]."""
        return panels.entropy(panels.panels(self, self.breaks()))

    def far_mode(self) -> Tensor:
        """The most probable count."""
        return peaks.highest_peak(self)


class SmoothParameterRows(ParameterRows, SmoothRows):
    """Smooth rows made of tensors."""
