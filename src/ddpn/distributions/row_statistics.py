"""Compute summaries and tail probabilities of many mixtures, one per row, with compiled kernels."""

from collections.abc import Sequence

import numpy as np

from ddpn.distributions.blocks import RowBlock, make_block, split_rows, tabulate_stack
from ddpn.distributions.calls import run_blocks
from ddpn.distributions.components import ComponentStack
from ddpn.distributions.kernels import loops, panel_layout, panels, walk
from ddpn.distributions.kernels.compiling import compile_kernel
from ddpn.distributions.kernels.extents import N_EXTENT
from ddpn.distributions.kernels.gauss import N_POSITIONS
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


def compute_summaries(stacks: Sequence[ComponentStack], n_rows: int, request: SummaryRequest) -> Summaries:
    """Compute the statistics in `request` for `n_rows` mixtures, one per row.

    `stacks` has the components of the mixtures. Rows are processed in blocks, on several threads. The probabilities of
    a row's counts are added one by one or, if there are very many counts, by quadrature (`kernels.panels`). All
    statistics of a row are NaN if its probabilities do not have a positive sum, for example because a parameter is NaN.
    """
    no_values = np.empty((n_rows, 0))
    arrays = (no_values if x is None else x for x in (request.levels, request.y, request.interval_levels))
    inputs = [np.require(x, np.float64, ["C", "W"]) for x in arrays]
    widths = 6, inputs[0].shape[1], inputs[1].shape[1], 3 * inputs[2].shape[1], 2 if request.entries else 0
    results = Summaries(*(np.empty((n_rows, width)) for width in widths))
    groups = np.array([group for stack in stacks for group in stack.group], dtype=np.int64)
    has_tables = any(stack.family is None for stack in stacks)
    is_long = np.zeros(n_rows, dtype=np.bool_)

    def task(index: slice) -> None:
        block = make_block(stacks, index, index.stop - index.start)
        limit = _MAX_TABLE_COUNTS if has_tables else walk.MAX_COUNTS
        arguments = [x[index] for x in inputs], request, limit, is_long[index], [x[index] for x in results]
        _summarise_counts(block, groups, *arguments)

    def long_task(index: np.ndarray) -> None:
        block, chunk_results = make_block(stacks, index, len(index)), [x[index] for x in results]
        if has_tables:
            is_longer = np.zeros(len(index), dtype=np.bool_)
            _summarise_counts(
                block, groups, [x[index] for x in inputs], request, _MAX_LONE_COUNTS, is_longer, chunk_results
            )
            if is_longer.any():
                raise DDPNError(
                    "A distribution that is given by log_prob and bracket cannot be mixed with one that has more than "
                    f"{_MAX_LONE_COUNTS:,} counts (row {index[is_longer][0]}). Mix families of ddpn.distributions only."
                )
        else:
            _summarise_panels(block, groups, [x[index] for x in inputs], request, chunk_results)
        for x, values in zip(results, chunk_results, strict=True):
            x[index] = values

    run_blocks(task, split_rows(stacks, n_rows))
    if is_long.any():
        long_rows = is_long.nonzero()[0]
        step = 1 if has_tables else _PANEL_BLOCK_ROWS
        run_blocks(long_task, [long_rows[i : i + step] for i in range(0, len(long_rows), step)])
    is_undefined = np.isnan(results.moments[:, 0])
    for x in results:
        x[is_undefined] = np.nan
    if inputs[0].size and not request.cdf_map.size:
        _correct_extreme_quantiles(stacks, inputs[0], results.quantiles)
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
    """Compute the statistics of a block of rows by adding the probabilities of counts one by one.

    At a time, as many rows are processed as fit into one array, the arena, with the probabilities of all their
    components (`kernels.loops`).

    Parameters
    ----------
    block : RowBlock
        The mixtures.
    groups : array of int, (K,)
        For each component, the index of the component of the user's mixture that it is part of.
    inputs : sequence of three arrays
        Levels of quantiles, counts to score, and levels of narrowest intervals, as for `kernels.loops.summarise`.
    request : SummaryRequest
        Says whether to compute the entropy, and how to recalibrate cdfs.
    limit : int
        The most counts of a row. Rows with more counts are skipped.
    is_long : array of bool, (rows,)
        Receives True for rows that were skipped.
    results : sequence of five arrays
        The fields of `Summaries` to write to.
    """
    n_rows, size = block.weights.shape
    arena, work = np.empty(_FIRST_ARENA_COUNTS), np.empty((3, limit))
    slices, walks = np.empty((n_rows, size, 2), dtype=np.int64), np.empty((n_rows, size, 3))
    start, chunk = 0, max(_FIRST_ARENA_COUNTS // (_USUAL_COUNTS_PER_COMPONENT * size), 1)
    while start < n_rows:
        rows = slice(start, min(start + chunk, n_rows))
        used = block.fill_arena(rows, limit, arena, slices[rows], walks[rows], is_long[rows])
        if used < 0:
            if rows.stop - start > 1:
                chunk = (rows.stop - start) // 2
            else:
                arena = np.empty(2 * len(arena))
            continue
        compile_kernel(loops.summarise)(
            arena, slices[rows], walks[rows], block.weights[rows], groups, request.cdf_map,
            tuple(x[rows] for x in inputs), request.entropy, work, is_long[rows], tuple(x[rows] for x in results),
        )  # fmt: skip
        start = rows.stop
        if 3 * used < len(arena):
            chunk *= 2


def _summarise_panels(
    block: RowBlock,
    groups: np.ndarray,
    inputs: Sequence[np.ndarray],
    request: SummaryRequest,
    results: Sequence[np.ndarray],
) -> None:
    """Compute the statistics of a block of rows with very many counts, by quadrature (`kernels.panels`).

    Parameters
    ----------
    block : RowBlock
        The mixtures, which must have no tables of probabilities.
    groups, inputs, request
        As for `_summarise_counts`.
    results : sequence of five arrays
        The fields of `Summaries` to write to. The mean of a row becomes NaN if a parameter is NaN or infinite.
    """
    n_rows, size = block.weights.shape
    extents, totals = np.zeros((n_rows, size, N_EXTENT)), np.zeros((n_rows, size, 3))
    offsets, modes = np.zeros(n_rows + 1, dtype=np.int64), np.empty((n_rows, 2))
    block.call(panel_layout.compute_component_extents, extents)
    layout = compile_kernel(panel_layout.make_row_panels)(extents, block.weights, offsets)
    values = np.zeros((len(layout), N_POSITIONS))
    block.call(panels.add_values, extents, offsets, layout, values, totals)
    compile_kernel(panels.summarise_panels)(
        block.weights, groups, totals, offsets, layout, values, request.cdf_map, tuple(inputs), request.entropy, modes,
        tuple(results),
    )  # fmt: skip
    results[0][:, 2] = _find_modes(block, extents, totals, modes)


def _find_modes(block: RowBlock, extents: np.ndarray, totals: np.ndarray, modes: np.ndarray) -> np.ndarray:
    """Find the mode of each row by bisection between two counts.

    Parameters
    ----------
    block : RowBlock
        The mixtures.
    extents : array, (rows, K, N_EXTENT)
        The range of counts of each component, from `panel_layout.compute_component_extents`.
    totals : array, (rows, K, 3)
        The log of the sum of each component's unnormalised probabilities, its mean and its variance, from
        `panels.add_values`.
    modes : array, (rows, 2)
        For each row, two counts between which the mode lies.

    Returns
    -------
    array, (rows,)
        The modes.
    """
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


def _correct_extreme_quantiles(stacks: Sequence[ComponentStack], levels: np.ndarray, quantiles: np.ndarray) -> None:
    """Replace quantiles of levels close to 0 or 1 in place by more accurate ones, found by bisection.

    The probabilities from which quantiles are usually found leave out about 1e-18 of the mass. At level 0 the quantile
    is set to 0, and at level 1 to infinity. `stacks` has the components of the mixtures, one mixture per row. `levels`
    and `quantiles` have the shape (rows, n).
    """
    deep = (levels > 0.0) & (levels < 1.0) & (np.minimum(levels, 1.0 - levels) < _DEEP_TAIL)
    if deep.any() and all(stack.family is not None for stack in stacks):
        row, column = deep.nonzero()
        searched = _search_extreme_quantiles(make_block(stacks, row, len(row)), levels[row, column])
        quantiles[row, column] = np.where(np.isnan(quantiles[row, column]), np.nan, searched)
    quantiles[levels <= 0.0] = 0.0
    quantiles[levels >= 1.0] = np.inf


def _search_extreme_quantiles(block: RowBlock, levels: np.ndarray) -> np.ndarray:
    """Find one quantile per row by bisection, from tail probabilities that are accurate even close to 0.

    `block` has the mixtures, and `levels` (rows,) the level of each row. Return the quantiles (rows,).
    """

    def reaches(z: np.ndarray) -> np.ndarray:
        """Return True for each row whose cdf at the count z is at least the level.

        For levels above 1/2, survival functions are compared, which are more accurate there. The result is also True if
        a probability is NaN, so that the search ends.
        """
        both = np.zeros((2, len(z), 1))
        block.call(loops.add_tails, z[:, None], both)
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


def compute_tails(stacks: Sequence[ComponentStack], y: np.ndarray) -> np.ndarray:
    """Compute P(Z <= y) and P(Z > y) for n counts y per row, with small relative errors in both tails.

    `stacks` has the components of the mixtures, one mixture per row. Shape: y (rows, n) -> (2, rows, n).
    """
    results = np.zeros((2, *y.shape))
    families = [stack for stack in stacks if stack.family is not None]

    def task(index: slice) -> None:
        block, tails = make_block(families, index, index.stop - index.start), np.zeros((2, *y[index].shape))
        block.call(loops.add_tails, y[index], tails)
        results[:, index] = tails

    if families:
        run_blocks(task, split_rows(families, len(y)))
    for stack in stacks:
        if stack.family is None:
            results += _compute_table_tails(stack, y)
    lower, upper = np.clip(results, 0.0, 1.0)
    # Rounded down, so that the quantile at this level is the count itself.
    return np.stack([np.where(1.0 - lower < upper, np.nextafter(lower, 0.0), lower), upper])


def _compute_table_tails(stack: ComponentStack, y: np.ndarray) -> np.ndarray:
    results = np.zeros((2, *y.shape))
    for index in split_rows([stack], len(y)):
        for j, (first, pmf) in enumerate(tabulate_stack(stack, index)):
            index_of_y = np.clip(y[index] - first[:, None] + 1.0, 0, pmf.shape[1]).astype(np.int64)
            zero = np.zeros((len(pmf), 1))
            below = np.concatenate([zero, pmf.cumsum(1)], axis=1)
            above = np.concatenate([pmf[:, ::-1].cumsum(1)[:, ::-1], zero], axis=1)
            both = np.stack([np.take_along_axis(x, index_of_y, 1) for x in (below, above)])
            results[:, index] += both if stack.weight is None else stack.weight[index, j, None] * both
    return results
