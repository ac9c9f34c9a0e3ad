"""Peaks: that of the Double Poisson from ratios of neighbouring probabilities, all those of any law by their slopes."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ddpn.distributions.dispatch import in_blocks
from ddpn.distributions.quadrature import JOIN
from ddpn.distributions.weights import deviance, log_h_of_count

if TYPE_CHECKING:
    from ddpn.distributions.count import CountDistribution

#: Logarithms of probabilities this close are those of a tie, such as a Poisson law's with an integer mean.
TIE = 1e-14
#: Counts looked at in a panel of about 2.7 standard deviations. Peaks hidden between two are closer together than a
#: quarter of one, and so within 0.1% of the same height.
_A_PANEL = 6
#: Parts that a stretch with a summit is cut into at once. Peaks closer together than one part may be taken for one.
_PARTS = 8
#: Below this count every local peak is looked for one by one.
_SMALL = 6


def log_ratio(y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
    """log p(y + 1) / p(y) = (1 - gamma)(y log(1 + 1/y) - 1) - gamma log((y + 1) / mu), without cancellation."""
    safe = y.clamp(min=1.0)
    r = 1.0 / safe
    # y log(1 + 1/y) - 1, by its series where the difference would lose digits.
    tail = r * (-0.5 + r * (1 / 3 + r * (-0.25 + r * (0.2 - r * (1 / 6)))))
    shrink = torch.where(y > 1000.0, tail, torch.where(y > 0, safe * torch.log1p(r) - 1.0, -1.0))
    return (1.0 - gamma) * shrink - gamma * torch.log1p((y + 1.0 - mu) / mu)


def _interior(mu: Tensor, gamma: Tensor) -> Tensor:
    """A count next to the peak of the continued law: mu exp(L) with L + exp(-L) / (2 gamma mu) = 0, by Newton."""
    half = 0.5 / (gamma * mu)
    log_y = torch.zeros_like(mu)
    for _ in range(6):
        pull = half * torch.exp(-log_y)
        log_y = (log_y - (log_y + pull) / (1.0 - pull).clamp(min=0.05)).clamp(-1.0, 0.0)
    return (mu * torch.exp(log_y)).floor()


def double_poisson_mode(mu: Tensor, gamma: Tensor) -> Tensor:
    """The most probable count a row, the smaller of two. Shape: float64 vectors (rows,)."""
    steps = torch.arange(-4.0, 5.0, dtype=mu.dtype, device=mu.device)
    small = torch.arange(float(_SMALL), dtype=mu.dtype, device=mu.device).expand(len(mu), _SMALL)
    around = (_interior(mu, gamma).unsqueeze(1) + steps).clamp(min=0.0)
    y = torch.cat([small, around], dim=1)
    mu, gamma = mu.unsqueeze(1), gamma.unsqueeze(1)
    falls_after = log_ratio(y, mu, gamma) <= 0
    rises_before = (y == 0) | (log_ratio((y - 1.0).clamp(min=0.0), mu, gamma) > 0)
    height = log_h_of_count(y) - gamma * deviance(y, mu)
    height = torch.where(falls_after & rises_before, height, -torch.inf)
    return y.gather(1, height.argmax(1, keepdim=True)).squeeze(1)


def summits(law: "CountDistribution", more: Tensor) -> tuple[Tensor, Tensor]:
    """Every count y, with its row, where y..y+more holds more than from y - 1 on and no less than from y + 1 on.

    With more = 0 those are the local peaks. Shape: more (rows,) -> two (summits,), any number of them a row.
    """
    marks = _landmarks(law)
    y = torch.cat([marks, (marks - more.unsqueeze(1) - 1.0).clamp(min=0.0)], dim=1) if more.any() else marks
    y = y.sort(dim=1).values

    def look(y: Tensor, more: Tensor, *tensors: Tensor) -> tuple[Tensor]:
        return (_rises(law._of(tensors), y, more),)

    rises = in_blocks(look, y.shape[1] * law._copies, y, more, *law._tensors())[0]
    # Before 0 there is nothing: a law rises to its first count.
    y, rises = (torch.nn.functional.pad(x, (1, 0), value=v) for x, v in ((y, -1.0), (rises, True)))
    return _closed_in(law, more, *_stretches(torch.arange(len(y), device=y.device), y, rises))


def _landmarks(law: "CountDistribution") -> Tensor:
    """The first counts, and beyond them some a panel."""
    t = law._breaks().sqrt()
    share = torch.arange(_A_PANEL, dtype=t.dtype, device=t.device) / _A_PANEL
    t = torch.cat([torch.lerp(t[:, :-1, None], t[:, 1:, None], share).flatten(1), t[:, -1:]], dim=1)
    small = torch.arange(float(JOIN), dtype=t.dtype, device=t.device).expand(len(t), JOIN)
    return torch.cat([small, t.square().floor()], dim=1)


def _rises(law: "CountDistribution", y: Tensor, more: Tensor) -> Tensor:
    """Whether y+1..y+1+more holds more than y..y+more: what comes in, against what goes out. Shape: y (rows, n)."""
    goes, comes = law._log_pmf(torch.cat([y, y + more.unsqueeze(1) + 1.0], dim=1)).chunk(2, dim=1)
    return comes > goes + TIE


def _stretches(row: Tensor, y: Tensor, rises: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and ends of the stretches, from one column of y to the next, where a law rises at the first end only."""
    at, column = (rises[:, :-1] & ~rises[:, 1:]).nonzero(as_tuple=True)
    return row[at], y[at, column], y[at, column + 1]


def _closed_in(law: "CountDistribution", more: Tensor, row: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The first counts in (low, high] where the law does not rise, by parts."""
    share = torch.linspace(0.0, 1.0, _PARTS + 1, dtype=low.dtype, device=low.device)
    rows, counts = [row[:0]], [low[:0]]
    while len(row):
        done = high - low <= 1
        rows.append(row[done])
        counts.append(high[done])
        row, low, high = (x[~done] for x in (row, low, high))
        y = torch.lerp(low.unsqueeze(1), high.unsqueeze(1), share).floor()
        rises = _rises(law._of(tuple(t[row] for t in law._tensors())), y.clamp(min=0.0), more[row]) | (y < 0)
        rises[:, 0], rises[:, -1] = True, False
        row, low, high = _stretches(row, y, rises)
    return torch.cat(rows), torch.cat(counts)
