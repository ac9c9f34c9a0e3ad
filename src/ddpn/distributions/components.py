"""Call the kernels for rows of count distributions, each a mixture of components.

A distribution of one family is a mixture of one component, and a nested mixture is replaced by its components. A
component is a family with parameters, restricted to a range of counts, or a table of probabilities.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.kernels import loops, panels, ranges, walk
from ddpn.distributions.kernels.compiling import compile_kernel
from ddpn.distributions.kernels.family import Family
from ddpn.runtime.errors import DDPNError

if TYPE_CHECKING:
    from ddpn.distributions.count import CountDistribution

Block = TypeVar("Block")

#: Components per block: with five numbers per component, a block fits into a processor's cache.
_BLOCK_COMPONENTS = 1 << 14
#: Probabilities per block of rows with tables.
_TABLE_BLOCK_COUNTS = 1 << 20
#: Rows per block of panels, some 20 KB each.
_PANEL_BLOCK_ROWS = 256
#: Initial length of an arena, which fits into a processor's cache, and the typical number of counts of a component.
_FIRST_ARENA_COUNTS, _USUAL_COUNTS_PER_COMPONENT = 1 << 17, 64
#: Most counts of a row with tables of probabilities (panels cannot hold tables): in a block of rows, and in a row by
#: itself.
_MAX_TABLE_COUNTS, _MAX_LONE_COUNTS = 1 << 17, 1 << 25
#: Quantiles at levels this close to 0 or 1 are found by bisection, as sums over counts leave out about 1e-18 of the
#: mass.
_DEEP_TAIL = 1e-6
#: Depth in nats of the bracket in which a distribution without a kernel is tabulated.
TABLE_DEPTH = 37.0
#: Relative rounding error of a cdf and of a probability.
_ROUNDING = 1e-15


class Part(NamedTuple):
    """The components of one family, or tables of probabilities: k per row. Shape of arrays: (rows, k).

    Parameters
    ----------
    family : type of Family, or None
        None for tables.
    parameters : tuple of array
        One to three, in float64.
    weight, low, high : array, optional
        Mixture weights, and the first and the last possible count. None stands for 1, 0 and infinity.
    table : CountDistribution, optional
        A distribution of batch shape (rows * k,), which is tabulated in blocks of rows.
    size : int
        k
    group : tuple of int
        For each of the k components, the index of its component in the user's mixture; 0 if the user has no mixture.
    """

    family: type[Family] | None
    parameters: tuple[np.ndarray, ...] = ()
    weight: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    table: "CountDistribution | None" = None
    size: int = 1
    group: tuple[int, ...] = (0,)

    def _reshape(self, *shape: int) -> Self:
        change = lambda x: None if x is None else x.reshape(shape)  # noqa: E731
        parameters = tuple(x.reshape(shape) for x in self.parameters)
        return self._replace(
            parameters=parameters, weight=change(self.weight), low=change(self.low), high=change(self.high)
        )

    def join(self, weights: np.ndarray, first: int) -> Self:
        """Join every k rows to a mixture of k components with weights (rows, k), numbered from `first` on."""
        rows, k = weights.shape
        size = k * self.size
        joint = np.repeat(weights, self.size, axis=1) if self.size > 1 else weights
        new = self._reshape(rows, size)
        group = tuple(first + j // self.size for j in range(size))
        return new._replace(weight=joint if new.weight is None else joint * new.weight, size=size, group=group)

    def separate(self) -> Self:
        """Make every component a separate row of weight 1."""
        return self._replace(weight=None)._reshape(-1, 1)._replace(size=1, group=(0,))

    def restrict(self, low: np.ndarray, high: np.ndarray) -> tuple[Self, np.ndarray]:
        """Restrict counts to a range (rows, 1); also return the log mass of each component in it. Shape: (rows, k)."""
        first = np.maximum(low, 0.0 if self.low is None else self.low)
        last = np.minimum(high, np.inf if self.high is None else self.high)
        log_p = self._log_range(first, last)
        if self.low is not None or self.high is not None:
            log_p = log_p - self._log_range(self.low, self.high)
        shape = log_p.shape
        return self._replace(low=np.broadcast_to(first, shape), high=np.broadcast_to(last, shape)), log_p

    def _log_range(self, low: np.ndarray | None, high: np.ndarray | None) -> np.ndarray:
        """Compute log P(low <= Z <= high) of each component; None stands for 0 and infinity. Shape: (rows, k)."""
        shape = self.parameters[0].shape
        assert self.family is not None
        bounds = 0.0 if low is None else low, np.inf if high is None else high
        columns = [np.broadcast_to(x, shape).reshape(-1) for x in (*bounds, *self.parameters)]
        return call_per_row(loops.compute_log_ranges, self.family, columns, 4)[0].reshape(shape)


class Summaries(NamedTuple):
    """Arrays of statistics per row, in float64, to which kernels write.

    Parameters
    ----------
    moments : array, (rows, 6)
        Mean, variance, mode, entropy, and the parts of the variance within and between groups of components.
    quantiles, scores : array, (rows, L) and (rows, Q)
        Quantiles at L levels, and the CRPS of Q counts.
    intervals : array, (rows, 3) or (rows, 0)
        Lowest and highest count of narrowest intervals, and their probability.
    entries : array, (rows, 2) or (rows, 0)
        The two levels of `CountDistribution.entry_levels`.
    """

    moments: np.ndarray
    quantiles: np.ndarray
    scores: np.ndarray
    intervals: np.ndarray
    entries: np.ndarray


class Interval(NamedTuple):
    """Intervals of counts, one per row.

    Parameters
    ----------
    low, high : Tensor
        The lowest and the highest count, both included.
    probability : Tensor
        The probability that a count lies in the interval, in float64.
    """

    low: Tensor
    high: Tensor
    probability: Tensor


class Summary(NamedTuple):
    """Result of `CountDistribution.summary`, one value per row.

    Parameters
    ----------
    mean, variance : Tensor
        Exact moments.
    aleatoric, epistemic : Tensor
        The parts of the variance, as `Mixture` defines them.
    quantiles : Tensor
        Counts at the levels, (rows, n).
    mode : Tensor
        The most probable count.
    crps, entropy : Tensor or None
        The CRPS of the observed counts, and the entropy; None unless requested.
    interval : Interval or None
        The narrowest intervals; None unless requested.
    """

    mean: Tensor
    variance: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    quantiles: Tensor
    mode: Tensor
    crps: Tensor | None
    entropy: Tensor | None
    interval: Interval | None = None


class SummaryRequest(NamedTuple):
    """Request for the statistics of rows; moments are always computed.

    Parameters
    ----------
    levels, y : array, (rows, L) and (rows, Q), optional
        Levels of the quantiles, and the counts to score.
    interval_levels : array, (rows, 1), optional
        Probabilities of narrowest intervals.
    entries, entropy : bool
        Compute `CountDistribution.entry_levels` of the first y, and the entropy.
    cdf_map : array, (2, knots)
        Knots and values of a map by which all cdfs are recalibrated, see `MonotoneMap`.
    """

    levels: np.ndarray | None = None
    y: np.ndarray | None = None
    interval_levels: np.ndarray | None = None
    entries: bool = False
    entropy: bool = False
    cdf_map: np.ndarray = np.empty((2, 0))


class _Block(NamedTuple):
    """A block of rows, in the arrays that kernels take.

    Parameters
    ----------
    weights : array, (rows, K)
    families : list of (Family, array, int)
        Each family, its components (rows, k, 5) as in `kernels.loops`, and the column of the first component in
        `weights`.
    tables : list of (array, array, int)
        First counts (rows,) and probabilities (rows, n) of a table, and its column in `weights`.
    """

    weights: np.ndarray
    families: list[tuple[type[Family], np.ndarray, int]]
    tables: list[tuple[np.ndarray, np.ndarray, int]]

    def call(self, function: Callable[..., None], *args: np.ndarray) -> None:
        """Call a kernel once per family, with its components, weights, first column and further arguments."""
        for family, components, column in self.families:
            compile_kernel(function, family)(components, self.weights, column, *args)

    def fill(
        self, part: slice, limit: int, arena: np.ndarray, slices: np.ndarray, walks: np.ndarray, is_long: np.ndarray
    ) -> int:
        """Append the weights of some rows to the arena by `loops.fill_arena`; return its length, -1 if it is full."""
        weights, used = self.weights[part], 0
        for family, components, column in self.families:
            fill = compile_kernel(loops.fill_arena, family)
            used = fill(components[part], weights, column, limit, arena, used, slices, walks, is_long)
            if used < 0:
                return -1
        for first, pmf, column in self.tables:
            count, n = len(weights), pmf.shape[1]
            if used + count * n > len(arena):
                return -1
            arena[used : used + count * n] = pmf[part].ravel()
            slices[:, column, 0] = used + n * np.arange(count)
            slices[:, column, 1] = np.where(weights[:, column] <= 0.0, 0, n)
            walks[:, column] = np.stack([first[part], np.ones(count), first[part] + pmf[part].argmax(1)], axis=1)
            used += count * n
        return used


def _make_block(parts: Sequence[Part], index: slice | np.ndarray, count: int) -> _Block:
    block = _Block(np.ones((count, sum(part.size for part in parts))), [], [])
    column = 0
    for part in parts:
        if part.weight is not None:
            block.weights[:, column : column + part.size] = part.weight[index]
        if part.family is None:
            block.tables.extend((*table, column + j) for j, table in enumerate(_tabulate(part, index)))
        else:
            components = np.zeros((count, part.size, 5))
            for j, parameter in enumerate(part.parameters):
                components[:, :, j] = parameter[index]
            components[:, :, 4] = np.inf
            for j, bound in ((3, part.low), (4, part.high)):
                if bound is not None:
                    components[:, :, j] = bound[index]
            block.families.append((part.family, components, column))
        column += part.size
    # Families without a ratio take longer, so they skip rows in which another family has too many counts.
    block.families.sort(key=lambda x: not hasattr(x[0], "ratio"))
    return block


def _tabulate(part: Part, index: slice | np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Tabulate rows of a part; return first counts and probabilities for each of its k columns."""
    assert part.table is not None
    positions = torch.arange(part.table.batch_shape[0]).reshape(-1, part.size)[index]
    return [tuple(x.numpy() for x in tabulate_pmf(part.table.rows(column))) for column in positions.unbind(1)]  # type: ignore[misc]


