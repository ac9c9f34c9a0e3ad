"""Quantiles: a first guess from a table or from a normal distribution, then a search between brackets."""

import torch
from torch import Tensor

from ddpn.distributions import tables
from ddpn.distributions.rows import Rows


def cdf(dist: Rows, y: Tensor) -> Tensor:
    """P(Z <= y); 0 below 0."""
    return torch.where(y < 0, 0.0, dist.sides(y.clamp(min=0.0))[0])


def smallest_count(dist: Rows, q: Tensor) -> Tensor:
    """The smallest y with P(Z <= y) >= q; infinite where q = 1."""
    if isinstance(dist, tables.TabulatedRows):
        y = torch.where(q < 1, dist.quantile(q), torch.inf)
        return torch.where(q > 0, y, 0.0)
    dist = dist.prepared()
    (start,) = tables.by_window(dist, tables.quantile, _from_normal, q)
    y = torch.where(q < 1, _settled(dist, q, start), torch.inf)
    return torch.where(q > 0, y, 0.0)


def _from_normal(dist: Rows, q: Tensor) -> tuple[Tensor]:
    """A first guess from a normal distribution in sqrt(y)."""
    first, last = dist.window()
    mean, variance = dist.mean_variance()
    root = mean.sqrt()
    # All mass of a rounded Normal far below 0 is on 0: its mean is 0.
    spread = torch.where(root > 0.0, 0.5 * variance.sqrt() / root, 0.0)
    t = (root + torch.special.ndtri(q).clamp(-1e9, 1e9) * spread).clamp(min=0.0)
    return (torch.minimum(torch.maximum((t * t).floor(), first.floor()), last.ceil()),)


def _settled(dist: Rows, q: Tensor, start: Tensor) -> Tensor:
    """Bracket the quantile from `start`, then close in: interpolating normal scores and halving in turn."""
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
        done = high - low <= 1
        found[rows[done]] = high[done]
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
    between = torch.lerp(low, high, share.nan_to_num(0.5)) if turn % 3 < 2 else 0.5 * (low + high)
    between = torch.where(torch.isfinite(between), between, 0.5 * (low + high))
    # The first steps go outwards from the guess, ever wider, until it is bracketed closely.
    outwards = torch.where(enough, torch.maximum(high - step, 0.5 * (low + high)), low + step)
    untouched = torch.isinf(high) | ((low < 0) & (turn < 3))
    guess = torch.where(untouched, outwards, between).floor()
    return torch.minimum(torch.maximum(guess, low + 1), high - 1)
