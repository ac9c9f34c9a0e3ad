"""Quantiles: a first guess from a table or from a normal distribution, then a search between brackets.

And intervals of counts: between equal tails, or the shortest.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ddpn.distributions import tables
from ddpn.distributions.dispatch import Case, by_case, in_blocks, is_host
from ddpn.distributions.peaks import WORK, summits
from ddpn.distributions.rows import Rows
from ddpn.distributions.spacing import LAST_EXACT, are_neighbours, following, preceding

#: A draw by search takes as long as so many entries of a table.
_TABLE_PER_DRAW = 32
#: A table with so many entries is faster than a search even for one draw per row, as forecasts draw them.
_SHORT_TABLE = 256
#: Rounding must not push an end of a shortest interval outwards.
_SLACK = 1e-14


class LookedUp(NamedTuple):
    """Quantiles (rows, n), where they are sure, mode (rows,) or NaN, and rows whose levels a table all reaches.

    Arrays or tensors.
    """

    counts: Any
    sure: Any
    mode: Any
    reached: Any


def cdf(dist: Rows, y: Tensor) -> Tensor:
    """P(Z <= y); 0 below 0."""
    return torch.where(y < 0, 0.0, dist.sides(y.clamp(min=0.0))[0])


def smallest_count(dist: Rows, q: Tensor) -> Tensor:
    """The smallest y with P(Z <= y) >= q; infinite where q = 1."""
    if isinstance(dist, tables.TabulatedRows):
        y = torch.where(q < 1, dist.quantile(q), torch.inf)
        return torch.where(q > 0, y, 0.0)
    return smallest_counts(dist, q.unsqueeze(1)).squeeze(1)


def smallest_counts(dist: Rows, q: Tensor) -> Tensor:
    """The same for several levels per row. Shape: (rows, n) -> (rows, n)."""
    if isinstance(dist, tables.TabulatedRows):
        return torch.stack([smallest_count(dist, level) for level in q.unbind(1)], dim=1)
    return settled(dist, q, *(dist.guess(q) if dist.has_guess else _guess(dist, q)))


def settled(dist: Rows, q: Tensor, start: Tensor, sure: Tensor) -> Tensor:
    """Quantiles from counts that are at or close to them, `start`, and where they are `sure`ly at them."""
    if is_host(q) and bool(sure.all()):
        return start
    unsure = ~sure & (q > 0) & (q < 1)
    if not is_host(q) or bool(unsure.any()):
        row, column = unsure.nonzero(as_tuple=True)
        start[row, column] = _settled(dist.rows(row).prepared(), q[row, column], start[row, column])
    y = torch.where(q < 1, start, torch.inf)
    return torch.where(q > 0, y, 0.0)


def _guess(dist: Rows, q: Tensor) -> tuple[Tensor, Tensor]:
    """Counts close to the quantiles, from a table or a normal distribution."""
    dist = dist.prepared()
    guesses = [tables.by_window(dist, tables.quantile, from_normal, level)[0] for level in q.unbind(1)]
    start = torch.stack(guesses, dim=1)
    return start, torch.zeros_like(start, dtype=torch.bool)


def many_counts(dist: Rows, u: Tensor) -> Tensor:
    """The smallest counts with P(Z <= y) >= u, for many uniforms u per row. Shape: (rows, n) -> (rows, n).

    From one table per row, which is exact to 1e-13, unless it would be much longer than n.
    """
    first, last = dist.window()
    is_table = (last - first <= max(_TABLE_PER_DRAW * u.shape[1], _SHORT_TABLE)) | dist.tabulated

    def searched(dist: Rows, u: Tensor) -> tuple[Tensor]:
        row = torch.arange(len(u), device=u.device).repeat_interleave(u.shape[1])
        return (smallest_count(dist.rows(row), u.flatten()).view_as(u),)

    cases = [
        Case(is_table, lambda dist, u: tables.by_window(dist, tables.quantile, None, u), 1),
        Case(~is_table, searched, 1),
    ]
    return by_case(cases, dist.prepared(), u.contiguous(), sort=True)[0]


def from_normal(dist: Rows, q: Tensor) -> tuple[Tensor]:
    """A first guess from a normal distribution in sqrt(y)."""
    first, last = dist.window()
    mean, variance = dist.mean_variance()
    root = mean.sqrt()
    # All mass of a rounded Normal far below 0 is on 0: its mean is 0.
    spread = torch.where(root > 0.0, 0.5 * variance.sqrt() / root, 0.0)
    t = (root + torch.special.ndtri(q).clamp(-1e9, 1e9) * spread).clamp(min=0.0)
    return (torch.minimum(torch.maximum((t * t).floor(), first.floor()), last.ceil()),)


def _settled(dist: Rows, q: Tensor, start: Tensor) -> Tensor:
    """Bracket the quantile from `start`, then close in: interpolating normal scores and halving in turn.

    NaN where the cdf is NaN, as that of counts which float64 cannot tell apart may be.
    """
    found = start.clone()
    rows = ((q > 0) & (q < 1)).nonzero().squeeze(1)
    dist, q, guess = dist.rows(rows), q[rows], start[rows]
    low, high = torch.full_like(guess, -1.0), torch.full_like(guess, torch.inf)
    at_low, at_high = torch.zeros_like(guess), torch.ones_like(guess)
    step, turn = torch.ones_like(guess), 0
    while len(rows):
        reached = cdf(dist, guess)
        enough = reached >= q - dist.rounding * torch.minimum(q, 1.0 - q)
        high, at_high = torch.where(enough, guess, high), torch.where(enough, reached, at_high)
        low, at_low = torch.where(enough, low, guess), torch.where(enough, at_low, reached)
        # A cdf that is not a number never will be: the search ends without a count.
        lost = reached.isnan()
        done = are_neighbours(low, high) | lost
        found[rows[done]] = torch.where(lost, torch.nan, high)[done]
        go = (~done).nonzero().squeeze(1)
        rows, q, dist = rows[go], q[go], dist.rows(go)
        low, high, at_low, at_high, step = (x[go] for x in (low, high, at_low, at_high, step))
        guess = _next(low, high, at_low, at_high, q, step, enough[go], turn)
        step, turn = step * 4.0, turn + 1
    return found


def _next(
    low: Tensor, high: Tensor, at_low: Tensor, at_high: Tensor, q: Tensor, step: Tensor, enough: Tensor, turn: int
) -> Tensor:
    """The next count to try, strictly between the brackets."""
    score = torch.special.ndtri
    share = (score(q) - score(at_low)) / (score(at_high) - score(at_low))
    middle = 0.5 * low + 0.5 * high
    between = torch.lerp(low, high, share.nan_to_num(0.5)) if turn % 3 < 2 else middle
    between = torch.where(torch.isfinite(between), between, middle)
    # The first steps go outwards from the guess, ever wider, until it is bracketed closely.
    outwards = torch.where(enough, torch.maximum(high - step, middle), low + step)
    untouched = torch.isinf(high) | ((low < 0) & (turn < 3))
    guess = torch.where(untouched, outwards, between).floor()
    return torch.minimum(torch.maximum(guess, following(low)), preceding(high))


def central(dist: Rows, coverage: float) -> tuple[Tensor, Tensor]:
    """Quantiles that leave at most half of the rest on either side."""
    rest = 0.5 * (1.0 - coverage)
    low, high = smallest_counts(dist, torch.stack([dist.constant(rest), dist.constant(1.0 - rest)], dim=1)).unbind(1)
    return low, high


def highest(dist: Rows, coverage: float) -> tuple[Tensor, Tensor]:
    """The shortest interval of counts that holds the coverage; of several, the one that starts first."""
    needed = dist.constant(coverage - max(_SLACK, dist.rounding))
    low, high = tables.by_window(dist, tables.shortest_interval, _shortest_far if dist.smooth else None, needed)
    return low, high


def _shortest_far(dist: Rows, coverage: Tensor) -> tuple[Tensor, ...]:
    def method(dist: Rows, coverage: Tensor) -> tuple[Tensor, Tensor]:
        start, more = _shortest(dist, coverage)
        start = _first_start(dist, coverage, start, more)
        return start, start + more

    return in_blocks(method, WORK, dist.prepared(), coverage)


def _shortest(dist: Rows, coverage: Tensor) -> tuple[Tensor, Tensor]:
    """A start from which the fewest more counts hold the coverage, and their number.

    From the central interval on: does one count less hold the coverage anywhere? It does if it does on a summit, and
    there perhaps even fewer are needed. The most that n counts can hold grows with n, so the first no is the last.
    """
    start = smallest_count(dist, 0.5 * (1.0 - coverage))
    more = _end(dist, start, coverage) - start
    rows = torch.isfinite(more).nonzero().squeeze(1)
    while len(rows):
        part, needed, trial = dist.rows(rows), coverage[rows], preceding(more[rows])
        row, at = _holding(part, needed, trial)
        if not len(row):
            break
        less = torch.minimum(_end(part.rows(row), at, needed[row]) - at, trial[row])
        fewest = more[rows].scatter_reduce(0, row, less, "amin")
        best = less == fewest[row]
        start[rows[row[best]]], more[rows] = at[best], fewest
        rows = rows[(fewest <= trial) & (fewest < LAST_EXACT)]
    return start, more


def _holding(dist: Rows, coverage: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and starts of the summits from which `more` counts hold the coverage."""
    row, at = summits(dist, more)
    holds = _mass(dist.rows(row), at, more[row]) >= coverage[row]
    return row[holds], at[holds]