def tabulate_pmf(dist: "CountDistribution") -> tuple[Tensor, Tensor]:
    """Tabulate a distribution; return each row's first count, and n probabilities from this count on, with sum 1."""
    first, last = (x.double() for x in dist.bracket(TABLE_DEPTH))
    size = int((last - first).max().item()) + 1 if len(first) else 1
    y = first + torch.arange(float(size), dtype=torch.float64).unsqueeze(1)
    pmf = dist.log_prob(torch.minimum(y, last)).double().exp().T
    pmf = torch.where(last.unsqueeze(1) >= y.T, pmf, 0.0)
    return first, (pmf / pmf.sum(1, keepdim=True)).contiguous()


def _split_rows(parts: Sequence[Part], count: int) -> list[slice]:
    size = max(_BLOCK_COMPONENTS // max(sum(part.size for part in parts), 1), 1)
    for part in parts:
        if part.table is not None and count:
            first, last = part.table.bracket(TABLE_DEPTH)
            size = min(size, max(int(_TABLE_BLOCK_COUNTS / (part.size * (float((last - first).max()) + 1.0))), 1))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _run_blocks(task: Callable[[Block], None], blocks: Sequence[Block]) -> None:
    """Run a task for every block, in as many threads as torch uses; kernels release the GIL."""
    threads = min(torch.get_num_threads(), len(blocks))
    if threads <= 1:
        for block in blocks:
            task(block)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(task, blocks))


