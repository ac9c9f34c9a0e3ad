"""Intervals of counts: between equal tails, or the shortest."""

import torch
from torch import Tensor

from ddpn.distributions import tables
from ddpn.distributions.dispatch import in_blocks
from ddpn.distributions.peaks import WORK, summits
from ddpn.distributions.quantiles import cdf, smallest_count
from ddpn.distributions.rows import Rows

#: Rounding must not push an end of a shortest interval outwards.
_SLACK = 1e-14


def central(dist: Rows, coverage: float) -> tuple[Tensor, Tensor]:
    """Quantiles that leave at most half of the rest on either side."""
    rest = 0.5 * (1.0 - coverage)
    return smallest_count(dist, dist.constant(rest)), smallest_count(dist, dist.constant(1.0 - rest))


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
    rows = torch.arange(len(more), device=more.device)
    while len(rows):
        part, needed, trial = dist.rows(rows), coverage[rows], more[rows] - 1.0
        row, at = _holding(part, needed, trial)
        if not len(row):
            break
        less = torch.minimum(_end(part.rows(row), at, needed[row]) - at, trial[row])
        fewest = more[rows].scatter_reduce(0, row, less, "amin")
        best = less == fewest[row]
        start[rows[row[best]]], more[rows] = at[best], fewest
        rows = rows[fewest <= trial]
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
    while len(go := (high - low > 1).nonzero().squeeze(1)):
        a, b = low[go], high[go]
        guess = torch.maximum(b - step[go], ((a + b) / 2).floor())
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
