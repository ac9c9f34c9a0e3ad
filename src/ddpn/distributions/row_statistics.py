"""Compute statistics of rows of mixtures by kernels: summaries, and the mass on either side of a count."""

from collections.abc import Sequence

import numpy as np

from ddpn.distributions.blocks import RowBlock, make_block, split_rows, tabulate_columns
from ddpn.distributions.calls import run_blocks
from ddpn.distributions.components import Part
from ddpn.distributions.kernels import loops, panels, ranges, walk
from ddpn.distributions.kernels.compiling import compile_kernel
from ddpn.distributions.summaries import Summaries, SummaryRequest
from ddpn.runtime.errors import DDPNError

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
#: Relative rounding error of a cdf and of a probability.
_ROUNDING = 1e-15


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
        block = make_block(parts, index, index.stop - index.start)
        limit = _MAX_TABLE_COUNTS if has_tables else walk.MAX_COUNTS
        arguments = [x[index] for x in inputs], request, limit, is_long[index], [x[index] for x in results]
        _summarise_counts(block, groups, *arguments)

    def long_task(index: np.ndarray) -> None:
        block, some = make_block(parts, index, len(index)), [x[index] for x in results]
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

    run_blocks(task, split_rows(parts, count))
    if is_long.any():
        long_rows = is_long.nonzero()[0]
        step = 1 if has_tables else _PANEL_BLOCK_ROWS
        run_blocks(long_task, [long_rows[i : i + step] for i in range(0, len(long_rows), step)])
    is_nothing = np.isnan(results.moments[:, 0])
    for x in results:
        x[is_nothing] = np.nan
    if inputs[0].size and not request.cdf_map.size:
        _correct_ends(parts, inputs[0], results.quantiles)
    return results


def _summarise_counts(
    block: RowBlock,
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
    block: RowBlock,
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
    layout = compile_kernel(panels.make_row_panels)(extents, block.weights, offsets)
    values = np.zeros((len(layout), panels.N_POSITIONS))
    block.call(panels.add_values, extents, offsets, layout, values, totals)
    compile_kernel(panels.summarise_panels)(
        block.weights, groups, totals, offsets, layout, values, request.cdf_map, tuple(inputs), request.entropy, modes,
        tuple(results),
    )  # fmt: skip
    results[0][:, 2] = _find_modes(block, extents, totals, modes)


def _find_modes(block: RowBlock, extents: np.ndarray, totals: np.ndarray, modes: np.ndarray) -> np.ndarray:
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
        searched = _search_quantiles(make_block(parts, row, len(row)), levels[row, column])
        quantiles[row, column] = np.where(np.isnan(quantiles[row, column]), np.nan, searched)
    quantiles[levels <= 0.0] = 0.0
    quantiles[levels >= 1.0] = np.inf


def _search_quantiles(block: RowBlock, levels: np.ndarray) -> np.ndarray:
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
        block, some = make_block(families, index, index.stop - index.start), np.zeros((2, *y[index].shape))
        block.call(loops.add_sides, y[index], some)
        results[:, index] = some

    if families:
        run_blocks(task, split_rows(families, len(y)))
    for part in parts:
        if part.family is None:
            results += _compute_table_sides(part, y)
    lower, upper = np.clip(results, 0.0, 1.0)
    # Rounded down, so that the quantile at this level is the count itself.
    return np.stack([np.where(1.0 - lower < upper, np.nextafter(lower, 0.0), lower), upper])


def _compute_table_sides(part: Part, y: np.ndarray) -> np.ndarray:
    results = np.zeros((2, *y.shape))
    for index in split_rows([part], len(y)):
        for j, (first, pmf) in enumerate(tabulate_columns(part, index)):
            index_of_y = np.clip(y[index] - first[:, None] + 1.0, 0, pmf.shape[1]).astype(np.int64)
            zero = np.zeros((len(pmf), 1))
            below = np.concatenate([zero, pmf.cumsum(1)], axis=1)
            above = np.concatenate([pmf[:, ::-1].cumsum(1)[:, ::-1], zero], axis=1)
            both = np.stack([np.take_along_axis(x, index_of_y, 1) for x in (below, above)])
            results[:, index] += both if part.weight is None else part.weight[index, j, None] * both
    return results
