"""Sums over all integers of a window: moments, entropy, spread and scores from a table of the pmf."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.dispatch import Case, by_case, constant, is_host
from ddpn.distributions.quadrature import JOIN
from ddpn.distributions.rows import MARGIN, Cut, Rows

#: Windows of at most so many integers are always summed one by one.
SHORT = 128
_SIZES = (16, 32, 64, SHORT)
Method = Callable[..., tuple[Tensor, ...]]


class Table(NamedTuple):
    """A distribution on all integers of its window. Shape: both (rows, n)."""

    y: Tensor
    pmf: Tensor


def by_window(dist: Rows, short: Method, long: Method | None, *extra: Tensor) -> tuple[Tensor, ...]:
    """`short(table, *extra)` for rows with a short window, `long(rows, *extra)` for the others.

    Where `long` is None, and for rows that are `tabulated`, tables are as long as their windows.
    """
    first, last = dist.window()
    cases, low = [], 0.0
    for n in _SIZES if is_host(first) or dist.copies > 1 else _SIZES[-1:]:
        cases.append(Case((last >= low) & (last < n - MARGIN), _from_zero(n, short), n * dist.copies))
        low = n - MARGIN
    rest = last >= low
    if long is None or dist.tabulated:
        near = rest & (first < JOIN)
        cases += by_length(near, last + MARGIN + 1, lambda n: _from_zero(n, short), dist.copies)
        length = last - first.floor() + MARGIN + 1
        cases += by_length(rest & ~near, length, lambda n: _from_first(n, short, 0), dist.copies)
        return by_case(cases, dist, first, *extra, sort=True)
    near = rest & (last - first < dist.short - MARGIN - 1) & (first >= JOIN)
    cases.append(Case(near, _from_first(dist.short, short, JOIN), dist.short * dist.copies))
    cases.append(Case(rest & ~near, lambda rows, first, *extra: long(rows, *extra), 1))
    return by_case(cases, dist, first, *extra, sort=dist.copies > 1)


def by_length(rows: Tensor, length: Tensor, method: Callable[[int], Method], copies: int) -> list[Case]:
    """Cases `method(n)` of ever larger n, for the `rows` whose length is below n."""
    longest = length.max().item() if len(length) else 0.0
    cases: list[Case] = []
    n, low = SHORT, 0.0
    while low <= longest or not cases:
        cases.append(Case(rows & (length >= low) & (length < n), method(n), n * copies))
        # 128, 192, 256, 384, 512, ...
        n, low = n * 3 // 2 if n & (n - 1) == 0 else n * 4 // 3, float(n)
    return cases


@cache
def counts(n: int, device: torch.device) -> Tensor:
    """0..n-1."""
    return constant(list(range(n)), device)


def _from_zero(n: int, short: Method) -> Method:
    """`short` on the integers 0..n-1."""

    def method(dist: Rows, first: Tensor, *extra: Tensor) -> tuple[Tensor, ...]:
        pmf = dist.pmf_table(n)
        return short(Table(counts(n, pmf.device).expand_as(pmf), pmf), *extra)

    return method


def _from_first(n: int, short: Method, least: int) -> Method:
    """`short` on n integers from the window's start, which is at least `least`."""

    def method(dist: Rows, first: Tensor, *extra: Tensor) -> tuple[Tensor, ...]:
        y = (first.floor() - 1.0).clamp(min=least).unsqueeze(1) + counts(n, first.device)
        return short(Table(y, dist.pmf_near(y) if least else dist.pmf_window(y)), *extra)

    return method


@cache
def _running_sums(n: int, device: torch.device) -> Tensor:
    """Matrix that takes a pmf (rows, n) to its running sums from the left, then to those from the right."""
    upto = np.triu(np.ones((n, n)))
    return constant(np.concatenate([upto, 1.0 - upto], axis=1), device)


def both_tails(pmf: Tensor) -> tuple[Tensor, Tensor]:
    """P(Z <= y) and P(Z > y) at each integer, each summed from its own end, so that small ones keep their digits."""
    if not is_host(pmf) and pmf.shape[1] <= SHORT:
        # A GPU multiplies matrices faster than it scans.
        cdf, survival = (pmf @ _running_sums(pmf.shape[1], pmf.device)).chunk(2, dim=1)
        return cdf, survival
    return pmf.cumsum(1), torch.nn.functional.pad(pmf.flip(1).cumsum(1).flip(1)[:, 1:], (0, 1))


def moments(at: Table) -> tuple[Tensor, Tensor]:
    """Mean and variance, summed around the mode: variances far below 1e-16 stay right."""
    mode = at.y.gather(1, at.pmf.argmax(1, keepdim=True))
    gap = at.y - mode
    shift = (at.pmf * gap).sum(1)
    return mode.squeeze(1) + shift, (at.pmf * gap * gap).sum(1) - shift**2


def half_mean_difference(at: Table) -> tuple[Tensor]:
    """E|Z - Z'| / 2 = sum F (1 - F)."""
    cdf, survival = both_tails(at.pmf)
    return ((cdf * survival).sum(1),)


