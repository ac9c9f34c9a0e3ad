"""Searching the counts of a law: quantiles, modes, intervals. Flat laws, float64, on values (no gradient)."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ddpn.distributions import grid
from ddpn.distributions.dispatch import in_blocks
from ddpn.distributions.modes import TIE, summits

if TYPE_CHECKING:
    from ddpn.distributions.count import CountDistribution

#: Numbers a row that searches among summits keep, beside the blocks in which the summits are looked for.
_WORK = 64
#: Sums of the same terms in blocks of another shape may differ in their last bits; a quantile must not.
_ROUNDING = 9e-16
#: Nor may rounding push an end of a shortest interval outwards.
_SLACK = 1e-14


def _select(law: "CountDistribution", index: Tensor) -> "CountDistribution":
    return law._of(tuple(t[index] for t in law._tensors()))


def _cdf(law: "CountDistribution", y: Tensor) -> Tensor:
    """P(Z <= y); 0 below 0."""
    return torch.where(y < 0, 0.0, law._sides(y.clamp(min=0.0))[0])


def smallest_count(law: "CountDistribution", q: Tensor) -> Tensor:
    """The smallest y with cdf(y) >= q; infinite where q = 1."""
    law = law._prepared()
    (start,) = grid.by_window(law, _from_table, _from_normal, q)
    y = torch.where(q < 1, _settled(law, q, start), torch.inf)
    return torch.where(q > 0, y, 0.0)


def _from_table(at: grid.Grid, q: Tensor) -> tuple[Tensor]:
    below = (at.pmf.cumsum(1) < q.unsqueeze(1)).sum(1).clamp(max=at.y.shape[1] - 1)
    return (at.y.gather(1, below.unsqueeze(1)).squeeze(1),)


def _from_normal(law: "CountDistribution", q: Tensor) -> tuple[Tensor]:
    """A first guess from a normal law in sqrt(y)."""
    first, last = law._window()
    mean, variance = law._mean_variance()
    root = mean.sqrt()
    t = (root + torch.special.ndtri(q) * 0.5 * variance.sqrt() / root).clamp(min=0.0)
    return (torch.minimum(torch.maximum((t * t).floor(), first.floor()), last.ceil()),)


def _settled(law: "CountDistribution", q: Tensor, start: Tensor) -> Tensor:
    """Bracket the quantile from `start`, then close in: interpolating normal scores and halving in turn."""
    inner = (q > 0) & (q < 1)
    rows = inner.nonzero().squeeze(1)
    found = start.clone()
    law, q, guess = _select(law, rows), q[rows], start[rows]
    low, high = torch.full_like(guess, -1.0), torch.full_like(guess, torch.inf)
    at_low, at_high = torch.zeros_like(guess), torch.ones_like(guess)
    step, turn = torch.ones_like(guess), 0
    while len(rows):
        cdf = _cdf(law, guess)
        enough = cdf >= q - _ROUNDING * torch.minimum(q, 1.0 - q)
        high, at_high = torch.where(enough, guess, high), torch.where(enough, cdf, at_high)
        low, at_low = torch.where(enough, low, guess), torch.where(enough, at_low, cdf)
        done = high - low <= 1
        found[rows[done]] = high[done]
        go = (~done).nonzero().squeeze(1)
        rows, q, law = rows[go], q[go], _select(law, go)
        low, high, at_low, at_high, step = (x[go] for x in (low, high, at_low, at_high, step))
        guess = _next(low, high, at_low, at_high, q, step, enough[go], turn)
        step, turn = step * 4.0, turn + 1
    return found


def _next(
    low: Tensor, high: Tensor, at_low: Tensor, at_high: Tensor, q: Tensor, step: Tensor, enough: Tensor, turn: int
) -> Tensor:
    """Next count to look at, strictly between the brackets."""
    score = torch.special.ndtri
    share = (score(q) - score(at_low)) / (score(at_high) - score(at_low))
    between = torch.lerp(low, high, share.nan_to_num(0.5)) if turn % 3 < 2 else 0.5 * (low + high)
    between = torch.where(torch.isfinite(between), between, 0.5 * (low + high))
    # The first steps go outwards from the guess, ever wider, until it is bracketed closely.
    outwards = torch.where(enough, torch.maximum(high - step, 0.5 * (low + high)), low + step)
    untouched = torch.isinf(high) | ((low < 0) & (turn < 3))
    guess = torch.where(untouched, outwards, between).floor()
    return torch.minimum(torch.maximum(guess, low + 1), high - 1)


def most_probable_count(law: "CountDistribution") -> Tensor:
    """The mode, the smallest of several."""
    (found,) = grid.by_window(law, _mode_of_table, lambda rows: (rows._mode_of_panels(),))
    return found


def _mode_of_table(at: grid.Grid) -> tuple[Tensor]:
    # The first of those that tie within rounding.
    best = (at.pmf >= at.pmf.amax(1, keepdim=True) * (1 - 1e-12)).to(torch.uint8).argmax(1, keepdim=True)
    return (at.y.gather(1, best).squeeze(1),)


def mode_of_panels(law: "CountDistribution") -> Tensor:
    """The highest of all local peaks."""
    law = law._prepared()
    return in_blocks(lambda *tensors: (_highest_summit(law._of(tensors)),), _WORK, *law._tensors())[0]


def _highest_summit(law: "CountDistribution") -> Tensor:
    row, y = summits(law, _constant(law, 0.0))
    height = _select(law, row)._log_pmf(y)
    top = _constant(law, -torch.inf).scatter_reduce(0, row, height, "amax")
    ties = height >= top[row] - TIE
    return _constant(law, torch.inf).scatter_reduce(0, row[ties], y[ties], "amin")


def _constant(law: "CountDistribution", value: float) -> Tensor:
    rows = law._tensors()[0]
    return torch.full((len(rows),), value, dtype=torch.float64, device=rows.device)


def central(law: "CountDistribution", coverage: float) -> tuple[Tensor, Tensor]:
    """Quantiles that leave at most half of the rest on either side."""
    rest = 0.5 * (1.0 - coverage)
    return smallest_count(law, _constant(law, rest)), smallest_count(law, _constant(law, 1.0 - rest))


def highest(law: "CountDistribution", coverage: float) -> tuple[Tensor, Tensor]:
    """The shortest interval of counts that holds the coverage; of several, the one that starts first."""
    low, high = grid.by_window(law, _shortest_in_table, _shortest_far, _constant(law, coverage))
    return low, high


def _shortest_in_table(at: grid.Grid, coverage: Tensor) -> tuple[Tensor, Tensor]:
    cdf = at.pmf.cumsum(1)
    before = cdf - at.pmf
    end = torch.searchsorted(cdf, (before + coverage.unsqueeze(1)) - _SLACK)
    n = cdf.shape[1]
    width = torch.where(end < n, end - torch.arange(n, device=end.device), 2 * n)
    start = width.argmin(1, keepdim=True)
    return at.y.gather(1, start).squeeze(1), at.y.gather(1, end.gather(1, start)).squeeze(1)


def _shortest_far(law: "CountDistribution", coverage: Tensor) -> tuple[Tensor, Tensor]:
    law = law._prepared()

    def method(coverage: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        rows = law._of(tensors)
        start, more = _shortest(rows, coverage)
        start = _first_start(rows, coverage, start, more)
        return start, start + more

    low, high = in_blocks(method, _WORK, coverage - _SLACK, *law._tensors())
    return low, high


def _shortest(law: "CountDistribution", coverage: Tensor) -> tuple[Tensor, Tensor]:
    """A start from which the fewest more counts hold the coverage, and their number.

    From the central interval on: does one count less hold the coverage anywhere? It does if it does on a summit, and
    there perhaps even fewer are needed. The most that n counts can hold grows with n, so the first no is the last.
    """
    start = smallest_count(law, 0.5 * (1.0 - coverage))
    more = _end(law, start, coverage) - start
    rows = torch.arange(len(more), device=more.device)
    while len(rows):
        part, needed, trial = _select(law, rows), coverage[rows], more[rows] - 1.0
        row, at = _holding(part, needed, trial)
        if not len(row):
            break
        less = torch.minimum(_end(_select(part, row), at, needed[row]) - at, trial[row])
        fewest = more[rows].scatter_reduce(0, row, less, "amin")
        best = less == fewest[row]
        start[rows[row[best]]], more[rows] = at[best], fewest
        rows = rows[fewest <= trial]
    return start, more


def _holding(law: "CountDistribution", coverage: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and starts of the summits from which `more` counts hold the coverage."""
    row, at = summits(law, more)
    holds = _mass(_select(law, row), at, more[row]) >= coverage[row]
    return row[holds], at[holds]