def compute_summaries(parts: Sequence[Part], count: int, request: SummaryRequest) -> Summaries:
    """Compute the requested statistics of `count` rows in blocks, by panels for rows with very many counts."""
    nothing = np.empty((count, 0))
    arrays = (nothing if x is None else x for x in (request.levels, request.y, request.interval_levels))
    inputs = [np.require(x, np.float64, ["C", "W"]) for x in arrays]
    widths = 6, inputs[0].shape[1], inputs[1].shape[1], 3 * inputs[2].shape[1], 2 if request.entries else 0
    results = Summaries(*(np.empty((count, width)) for width in widths))
    groups = np.array([group for part in parts for group in part.group], dtype=np.int64)
    has_tables = any(part.family is None for part in parts)
    is_long = np.zeros(count, dtype=np.bool_)

    def task(index: slice) -> None:
        block = _make_block(parts, index, index.stop - index.start)
        limit = _MAX_TABLE_COUNTS if has_tables else walk.MAX_COUNTS
        arguments = [x[index] for x in inputs], request, limit, is_long[index], [x[index] for x in results]
        _summarise_counts(block, groups, *arguments)

    def long_task(index: np.ndarray) -> None:
        block, some = _make_block(parts, index, len(index)), [x[index] for x in results]
        if has_tables:
            is_longer = np.zeros(len(index), dtype=np.bool_)
            _summarise_counts(block, groups, [x[index] for x in inputs], request, _MAX_LONE_COUNTS, is_longer, some)
            if is_longer.any():
                raise DDPNError(
                    "A distribution that is given by log_prob and bracket cannot be mixed with one that has more than "
                    f"{_MAX_LONE_COUNTS:,} counts (row {index[is_longer][0]}). Mix families of ddpn.distributions only."
                )
        else:
            _summarise_panels(block, groups, [x[index] for x in inputs], request, some)
        for x, values in zip(results, some, strict=True):
            x[index] = values

    _run_blocks(task, _split_rows(parts, count))
    if is_long.any():
        long_rows = is_long.nonzero()[0]
        step = 1 if has_tables else _PANEL_BLOCK_ROWS
        _run_blocks(long_task, [long_rows[i : i + step] for i in range(0, len(long_rows), step)])
    is_nothing = np.isnan(results.moments[:, 0])
    for x in results:
        x[is_nothing] = np.nan
    if inputs[0].size and not request.cdf_map.size:
        _correct_ends(parts, inputs[0], results.quantiles)
    return results


