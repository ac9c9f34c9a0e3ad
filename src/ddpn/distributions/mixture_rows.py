"""A uniform mixture of count laws, row by row: members' tensors (rows, M), flattened to call a member's own method."""

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
from ddpn.distributions.quantiles import smallest_count

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
    """What `CountDistribution` needs to know of a mixture.

    Tensors are the weights (rows, K), then each stack's (rows, k); `counts` is the number of tensors per stack.
    """

    def __init__(
        self, kinds: tuple[CountDistribution, ...], counts: tuple[int, ...], tensors: tuple[Tensor, ...]
    ) -> None:
        self._kinds, self._counts_of, self._stacked = kinds, counts, tensors
        self._weights = tensors[0]
        self._rows, self._size = tensors[0].shape[:2]
        super().__init__(torch.Size([self._rows]), validate_args=False)

    @property
    def _copies(self) -> int:  # type: ignore[override]
        return self._size

    def _tensors(self) -> tuple[Tensor, ...]:
        return self._stacked

    def _of(self, tensors: tuple[Tensor, ...]) -> "MixtureRows":
        return MixtureRows(self._kinds, self._counts_of, tensors)

    def _stack_tensors(self) -> list[tuple[Tensor, ...]]:
        found, start = [], 1
        for count in self._counts_of:
            found.append(self._stacked[start : start + count])
            start += count
        return found

    def _sizes(self) -> list[int]:
        return [tensors[0].shape[1] for tensors in self._stack_tensors()]

    def _each(self) -> list[CountDistribution]:
        """Each stack with all its components as rows."""
        parts = zip(self._kinds, self._stack_tensors(), strict=True)
        return [kind._of(tuple(t.flatten(0, 1) for t in tensors)) for kind, tensors in parts]

    def _prepared(self, far: bool = False) -> "MixtureRows":
        ready = [each._prepared() for each in self._each()]
        tensors = [
            tuple(t.unflatten(0, (self._rows, k)) for t in each._tensors())
            for each, k in zip(ready, self._sizes(), strict=True)
        ]
        return MixtureRows(
            tuple(ready), tuple(len(t) for t in tensors), (self._weights, *(t for s in tensors for t in s))
        )

    def _component(self, index: int) -> CountDistribution:
        for kind, tensors in zip(self._kinds, self._stack_tensors(), strict=True):
            k = tensors[0].shape[1]
            if index < k:
                return kind._of(tuple(t[:, index] for t in tensors))
            index -= k
        raise IndexError(index)

    def _all(self, method: str, *args: Any) -> Any:
        """A method of each component; tensors among `args` are (rows, ...). Shape: (rows, K, ...)."""
        found = []
        for each, k in zip(self._each(), self._sizes(), strict=True):
            own = [
                a.unsqueeze(1).expand(-1, k, *a.shape[1:]).flatten(0, 1) if isinstance(a, Tensor) else a for a in args
            ]
            values = getattr(each, method)(*own)
            several = values if isinstance(values, tuple) else (values,)
            found.append([v.unflatten(0, (self._rows, k)) for v in several])
        joined = tuple(c[0] if len(c) == 1 else torch.cat(c, dim=1) for c in zip(*found, strict=True))
        return joined if isinstance(values, tuple) else joined[0]

    def _average(self, each: Tensor) -> Tensor:
        return (each * self._weights.view(*self._weights.shape, *[1] * (each.dim() - 2))).sum(1)

    def _log_mean(self, log_p: Tensor) -> Tensor:
        log_w = self._weights.log()
        return torch.logsumexp(log_p + log_w.view(*log_w.shape, *[1] * (log_p.dim() - 2)), dim=1)

    def _log_pmf(self, y: Tensor) -> Tensor:
        return self._log_mean(self._all("_log_pmf", y))

    def _smooth_log_pmf(self, y: Tensor) -> Tensor:
        return self._log_mean(self._all("_smooth_log_pmf", y))

    def _pmf(self, y: Tensor) -> Tensor:
        return self._average(self._all("_pmf", y))

    def _pmf_near(self, y: Tensor) -> Tensor:
        return self._average(self._all("_pmf_near", y))

    def _pmf_table(self, n: int) -> Tensor:
        return self._average(self._all("_pmf_table", n))

    def _pmf_prefix(self) -> Tensor:
        return self._average(self._all("_pmf_prefix"))

    def _mean_variance(self) -> tuple[Tensor, Tensor]:
        each, variance = self._all("_mean_variance")
        mean = self._average(each)
        return mean, self._average(variance + (each - mean.unsqueeze(1)) ** 2)

    def _cut(self, y: Tensor) -> Cut:
        return Cut(*(self._average(x) for x in self._all("_cut", y)))

    def _sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        cdf, survival = self._all("_sides", y)
        return self._average(cdf), self._average(survival)

    def _windows(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor, Tensor]:
        """First and last position per component, and which of them have weight."""
        return *self._all("_window", depth), self._weights > 0

    def _window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        first, last, used = self._windows(depth)
        return torch.where(used, first, torch.inf).amin(1), torch.where(used, last, 0.0).amax(1)

    def _breaks(self) -> Tensor:
        return self._merged_breaks(1)

    def _merged_breaks(self, finer: int) -> Tensor:
        used = (self._weights > 0).unsqueeze(2)
        parts, count = [], 0
        for each, k in zip(self._each(), self._sizes(), strict=True):
            own = each._breaks()
            # A component narrower than 1 lives on the counts beside its window.
            own = torch.cat([(own[:, :1] - _BESIDE).clamp(min=0.0), own[:, 1:-1], own[:, -1:] + _BESIDE], dim=1)
            parts.append(own.unflatten(0, (self._rows, k)))
            count += k * (own.shape[1] - 1)
        longest = max(p.shape[2] for p in parts)
        padded = [torch.cat([p, p[:, :, -1:].expand(-1, -1, longest - p.shape[2])], dim=2) for p in parts]
        each = torch.cat(padded, dim=1)
        heaviest = self._weights.argmax(1).view(-1, 1, 1).expand(-1, 1, longest)
        each = torch.where(used, each, each.gather(1, heaviest))
        return grid.merge(each, finer * count)

    def _reweighted(self, weights: Tensor) -> "MixtureRows":
        return self._of((weights / weights.sum(1, keepdim=True), *self._stacked[1:]))

    def draw(self, choice: Tensor, u: Tensor) -> Tensor:
        """Counts at the uniform u of components chosen by the uniform `choice`."""
        upto = self._weights.cumsum(1)
        chosen = (upto < choice.unsqueeze(1) * upto[:, -1:]).sum(1)
        found = torch.empty_like(u)
        for index in range(self._size):
            rows = (chosen == index).nonzero().squeeze(1)
            if len(rows):
                part = self._component(index)
                found[rows] = smallest_count(part._of(tuple(t[rows] for t in part._tensors())), u[rows])
        return found

    def _half_mean_difference(self) -> Tensor:
        return self._by_resolution(grid.half_mean_difference, grid.spread_of, scattered.half_mean_difference, nodes=48)

    def _entropy_of_panels(self) -> tuple[Tensor]:
        return (self._by_resolution(grid.entropy, entropy_on_integers, scattered.entropy, nodes=96),)

    def _by_resolution(self, on_panels: Any, on_integers: Any, exactly: Any, nodes: int) -> Tensor:
        """`on_panels`, unless a component is narrow: then `on_integers` where they are few, `exactly` elsewhere.

        Finding such rows is the one wait for a GPU here.
        """
        first, last, used = self._windows()
        values = self._on_merged(on_panels, nodes)
        narrow = ((last - first < scattered.NARROW) & used).any(1)
        union = torch.where(used, last, 0.0).amax(1) - torch.where(used, first, torch.inf).amin(1)
        few = union < _NEAR - 2 * MARGIN
        for rows, method in ((narrow & few, partial(self._on_integers, on_integers)), (narrow & ~few, exactly)):
            index = rows.nonzero().squeeze(1)
            if len(index):
                values[index] = method(self._of(tuple(t[index] for t in self._stacked)))
        return values

    def _on_integers(self, reduce: Any, rows: "MixtureRows") -> Tensor:
        """Every integer of the union of the components' windows."""

        def method(*tensors: Tensor) -> tuple[Tensor]:
            law = self._of(tensors)
            start = (law._window()[0].floor() - MARGIN).clamp(min=0.0)
            y = start.unsqueeze(1) + torch.arange(float(_NEAR), dtype=start.dtype, device=start.device)
            return reduce(grid.Grid(y, law._log_pmf(y).exp()))

        return in_blocks(method, _NEAR * self._size, *rows._tensors())[0]

    def _on_merged(self, reduce: Any, nodes: int) -> Tensor:
        """One panel where no component is narrow beside the union of all; panels that each asks for elsewhere."""
        law = self._prepared()
        first, last, used = law._windows()
        first, last = first.sqrt(), last.sqrt()
        ends = torch.stack([torch.where(used, first, torch.inf).amin(1), torch.where(used, last, 0.0).amax(1)], dim=1)
        union, shortest = ends[:, 1] - ends[:, 0], torch.where(used, last - first, torch.inf).amin(1)
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