def _first_start(law: "CountDistribution", coverage: Tensor, start: Tensor, more: Tensor) -> Tensor:
    """The first start from which `more` counts hold the coverage: from each summit by doubled steps, then halving."""
    row, high = _holding(law, coverage, more)
    law, coverage, more = _select(law, row), coverage[row], more[row]
    low, step = torch.full_like(high, -1.0), torch.ones_like(high)
    while len(go := (high - low > 1).nonzero().squeeze(1)):
        a, b = low[go], high[go]
        guess = torch.maximum(b - step[go], ((a + b) / 2).floor())
        holds = _mass(_select(law, go), guess, more[go]) >= coverage[go]
        low[go], high[go] = torch.where(holds, a, guess), torch.where(holds, guess, b)
        # The first no ends the doubling: from then on steps reach beyond the bracket's middle.
        step[go] = torch.where(holds, 2.0 * step[go], torch.inf)
    return start.scatter_reduce(0, row, high, "amin")


def _mass(law: "CountDistribution", start: Tensor, more: Tensor) -> Tensor:
    """P(start <= Z <= start + more)."""
    return _cdf(law, start + more) - _cdf(law, start - 1.0)


def _end(law: "CountDistribution", start: Tensor, coverage: Tensor) -> Tensor:
    return smallest_count(law, _cdf(law, start - 1.0) + coverage)
