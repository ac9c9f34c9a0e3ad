"""Peaks of a distribution whose window is long: all local ones, by the signs of its slopes, and the highest."""

import torch
from torch import Tensor

from ddpn.distributions.dispatch import in_blocks, take
from ddpn.distributions.quadrature import JOIN
from ddpn.distributions.rows import Rows
from ddpn.distributions.spacing import LAST_EXACT, are_neighbours

#: Logarithms of probabilities this close are those of a tie, such as a Poisson's with an integer mean.
_TIE = 1e-14
#: Counts tried in a panel of about 2.7 standard deviations. Peaks hidden between two are closer together than a quarter
#: of one, and so within 0.1% of the same height.
_PER_PANEL = 6
#: Parts that a stretch with a summit is cut into at once. Peaks closer together than one part may be taken for one.
_PARTS = 8
#: Numbers per row that a search among summits keeps, beside the blocks in which the summits are found.
WORK = 64


def highest_peak(dist: Rows) -> Tensor:
    """The mode, the smallest of several."""
    return in_blocks(lambda rows: (_highest_summit(rows),), WORK, dist.prepared())[0]


def _highest_summit(dist: Rows) -> Tensor:
    row, y = summits(dist, dist.constant(0.0))
    height = dist.rows(row).log_pmf(y)
    top = dist.constant(-torch.inf).scatter_reduce(0, row, height, "amax")
    ties = height >= top[row] - _TIE
    return dist.constant(torch.inf).scatter_reduce(0, row[ties], y[ties], "amin")


def summits(dist: Rows, more: Tensor) -> tuple[Tensor, Tensor]:
    """Every count y, with its row, where y..y+more holds more than from y - 1 on and no less than from y + 1 on.

    With more = 0 those are the local peaks. Shape: more (rows,) -> two (summits,), any number of them per row.
    """
    marks = _landmarks(dist)
    y = torch.cat([marks, (marks - more.unsqueeze(1) - 1.0).clamp(min=0.0)], dim=1) if more.any() else marks
    y = y.sort(dim=1).values
    rises = in_blocks(lambda *block: (_rises(*block),), y.shape[1] * dist.copies, dist, y, more)[0]
    # Before 0 there is nothing: a pmf rises to its first count.
    y, rises = (torch.nn.functional.pad(x, (1, 0), value=v) for x, v in ((y, -1.0), (rises, True)))
    return _closed_in(dist, more, *_stretches(torch.arange(len(y), device=y.device), y, rises))


def _landmarks(dist: Rows) -> Tensor:
    """The first counts, and beyond them some per panel."""
    t = dist.breaks().sqrt()
    share = torch.arange(_PER_PANEL, dtype=t.dtype, device=t.device) / _PER_PANEL
    t = torch.cat([torch.lerp(t[:, :-1, None], t[:, 1:, None], share).flatten(1), t[:, -1:]], dim=1)
    small = torch.arange(float(JOIN), dtype=t.dtype, device=t.device).expand(len(t), JOIN)
    return torch.cat([small, t.square().floor()], dim=1)


def _rises(dist: Rows, y: Tensor, more: Tensor) -> Tensor:
    """Whether y+1..y+1+more holds more than y..y+more: what comes in, against what goes out. Shape: y (rows, n)."""
    goes, comes = dist.log_pmf(torch.cat([y, y + more.unsqueeze(1) + 1.0], dim=1)).chunk(2, dim=1)
    return comes > goes + _TIE


def _stretches(row: Tensor, y: Tensor, rises: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and ends of the stretches, from one column of y to the next, where a pmf rises at the first end only."""
    at, column = (rises[:, :-1] & ~rises[:, 1:]).nonzero(as_tuple=True)
    return row[at], y[at, column], y[at, column + 1]


def _closed_in(dist: Rows, more: Tensor, row: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The first counts in (low, high] where the pmf does not rise, by parts."""
    share = torch.linspace(0.0, 1.0, _PARTS + 1, dtype=low.dtype, device=low.device)
    rows, counts = [row[:0]], [low[:0]]
    while len(row):
        # Beyond, neighbouring counts have probabilities that differ by rounding only.
        done = are_neighbours(low, high) | (low >= LAST_EXACT)
        rows.append(row[done])
        counts.append(high[done])
        row, low, high = (x[~done] for x in (row, low, high))
        y = torch.lerp(low.unsqueeze(1), high.unsqueeze(1), share).floor()
        rises = _rises(dist.rows(row), y.clamp(min=0.0), take(more, row)) | (y < 0)
        rises[:, 0], rises[:, -1] = True, False
        row, low, high = _stretches(row, y, rises)
    return torch.cat(rows), torch.cat(counts)
