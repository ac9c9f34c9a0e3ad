"""The mixture of all distributions: moments, quantiles, intervals and probabilities, a block of rows at a time."""

from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from ddpn.distributions.kernels.arrays import SLACK, TIE
from ddpn.distributions.recalibrated import MonotoneMap
from ddpn.export.families import LARGEST, Grid, HeadNodes, Stack, Tabulated, ends, grid_of, moments_on, tabulate
from ddpn.export.graph import Graph, Value
from ddpn.prediction.spec import PredictionSpec, quantile_name

#: Sums in another order may differ by so much, relatively: quantiles must not.
_ROUNDING = 1e-13
#: The highest level of a quantile, as in `ddpn.calibration.intervals`.
_TOP = 1.0 - 1e-9
#: Outputs before quantiles.
_MOMENTS = ("mean", "variance", "aleatoric", "epistemic")


def output_widths(spec: PredictionSpec) -> dict[str, int]:
    """Return the outputs of a file and the number of columns of each."""
    quantiles = map(quantile_name, spec.quantiles)
    single = (*_MOMENTS, "median", "lower", "upper", "interval_probability", *quantiles, "pmf_mass")
    return dict.fromkeys(single, 1) | {"pmf": max_count(spec) + 1}


def max_count(spec: PredictionSpec) -> int:
    """Return the largest count whose probability is an output."""
    return 0 if spec.pmf is None else spec.pmf


#: Probabilities that a block of rows may need at a time.
_BLOCK = 2**18
#: Log weights below the peak at which windows end, and where counts are bounded: the range may hold little of it.
_DEPTH, _DEEP = 32.0, 64.0
#: Counts beyond the lower bound that a grid has at least.
_BEYOND = 64


class MomentNodes(NamedTuple):
    """Mean, variance and its two parts. Shape: (rows, 1) each."""

    mean: Value
    variance: Value
    aleatoric: Value
    epistemic: Value


