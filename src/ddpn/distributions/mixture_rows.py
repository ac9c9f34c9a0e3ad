"""A uniform mixture of count laws, row by row: members' tensors (rows, M), flattened to call a member's own method."""

import math
from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import grid, scattered
from ddpn.distributions.count import CountDistribution
from ddpn.distributions.cuts import Cut
from ddpn.distributions.normalizer import DEPTH
from ddpn.distributions.quadrature import PREFIX
from ddpn.distributions.rows import Case, by_case

#: Panels for members that overlap; members that do not may ask for all of their own.
_SHARED_PANELS = 12


class MixtureRows(CountDistribution):
    """What `CountDistribution` needs to know of a uniform mixture; `kind` is a law of the members' class."""

    def __init__(self, kind: CountDistribution, tensors: tuple[Tensor, ...]) -> None:
        self._kind, self._stacked = kind, tensors
        self._rows, self._size = tensors[0].shape[:2]
        super().__init__(torch.Size([self._rows]), validate_args=False)

    @property
    def _copies(self) -> int:  # type: ignore[override]
        return self._size

    def _tensors(self) -> tuple[Tensor, ...]:
        return self._stacked

    def _of(self, tensors: tuple[Tensor, ...]) -> "MixtureRows":
        return MixtureRows(self._kind, tensors)

    def _each(self) -> CountDistribution:
        return self._kind._of(tuple(t.flatten(0, 1) for t in self._stacked))

    def _repeat(self, y: Tensor) -> Tensor:
        return y.unsqueeze(1).expand(-1, self._size, *y.shape[1:]).flatten(0, 1)

    def _fold(self, x: Tensor) -> Tensor:
        return x.unflatten(0, (self._rows, self._size))

    def _log_mean(self, log_p: Tensor) -> Tensor:
        return torch.logsumexp(self._fold(log_p), dim=1) - math.log(self._size)

    def _log_pmf(self, y: Tensor) -> Tensor:
        return self._log_mean(self._each()._log_pmf(self._repeat(y)))

    def _smooth_log_pmf(self, y: Tensor) -> Tensor:
        return self._log_mean(self._each()._smooth_log_pmf(self._repeat(y)))

    def _pmf(self, y: Tensor) -> Tensor:
        return self._fold(self._each()._pmf(self._repeat(y))).mean(1)

    def _pmf_near(self, y: Tensor) -> Tensor:
        return self._fold(self._each()._pmf_near(self._repeat(y))).mean(1)

    def _pmf_table(self, n: int) -> Tensor:
        return self._fold(self._each()._pmf_table(n)).mean(1)

    def _pmf_prefix(self) -> Tensor:
        return self._fold(self._each()._pmf_prefix()).mean(1)

    def _mean_variance(self) -> tuple[Tensor, Tensor]:
        mean, variance = (self._fold(x) for x in self._each()._mean_variance())
        return mean.mean(1), variance.mean(1) + mean.var(1, correction=0)

    def _cut(self, y: Tensor) -> Cut:
        return Cut(*(self._fold(x).mean(1) for x in self._each()._cut(self._repeat(y))))

    def _window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        first, last = (self._fold(x) for x in self._each()._window(depth))
        return first.amin(1), last.amax(1)

    def _breaks(self) -> Tensor:
        each = self._fold(self._each()._breaks())
        return grid.merge(each, each.shape[1] * (each.shape[2] - 1))

    def _member(self, index: int) -> CountDistribution:
        return self._kind._of(tuple(t[:, index] for t in self._stacked))

    def _pair(self, i: int, j: int) -> "MixtureRows":
        return self._of(tuple(t[:, [i, j]] for t in self._stacked))

    def _half_mean_difference(self) -> Tensor:
        return self._unless_scattered(grid.half_mean_difference, scattered.half_mean_difference)

    def _entropy_of_panels(self) -> tuple[Tensor]:
        return (self._unless_scattered(grid.entropy, scattered.entropy),)

    def _mode_of_panels(self) -> Tensor:
        return scattered.highest_count(self, super()._mode_of_panels())

    def _unless_scattered(self, on_panels: Any, exactly: Any) -> Tensor:
        """`on_panels`, but `exactly` for rows with a narrow member; finding them is the one wait for a GPU here."""
        first, last = (self._fold(x) for x in self._each()._window())
        values = self._on_merged(on_panels)
        rows = (last - first < scattered.NARROW).any(1).nonzero().squeeze(1)
        if len(rows):
            values[rows] = exactly(self._of(tuple(t[rows] for t in self._stacked)))
        return values

    def _on_merged(self, reduce: Any) -> Tensor:
        """Few panels for rows whose members overlap, all that members ask for elsewhere."""
        each = self._fold(self._each()._breaks())
        most = each.shape[1] * (each.shape[2] - 1)
        overlap = grid.panels_needed(each) <= _SHARED_PANELS

        def on(count: int) -> Any:
            def method(each: Tensor, *tensors: Tensor) -> tuple[Tensor]:
                return (reduce(grid.panels(self._of(tensors), grid.merge(each, count))),)

            return method

        found = [
            Case(flag, on(count), (PREFIX + count * grid.NODES) * self._size)
            for flag, count in ((overlap, _SHARED_PANELS), (~overlap, most))
        ]
        return by_case(found, each, *self._stacked)[0]
