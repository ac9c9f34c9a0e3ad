"""Searching the counts of a law: quantiles, modes, intervals. Flat laws, float64, on values (no gradient)."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ddpn.distributions import grid

if TYPE_CHECKING:
    from ddpn.distributions.count import CountDistribution

#: Starts looked at for the shortest interval of a law that may have several peaks, and counts it may then lose.
_SCAN, _SHORTER = 65, 8
#: Sums of the same terms in blocks of another shape may differ in their last bits; a quantile must not.
_ROUNDING = 9e-16


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
    """The mode, by looking everywhere coarsely and then around the best place."""
    (found,) = grid.by_window(law, _mode_of_table, lambda rows: (rows._mode_of_panels(),))
    return found


def _mode_of_table(at: grid.Grid) -> tuple[Tensor]:
    return (at.y.gather(1, _first_best(at.pmf)).squeeze(1),)


def mode_of_panels(law: "CountDistribution") -> Tensor:
    """The best node of the panels, then thirds around it; or the best of the first integers."""
    p = grid.panels(law, law._breaks())
    x, pmf = p.x.flatten(1), p.pmf.flatten(1)
    best = pmf.argmax(1, keepdim=True)
    low = x.gather(1, (best - 1).clamp(min=0)).squeeze(1).floor() - 1
    high = x.gather(1, (best + 1).clamp(max=x.shape[1] - 1)).squeeze(1).ceil() + 1
    interior = _peak_between(law, low.clamp(min=12.0), high)
    top = law._pmf(interior.unsqueeze(1)).squeeze(1)
    head = p.head * (p.head_weight[:, :1] > 0)
    return torch.where(head.amax(1) >= top, head.argmax(1).double(), interior)


def _peak_between(law: "CountDistribution", low: Tensor, high: Tensor) -> Tensor:
    """Where a pmf with one peak in [low, high] has it, by thirds."""
    while (high - low).max() > 2:
        third = ((high - low) / 3).floor()
        inner = torch.stack([low + third, high - third], dim=1)
        left, right = law._pmf(inner).unbind(1)
        rising = left < right
        low, high = torch.where(rising, inner[:, 0], low), torch.where(rising, high, inner[:, 1])
    counts = torch.stack([low, low + 1, low + 2], dim=1)
    return counts.gather(1, _first_best(law._pmf(counts))).squeeze(1)


def _first_best(pmf: Tensor) -> Tensor:
    """Column of the largest value, the first of those that tie within rounding."""
    return (pmf >= pmf.amax(1, keepdim=True) * (1 - 1e-12)).to(torch.uint8).argmax(1, keepdim=True)


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
    # Rounding in the sums must not push an end outwards.
    end = torch.searchsorted(cdf, (before + coverage.unsqueeze(1)) - 1e-14)
    n = cdf.shape[1]
    width = torch.where(end < n, end - torch.arange(n, device=end.device), 2 * n)
    start = width.argmin(1, keepdim=True)
    return at.y.gather(1, start).squeeze(1), at.y.gather(1, end.gather(1, start)).squeeze(1)


def _shortest_far(law: "CountDistribution", coverage: Tensor) -> tuple[Tensor, Tensor]:
    """Between neighbours of the best of a few starts: its ends are equally probable; then as much shorter as can be."""
    law = law._prepared()
    shares = torch.linspace(0.0, 1.0, _SCAN if law._copies > 1 else 2, dtype=coverage.dtype, device=coverage.device)
    copies = law._of(tuple(t.repeat(len(shares), *[1] * (t.dim() - 1)) for t in law._tensors()))
    starts = smallest_count(copies, (shares.unsqueeze(1) * (1.0 - coverage)).flatten())
    widths = (_end(copies, starts, coverage.repeat(len(shares))) - starts).view(len(shares), -1)
    starts = starts.view(len(shares), -1)
    best = widths.argmin(0, keepdim=True)
    low = starts.gather(0, (best - 1).clamp(min=0)).squeeze(0)
    high = starts.gather(0, (best + 1).clamp(max=len(starts) - 1)).squeeze(0)
    start, width = starts.gather(0, best).squeeze(0), widths.gather(0, best).squeeze(0)
    middle = _catching_up(law, low, high, coverage)
    for candidate in (torch.zeros_like(middle), middle):
        there = _end(law, candidate, coverage) - candidate
        start, width = torch.where(there < width, candidate, start), torch.minimum(there, width)
    return _shortened(law, coverage, start, width, low, high)


def _catching_up(law: "CountDistribution", low: Tensor, high: Tensor, coverage: Tensor) -> Tensor:
    """The first start in [low, high] whose probability is not below that of the end it needs."""
    while (high > low).any():
        middle = ((low + high) / 2).floor()
        longer = law._log_pmf(middle) < law._log_pmf(_end(law, middle, coverage))
        low, high = torch.where(longer, middle + 1, low), torch.where(longer, high, middle)
    return low


def _shortened(
    law: "CountDistribution", coverage: Tensor, start: Tensor, width: Tensor, low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor]:
    """One count less at a time, started where that width holds most, while it still holds the coverage."""
    for _ in range(_SHORTER):
        trial = (width - 1.0).clamp(min=0.0)
        a, b = low, high
        while (b > a).any():
            middle = ((a + b) / 2).floor()
            rising = law._log_pmf(middle) < law._log_pmf(middle + trial + 1.0)
            a, b = torch.where(rising, middle + 1, a), torch.where(rising, b, middle)
        below = torch.where(a > 0, law._sides((a - 1).clamp(min=0.0))[0], 0.0)
        holds = law._sides(a + trial)[0] - below >= coverage
        if not holds.any():
            break
        start, width = torch.where(holds, a, start), torch.where(holds, trial, width)
    return start, start + width


def _end(law: "CountDistribution", start: Tensor, coverage: Tensor) -> Tensor:
    below = torch.where(start > 0, law._sides((start - 1).clamp(min=0.0))[0], 0.0)
    return smallest_count(law, below + coverage)