@dataclass(frozen=True)
class MixtureGraph:
    """Members with their weights, the smallest and largest possible count, and how the mixture is calibrated.

    `upper` may be a value per row, (rows, 1); None means no bound. `levels` are those of the interval: one per group of
    rows, the last of rows in no group. `code` is the group of each row, (rows, 1).
    """

    members: list[HeadNodes]
    weights: list[float]
    lower: int
    upper: Value | float | None
    change: MonotoneMap | None
    spec: PredictionSpec
    levels: np.ndarray
    code: Value | None

    @property
    def share(self) -> np.ndarray:
        """The weight of every component. Shape: (N,)."""
        each = [np.full(member.size, w / member.size) for member, w in zip(self.members, self.weights, strict=True)]
        joined = np.concatenate(each)
        return joined / joined.sum()

    @property
    def is_bounded(self) -> bool:
        """Whether some counts are impossible."""
        return self.lower > 0 or self.upper is not None

    def columns(self, graph: Graph, rows: Value, zero: Value) -> Value:
        """Every output, see `output_widths`. `rows` is the number of rows, `zero` a 0 per row, (rows, 1)."""
        every = self._all_rows(graph, zero)
        # The more rows at a time, the shorter the longest window must be.
        longest = every.end.op("ReduceMax", keepdims=0).cast("i") + 1
        size = graph.constant(_BLOCK // sum(len(stack.outer) for stack in every.stacks)) / longest + 1
        size = graph.where(size > rows, rows, size)

        def block(inner: Graph, number: Value) -> Value:
            own = inner.use(size)
            place = inner.op("Range", inner.constant(0), own, inner.constant(1), kind="i") + number * own
            last = inner.use(rows) - 1
            return _block(inner, self, every.rows(inner, inner.where(place > last, last, place)))

        found = graph.loop((rows + size - 1) / size, block).reshaped(-1, sum(output_widths(self.spec).values()))
        start, end, axis = graph.constant([0]), rows.reshaped(1), graph.constant([0])
        return found.op("Slice", start, end, axis)

    def _all_rows(self, graph: Graph, zero: Value) -> "_Rows":
        """One stack per family, and where the windows of its distributions end."""
        by_family: dict[str, list[Stack]] = {}
        first, own = 0, []
        for member in self.members:
            for stack in member.stacks:
                by_family.setdefault(stack.family, []).append(replace(stack, outer=stack.outer + first))
            own.append(zero * np.zeros((1, member.size)) if member.zero is None else member.zero)
            first += member.size
        stacks, last = [], []
        for stack in map(Stack.joined, by_family.values()):
            end = ends(stack, self.share, _DEEP if self.is_bounded else _DEPTH)
            last.append(end.max(1))
            if stack.family == "double_poisson":  # a sum that ends too early normalises nothing
                stack = replace(stack, log_mu=graph.where(end > LARGEST, np.nan, stack.log_mu))
            stacks.append(stack)
        longest = graph.concat(last).max(1)
        # NaN in, NaN out: such a row needs no grid.
        end = graph.where(longest.is_nan(), 0.0, longest).clip(0.0, LARGEST)
        has_zeros = any(member.zero is not None for member in self.members)
        return _Rows(stacks, graph.concat(own) if has_zeros else None, end, self.upper, self.code)


class _Rows(NamedTuple):
    """What the distributions of rows are computed from."""

    stacks: list[Stack]
    zero: Value | None
    end: Value
    upper: Value | float | None
    code: Value | None

    def rows(self, graph: Graph, index: Value) -> "_Rows":
        """Some of the rows, inside a loop."""

        def some(value: Any) -> Any:
            return graph.use(value).take(index, axis=0) if isinstance(value, Value) else value

        stacks = [
            replace(each, log_mu=some(each.log_mu), log_shape=some(each.log_shape), weight=some(each.weight))
            for each in self.stacks
        ]
        return _Rows(stacks, *(some(value) for value in self[1:]))


def _block(graph: Graph, mixture: MixtureGraph, row: _Rows) -> Value:
    """All outputs of some rows. Shape: (R, columns)."""
    least = max(max_count(mixture.spec) + 1, mixture.lower + _BEYOND)
    if isinstance(mixture.upper, float):
        least = max(least, int(min(mixture.upper, LARGEST)) + 1)
    count = row.end.op("ReduceMax", keepdims=0).cast("i") + 1
    grid = grid_of(graph, graph.where(count < least, least, count))
    tables = [tabulate(graph, stack, grid) for stack in row.stacks]
    if mixture.is_bounded:
        pmf, moments = _truncated(graph, mixture, row, tables, grid)
    else:
        pmf, moments = _plain(graph, mixture.share, row, tables)
    cdf = pmf.op("CumSum", graph.constant(1))
    if mixture.change is not None:
        cdf, pmf, moments = _recalibrated(graph, mixture.change, cdf, moments, grid)
    spec, levels = mixture.spec, mixture.levels

    def per_row(values: np.ndarray) -> Value:
        """The value of each row's group. Shape: (R, 1), or () where there is one group."""
        return graph.constant(values).take(0 if row.code is None or len(values) == 1 else row.code, axis=0)

    def quantile(level: np.ndarray) -> Value:
        """The smallest count with so much mass up to it, NaN beyond the grid; at a level, or one per group. (R, 1)."""
        mass = per_row(level - _ROUNDING * np.minimum(level, 1.0 - level))
        return graph.where(cdf.max(1) >= mass, (cdf < mass).cast("f").sum(1), np.nan)

    median, *quantiles = (quantile(np.array([level])) for level in (0.5, *spec.quantiles))
    # The calibrated interval, as `ddpn.calibration.intervals.make_interval`.
    highest, wider = np.minimum(levels, _TOP), np.maximum(levels - 1.0, 0.0)
    low, high, probability = _narrowest(graph, cdf, per_row(highest * (1.0 - SLACK)))
    is_central = spec.interval_kind == "central"
    if is_central:
        low, high = quantile(0.5 - 0.5 * highest), quantile(0.5 + 0.5 * highest)
    if wider.any():
        more = ((high - low + 1.0) * per_row(wider)).floor()
        low, high = (low - more).clip(0.0, np.inf), high + more
    if is_central or wider.any():
        probability = _mass_upto(graph, cdf, high) - _mass_upto(graph, cdf, low - 1.0)
    first = pmf.at(0, max_count(spec) + 1)
    # A row that cannot be predicted has no quantiles either.
    plain = graph.concat([*moments, median, low, high, probability, *quantiles])
    return graph.concat([graph.where(moments.mean.is_nan(), np.nan, plain), first.sum(1), first])


def _mass_upto(graph: Graph, cdf: Value, count: Value) -> Value:
    """Look up the cdf at one count per row, which may be -1, beyond the grid, or NaN. Count: (R, 1) or (R, K)."""
    last = cdf.op("Shape", kind="i").take(1, axis=0) - 1
    is_nan = count.is_nan()
    position = graph.where(is_nan, 0.0, count).clip(0.0, last.cast("f")).cast("i")
    mass = graph.where(count < 0.0, 0.0, cdf.op("GatherElements", position, axis=1))
    return graph.where(is_nan, np.nan, mass)


def _narrowest(graph: Graph, cdf: Value, enough: Value) -> tuple[Value, Value, Value]:
    """First and last count and probability of the shortest run of counts with at least the mass `enough`. (R, 1) each.

    As `ddpn.distributions.kernels.arrays.find_narrowest_run`; NaN where the grid does not hold so much. The number of
    counts is found by halving: it is one more than the largest number of which no run has enough.
    """
    before = graph.concat([cdf.take([0]) * 0.0, cdf.at(0, -1)])
    first = (cdf * 0.0 + 1.0).op("CumSum", graph.constant(1)) - 1.0

    def masses(length: Value) -> Value:
        return _mass_upto(graph, cdf, first + length - 1.0) - before

    length = cdf.take([0]) * 0.0
    for step in (2.0**k for k in reversed(range(int(LARGEST).bit_length()))):
        longer = length + step
        length = graph.where(masses(longer).max(1) < enough, longer, length)
    length = length + 1.0
    mass = masses(length)
    best = mass.max(1)
    # ONNX Runtime takes a factor of 1 - 1e-13 for 1, and leaves it out.
    low = (mass >= best - best * TIE).cast("f").op("ArgMax", axis=1, kind="i").cast("f")
    low = graph.where(cdf.max(1) >= enough, low, np.nan)
    return low, low + length - 1.0, best


def _plain(graph: Graph, share: np.ndarray, row: _Rows, tables: list[Tabulated]) -> tuple[Value, MomentNodes]:
    """The pmf of the mixture, (R, K), and its moments, where all counts are possible."""
    weighted = [(stack.weight * share[stack.outer][None]).unsqueezed(1) for stack in row.stacks]
    pmf = reduce(add, (weight.op("MatMul", table.pmf) for weight, table in zip(weighted, tables, strict=True)))
    pmf = pmf.op("Squeeze", graph.constant([1]))
    # A matrix per family adds up the distributions of each component.
    onto = [graph.constant(np.eye(len(share))[stack.outer]) for stack in row.stacks]
    own = list(zip(row.stacks, tables, onto, strict=True))
    mean = reduce(add, ((stack.weight * table.mean).op("MatMul", sums) for stack, table, sums in own))
    parts = []
    for stack, table, sums in own:
        gap = table.mean - mean.take(stack.outer)
        parts.append((stack.weight * (table.variance + gap * gap)).op("MatMul", sums))
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
    onto = (graph.constant(np.eye(len(share))[:, stack.outer]) for stack in row.stacks)
    own = (table.pmf * stack.weight.unsqueezed(2) for stack, table in zip(row.stacks, tables, strict=True))
    total = reduce(add, (matrix.op("MatMul", pmf) for matrix, pmf in zip(onto, own, strict=True)))
    if row.zero is not None:
        total = _with_zeros(graph, total, row.zero.unsqueezed(2))
    inside = grid.y >= float(mixture.lower)
    if upper is not None:
        inside = inside & (grid.y <= (upper.unsqueezed(2) if isinstance(upper, Value) else upper))
    each = graph.where(inside, total, 0.0)
    each = each / each.sum(2)
    moments = _moments(share, *(value.reshaped(-1, len(share)) for value in moments_on(grid, each, 2)))
    pmf = graph.constant(share[None, None]).op("MatMul", each).op("Squeeze", graph.constant([1]))
    return pmf, moments


def _recalibrated(
    graph: Graph, change: MonotoneMap, cdf: Value, moments: MomentNodes, grid: Grid
) -> tuple[Value, Value, MomentNodes]:
    """The cdf, the pmf and the moments of the recalibrated distribution."""
    at, value = change.at.numpy(), change.value.numpy()
    lines = zip(at.tolist(), np.diff(at).tolist(), (np.diff(value) / np.diff(at)).tolist(), strict=False)
    mapped = reduce(add, ((cdf - start).clip(0.0, width) * slope for start, width, slope in lines))
    pmf = graph.concat([mapped.take([0]), mapped.at(1) - mapped.at(0, -1)])
    mean, variance = moments_on(grid, pmf, 1)
    is_positive = moments.variance > 0.0
    ratio = graph.where(is_positive, moments.epistemic / graph.where(is_positive, moments.variance, 1.0), 0.0)
    epistemic = variance * ratio
    return mapped, pmf, MomentNodes(mean, variance, variance - epistemic, epistemic)
