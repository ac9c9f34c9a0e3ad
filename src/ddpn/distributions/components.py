"""Translate rows of count distributions into components, call the kernels with them, and return the results.

Every row is a mixture; a family has one component, and nested mixtures are replaced by their components. A component is
a family with parameters, restricted to a range of counts, or a table of probabilities.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.kernels import panels, ranges, rows, walk
from ddpn.distributions.kernels.by_mean import find_rates
from ddpn.distributions.kernels.compiling import compile_kernel
from ddpn.distributions.kernels.family import Family
from ddpn.runtime.errors import DDPNError

if TYPE_CHECKING:
    from ddpn.distributions.count import CountDistribution

Block = TypeVar("Block")

#: Loops over the rows of one family, each with its number of inputs per row.
OPERATIONS = {
    "log_prob": (rows.find_log_probs, 4),
    "log_mass": (rows.find_log_masses, 4),
    "log_range": (rows.find_log_ranges, 5),
    "moments": (rows.find_moments, 3),
    "extent": (rows.find_extents, 4),
    "information": (rows.find_information, 3),
    "rate": (find_rates, 3),
}
#: Components per block: with five parameters each they stay in a processor's cache.
_BLOCK_COMPONENTS = 1 << 14
#: Probabilities of tables per block.
_TABLE_BLOCK_COUNTS = 1 << 20
#: Rows per block of panels, some 20 KB each.
_PANEL_BLOCK_ROWS = 256
#: First length of an arena, whose weights stay in a processor's cache, and the counts that a component usually has.
_FIRST_ARENA_COUNTS, _USUAL_COUNTS_PER_COMPONENT = 1 << 17, 64
#: Most counts of a row with tables, which cannot take panels: of rows that are summed together, and of a row alone.
_MAX_TABLE_COUNTS, _MAX_LONE_COUNTS = 1 << 17, 1 << 25
#: Quantiles at levels this close to 0 or 1 are searched for: a window of many counts leaves out 1e-18 per count.
_DEEP_TAIL = 1e-6
#: Depth below the peak, in nats, to which a distribution given by `log_prob` and `bracket` is summed.
DEPTH = 37.0
#: Rounding of a cdf and of a probability.
_ROUNDING = 1e-15


class Part(NamedTuple):
    """Components of one family side by side, or of tables. Shape: (rows, k) each.

    Parameters
    ----------
    family : type of Family, or None
        None for tables.
    parameters : tuple of array
        One to three, in float64.
    weight, low, high : array, optional
        Weights, and the range that counts are restricted to. None: 1, 0 and infinity.
    table : CountDistribution, optional
        Of batch shape (rows * k,): its probabilities are asked for in blocks of rows.
    size : int
        k
    group : tuple of int
        The component of a mixture that each of these belongs to; 0 unless this is a mixture.
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
        """Join k rows at a time as one: the components `first` and so on of a mixture with weights (rows, k)."""
        rows, k = weights.shape
        size = k * self.size
        joint = np.repeat(weights, self.size, axis=1) if self.size > 1 else weights
        new = self._reshape(rows, size)
        group = tuple(first + j // self.size for j in range(size))
        return new._replace(weight=joint if new.weight is None else joint * new.weight, size=size, group=group)

    def separate(self) -> Self:
        """Make every component a row of its own, without its weight."""
        return self._replace(weight=None)._reshape(-1, 1)._replace(size=1, group=(0,))

    def restrict(self, low: np.ndarray, high: np.ndarray) -> tuple[Self, np.ndarray]:
        """Restrict counts to a range (rows, 1), and find the log mass of each component there. Shape: (rows, k)."""
        first = np.maximum(low, 0.0 if self.low is None else self.low)
        last = np.minimum(high, np.inf if self.high is None else self.high)
        log_p = self._log_range(first, last)
        if self.low is not None or self.high is not None:
            log_p = log_p - self._log_range(self.low, self.high)
        shape = log_p.shape
        return self._replace(low=np.broadcast_to(first, shape), high=np.broadcast_to(last, shape)), log_p

    def _log_range(self, low: np.ndarray | None, high: np.ndarray | None) -> np.ndarray:
        """Find the log mass of each component between two counts, by default 0 and infinity. Shape: (rows, k)."""
        shape = self.parameters[0].shape
        assert self.family is not None
        bounds = 0.0 if low is None else low, np.inf if high is None else high
        columns = [np.broadcast_to(x, shape).reshape(-1) for x in (*bounds, *self.parameters)]
        return call_per_row("log_range", self.family, columns, 4)[0].reshape(shape)


class Summaries(NamedTuple):
    """Float64 arrays: moments (rows, 6), quantiles (rows, L), CRPS (rows, Q), intervals (rows, 3), entries (rows, 2).

    Moments: mean, variance, mode, entropy, and the parts of the variance within and between groups of components.
    Intervals: lowest and highest count and their probability. Entries: see `kernels.arrays.find_entry_masses`.
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
        The score of the observed counts, and the entropy, if they were asked for.
    interval : Interval or None
        The narrowest intervals, if they were asked for.
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
    """Request for summaries: quantiles at levels (rows, L), CRPS of counts y (rows, Q), and perhaps the entropy.

    `interval_levels` (rows, 1) asks for the narrowest interval of that probability, `entries` for the levels at which
    the first y enters it. `change` (2, knots) is a map of all cdfs.
    """

    levels: np.ndarray | None = None
    y: np.ndarray | None = None
    interval_levels: np.ndarray | None = None
    entries: bool = False
    entropy: bool = False
    change: np.ndarray = np.empty((2, 0))


class _Block(NamedTuple):
    """A block of rows, in the arrays that kernels take.

    Parameters
    ----------
    weights : array, (rows, K)
    families : list of (Family, array, int)
        Each with its components (rows, k, 5), and where the first of these is among all K.
    tables : list of (array, array, int)
        First counts (rows,) and probabilities (rows, n) of a table, and where it is among all K.
    """

    weights: np.ndarray
    families: list[tuple[type[Family], np.ndarray, int]]
    tables: list[tuple[np.ndarray, np.ndarray, int]]

    def call(self, function: Callable[..., None], *args: np.ndarray) -> None:
        """Call a kernel for the components of every family, with what it takes after these."""
        for family, components, column in self.families:
            compile_kernel(function, family)(components, self.weights, column, *args)

    def fill(
        self, part: slice, limit: int, arena: np.ndarray, spans: np.ndarray, facts: np.ndarray, is_long: np.ndarray
    ) -> int:
        """Append the weights of some rows to the arena, see `rows.fill`; return its used length, -1 if it is full."""
        weights, used = self.weights[part], 0
        for family, components, column in self.families:
            fill = compile_kernel(rows.fill, family)
            used = fill(components[part], weights, column, limit, arena, used, spans, facts, is_long)
            if used < 0:
                return -1
        for first, pmf, column in self.tables:
            count, n = len(weights), pmf.shape[1]
            if used + count * n > len(arena):
                return -1
            arena[used : used + count * n] = pmf[part].ravel()
            spans[:, column, 0] = used + n * np.arange(count)
            spans[:, column, 1] = np.where(weights[:, column] <= 0.0, 0, n)
            facts[:, column] = np.stack([first[part], np.ones(count), first[part] + pmf[part].argmax(1)], axis=1)
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
    # Families without a ratio take longer, and are left out where another one has too many counts.
    block.families.sort(key=lambda x: not hasattr(x[0], "ratio"))
    return block


def _tabulate(part: Part, index: slice | np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Tabulate the rows of a part: first counts and probabilities of each of its columns."""
    assert part.table is not None
    places = torch.arange(part.table.batch_shape[0]).reshape(-1, part.size)[index]
    return [tuple(x.numpy() for x in tabulate_pmf(part.table.rows(column))) for column in places.unbind(1)]  # type: ignore[misc]


def tabulate_pmf(dist: "CountDistribution") -> tuple[Tensor, Tensor]:
    """Tabulate a distribution by `log_prob`: the first count of each row, and n probabilities from it on with sum 1."""
    first, last = (x.double() for x in dist.bracket(DEPTH))
    size = int((last - first).max().item()) + 1 if len(first) else 1
    y = first + torch.arange(float(size), dtype=torch.float64).unsqueeze(1)
    pmf = dist.log_prob(torch.minimum(y, last)).double().exp().T
    pmf = torch.where(last.unsqueeze(1) >= y.T, pmf, 0.0)
    return first, (pmf / pmf.sum(1, keepdim=True)).contiguous()


def _split_rows(parts: Sequence[Part], count: int) -> list[slice]:
    size = max(_BLOCK_COMPONENTS // max(sum(part.size for part in parts), 1), 1)
    for part in parts:
        if part.table is not None and count:
            first, last = part.table.bracket(DEPTH)
            size = min(size, max(int(_TABLE_BLOCK_COUNTS / (part.size * (float((last - first).max()) + 1.0))), 1))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _run_blocks(task: Callable[[Block], None], blocks: Sequence[Block]) -> None:
    """Run a task for every block, in as many threads as torch uses: kernels release the GIL."""
    threads = min(torch.get_num_threads(), len(blocks))
    if threads <= 1:
        for block in blocks:
            task(block)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(task, blocks))


def compute_summaries(parts: Sequence[Part], count: int, asked: SummaryRequest) -> Summaries:
    """Compute what is asked for about `count` rows, in blocks; rows with very many counts take panels instead."""
    nothing = np.empty((count, 0))
    arrays = (nothing if x is None else x for x in (asked.levels, asked.y, asked.interval_levels))
    inputs = [np.require(x, np.float64, ["C", "W"]) for x in arrays]
    widths = 6, inputs[0].shape[1], inputs[1].shape[1], 3 * inputs[2].shape[1], 2 if asked.entries else 0
    results = Summaries(*(np.empty((count, width)) for width in widths))
    groups = np.array([group for part in parts for group in part.group], dtype=np.int64)
    has_tables = any(part.family is None for part in parts)
    is_long = np.zeros(count, dtype=np.bool_)

    def task(index: slice) -> None:
        block = _make_block(parts, index, index.stop - index.start)
        limit = _MAX_TABLE_COUNTS if has_tables else walk.MAX_COUNTS
        arguments = [x[index] for x in inputs], asked, limit, is_long[index], [x[index] for x in results]
        _summarise_counts(block, groups, *arguments)

    def long_task(index: np.ndarray) -> None:
        block, some = _make_block(parts, index, len(index)), [x[index] for x in results]
        if has_tables:
            is_longer = np.zeros(len(index), dtype=np.bool_)
            _summarise_counts(block, groups, [x[index] for x in inputs], asked, _MAX_LONE_COUNTS, is_longer, some)
            if is_longer.any():
                raise DDPNError(
                    "A distribution that is given by log_prob and bracket cannot be mixed with one that has more than "
                    f"{_MAX_LONE_COUNTS:,} counts (row {index[is_longer][0]}). Mix families of ddpn.distributions only."
                )
        else:
            _summarise_panels(block, groups, [x[index] for x in inputs], asked, some)
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
    if inputs[0].size and not asked.change.size:
        _correct_ends(parts, inputs[0], results.quantiles)
    return results


def _summarise_counts(
    block: _Block,
    groups: np.ndarray,
    inputs: Sequence[np.ndarray],
    asked: SummaryRequest,
    limit: int,
    is_long: np.ndarray,
    results: Sequence[np.ndarray],
) -> None:
    """Compute results from the weights of all counts, a few rows at a time, which share an arena."""
    count, size = block.weights.shape
    arena, work = np.empty(_FIRST_ARENA_COUNTS), np.empty((3, limit))
    spans, facts = np.empty((count, size, 2), dtype=np.int64), np.empty((count, size, 3))
    start, chunk = 0, max(_FIRST_ARENA_COUNTS // (_USUAL_COUNTS_PER_COMPONENT * size), 1)
    while start < count:
        part = slice(start, min(start + chunk, count))
        used = block.fill(part, limit, arena, spans[part], facts[part], is_long[part])
        if used < 0:
            if part.stop - start > 1:
                chunk = (part.stop - start) // 2
            else:
                arena = np.empty(2 * len(arena))
            continue
        compile_kernel(rows.summarise)(
            arena, spans[part], facts[part], block.weights[part], groups, asked.change, tuple(x[part] for x in inputs),
            asked.entropy, work, is_long[part], tuple(x[part] for x in results),
        )  # fmt: skip
        start = part.stop
        if 3 * used < len(arena):
            chunk *= 2


def _summarise_panels(
    block: _Block,
    groups: np.ndarray,
    inputs: Sequence[np.ndarray],
    asked: SummaryRequest,
    results: Sequence[np.ndarray],
) -> None:
    """Compute results of rows with very many counts, from values on panels of counts."""
    count, size = block.weights.shape
    extents, totals = np.zeros((count, size, ranges.EXTENT)), np.zeros((count, size, 3))
    offsets, modes = np.zeros(count + 1, dtype=np.int64), np.empty((count, 2))
    block.call(panels.find_extents, extents)
    compile_kernel(panels.count_panels)(extents, block.weights, offsets)
    layout, values = np.empty((offsets[-1], 3)), np.zeros((offsets[-1], panels.SIZE))
    compile_kernel(panels.lay_all_panels)(extents, block.weights, offsets, layout)
    block.call(panels.add_values, extents, offsets, layout, values, totals)
    compile_kernel(panels.summarise_panels)(
        block.weights, groups, totals, offsets, layout, values, asked.change, tuple(inputs), asked.entropy, modes,
        tuple(results),
    )  # fmt: skip
    results[0][:, 2] = _find_modes(block, extents, totals, modes)


def _find_modes(block: _Block, extents: np.ndarray, totals: np.ndarray, modes: np.ndarray) -> np.ndarray:
    """Find the most probable counts between two counts (rows, 2) by halving."""
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
    """Search for quantiles at levels close to 0 or 1; they are 0 at level 0, infinite at level 1."""
    deep = (levels > 0.0) & (levels < 1.0) & (np.minimum(levels, 1.0 - levels) < _DEEP_TAIL)
    if deep.any() and all(part.family is not None for part in parts):
        row, column = deep.nonzero()
        searched = _search_quantiles(_make_block(parts, row, len(row)), levels[row, column])
        quantiles[row, column] = np.where(np.isnan(quantiles[row, column]), np.nan, searched)
    quantiles[levels <= 0.0] = 0.0
    quantiles[levels >= 1.0] = np.inf


def _search_quantiles(block: _Block, levels: np.ndarray) -> np.ndarray:
    """Bisect for quantiles at levels so close to 0 or 1 that `compute_summaries` does not reach them."""

    def reaches(z: np.ndarray) -> np.ndarray:
        """Return True where P(Z <= z) >= q, or P(Z > z) <= 1 - q for levels above 1/2, and for NaN."""
        both = np.zeros((2, len(z), 1))
        block.call(rows.add_sides, z[:, None], both)
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
        block.call(rows.add_sides, y[index], some)
        results[:, index] = some

    if families:
        _run_blocks(task, _split_rows(families, len(y)))
    for part in parts:
        if part.family is None:
            results += _compute_table_sides(part, y)
    lower, upper = np.clip(results, 0.0, 1.0)
    # Rounded down, so that a quantile at this level is the count again.
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


def call_per_row(name: str, family: type[Family], columns: Sequence[np.ndarray], results: int) -> np.ndarray:
    """Call a kernel of one family for numbers per row: columns (rows,) -> (results, rows), in float64."""
    count = len(columns[0])
    function, size = OPERATIONS[name]
    inputs = np.zeros((size, count))
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
