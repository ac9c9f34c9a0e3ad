"""The mixture of all distributions: moments, quantiles, intervals and probabilities, a block of rows at a time."""

from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch

from ddpn.distributions.kernels.scalar import DEPTH
from ddpn.distributions.recalibrated import LONGEST, MonotoneMap
from ddpn.export.families import (
    LARGEST,
    FamilyGraph,
    Grid,
    Tabulated,
    ends,
    families_of,
    grid_of,
    moments_on,
    tabulate,
)
from ddpn.export.graph import Graph, Value
from ddpn.export.members import Stack
from ddpn.workflow.prediction_request import quantile_name

#: Sums in another order may differ by so much, relatively: quantiles must not.
_ROUNDING = 1e-13
#: The highest level of a quantile, as in `ddpn.calibration.intervals`.
_TOP = 1.0 - 1e-9
#: Outputs before quantiles.
_MOMENTS = ("mean", "variance", "aleatoric", "epistemic")


@dataclass(frozen=True)
class ExportedOutputs:
    """The outputs: quantiles, an interval, and probabilities of the counts up to `pmf`.

    `levels` are those of the interval: one per group of rows, the last of rows in no group.
    """

    quantiles: tuple[float, ...]
    levels: np.ndarray
    pmf: int

    @property
    def names(self) -> dict[str, int]:
        """Outputs and the number of columns of each."""
        plain = (*_MOMENTS, "median", "lower", "upper", *(quantile_name(level) for level in self.quantiles), "pmf_mass")
        return dict.fromkeys(plain, 1) | {"pmf": self.pmf + 1}

    @property
    def width(self) -> int:
        """Columns of all outputs."""
        return sum(self.names.values())


@dataclass(frozen=True)
class Levels:
    """Takes outputs from the pmf of some rows.

    `is_changed` says which rows are recalibrated, (R, 1), and `code` is the group of each, (R, 1).
    """

    graph: Graph
    wanted: ExportedOutputs
    change: MonotoneMap | None
    is_changed: Value | None
    code: Value | None

    def outputs(self, moments: Any, pmf: Value, cdf: Value) -> Value:
        """All outputs side by side. Shape: (R, columns); pmf and the cdf before recalibration (R, K)."""
        graph = self.graph
        median, *quantiles = (self._quantile(cdf, np.array([level])) for level in (0.5, *self.wanted.quantiles))
        plain = graph.concat([*moments, median, *self._interval(cdf), *quantiles])
        first = pmf.at(0, self.wanted.pmf + 1)
        # A row that cannot be predicted has no quantiles either.
        return graph.concat([graph.where(moments.mean.is_nan(), np.nan, plain), first.sum(1), first])

    def _interval(self, cdf: Value) -> tuple[Value, Value]:
        """The ends of the calibrated interval, as `ddpn.calibration.intervals.interval_at`."""
        levels, code = self.wanted.levels, self.code
        rest = 0.5 * (1.0 - np.minimum(levels, _TOP))
        low, high = self._quantile(cdf, rest, code), self._quantile(cdf, 1.0 - rest, code)
        share = np.maximum(levels - 1.0, 0.0)
        if not share.any():
            return low, high
        more = ((high - low + 1.0) * self._per_row(share, code)).floor()
        return (low - more).clip(0.0, np.inf), high + more

    def _per_row(self, values: np.ndarray, code: Value | None) -> Value:
        """The value of each row's group. Shape: (R, 1), or () where there is one group."""
        known = self.graph.constant(values)
        return known.take(len(values) - 1, axis=0) if code is None else known.take(code, axis=0)

    def _quantile(self, cdf: Value, level: np.ndarray, code: Value | None = None) -> Value:
        """The smallest count with so much mass up to it, NaN beyond the grid; at a level, or one per group. (R, 1)."""

        def mass(at: np.ndarray) -> Value:
            return self._per_row(at - _ROUNDING * np.minimum(at, 1.0 - at), code)

        graph, wanted = self.graph, mass(level)
        if self.change is not None and self.is_changed is not None:
            inverse = self.change.inverse(torch.from_numpy(np.ascontiguousarray(level))).numpy()
            wanted = graph.where(self.is_changed, mass(inverse), wanted)
        return graph.where(cdf.max(1) >= wanted, (cdf < wanted).cast("f").sum(1), np.nan)


#: Probabilities that a block of rows may need at a time.
_BLOCK = 2**18
#: Windows are so deep where counts are bounded: the range may hold little of a distribution.
_DEEP = 64.0
#: Counts beyond the lower bound that a grid has at least.
_BEYOND = 64


