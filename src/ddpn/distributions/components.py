"""Rows of count distributions as components that kernels understand, and the kernels' results for them.

Every row is a mixture: of one component for a family, of all components for a mixture, those of mixtures within it in
their place. A component is a family with parameters, restricted to a range of counts, or a table of probabilities.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from math import nan
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.kernels import compiling, loops, rows

_MATRIX, _CUBE = "float64[:,::1]", "float64[:,:,::1]"
#: The loops over rows and their types.
SIGNATURES = {
    "of_rows": f"void(int64, int64, {_MATRIX}, {_MATRIX})",
    "cdfs": f"void(int64[::1], {_CUBE}, {_MATRIX}, float64[::1], float64[::1], {_MATRIX})",
    "summaries": (
        f"void(int64[::1], {_CUBE}, {_MATRIX}, {_CUBE}, {_MATRIX}, int64[:,::1], int64[::1], float64[::1], {_MATRIX}, "
        f"{_MATRIX}, {_MATRIX}, {_MATRIX}, boolean, {_MATRIX}, {_MATRIX}, {_MATRIX}, {_MATRIX}, {_MATRIX}, "
        "boolean[::1])"
    ),
    "long_summaries": (
        f"void(int64[::1], {_CUBE}, {_MATRIX}, int64[::1], {_MATRIX}, {_MATRIX}, {_MATRIX}, {_MATRIX}, boolean, "
        f"{_MATRIX}, {_MATRIX}, {_MATRIX}, {_MATRIX}, {_MATRIX})"
    ),
}
#: Numbers of components that are worked on at once: with five parameters each they stay in a processor's cache.
_BLOCK = 1 << 14
#: Probabilities of tables that are made at once.
_TABLE_BLOCK = 1 << 20
#: Levels this close to 0 or 1 are searched for: sums over a window leave out 1e-18 of the mass for each of many counts.
_DEEP = 1e-6
#: Rounding of a cdf.
_ROUNDING = 1e-15


@cache
def kernel(name: str) -> Callable[..., None]:
    """A compiled loop of `kernels.rows`."""
    return compiling.compiled(getattr(rows, name), SIGNATURES[name])


class Family:
    """Functions that say what a family is. numba translates them, so they use numbers, tuples and `math` only.

    Parameters
    ----------
    name : str
        For the files of compiled kernels.
    log_mass : function (y, p) -> float
        log of the weight of a count y, smooth in real y >= 16; p is what `prepared` returns.
    score : function (y, p) -> (float, float, float)
        Derivatives of the log weight in the parameters, zeros for those that there are not. Terms that do not depend on
        y may be left out unless the family is `normalised`.
    shape : function (p) -> (float, float, float)
        Rough centre and standard deviation, and the end of the support.
    prepared : function (a, b, c) -> tuple, optional
        Numbers that the others need, from up to three parameters. Default: the parameters themselves.
    ratio : function (y, p) -> (float, float), optional
        Two numbers, the first over the second being the weight at y + 1 over that at y, where these are cheaper than
        an exponential.
    quick : function (y, log_y, log_h_y, p) -> float, optional
        `log_mass` for counts below 8,192 from log y and log h(y) = log(e^-y y^y / y!), which are in tables; NaN for
        parameters with which that would lose digits. It has no branches on y, so that counts are done several at once.
    normalised : bool
        Whether `log_mass` is the logarithm of a probability. Default: its sum is found by adding up.
    """

    def __init__(
        self,
        name: str,
        log_mass: Callable[..., Any],
        score: Callable[..., Any],
        shape: Callable[..., Any],
        *,
        prepared: Callable[..., Any] | None = None,
        ratio: Callable[..., Any] | None = None,
        quick: Callable[..., Any] | None = None,
        normalised: bool = False,
    ) -> None:
        self.name = name
        self._bound: dict[str, Any] = {
            "log_mass": log_mass,
            "score": score,
            "shape": shape,
            "prepared": prepared or _as_they_are,
            "NORMALISED": normalised,
            "HAS_RATIO": ratio is not None,
            "ratio": ratio or _no_ratio,
            "HAS_QUICK": quick is not None,
            "quick": quick or _not_quick,
        }

    @cached_property
    def address(self) -> int:
        """Where the compiled kernel of this family is; it is compiled, or read from disk, when first asked for."""
        import numba

        return compiling.compiled_entry(loops.entry, self.name, carray=numba.carray, **self._bound)

    def __repr__(self) -> str:
        return f"Family({self.name!r})"


def _as_they_are(a: float, b: float, c: float) -> tuple[float, float, float]:
    return a, b, c


def _no_ratio(y: float, p: tuple[float, ...]) -> tuple[float, float]:
    return 0.0, 1.0


def _not_quick(y: float, log_y: float, log_h_y: float, p: tuple[float, ...]) -> float:
    return nan


class Part(NamedTuple):
    """Components of one family side by side, or of tables. Shape: (rows, k) each.

    Parameters
    ----------
    family : Family or None
        None for tables.
    parameters : tuple of Tensor
        One to three, of any floating dtype, on a CPU.
    weight, low, high : Tensor, optional
        Weights, and the range that counts are restricted to. None: 1, 0 and infinity.
    table : CountDistribution, optional
        Of batch shape (rows * k,): its probabilities are asked for in blocks of rows.
    size : int
        k
    group : tuple of int
        The component of a mixture that each of these belongs to; empty unless this is a mixture.
    """

    family: Family | None
    parameters: tuple[Tensor, ...] = ()
    weight: Tensor | None = None
    low: Tensor | None = None
    high: Tensor | None = None
    table: Any = None
    size: int = 1
    group: tuple[int, ...] = ()

    def regrouped(self, own: Tensor, first: int) -> Self:
        """Of rows (rows * k,): k such rows as one, the components `first` and so on of a mixture with weights `own`.

        Shape: own (rows, k).
        """
        rows, k = own.shape
        change = lambda x: None if x is None else x.reshape(rows, k * self.size)  # noqa: E731
        weight = own.repeat_interleave(self.size, 1) if self.size > 1 else own
        inner = change(self.weight)
        return self._replace(
            parameters=tuple(x.reshape(rows, k * self.size) for x in self.parameters),
            weight=weight if inner is None else weight * inner,
            low=change(self.low),
            high=change(self.high),
            size=k * self.size,
            group=tuple(first + j // self.size for j in range(k * self.size)),
        )

    def separate(self) -> Self:
        """Of rows (rows, k): every component as a row of its own, without its weight."""
        change = lambda x: None if x is None else x.reshape(-1, 1)  # noqa: E731
        parameters = tuple(x.reshape(-1, 1) for x in self.parameters)
        return self._replace(
            parameters=parameters, weight=None, low=change(self.low), high=change(self.high), size=1, group=()
        )

    def restricted(self, low: Tensor, high: Tensor) -> tuple[Self, Tensor]:
        """The same within a range (rows,) of counts, and the log mass of each component there. Shape: (rows, k)."""
        first, last = (x.unsqueeze(1).expand(-1, self.size) for x in (low, high))
        first = first if self.low is None else torch.maximum(first, self.low)
        last = last if self.high is None else torch.minimum(last, self.high)
        columns = [x.reshape(-1) for x in (first, last, *self.parameters)]
        log_p = torch.from_numpy(row_wise("log_range", self.family, columns, 4)[0]).view(first.shape)  # type: ignore[arg-type]
        if self.low is not None or self.high is not None:
            whole = (
                torch.zeros_like(first) if self.low is None else self.low,
                torch.full_like(last, torch.inf) if self.high is None else self.high,
            )
            before = row_wise("log_range", self.family, [x.reshape(-1) for x in (*whole, *self.parameters)], 4)[0]  # type: ignore[arg-type]
            log_p = log_p - torch.from_numpy(before).view(first.shape)
        return self._replace(low=first, high=last), log_p


class Summaries(NamedTuple):
    """Float64 arrays: moments (rows, 6), quantiles (rows, L), CRPS (rows, Q), intervals (rows, 3), entries (rows, 2).

    Moments: mean, variance, mode, entropy, and the parts of the variance within and between groups of components.
    Intervals: lowest and highest count and their probability. Entries: see `kernels.arrays.entry_masses`.
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
    """What `CountDistribution.summary` returns, one value per row.

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
        The score of the counts that were given, and the entropy where it was asked for.
    interval : Interval or None
        The narrowest intervals, where they were asked for.
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


class Asked(NamedTuple):
    """What to compute per row: quantiles at levels (rows, L), scores of counts y (rows, Q), and perhaps the entropy.

    `interval_levels` (rows, 1) asks for the narrowest interval of that probability, `entries` for the levels at which
    the first y enters it. `change` (2, knots) is a map of all cdfs.
    """

    levels: np.ndarray
    y: np.ndarray
    interval_levels: np.ndarray | None = None
    entries: bool = False
    entropy: bool = False
    change: np.ndarray = np.empty((2, 0))


class _Block(NamedTuple):
    addresses: np.ndarray
    components: np.ndarray
    weights: np.ndarray
    tables: np.ndarray
    firsts: np.ndarray
    counts: np.ndarray


def _block(parts: Sequence[Part], index: slice | np.ndarray, count: int) -> _Block:
    size = sum(part.size for part in parts)
    components = np.zeros((count, size, 5))
    components[:, :, 4] = np.inf
    weights, addresses = np.ones((count, size)), np.zeros(size, dtype=np.int64)
    tables: list[tuple[np.ndarray, np.ndarray]] = []
    start = 0
    for part in parts:
        own = slice(start, start + part.size)
        start += part.size
        if part.weight is not None:
            weights[:, own] = part.weight[index]
        if part.family is None:
            addresses[own] = -1 - np.arange(len(tables), len(tables) + part.size)
            tables += _tables(part, index)
            continue
        addresses[own] = part.family.address
        for j, parameter in enumerate(part.parameters):
            components[:, own, j] = parameter[index]
        for j, bound in ((3, part.low), (4, part.high)):
            if bound is not None:
                components[:, own, j] = bound[index]
    longest = max((each[1].shape[1] for each in tables), default=0)
    probabilities = np.zeros((len(tables), count, longest))
    firsts, counts = np.zeros((len(tables), count)), np.zeros((len(tables), count), dtype=np.int64)
    for j, (first, pmf) in enumerate(tables):
        probabilities[j, :, : pmf.shape[1]], firsts[j], counts[j] = pmf, first, pmf.shape[1]
    return _Block(addresses, components, weights, probabilities, firsts, counts)


def _tables(part: Part, index: slice | np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """First counts and probabilities of each table of a part."""
    places = torch.arange(part.table.batch_shape[0]).reshape(-1, part.size)[index]
    return [tuple(x.numpy() for x in table_of(part.table.rows(column))) for column in places.unbind(1)]  # type: ignore[misc]


def table_of(dist: Any) -> tuple[Tensor, Tensor]:
    """First counts (rows,) and the probabilities (rows, n) from there on, with sum 1, by `log_prob`."""
    first, last = (x.double() for x in dist.bracket(_DEPTH))
    size = int((last - first).max().item()) + 1 if len(first) else 1
    y = first + torch.arange(float(size), dtype=torch.float64).unsqueeze(1)
    pmf = dist.log_prob(torch.minimum(y, last)).double().exp().T
    pmf = torch.where(last.unsqueeze(1) >= y.T, pmf, 0.0)
    return first, (pmf / pmf.sum(1, keepdim=True)).contiguous()


#: How deep below its peak a distribution that is given by `log_prob` and `bracket` is summed.
_DEPTH = 37.0


def _blocks(parts: Sequence[Part], count: int) -> list[slice]:
    size = max(_BLOCK // max(sum(part.size for part in parts), 1), 1)
    for part in parts:
        if part.family is None and count:
            first, last = part.table.bracket(_DEPTH)
            size = min(size, max(int(_TABLE_BLOCK / (part.size * (float((last - first).max()) + 1.0))), 1))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _run(task: Callable[[Any], None], blocks: Sequence[Any]) -> None:
    """A task for each block: in as many threads as torch uses, as kernels release the GIL."""
    threads = min(torch.get_num_threads(), len(blocks))
    if threads <= 1:
        for block in blocks:
            task(block)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(task, blocks))


def summaries(parts: Sequence[Part], count: int, asked: Asked) -> Summaries:
    """Everything that needs all probabilities of a row, of `count` rows."""
    no_levels = asked.interval_levels is None
    interval_levels = np.empty((count, 0)) if no_levels else np.ascontiguousarray(asked.interval_levels)
    widths = 6, asked.levels.shape[1], asked.y.shape[1], 0 if no_levels else 3, 2 if asked.entries else 0
    found = Summaries(*(np.empty((count, width)) for width in widths))
    _load(parts, "summaries")
    groups = np.array([group for part in parts for group in part.group], dtype=np.int64)
    has_tables = any(part.family is None for part in parts)  # which cannot take panels
    is_long = np.zeros(count, dtype=np.bool_)

    def inputs(index: slice | np.ndarray) -> list[np.ndarray]:
        return [np.ascontiguousarray(x[index]) for x in (asked.levels, asked.y, interval_levels)]

    def summarised(block: _Block, index: slice | np.ndarray, capacity: int, own: Sequence[np.ndarray]) -> None:
        work = np.empty((block.weights.shape[1] + rows.PARTS) * capacity)
        kernel("summaries")(*block, groups, work, asked.change, *inputs(index), asked.entropy, *own)

    def task(index: slice) -> None:
        block = _block(parts, index, index.stop - index.start)
        capacity = rows.LONG if has_tables else rows.SHORT
        summarised(block, index, capacity, [x[index] for x in (*found, is_long)])

    def long_task(index: np.ndarray) -> None:
        block, own = _block(parts, index, len(index)), [x[index] for x in found]
        if has_tables:
            is_longer = np.zeros(len(index), dtype=np.bool_)
            summarised(block, index, rows.LARGEST, [*own, is_longer])
            for x in own:
                x[is_longer] = np.nan
        else:
            kernel("long_summaries")(*block[:3], groups, asked.change, *inputs(index), asked.entropy, *own)
        for x, values in zip(found, own, strict=True):
            x[index] = values

    _run(task, _blocks(parts, count))
    long_rows = is_long.nonzero()[0]
    if len(long_rows):
        _load(parts, "long_summaries")
        _run(long_task, [long_rows[block] for block in _blocks(parts, len(long_rows))])
    if not len(groups):
        found.moments[:, 4], found.moments[:, 5] = found.moments[:, 1], 0.0
    found.moments[np.isnan(found.moments[:, 0])] = np.nan
    return found


def _load(parts: Sequence[Part], *names: str) -> None:
    """Compile what is needed before threads start."""
    for name in names:
        kernel(name)
    for part in parts:
        if part.family is not None:
            part.family.address  # noqa: B018


def quantiles(parts: Sequence[Part], count: int, levels: np.ndarray) -> np.ndarray:
    """The smallest counts with P(Z <= y) >= q at levels (rows, L); 0 at q = 0, infinite at q = 1."""
    found = summaries(parts, count, Asked(levels, np.empty((count, 0)))).quantiles
    deep = (levels > 0.0) & (levels < 1.0) & (np.minimum(levels, 1.0 - levels) < _DEEP)
    if deep.any() and all(part.family is not None for part in parts):
        row, column = deep.nonzero()
        searched = _deep_quantiles(_block(parts, row, len(row)), levels[row, column])
        found[row, column] = np.where(np.isnan(found[row, column]), np.nan, searched)
    found[levels <= 0.0] = 0.0
    found[levels >= 1.0] = np.inf
    return found


def _deep_quantiles(block: _Block, levels: np.ndarray) -> np.ndarray:
    """Quantiles at levels so close to 0 or 1 that the sums of `summaries` do not reach them: by bisection."""

    def reaches(z: np.ndarray) -> np.ndarray:
        """Whether P(Z <= z) >= q, or P(Z > z) <= 1 - q for levels above 1/2; also where there is no number."""
        both = np.empty((2, len(z)))
        kernel("cdfs")(*block[:3], z, np.empty(rows.WALKED), both)
        lower, upper = both[0] < levels * (1.0 - _ROUNDING), both[1] > (1.0 - levels) * (1.0 + _ROUNDING)
        return ~np.where(levels <= 0.5, lower, upper)

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


def sides(parts: Sequence[Part], y: np.ndarray) -> np.ndarray:
    """P(Z <= y) and P(Z > y), both relatively accurate. Shape: (2, rows)."""
    found = np.zeros((2, len(y)))
    families = [part for part in parts if part.family is not None]
    if families:
        _load(families, "cdfs")

        def task(index: slice) -> None:
            block, own = _block(families, index, index.stop - index.start), np.empty((2, index.stop - index.start))
            kernel("cdfs")(*block[:3], y[index], np.empty(rows.WALKED), own)
            found[:, index] = own

        _run(task, _blocks(families, len(y)))
    for part in parts:
        if part.family is None:
            found += _table_sides(part, y)
    found = np.clip(found, 0.0, 1.0)
    # Rounded down, so that a quantile at this level is the count again.
    return np.stack([np.where(1.0 - found[0] < found[1], np.nextafter(found[0], 0.0), found[0]), found[1]])


def _table_sides(part: Part, y: np.ndarray) -> np.ndarray:
    found = np.zeros((2, len(y)))
    for index in _blocks([part], len(y)):
        weight = np.ones((index.stop - index.start, part.size)) if part.weight is None else part.weight[index].numpy()
        for j, (first, pmf) in enumerate(_tables(part, index)):
            place = np.clip(y[index] - first + 1.0, 0, pmf.shape[1]).astype(np.int64)[:, None]
            zero = np.zeros((len(pmf), 1))
            below = np.concatenate([zero, pmf.cumsum(1)], axis=1)
            above = np.concatenate([pmf[:, ::-1].cumsum(1)[:, ::-1], zero], axis=1)
            both = np.stack([np.take_along_axis(x, place, 1)[:, 0] for x in (below, above)])
            found[:, index] += weight[:, j] * both
    return found


def row_wise(name: str, family: Family, columns: Sequence[Tensor], results: int) -> np.ndarray:
    """A kernel of one family for numbers per row: columns (rows,) -> (results, rows), in float64."""
    count = len(columns[0])
    operation, size = rows.OPERATIONS[name]
    given = np.zeros((size, count))
    for j, column in enumerate(columns):
        given[j] = column.detach().double().numpy()
    found = np.empty((results, count))
    function, address = kernel("of_rows"), family.address
    if count <= _BLOCK:
        function(operation, address, given, found)
        return found

    def task(index: slice) -> None:
        own = np.empty((results, index.stop - index.start))
        function(operation, address, np.ascontiguousarray(given[:, index]), own)
        found[:, index] = own

    _run(task, [slice(i, min(i + _BLOCK, count)) for i in range(0, count, _BLOCK)])
    return found
