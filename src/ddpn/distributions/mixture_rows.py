"""A uniform mixture of count laws, row by row: members' tensors (rows, M), flattened to call a member's own method."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import grid, scattered
from ddpn.distributions.count import CountDistribution, entropy_on_integers
from ddpn.distributions.cuts import Cut
from ddpn.distributions.dispatch import Case, by_case, in_blocks
from ddpn.distributions.normalizer import DEPTH, MARGIN
from ddpn.distributions.quadrature import PREFIX

#: Members coincide where the union of their windows is at most so many times the shortest of them, and differ beyond
#: the second number.
_STRETCH, _DIFFER = 1.4, 2.0
#: Panels for each that members who differ ask for: log p turns within a standard deviation where a narrow one takes
#: over from a wide one.
_FINER = 2
#: Unions of at most so many integers are summed one by one where a member is narrow.
_NEAR = 512
#: Counts beside a window that are looked at, too.
_BESIDE = 1.5


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

    def _prepared(self, far: bool = False) -> "MixtureRows":
        return self._of(tuple(self._fold(t) for t in self._each()._prepared()._tensors()))

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

    def _sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        cdf, survival = self._each()._sides(self._repeat(y))
        return self._fold(cdf).mean(1), self._fold(survival).mean(1)

    def _window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        first, last = (self._fold(x) for x in self._each()._window(depth))
        return first.amin(1), last.amax(1)

    def _breaks(self) -> Tensor:
        return self._merged_breaks(1)

    def _merged_breaks(self, finer: int) -> Tensor:
        each = self._each()._breaks()
        # A member narrower than 1 lives on the counts beside its window.
        ends = (each[:, :1] - _BESIDE).clamp(min=0.0), each[:, 1:-1], each[:, -1:] + _BESIDE
        each = self._fold(torch.cat(ends, dim=1))
        return grid.merge(each, finer * each.shape[1] * (each.shape[2] - 1))

    def _member(self, index: int) -> CountDistribution:
        return self._kind._of(tuple(t[:, index] for t in self._stacked))

    def _pair(self, i: int, j: int) -> "MixtureRows":
        return self._of(tuple(t[:, [i, j]] for t in self._stacked))

    def _half_mean_difference(self) -> Tensor:
        return self._by_resolution(grid.half_mean_difference, grid.spread_of, scattered.half_mean_difference, nodes=48)

    def _entropy_of_panels(self) -> tuple[Tensor]:
        return (self._by_resolution(grid.entropy, entropy_on_integers, scattered.entropy, nodes=96),)

    def _by_resolution(self, on_panels: Any, on_integers: Any, exactly: Any, nodes: int) -> Tensor:
        """`on_panels`, unless a member is narrow: then `on_integers` where they are few, and `exactly` elsewhere.

        Finding such rows is the one wait for a GPU here.
        """
        first, last = (self._fold(x) for x in self._each()._window())
        values = self._on_merged(on_panels, nodes)
        narrow, union = (last - first < scattered.NARROW).any(1), last.amax(1) - first.amin(1)
        few = union < _NEAR - 2 * MARGIN
        for rows, method in ((narrow & few, partial(self._on_integers, on_integers)), (narrow & ~few, exactly)):
            index = rows.nonzero().squeeze(1)
            if len(index):
                values[index] = method(self._of(tuple(t[index] for t in self._stacked)))
        return values

    def _on_integers(self, reduce: Any, rows: "MixtureRows") -> Tensor:
        """Every integer of the union of the members' windows."""

        def method(*tensors: Tensor) -> tuple[Tensor]:
            law = self._of(tensors)
            start = (law._window()[0].floor() - MARGIN).clamp(min=0.0)
            y = start.unsqueeze(1) + torch.arange(float(_NEAR), dtype=start.dtype, device=start.device)
            return reduce(grid.Grid(y, law._log_pmf(y).exp()))

        return in_blocks(method, _NEAR * self._size, *rows._tensors())[0]

    def _on_merged(self, reduce: Any, nodes: int) -> Tensor:
        """One panel where no member is narrow beside the union of all; panels that each member asks for elsewhere."""
        law = self._prepared()
        first, last = (self._fold(x).sqrt() for x in law._each()._window())
        ends = torch.stack([first.amin(1), last.amax(1)], dim=1)
        union, shortest = ends[:, 1] - ends[:, 0], (last - first).amin(1)
        coincide, differ = union <= _STRETCH * shortest, union > _DIFFER * shortest

        def together(nodes: int, ends: Tensor, *tensors: Tensor) -> tuple[Tensor]:
            return (reduce(grid.panels(law._of(tensors), ends.square(), nodes)),)

        def apart(ends: Tensor, *tensors: Tensor) -> tuple[Tensor]:
            rows = law._of(tensors)
            return (reduce(grid.panels(rows, rows._merged_breaks(_FINER))),)

        # As many nodes for each part of a panel, however long it is.
        more = round(nodes * _DIFFER / _STRETCH)
        own = (PREFIX + 8 * self._size * grid.NODES) * self._size
        found = [
            Case(coincide, partial(together, nodes), (PREFIX + nodes) * self._size),
            Case(~(coincide | differ), partial(together, more), (PREFIX + more) * self._size),
            Case(differ, apart, _FINER * own),
        ]
        return by_case(found, ends, *law._tensors(), sort=True)[0]
