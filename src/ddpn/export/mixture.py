"""Add graph nodes that mix the members and compute the outputs: moments, quantiles, intervals and probabilities.

A loop computes one block of rows at a time, because the pmfs of all rows would not fit into memory.

In shapes, R is the number of rows of a block, N is the number of components (the distributions that the networks, GLMs
and trees predict), and K is the number of counts of a grid 0, ..., K - 1.
"""

from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from ddpn.distributions.kernels.arrays import SUM_TOLERANCE, TIE_TOLERANCE
from ddpn.distributions.recalibrated import MonotoneMap
from ddpn.export.families import (
    MAX_GRID_COUNT,
    Grid,
    HeadNodes,
    Stack,
    Tabulated,
    compute_moments,
    find_window_ends,
    make_grid,
    tabulate,
)
from ddpn.export.graph import Graph, Value
from ddpn.prediction.spec import PredictionSpec, quantile_name

#: A relative tolerance for rounding errors of sums, which must not change quantiles.
_ROUNDING = 1e-13
#: The highest level of a quantile, as in `ddpn.calibration.intervals`.
_MAX_LEVEL = 1.0 - 1e-9
#: The outputs that come first in every file.
_MOMENTS = ("mean", "variance", "aleatoric", "epistemic")


def count_output_columns(spec: PredictionSpec) -> dict[str, int]:
    """Return the number of columns of each output that `spec` asks for, by the name of the output, in their order.

    Each output has one column, except "pmf", which has one per count.
    """
    quantiles = map(quantile_name, spec.quantiles)
    single = (*_MOMENTS, "median", "lower", "upper", "interval_probability", *quantiles, "pmf_mass")
    return dict.fromkeys(single, 1) | {"pmf": find_largest_count(spec) + 1}


def find_largest_count(spec: PredictionSpec) -> int:
    """Return the largest count whose probability is an output; 0 if the user did not ask for probabilities."""
    return 0 if spec.pmf is None else spec.pmf


#: The most probabilities that a block holds in memory: rows times distributions times counts.
_MAX_BLOCK_PROBABILITIES = 2**18
#: The depth of windows: how far the log probability falls from the mode to the end. It is larger for bounded counts,
#: whose range may contain only a small part of the distribution.
_DEPTH, _BOUNDED_DEPTH = 32.0, 64.0
#: The smallest number of counts of a grid beyond the lower bound.
_MIN_GRID_COUNTS = 64


class MomentNodes(NamedTuple):
    """The mean and the variance of the mixture, and the aleatoric and epistemic parts of the variance.

    The variance is the sum of its two parts. Shape: (rows, 1) each.
    """

    mean: Value
    variance: Value
    aleatoric: Value
    epistemic: Value


