"""Rows of a weighted mixture of count distributions."""

from collections.abc import Callable, Sequence
from functools import partial
from math import log
from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import atoms, cuda_mixtures, grid_modes, grid_quantiles, mixture_grid, panels, peaks, tables
from ddpn.distributions.dispatch import Case, by_case, take
from ddpn.distributions.quadrature import JOIN, PREFIX
from ddpn.distributions.quantiles import LookedUp, from_normal, smallest_count
from ddpn.distributions.rows import DEPTH, MARGIN, Cut, Rows
from ddpn.distributions.special import SharedNodes

#: Components coincide where the union of their windows is at most so many times the shortest of them, and differ beyond
#: the second number.
_STRETCH, _DIFFER = 1.4, 2.0
#: Panels for each that components which differ need: log p turns within a standard deviation where a narrow one takes
#: over from a wide one.
_FINER = 2
#: Unions of at most so many integers are summed one by one where a component is rough.
_NEAR = 512
#: Counts beside a window that are included, too.
_BESIDE = 1.5


class MixtureRows(Rows):
    """Rows of stacks, each with the k components of row after row, and their weights (rows, K).

    Components of weight 0 count for nothing: neither windows nor panels depend on them.
    """

    def __init__(
        self,
        stacks: tuple[Any, ...],
        sizes: tuple[int, ...],
        weights: Tensor,
        even: bool = False,
        windows: tuple[Tensor, Tensor] | None = None,
        from_zero: Any = None,
    ) -> None:
        self.stacks, self.sizes, self.weights, self._even, self._windows = stacks, sizes, weights, even, windows
        #: `MixtureTables` of these rows, where their families have such tables.
        self.from_zero = from_zero

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def device(self) -> torch.device:
        return self.weights.device

    @property
    def copies(self) -> int:  # type: ignore[override]
        return sum(k * stack.copies for k, stack in zip(self.sizes, self.stacks, strict=True))

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        return all(stack.smooth for stack in self.stacks)

    @property
    def rounding(self) -> float:  # type: ignore[override]
        return max(stack.rounding for stack in self.stacks)

    def rows(self, index: Tensor | slice) -> "MixtureRows":
        stacks = tuple(stack.rows(_group(index, k)) for stack, k in zip(self.stacks, self.sizes, strict=True))
        windows = None if self._windows is None else tuple(take(x, index) for x in self._windows)
        return MixtureRows(stacks, self.sizes, take(self.weights, index), self._even, windows)

    def prepared(self, far: bool = False) -> "MixtureRows":
        stacks = tuple(stack.prepared() for stack in self.stacks)
        return MixtureRows(stacks, self.sizes, self.weights, self._even, self._windows)

    def normalised(self) -> "MixtureRows":
        stacks = tuple(stack.normalised() for stack in self.stacks)
        return MixtureRows(stacks, self.sizes, self.weights, self._even, self._windows)

    def smooth_part(self, weights: Tensor) -> "MixtureRows":
        """The smooth stacks with other weights, which are normalised."""
        parts = zip(self.stacks, self.sizes, weights.split(self.sizes, dim=1), strict=True)
        stacks, sizes, kept = zip(*(part for part in parts if part[0].smooth), strict=True)
        joined = torch.cat(kept, dim=1)
        return MixtureRows(stacks, sizes, joined / joined.sum(1, keepdim=True))

    def each(self, method: str, *args: Any) -> tuple[Tensor, ...]:
        """Results of a method of all components; tensors among `args` are per row. Shape: (rows, K, ...)."""
        found: list[Sequence[Tensor]] = []
        for stack, k in zip(self.stacks, self.sizes, strict=True):
            own = (_repeated(x, k) if isinstance(x, Tensor) else x for x in args)
            values = getattr(stack, method)(*own)
            several = (values,) if isinstance(values, Tensor) else values
            found.append([v.unflatten(0, (len(self), k)) for v in several])
        return tuple(c[0] if len(c) == 1 else torch.cat(c, dim=1) for c in zip(*found, strict=True))

    def _average(self, each: Tensor) -> Tensor:
        if self._even:
            return each.mean(1)
        return each.mul_(self.weights.view(*self.weights.shape, *[1] * (each.dim() - 2))).sum(1)

    def _log_average(self, each: Tensor) -> Tensor:
        if self._even:
            return torch.logsumexp(each, dim=1) - log(self.weights.shape[1])
        log_weights = self.weights.log()
        return torch.logsumexp(each + log_weights.view(*log_weights.shape, *[1] * (each.dim() - 2)), dim=1)

    def log_pmf(self, y: Tensor) -> Tensor:
        return self._log_average(*self.each("log_pmf", y))

    def smooth_log_pmf(self, y: Tensor) -> Tensor:
        return self._log_average(*self.each("smooth_log_pmf", y))

    def _total(self, of: Callable[[Any, int], Tensor]) -> Tensor:
        """The weighted sum of what `of` returns for each stack, (rows, k, n), over all components. Shape: (rows, n)."""
        total: Tensor | None = None
        parts = zip(self.stacks, self.sizes, self.weights.split(self.sizes, dim=1), strict=True)
        for stack, k, weights in parts:
            own = torch.bmm(weights.unsqueeze(1), of(stack, k)).squeeze(1)
            total = own if total is None else total.add_(own)
        return total if total is not None else self.weights

    def pmf(self, y: Tensor) -> Tensor:
        return self._total(lambda stack, k: stack.pmf(_repeated(y, k)).unflatten(0, (len(self), k)))

    def pmf_on_grid(self, y: Tensor) -> Tensor:
        """As `pmf`, faster, for components whose windows are not too far apart."""
        if not len(self):
            return torch.zeros_like(y)
        at = SharedNodes.of(y, y[:, y.shape[1] // 2, None])
        return self._total(lambda stack, k: stack.shared_pmf(at))

    def pmf_near(self, y: Tensor) -> Tensor:
        return self._total(lambda stack, k: stack.pmf_near(_repeated(y, k)).unflatten(0, (len(self), k)))

    def pmf_window(self, y: Tensor) -> Tensor:
        is_clear = bool((y[:, 0] >= JOIN - 1).all())
        is_smooth = self.smooth and is_clear and not bool(mixture_grid.is_far(self).any())
        return self.normalised().pmf_on_grid(y) if is_smooth else self.log_pmf(y).exp()

    def pmf_table(self, n: int) -> Tensor:
        if n <= tables.SHORT or not len(self) or self._windows is None:
            return self._total(lambda stack, k: stack.pmf_table(n).unflatten(0, (len(self), k)))
        total = self.weights.new_zeros((len(self), n))
        parts = zip(self.stacks, self.weights.split(self.sizes, 1), self._windows[1].split(self.sizes, 1), strict=True)
        for stack, weights, last in parts:
            # Beyond the windows of its components a stack has no mass.
            size = min(n, int(last.max().item() + MARGIN) + 2)
            pmf = stack.pmf_table(size).unflatten(0, weights.shape)
            total[:, :size] += torch.bmm(weights.unsqueeze(1), pmf).squeeze(1)
        return total

    def pmf_first(self, n: int) -> Tensor:
        return self._total(lambda stack, k: stack.pmf_first(n).unflatten(0, (len(self), k)))

    def mean(self) -> Tensor:
        """The mean of prepared rows."""
        return (self.each("mean")[0] * self.weights).sum(1)

    @property
    def resolved(self) -> bool:
        """Whether all components know how dense panels have to be."""
        none = self.weights.new_ones((0, 1))
        return all(stack.rows(slice(0, 0)).resolution(none) is not None for stack in self.stacks)

    def crps(self, y: Tensor) -> Tensor:
        """CRPS, on a grid that all components share."""
        return mixture_grid.by_grid(self, tables.crps, mixture_grid.crps, _by_parts, y)[0]

    def mean_variance(self) -> tuple[Tensor, Tensor]:
        each, variance = self.each("mean_variance")
        mean = (each * self.weights).sum(1)
        return mean, ((variance + (each - mean.unsqueeze(1)) ** 2) * self.weights).sum(1)

    def cut(self, y: Tensor) -> Cut:
        return Cut(*(self._average(x) for x in self.each("cut", y)))

    def sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        cdf, survival = self.each("sides", y)
        return self._average(cdf), self._average(survival)

    def far_distance(self, y: Tensor) -> Tensor:
        """E|Z - y|."""
        return self.cut(y).distance

    def entropy(self) -> Tensor:
        """-E[log p(Z)], on a grid that all components share."""

        def summed(rows: MixtureRows) -> tuple[Tensor]:
            return (rows.prepared().far_entropy(),)

        return mixture_grid.by_grid(self, tables.entropy, mixture_grid.entropy, summed, finer=float(_FINER))[0]

    def mode(self) -> Tensor:
        """The most probable count."""

        def searched(rows: MixtureRows) -> tuple[Tensor]:
            return (tables.by_window(rows, tables.mode, lambda far: (far.far_mode(),))[0],)

        return grid_modes.mode(self, searched)

    def upper_bound(self) -> Tensor:
        return self._used(self.each("upper_bound")[0]).amax(1)

    has_guess = True

    def guess(self, q: Tensor) -> tuple[Tensor, Tensor]:
        found = self.looked_up(q)
        if found is None:
            return self._grid_guess(q)
        if not bool(found.reached.all()):
            rest = (~found.reached).nonzero().squeeze(1)
            found.counts[rest], found.sure[rest] = self.rows(rest)._grid_guess(q[rest])
        return found.counts, found.sure

    def looked_up(self, q: Tensor) -> LookedUp | None:
        """Quantiles from tables of all counts from 0 on; None where the families of the components have none."""
        if self.from_zero is not None:
            return LookedUp(*map(torch.from_numpy, self.from_zero.quantiles(q.numpy())))
        return cuda_mixtures.quantiles(self, q) if q.is_cuda else None

    def _grid_guess(self, q: Tensor) -> tuple[Tensor, Tensor]:
        start, sure = mixture_grid.by_grid(
            self, grid_quantiles.on_table, grid_quantiles.on_panels, MixtureRows.normal_guess, q
        )
        return start, sure

    def normal_guess(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Counts near the quantiles by a normal distribution, none of them sure."""
        start = torch.stack([from_normal(self, level)[0] for level in q.unbind(1)], dim=1)
        return start, torch.zeros_like(start, dtype=torch.bool)

    def windows(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        """First and last position per component. Shape: (rows, K)."""
        if isinstance(depth, float) and depth == DEPTH:
            if self._windows is None:
                self._windows = self._found_windows(depth)
            return self._windows
        return self._found_windows(depth)

    def _found_windows(self, depth: float | Tensor) -> tuple[Tensor, Tensor]:
        first, last = self.each("window", depth)
        return self._used(first), self._used(last)

    def _used(self, each: Tensor) -> Tensor:
        """Values per component, those without weight replaced by those of the heaviest. Shape: (rows, K, ...)."""
        if self._even or bool((self.weights > 0).all()):
            return each
        heaviest = self.weights.argmax(1, keepdim=True)
        index = torch.where(self.weights > 0, torch.arange(self.weights.shape[1], device=self.device), heaviest)
        return each.gather(1, index.view(*index.shape, *[1] * (each.dim() - 2)).expand_as(each))

    def window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        first, last = self.windows(depth)
        return first.amin(1), last.amax(1)

    def one_panel(self) -> Tensor:
        return (self.each("one_panel")[0] | (self.weights <= 0)).all(1)

    def on_grid(self) -> Tensor:
        return (self.each("on_grid")[0] | (self.weights <= 0)).all(1)

    def breaks(self) -> Tensor:
        return self._merged_breaks(1)

    def _merged_breaks(self, finer: int) -> Tensor:
        each = [
            torch.cat([(b[:, :1] - _BESIDE).clamp(min=0.0), b[:, 1:-1], b[:, -1:] + _BESIDE], dim=1)
            # A component narrower than 1 lives on the counts beside its window.
            for b in (stack.breaks() for stack in self.stacks)
        ]
        columns = max(b.shape[1] for b in each)
        count = sum(k * (b.shape[1] - 1) for k, b in zip(self.sizes, each, strict=True))
        padded = [torch.cat([b, b[:, -1:].expand(-1, columns - b.shape[1])], dim=1) for b in each]
        parts = [b.unflatten(0, (len(self), k)) for k, b in zip(self.sizes, padded, strict=True)]
        return panels.merge(self._used(torch.cat(parts, dim=1)), finer * count)

    def draw(self, choice: Tensor, u: Tensor) -> Tensor:
        """Counts at the uniforms u of components that the uniforms `choice` choose. Shape: (rows,)."""
        upto = self.weights.cumsum(1)
        chosen = (upto < choice.unsqueeze(1) * upto[:, -1:]).sum(1)
        found, start = torch.empty_like(u), 0
        for stack, k in zip(self.stacks, self.sizes, strict=True):
            rows = ((chosen >= start) & (chosen < start + k)).nonzero().squeeze(1)
            if len(rows):
                found[rows] = smallest_count(stack.rows(rows * k + chosen[rows] - start), u[rows])
            start += k
        return found

    def far_half_mean_difference(self) -> Tensor:
        """E|Z - Z'| / 2."""
        by = panels.half_mean_difference, tables.half_mean_difference, atoms.half_mean_difference
        return self._by_resolution(*by, nodes=48)

    def far_entropy(self) -> Tensor:
        """-E[log p(Z)]."""
        return self._by_resolution(panels.entropy, tables.entropy, atoms.entropy, nodes=96)

    def far_mode(self) -> Tensor:
        """The most probable count."""
        return peaks.highest_peak(self) if self.smooth else tables.by_window(self, tables.mode, None)[0]

    def rough(self, first: Tensor, last: Tensor) -> Tensor:
        """Components whose pmf no panel resolves. Shape: windows (rows, K) -> (rows, K)."""
        jagged = [not s.smooth for s, k in zip(self.stacks, self.sizes, strict=True) for _ in range(k)]
        return (last - first < atoms.NARROW) | (torch.tensor(jagged, device=self.device) & (self.weights > 0))

    def _by_resolution(self, on_panels: Any, on_table: Any, exactly: Any, nodes: int) -> Tensor:
        """`on_panels`, unless a component is rough: then `on_table` where integers are few, and `exactly` elsewhere.

        Finding such rows is the one wait for a GPU here.
        """
        first, last = self.windows()
        rough = self.rough(first, last).any(1)
        few = last.amax(1) - first.amin(1) < _NEAR - 2 * MARGIN
        cases = [
            Case(~rough, lambda rows: (rows._on_merged(on_panels, nodes),), 1),
            Case(rough & few, lambda rows: tables.by_window(rows, on_table, None), 1),
            Case(rough & ~few, lambda rows: (atoms.summed(exactly, rows),), 1),
        ]
        return by_case(cases, self, sort=True)[0]

    def _on_merged(self, reduce: Callable[[panels.Panels], Tensor], nodes: int) -> Tensor:
        """One panel where no component is narrow beside the union of all; panels that each needs elsewhere."""
        dist = self.prepared()
        first, last = (x.sqrt() for x in dist.windows())
        ends = torch.stack([first.amin(1), last.amax(1)], dim=1)
        union, shortest = ends[:, 1] - ends[:, 0], (last - first).amin(1)
        one = dist.one_panel()
        coincide, differ = one & (union <= _STRETCH * shortest), ~one | (union > _DIFFER * shortest)

        def together(nodes: int, dist: MixtureRows, ends: Tensor) -> tuple[Tensor]:
            return (reduce(panels.panels(dist, ends.square(), nodes)),)

        def apart(dist: MixtureRows, ends: Tensor) -> tuple[Tensor]:
            return (reduce(panels.panels(dist, dist._merged_breaks(_FINER))),)

        # As many nodes for each part of a panel, however long it is.
        more = round(nodes * _DIFFER / _STRETCH)
        size = self.copies
        cases = [
            Case(coincide, partial(together, nodes), (PREFIX + nodes) * size),
            Case(~(coincide | differ), partial(together, more), (PREFIX + more) * size),
            Case(differ, apart, _FINER * (PREFIX + 8 * size * panels.NODES) * size),
        ]
        return by_case(cases, dist, ends, sort=True)[0]


def _by_parts(rows: MixtureRows, y: Tensor) -> tuple[Tensor]:
    rows = rows.prepared()
    return ((rows.far_distance(y) - rows.far_half_mean_difference()).clamp(min=0.0),)


def _group(index: Tensor | slice, k: int) -> Tensor | slice:
    """The positions of the k components of some rows."""
    if isinstance(index, slice):
        return slice(index.start * k, index.stop * k)
    return (index.unsqueeze(1) * k + torch.arange(k, device=index.device)).flatten()


def _repeated(x: Tensor, k: int) -> Tensor:
    """Each row k times."""
    return x if k == 1 else x.unsqueeze(1).expand(-1, k, *x.shape[1:]).flatten(0, 1)