def entropy(at: Table) -> tuple[Tensor]:
    """-sum p log p."""
    # The largest probability as 1 minus the others: entropies far below 1e-16 stay right.
    others = at.pmf.scatter(1, at.pmf.argmax(1, keepdim=True), 0.0)
    rest = others.sum(1)
    return (torch.special.entr(others).sum(1) - (1.0 - rest) * torch.log1p(-rest),)


def crps(at: Table, y: Tensor) -> tuple[Tensor]:
    """CRPS, both tails summed from their own end, so that a distribution with nearly all mass on one count keeps it."""
    return crps_of_tails(at.y, *both_tails(at.pmf), y)


def crps_of_tails(z: Tensor, cdf: Tensor, survival: Tensor, y: Tensor) -> tuple[Tensor]:
    """CRPS from P(Z <= z) and P(Z > z), which are overwritten, at consecutive integers z. Shape: each (rows, n)."""
    below = (y.unsqueeze(1) - z).clamp_(0.0, 1.0)
    score = torch.lerp(survival.square_(), cdf.square_(), below).sum(1)
    first, past = z[:, 0], z[:, -1] + 1.0
    return (score + (first - y).clamp(min=0.0) + (y - past).clamp(min=0.0),)


def up_to(y: Tensor, z: Tensor, p: Tensor) -> Tensor:
    """p where z is at most y, else 0. Shape: y (rows,), integers z and p (rows, n)."""
    if not is_host(p):
        return torch.where(z <= y.unsqueeze(1), p, 0.0)
    # A CPU multiplies faster than it selects.
    return (y.unsqueeze(1) + 1.0 - z).clamp_(0.0, 1.0).mul_(p)


def cut(at: Table, y: Tensor, gap: bool = True) -> tuple[Tensor, ...]:
    """P(Z <= y), P(Z > y) and, for `gap`, E|Z - y|."""
    below = up_to(y, *at)
    distance = [(y.unsqueeze(1) - at.y).abs_().mul_(at.pmf).sum(1)] if gap else []
    sums = [below.sum(1), (at.pmf - below).sum(1), *distance]
    total = sums[0] + sums[1]
    return tuple(x / total for x in sums)


def mode(at: Table) -> tuple[Tensor]:
    """The first of the counts whose probabilities tie for the largest within rounding."""
    best = (at.pmf >= at.pmf.amax(1, keepdim=True) * (1 - 1e-12)).to(torch.uint8).argmax(1, keepdim=True)
    return (at.y.gather(1, best).squeeze(1),)


def quantile(at: Table, q: Tensor) -> tuple[Tensor]:
    """The smallest counts y with P(Z <= y) >= q, but for rounding of the sums. Shape: q (rows,) or (rows, n)."""
    below = torch.searchsorted(at.pmf.cumsum(1), q.view(len(q), -1).contiguous()).clamp(max=at.y.shape[1] - 1)
    return (at.y.gather(1, below).view_as(q),)


def shortest_interval(at: Table, coverage: Tensor) -> tuple[Tensor, Tensor]:
    """First and last count of the shortest interval that holds the coverage; of several, the first."""
    cdf = at.pmf.cumsum(1)
    before = cdf - at.pmf
    end = torch.searchsorted(cdf, before + coverage.unsqueeze(1))
    n = cdf.shape[1]
    width = torch.where(end < n, end - torch.arange(n, device=end.device), 2 * n)
    start = width.argmin(1, keepdim=True)
    return at.y.gather(1, start).squeeze(1), at.y.gather(1, end.gather(1, start).clamp(max=n - 1)).squeeze(1)


def entropy_of(dist: Rows) -> Tensor:
    """Entropy per row."""
    return by_window(dist, entropy, lambda rows: (rows.prepared().far_entropy(),))[0]


def half_mean_difference_of(dist: Rows) -> Tensor:
    """E|Z - Z'| / 2 per row."""
    return by_window(dist, half_mean_difference, lambda rows: (rows.far_half_mean_difference(),))[0]


class TabulatedRows(Rows):
    """Rows whose sums run over all integers of their window."""

    smooth = False
    tabulated = True

    def mean_variance(self) -> tuple[Tensor, Tensor]:
        mean, variance = by_window(self, moments, None)
        return mean, variance

    def cut(self, y: Tensor) -> Cut:
        return Cut(*by_window(self, cut, None, y))

    def distinct(self) -> tuple["TabulatedRows", Tensor]:
        """Rows without repetition, and for each row its place among them."""
        return self, torch.arange(len(self), device=self.device)

    def quantile(self, q: Tensor) -> Tensor:
        """The smallest count y with P(Z <= y) >= q, for 0 < q < 1, from one table per distinct row."""
        dist, place = self.distinct()
        order = place.argsort(stable=True)
        repeats = place.bincount(minlength=len(dist))
        column = torch.empty_like(place)
        column[order] = torch.arange(len(place), device=q.device) - (repeats.cumsum(0) - repeats)[place[order]]
        levels = torch.full((len(dist), int(repeats.max()) if len(q) else 0), 0.5, dtype=q.dtype, device=q.device)
        levels[place, column] = q - self.rounding * torch.minimum(q, 1.0 - q)
        return by_window(dist, quantile, None, levels)[0][place, column]