@dataclass(frozen=True)
class MixtureGraph:
    """A mixture to write into a graph: the distributions of its members, their weights, and the calibration.

    Attributes
    ----------
    members : list of HeadNodes
        The distributions that each member predicts.
    weights : list of float
        The weight of each member.
    lower : int
        The smallest possible count.
    upper : Value, float or None
        The largest possible count: one number, or one per row with shape (rows, 1).
    recalibration : MonotoneMap or None
        The map by which the cdf is recalibrated.
    spec : PredictionSpec
        The outputs to compute.
    levels : array, shape (1,) or (groups + 1,)
        The calibrated levels of intervals. Without interval groups, there is one. Otherwise there is one per group, and
        a last one for unknown groups.
    group_codes : Value or None, shape (rows, 1)
        The position of each row's level in `levels`. None without interval groups.
    """

    members: list[HeadNodes]
    weights: list[float]
    lower: int
    upper: Value | float | None
    recalibration: MonotoneMap | None
    spec: PredictionSpec
    levels: np.ndarray
    group_codes: Value | None

    @property
    def component_weights(self) -> np.ndarray:
        """The weight of each component, shape (N,). The components of a member have equal shares of its weight."""
        parts = [np.full(member.size, w / member.size) for member, w in zip(self.members, self.weights, strict=True)]
        joined = np.concatenate(parts)
        return joined / joined.sum()

    @property
    def is_bounded(self) -> bool:
        """True if counts have a lower bound above 0 or an upper bound."""
        return self.lower > 0 or self.upper is not None

    def compute_outputs(self, graph: Graph, rows: Value, zero: Value) -> Value:
        """Add the nodes that compute all outputs; return them as one matrix of shape (rows, columns).

        Its columns are in the order of `count_output_columns`. `rows` is the number of rows, an integer of shape ().
        `zero` is a column of zeros with shape (rows, 1).
        """
        all_rows = self._join_stacks(graph, zero)
        # The block size decreases with the length of the longest window.
        longest = all_rows.end.op("ReduceMax", keepdims=0).cast("i") + 1
        size = (
            graph.constant(_MAX_BLOCK_PROBABILITIES // sum(len(stack.component) for stack in all_rows.stacks)) / longest
            + 1
        )
        size = graph.where(size > rows, rows, size)

        def block(inner: Graph, number: Value) -> Value:
            block_size = inner.import_value(size)
            index = inner.op("Range", inner.constant(0), block_size, inner.constant(1), kind="i") + number * block_size
            last = inner.import_value(rows) - 1
            return _predict_block(inner, self, all_rows.select(inner, inner.where(index > last, last, index)))

        blocks = graph.loop((rows + size - 1) / size, block).reshape(-1, sum(count_output_columns(self.spec).values()))
        start, end, axis = graph.constant([0]), rows.reshape(1), graph.constant([0])
        return blocks.op("Slice", start, end, axis)

    def _join_stacks(self, graph: Graph, zero: Value) -> "_Rows":
        """Join the distributions of all members to one stack per family, and find the last count that each row needs.

        `zero` is a column of zeros with shape (rows, 1).
        """
        by_family: dict[str, list[Stack]] = {}
        n_placed, zeros = 0, []
        for member in self.members:
            for stack in member.stacks:
                by_family.setdefault(stack.family, []).append(replace(stack, component=stack.component + n_placed))
            zeros.append(zero * np.zeros((1, member.size)) if member.zero is None else member.zero)
            n_placed += member.size
        stacks, last_counts = [], []
        for stack in map(Stack.join, by_family.values()):
            end = find_window_ends(stack, self.component_weights, _BOUNDED_DEPTH if self.is_bounded else _DEPTH)
            last_counts.append(end.max(1))
            if stack.family == "double_poisson":  # a sum over a window that is cut off would not normalise
                stack = replace(stack, log_mu=graph.where(end > MAX_GRID_COUNT, np.nan, stack.log_mu))
            stacks.append(stack)
        longest = graph.concat(last_counts).max(1)
        # Rows with NaN get NaN as predictions and need no grid.
        end = graph.where(longest.is_nan(), 0.0, longest).clip(0.0, MAX_GRID_COUNT)
        has_zeros = any(member.zero is not None for member in self.members)
        return _Rows(stacks, graph.concat(zeros) if has_zeros else None, end, self.upper, self.group_codes)


class _Rows(NamedTuple):
    """The graph values that have one element or row per row of the table. A loop selects blocks of rows from them.

    Attributes
    ----------
    stacks : list of Stack
        The distributions of all members, in one stack per family.
    zero : Value or None, shape (rows, N)
        The additional probability of the count 0 in each component.
    end : Value, shape (rows, 1)
        The last count for which pmfs must be computed.
    upper, group_codes
        As in `MixtureGraph`.
    """

    stacks: list[Stack]
    zero: Value | None
    end: Value
    upper: Value | float | None
    group_codes: Value | None

    def select(self, graph: Graph, index: Value) -> "_Rows":
        """Return the values of the rows at the positions `index`, for use in `graph`, the body of a loop."""

        def select(value: Any) -> Any:
            return graph.import_value(value).take(index, axis=0) if isinstance(value, Value) else value

        stacks = [
            replace(stack, log_mu=select(stack.log_mu), log_shape=select(stack.log_shape), weight=select(stack.weight))
            for stack in self.stacks
        ]
        return _Rows(stacks, *(select(value) for value in self[1:]))


def _predict_block(graph: Graph, mixture: MixtureGraph, rows: _Rows) -> Value:
    """Compute all outputs of a block of rows, as one matrix with shape (R, columns).

    The columns are in the order of `count_output_columns`. `rows` has the distributions of the block. If a prediction
    cannot be computed, for example because an input is invalid or the counts are too large, the outputs of the row
    (except probabilities) are NaN.
    """
    min_counts = max(find_largest_count(mixture.spec) + 1, mixture.lower + _MIN_GRID_COUNTS)
    if isinstance(mixture.upper, float):
        min_counts = max(min_counts, int(min(mixture.upper, MAX_GRID_COUNT)) + 1)
    count = rows.end.op("ReduceMax", keepdims=0).cast("i") + 1
    grid = make_grid(graph, graph.where(count < min_counts, min_counts, count))
    tables = [tabulate(graph, stack, grid) for stack in rows.stacks]
    if mixture.is_bounded:
        pmf, moments = _truncate(graph, mixture, rows, tables, grid)
    else:
        pmf, moments = _mix(graph, mixture.component_weights, rows, tables)
    cdf = pmf.op("CumSum", graph.constant(1))
    if mixture.recalibration is not None:
        cdf, pmf, moments = _recalibrate(graph, mixture.recalibration, cdf, moments, grid)
    spec, levels = mixture.spec, mixture.levels

    def look_up_per_group(values: np.ndarray) -> Value:
        """Return the value of each row's interval group from `values`, which has one element per group.

        Shape: (R, 1), or () if there is only one element, which all rows share.
        """
        return graph.constant(values).take(
            0 if rows.group_codes is None or len(values) == 1 else rows.group_codes, axis=0
        )

    def find_quantile(level: np.ndarray) -> Value:
        """Find a quantile of each row: the smallest count with P(Y <= count) >= level.

        `level` has one element, or one per interval group. The result is NaN if the quantile is beyond the grid of
        counts.
        """
        mass = look_up_per_group(level - _ROUNDING * np.minimum(level, 1.0 - level))
        return graph.where(cdf.max(1) >= mass, (cdf < mass).cast("f").sum(1), np.nan)

    median, *quantiles = (find_quantile(np.array([level])) for level in (0.5, *spec.quantiles))
    # The calibrated interval, as `ddpn.calibration.intervals.make_interval`.
    highest, widening = np.minimum(levels, _MAX_LEVEL), np.maximum(levels - 1.0, 0.0)
    low, high, probability = _find_narrowest_run(graph, cdf, look_up_per_group(highest * (1.0 - SUM_TOLERANCE)))
    is_central = spec.interval_kind == "central"
    if is_central:
        low, high = find_quantile(0.5 - 0.5 * highest), find_quantile(0.5 + 0.5 * highest)
    if widening.any():
        extra_counts = ((high - low + 1.0) * look_up_per_group(widening)).floor()
        low, high = (low - extra_counts).clip(0.0, np.inf), high + extra_counts
    if is_central or widening.any():
        probability = _look_up_cdf(graph, cdf, high) - _look_up_cdf(graph, cdf, low - 1.0)
    pmf_columns = pmf.slice(0, find_largest_count(spec) + 1)
    # If the mean is NaN, all outputs of the row become NaN.
    scalars = graph.concat([*moments, median, low, high, probability, *quantiles])
    return graph.concat([graph.where(moments.mean.is_nan(), np.nan, scalars), pmf_columns.sum(1), pmf_columns])


def _look_up_cdf(graph: Graph, cdf: Value, count: Value) -> Value:
    """Look up P(Y <= count) in the cdf of each row.

    `cdf` has shape (R, K), and `count` has shape (R, 1) or (R, K). The result is 0 for negative counts, the last value
    of the cdf for counts beyond the grid, and NaN for NaN.
    """
    last = cdf.op("Shape", kind="i").take(1, axis=0) - 1
    is_nan = count.is_nan()
    position = graph.where(is_nan, 0.0, count).clip(0.0, last.cast("f")).cast("i")
    mass = graph.where(count < 0.0, 0.0, cdf.op("GatherElements", position, axis=1))
    return graph.where(is_nan, np.nan, mass)


def _find_narrowest_run(graph: Graph, cdf: Value, min_mass: Value) -> tuple[Value, Value, Value]:
    """Find the shortest interval of counts whose probability is at least `min_mass`, for each row.

    Return its first count, its last count and its probability, with shape (R, 1) each. The counts are NaN if the
    probability of the whole grid is less. If several intervals are this short, the most probable one is returned. The
    length is found by bisection: it is one more than the largest length at which no interval has enough probability.
    `ddpn.distributions.kernels.runs_of_counts.find_narrowest_run` computes the same.

    `cdf` has shape (R, K). `min_mass` has shape (R, 1), or () if it is the same for all rows.
    """
    before = graph.concat([cdf.take([0]) * 0.0, cdf.slice(0, -1)])
    first = (cdf * 0.0 + 1.0).op("CumSum", graph.constant(1)) - 1.0

    def masses(length: Value) -> Value:
        return _look_up_cdf(graph, cdf, first + length - 1.0) - before

    length = cdf.take([0]) * 0.0
    for step in (2.0**k for k in reversed(range(int(MAX_GRID_COUNT).bit_length()))):
        longer = length + step
        length = graph.where(masses(longer).max(1) < min_mass, longer, length)
    length = length + 1.0
    mass = masses(length)
    best = mass.max(1)
    # Not `best * (1 - TIE_TOLERANCE)`, because ONNX Runtime treats a factor of 1 - 1e-13 as 1 and removes it.
    low = (mass >= best - best * TIE_TOLERANCE).cast("f").op("ArgMax", axis=1, kind="i").cast("f")
    low = graph.where(cdf.max(1) >= min_mass, low, np.nan)
    return low, low + length - 1.0, best


def _mix(graph: Graph, component_weights: np.ndarray, row: _Rows, tables: list[Tabulated]) -> tuple[Value, MomentNodes]:
    """Compute the pmf, with shape (R, K), and the moments of a mixture of distributions without bounds.

    `row` has the distributions of a block of rows, and `tables` the pmfs of each of its stacks.
    """
    weighted = [(stack.weight * component_weights[stack.component][None]).add_axes(1) for stack in row.stacks]
    pmf = reduce(add, (weight.op("MatMul", table.pmf) for weight, table in zip(weighted, tables, strict=True)))
    pmf = pmf.op("Squeeze", graph.constant([1]))
    # For each family, a matrix that sums the distributions of each component.
    sum_matrices = [graph.constant(np.eye(len(component_weights))[stack.component]) for stack in row.stacks]
    table_parts = list(zip(row.stacks, tables, sum_matrices, strict=True))
    mean = reduce(add, ((stack.weight * table.mean).op("MatMul", matrix) for stack, table, matrix in table_parts))
    parts = []
    for stack, table, matrix in table_parts:
        gap = table.mean - mean.take(stack.component)
        parts.append((stack.weight * (table.variance + gap * gap)).op("MatMul", matrix))
    variance = reduce(add, parts)
    if row.zero is not None:
        pmf = _add_zeros(graph, pmf, (row.zero * component_weights[None]).sum(1))
        variance = variance + row.zero * mean * mean
    return pmf, _combine_moments(component_weights, mean, variance)


def _add_zeros(graph: Graph, pmf: Value, zero: Value) -> Value:
    """Add the probabilities `zero` to the count 0 of pmfs. Shape: (..., K) for pmfs, and (..., 1) for `zero`."""
    return graph.concat([pmf.take([0], axis=-1) + zero, pmf.slice(1, axis=-1)], axis=-1)


def _combine_moments(component_weights: np.ndarray, mean: Value, variance: Value) -> MomentNodes:
    """Compute the moments of the mixture from the means and variances of its components.

    `mean` and `variance` have shape (R, N), and `component_weights` has shape (N,).
    """
    weights = component_weights[None]
    mixture_mean = (mean * weights).sum(1)
    gap = mean - mixture_mean
    aleatoric, epistemic = (variance * weights).sum(1), (gap * gap * weights).sum(1)
    return MomentNodes(mixture_mean, aleatoric + epistemic, aleatoric, epistemic)


def _truncate(
    graph: Graph, mixture: MixtureGraph, row: _Rows, tables: list[Tabulated], grid: Grid
) -> tuple[Value, MomentNodes]:
    """Compute the pmf and the moments of a mixture whose components are truncated to the bounds of the counts.

    The pmf has shape (R, K). `row` has the distributions of a block of rows, and `tables` the pmfs of each of its
    stacks.
    """
    component_weights, upper = mixture.component_weights, row.upper
    matrices = (graph.constant(np.eye(len(component_weights))[:, stack.component]) for stack in row.stacks)
    pmfs = (table.pmf * stack.weight.add_axes(2) for stack, table in zip(row.stacks, tables, strict=True))
    total = reduce(add, (matrix.op("MatMul", pmf) for matrix, pmf in zip(matrices, pmfs, strict=True)))
    if row.zero is not None:
        total = _add_zeros(graph, total, row.zero.add_axes(2))
    inside = grid.y >= float(mixture.lower)
    if upper is not None:
        inside = inside & (grid.y <= (upper.add_axes(2) if isinstance(upper, Value) else upper))
    truncated = graph.where(inside, total, 0.0)
    truncated = truncated / truncated.sum(2)
    moments = _combine_moments(
        component_weights, *(value.reshape(-1, len(component_weights)) for value in compute_moments(grid, truncated, 2))
    )
    pmf = graph.constant(component_weights[None, None]).op("MatMul", truncated).op("Squeeze", graph.constant([1]))
    return pmf, moments


def _recalibrate(
    graph: Graph, recalibration: MonotoneMap, cdf: Value, moments: MomentNodes, grid: Grid
) -> tuple[Value, Value, MomentNodes]:
    """Recalibrate the cdf of the mixture by a monotone map; return the new cdf, pmf and moments.

    `cdf` has shape (R, K), and `moments` are those before the recalibration. The ratio of the epistemic variance to the
    whole variance does not change.
    """
    at, value = recalibration.at.numpy(), recalibration.value.numpy()
    lines = zip(at.tolist(), np.diff(at).tolist(), (np.diff(value) / np.diff(at)).tolist(), strict=False)
    mapped = reduce(add, ((cdf - start).clip(0.0, width) * slope for start, width, slope in lines))
    pmf = graph.concat([mapped.take([0]), mapped.slice(1) - mapped.slice(0, -1)])
    mean, variance = compute_moments(grid, pmf, 1)
    is_positive = moments.variance > 0.0
    ratio = graph.where(is_positive, moments.epistemic / graph.where(is_positive, moments.variance, 1.0), 0.0)
    epistemic = variance * ratio
    return mapped, pmf, MomentNodes(mean, variance, variance - epistemic, epistemic)