def _summarise_counts(
    block: _Block,
    groups: np.ndarray,
    inputs: Sequence[np.ndarray],
    request: SummaryRequest,
    limit: int,
    is_long: np.ndarray,
    results: Sequence[np.ndarray],
) -> None:
    """Compute statistics from the weights of all counts, for as many rows at a time as fit into the arena."""
    count, size = block.weights.shape
    arena, work = np.empty(_FIRST_ARENA_COUNTS), np.empty((3, limit))
    slices, walks = np.empty((count, size, 2), dtype=np.int64), np.empty((count, size, 3))
    start, chunk = 0, max(_FIRST_ARENA_COUNTS // (_USUAL_COUNTS_PER_COMPONENT * size), 1)
    while start < count:
        part = slice(start, min(start + chunk, count))
        used = block.fill(part, limit, arena, slices[part], walks[part], is_long[part])
        if used < 0:
            if part.stop - start > 1:
                chunk = (part.stop - start) // 2
            else:
                arena = np.empty(2 * len(arena))
            continue
        compile_kernel(loops.summarise)(
            arena, slices[part], walks[part], block.weights[part], groups, request.cdf_map,
            tuple(x[part] for x in inputs), request.entropy, work, is_long[part], tuple(x[part] for x in results),
        )  # fmt: skip
        start = part.stop
        if 3 * used < len(arena):
            chunk *= 2


def _summarise_panels(
    block: _Block,
    groups: np.ndarray,
    inputs: Sequence[np.ndarray],
    request: SummaryRequest,
    results: Sequence[np.ndarray],
) -> None:
    """Compute statistics of rows with very many counts by the panels of `kernels.panels`."""
    count, size = block.weights.shape
    extents, totals = np.zeros((count, size, ranges.N_EXTENT)), np.zeros((count, size, 3))
    offsets, modes = np.zeros(count + 1, dtype=np.int64), np.empty((count, 2))
    block.call(panels.compute_component_extents, extents)
    layout = compile_kernel(panels.lay_all_panels)(extents, block.weights, offsets)
    values = np.zeros((len(layout), panels.N_POSITIONS))
    block.call(panels.add_values, extents, offsets, layout, values, totals)
    compile_kernel(panels.summarise_panels)(
        block.weights, groups, totals, offsets, layout, values, request.cdf_map, tuple(inputs), request.entropy, modes,
        tuple(results),
    )  # fmt: skip
    results[0][:, 2] = _find_modes(block, extents, totals, modes)


def _find_modes(block: _Block, extents: np.ndarray, totals: np.ndarray, modes: np.ndarray) -> np.ndarray:
    """Find the mode of each row between two counts (rows, 2) by bisection."""
    low, high = modes.T
    while True:
        middle = np.floor(0.5 * (low + high))
        is_between = (low < high) & (middle < high)
        if not is_between.any():
            return low
        pairs = np.stack([middle, middle + 1.0], axis=1)
        masses = np.zeros_like(pairs)
        block.call(panels.add_masses, extents, totals, pairs, masses)
        rises = masses[:, 1] > masses[:, 0] * (1.0 + _ROUNDING)
        low, high = np.where(is_between & rises, pairs[:, 1], low), np.where(is_between & ~rises, middle, high)


def _correct_ends(parts: Sequence[Part], levels: np.ndarray, quantiles: np.ndarray) -> None:
    """Correct quantiles in place: 0 at level 0, infinity at level 1, and by bisection at levels close to 0 or 1."""
    deep = (levels > 0.0) & (levels < 1.0) & (np.minimum(levels, 1.0 - levels) < _DEEP_TAIL)
    if deep.any() and all(part.family is not None for part in parts):
        row, column = deep.nonzero()
        searched = _search_quantiles(_make_block(parts, row, len(row)), levels[row, column])
        quantiles[row, column] = np.where(np.isnan(quantiles[row, column]), np.nan, searched)
    quantiles[levels <= 0.0] = 0.0
    quantiles[levels >= 1.0] = np.inf


def _search_quantiles(block: _Block, levels: np.ndarray) -> np.ndarray:
    """Find quantiles for levels close to 0 or 1, by bisection with relatively accurate tail probabilities."""

    def reaches(z: np.ndarray) -> np.ndarray:
        """Return True where P(Z <= z) >= q, computed as P(Z > z) <= 1 - q if q is above 1/2; also True for NaN."""
        both = np.zeros((2, len(z), 1))
        block.call(loops.add_sides, z[:, None], both)
        below, above = np.minimum(both[:, :, 0], 1.0)
        is_beyond = above > (1.0 - levels) * (1.0 + _ROUNDING)
        return ~np.where(levels <= 0.5, below < levels * (1.0 - _ROUNDING), is_beyond)

    low, high = np.full(len(levels), -1.0), np.ones(len(levels))
    while (more := (high < 1e300) & ~reaches(high)).any():
        low, high = np.where(more, high, low), np.where(more, 2.0 * high + 1.0, high)
    while True:
        middle = np.floor(0.5 * (low + high))
        is_between = (low < middle) & (middle < high)
        if not is_between.any():
            return high
        is_enough = reaches(middle)
        low, high = np.where(is_between & ~is_enough, middle, low), np.where(is_between & is_enough, middle, high)


def compute_sides(parts: Sequence[Part], y: np.ndarray) -> np.ndarray:
    """Compute P(Z <= y) and P(Z > y), both relatively accurate. Shape: y (rows, n) -> (2, rows, n)."""
    results = np.zeros((2, *y.shape))
    families = [part for part in parts if part.family is not None]

    def task(index: slice) -> None:
        block, some = _make_block(families, index, index.stop - index.start), np.zeros((2, *y[index].shape))
        block.call(loops.add_sides, y[index], some)
        results[:, index] = some

    if families:
        _run_blocks(task, _split_rows(families, len(y)))
    for part in parts:
        if part.family is None:
            results += _compute_table_sides(part, y)
    lower, upper = np.clip(results, 0.0, 1.0)
    # Rounded down, so that the quantile at this level is the count itself.
    return np.stack([np.where(1.0 - lower < upper, np.nextafter(lower, 0.0), lower), upper])


def _compute_table_sides(part: Part, y: np.ndarray) -> np.ndarray:
    results = np.zeros((2, *y.shape))
    for index in _split_rows([part], len(y)):
        for j, (first, pmf) in enumerate(_tabulate(part, index)):
            index_of_y = np.clip(y[index] - first[:, None] + 1.0, 0, pmf.shape[1]).astype(np.int64)
            zero = np.zeros((len(pmf), 1))
            below = np.concatenate([zero, pmf.cumsum(1)], axis=1)
            above = np.concatenate([pmf[:, ::-1].cumsum(1)[:, ::-1], zero], axis=1)
            both = np.stack([np.take_along_axis(x, index_of_y, 1) for x in (below, above)])
            results[:, index] += both if part.weight is None else part.weight[index, j, None] * both
    return results


def call_per_row(
    function: Callable[..., None], family: type[Family], columns: Sequence[np.ndarray], results: int
) -> np.ndarray:
    """Call a kernel of one family with columns (rows,) of float64, the parameters last. Shape: (results, rows)."""
    count = len(columns[0])
    inputs = np.zeros((len(columns) + 2, count))  # kernels read three parameters, and every family has at least one
    for j, column in enumerate(columns):
        inputs[j] = column
    outputs = np.empty((results, count))
    kernel = compile_kernel(function, family)
    if count <= _BLOCK_COMPONENTS:
        kernel(inputs, outputs)
        return outputs

    def task(index: slice) -> None:
        part = np.empty((results, index.stop - index.start))
        kernel(np.ascontiguousarray(inputs[:, index]), part)
        outputs[:, index] = part

    _run_blocks(task, [slice(i, min(i + _BLOCK_COMPONENTS, count)) for i in range(0, count, _BLOCK_COMPONENTS)])
    return outputs