class Bounds(NamedTuple):
    """The smallest and the largest possible count; `upper` may be a value per row, (rows, 1). None means no bound."""

    lower: int = 0
    upper: Value | float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether all counts are possible."""
        return self.lower == 0 and self.upper is None


class MomentNodes(NamedTuple):
    """Mean, variance and its two parts. Shape: (rows, 1) each."""

    mean: Value
    variance: Value
    aleatoric: Value
    epistemic: Value


@dataclass(frozen=True)
class MixtureGraph:
    """Stacks with their weights, and how the mixture is calibrated; `code` is the group of each row, (rows, 1)."""

    stacks: list[Stack]
    weights: list[float]
    bounds: Bounds
    change: MonotoneMap | None
    wanted: ExportedOutputs
    code: Value | None

    @property
    def share(self) -> np.ndarray:
        """The weight of every component. Shape: (N,)."""
        each = [np.full(stack.size, w / stack.size) for stack, w in zip(self.stacks, self.weights, strict=True)]
        joined = np.concatenate(each)
        return joined / joined.sum()

    def columns(self, graph: Graph, rows: Value, zero: Value) -> Value:
        """Every output, see `ExportedOutputs.names`. `rows` is the number of rows, `zero` a 0 per row, (rows, 1)."""
        every = self._all_rows(graph, zero)
        # The more rows at a time, the shorter the longest window must be.
        longest = every.end.op("ReduceMax", keepdims=0).cast("i") + 1
        size = graph.constant(_BLOCK // sum(family.size for family in every.families)) / longest + 1
        size = graph.where(size > rows, rows, size)

        def block(inner: Graph, number: Value) -> Value:
            own = inner.use(size)
            place = inner.op("Range", inner.constant(0), own, inner.constant(1), kind="i") + number * own
            last = inner.use(rows) - 1
            return _block(inner, self, every.rows(inner, inner.where(place > last, last, place)))

        found = graph.loop((rows + size - 1) / size, block).reshaped(-1, self.wanted.width)
        start, end, axis = graph.constant([0]), rows.reshaped(1), graph.constant([0])
        return found.op("Slice", start, end, axis)

    def _all_rows(self, graph: Graph, zero: Value) -> "_Rows":
        firsts = np.cumsum([0, *(stack.size for stack in self.stacks)])
        pieces = [
            (piece, int(first), stack.size)
            for stack, first in zip(self.stacks, firsts, strict=False)
            for piece in stack.parts.pieces
        ]
        families, last = [], []
        for family in families_of(graph, pieces, zero + 1.0):
            end = ends(family, self.share, DEPTH if self.bounds.is_plain else _DEEP)
            last.append(end.max(1))
            if family.name == "double_poisson":  # a sum that ends too early normalises nothing
                family = replace(family, log_mu=graph.where(end > LARGEST, np.nan, family.log_mu))
            families.append(family)
        longest = graph.concat(last).max(1)
        # NaN in, NaN out: such a row needs no grid.
        end, own = graph.where(longest.is_nan(), 0.0, longest).clip(0.0, LARGEST), None
        if any(stack.parts.zero is not None for stack in self.stacks):
            own = graph.concat(
                [zero * np.zeros((1, s.size)) if s.parts.zero is None else s.parts.zero for s in self.stacks]
            )
        return _Rows(families, own, end, self.bounds.upper, self.code)


class _Rows(NamedTuple):
    """What the distributions of rows are computed from."""

    families: list[FamilyGraph]
    zero: Value | None
    end: Value
    upper: Value | float | None
    code: Value | None

    def rows(self, graph: Graph, index: Value) -> "_Rows":
        """Some of the rows, inside a loop."""

        def some(value: Any) -> Any:
            return graph.use(value).take(index, axis=0) if isinstance(value, Value) else value

        families = [
            replace(each, log_mu=some(each.log_mu), log_shape=some(each.log_shape), weight=some(each.weight))
            for each in self.families
        ]
        return _Rows(families, *(some(value) for value in self[1:]))


def _block(graph: Graph, mixture: MixtureGraph, row: _Rows) -> Value:
    """All outputs of some rows. Shape: (R, columns)."""
    least = max(mixture.wanted.pmf + 1, mixture.bounds.lower + _BEYOND)
    upper = mixture.bounds.upper
    if isinstance(upper, float):
        least = max(least, int(min(upper, LARGEST)) + 1)
    count = row.end.op("ReduceMax", keepdims=0).cast("i") + 1
    grid = grid_of(graph, graph.where(count < least, least, count))
    tables = [tabulate(graph, family, grid) for family in row.families]
    if mixture.bounds.is_plain:
        pmf, moments = _plain(graph, mixture.share, row, tables)
    else:
        pmf, moments = _truncated(graph, mixture, row, tables, grid)
    cdf = pmf.op("CumSum", graph.constant(1))
    is_changed = None
    if mixture.change is not None:
        is_changed = row.end <= float(LONGEST)
        pmf, moments = _recalibrated(graph, mixture.change, pmf, cdf, moments, is_changed, grid)
    levels = Levels(graph, mixture.wanted, mixture.change, is_changed, row.code)
    return levels.outputs(moments, pmf, cdf)


def _plain(graph: Graph, share: np.ndarray, row: _Rows, tables: list[Tabulated]) -> tuple[Value, MomentNodes]:
    """The pmf of the mixture, (R, K), and its moments, where all counts are possible."""
    weighted = [(family.weight * share[family.outer][None]).unsqueezed(1) for family in row.families]
    pmf = reduce(add, (weight.op("MatMul", table.pmf) for weight, table in zip(weighted, tables, strict=True)))
    pmf = pmf.op("Squeeze", graph.constant([1]))
    # A matrix per family adds up the distributions of each component.
    onto = [graph.constant(np.eye(len(share))[family.outer]) for family in row.families]
    own = list(zip(row.families, tables, onto, strict=True))
    mean = reduce(add, ((family.weight * table.mean).op("MatMul", sums) for family, table, sums in own))
    parts = []
    for family, table, sums in own:
        gap = table.mean - mean.take(family.outer)
        parts.append((family.weight * (table.variance + gap * gap)).op("MatMul", sums))
    variance = reduce(add, parts)
    if row.zero is not None:
        pmf = _with_zeros(graph, pmf, (row.zero * share[None]).sum(1))
        variance = variance + row.zero * mean * mean
    return pmf, _moments(share, mean, variance)


def _with_zeros(graph: Graph, pmf: Value, zero: Value) -> Value:
    """The pmf with more mass on 0. Shape: pmf (..., K), zero (..., 1)."""
    return graph.concat([pmf.take([0], axis=-1) + zero, pmf.at(1, axis=-1)], axis=-1)


def _moments(share: np.ndarray, mean: Value, variance: Value) -> MomentNodes:
    """Of the mixture, from the moments of its components, (R, N)."""
    weights = share[None]
    whole = (mean * weights).sum(1)
    gap = mean - whole
    aleatoric, epistemic = (variance * weights).sum(1), (gap * gap * weights).sum(1)
    return MomentNodes(whole, aleatoric + epistemic, aleatoric, epistemic)


def _truncated(
    graph: Graph, mixture: MixtureGraph, row: _Rows, tables: list[Tabulated], grid: Grid
) -> tuple[Value, MomentNodes]:
    """The same where some counts are impossible: every component given that its count is possible."""
    share, upper = mixture.share, row.upper
    onto = (graph.constant(np.eye(len(share))[:, family.outer]) for family in row.families)
    own = (table.pmf * family.weight.unsqueezed(2) for family, table in zip(row.families, tables, strict=True))
    total = reduce(add, (matrix.op("MatMul", pmf) for matrix, pmf in zip(onto, own, strict=True)))
    if row.zero is not None:
        total = _with_zeros(graph, total, row.zero.unsqueezed(2))
    inside = grid.y >= float(mixture.bounds.lower)
    if upper is not None:
        inside = inside & (grid.y <= (upper.unsqueezed(2) if isinstance(upper, Value) else upper))
    each = graph.where(inside, total, 0.0)
    each = each / each.sum(2)
    moments = _moments(share, *(value.reshaped(-1, len(share)) for value in moments_on(grid, each, 2)))
    pmf = graph.constant(share[None, None]).op("MatMul", each).op("Squeeze", graph.constant([1]))
    return pmf, moments


def _recalibrated(
    graph: Graph, change: MonotoneMap, pmf: Value, cdf: Value, moments: MomentNodes, is_changed: Value, grid: Grid
) -> tuple[Value, MomentNodes]:
    """The pmf and the moments of the recalibrated distribution; longer windows than `LONGEST` stay as they are."""
    at, value = change.at.numpy(), change.value.numpy()
    lines = zip(at.tolist(), np.diff(at).tolist(), (np.diff(value) / np.diff(at)).tolist(), strict=False)
    mapped = reduce(add, ((cdf - start).clip(0.0, width) * slope for start, width, slope in lines))
    own = graph.concat([mapped.take([0]), mapped.at(1) - mapped.at(0, -1)])
    mean, variance = moments_on(grid, own, 1)
    is_positive = moments.variance > 0.0
    ratio = graph.where(is_positive, moments.epistemic / graph.where(is_positive, moments.variance, 1.0), 0.0)
    epistemic = variance * ratio
    changed = MomentNodes(mean, variance, variance - epistemic, epistemic)
    both = zip(changed, moments, strict=True)
    return graph.where(is_changed, own, pmf), MomentNodes(*(graph.where(is_changed, new, old) for new, old in both))