def _first_start(dist: Rows, coverage: Tensor, start: Tensor, more: Tensor) -> Tensor:
    """The first start from which `more` counts hold the coverage: from each summit by doubled steps, then halving."""
    row, high = _holding(dist, coverage, more)
    dist, coverage, more = dist.rows(row), coverage[row], more[row]
    low, step = torch.full_like(high, -1.0), torch.ones_like(high)
    while len(go := (~are_neighbours(low, high)).nonzero().squeeze(1)):
        a, b = low[go], high[go]
        guess = torch.maximum(b - step[go], (0.5 * a + 0.5 * b).floor())
        guess = torch.minimum(torch.maximum(guess, following(a)), preceding(b))
        holds = _mass(dist.rows(go), guess, more[go]) >= coverage[go]
        low[go], high[go] = torch.where(holds, a, guess), torch.where(holds, guess, b)
        # The first no ends the doubling: from then on steps reach beyond the bracket's middle.
        step[go] = torch.where(holds, 2.0 * step[go], torch.inf)
    return start.scatter_reduce(0, row, high, "amin")


def _mass(dist: Rows, start: Tensor, more: Tensor) -> Tensor:
    """P(start <= Z <= start + more)."""
    return cdf(dist, start + more) - cdf(dist, start - 1.0)


def _end(dist: Rows, start: Tensor, coverage: Tensor) -> Tensor:
    return smallest_count(dist, cdf(dist, start - 1.0) + coverage)
