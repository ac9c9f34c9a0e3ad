"""Rows of truncated count distributions."""

from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import mass, sums
from ddpn.distributions.dispatch import take
from ddpn.distributions.rows import DEPTH, Cut
from ddpn.distributions.special import beside
from ddpn.distributions.tails import SmoothRows

#: The first counts are summed one by one: a range that starts among them leaves the pmf smooth beyond.
_FIRST = 12.0


def range_moments(rows: Any, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the part between low and high, with the gradients of the rows."""
    mean, variance = sums.over(rows, low, high, sums.moments)
    return torch.minimum(torch.maximum(mean, low), high), variance.clamp(min=0.0)


class TruncatedRows(SmoothRows):
    """Rows of a base, prepared, that is not a mixture, with bounds and the log mass between them.

    Where all ranges start within the first counts and reach as far as the base does, the pmf is smooth like the base's.
    Elsewhere sums run over all integers of the windows.
    """

    def __init__(self, base: Any, low: Tensor, high: Tensor, log_total: Tensor, smooth: bool) -> None:
        self._base, self._low, self._high, self._log_total = base, low, high, log_total
        self.smooth, self.tabulated = smooth, not smooth
        self.short, self.rounding = base.short, max(base.rounding, 16.0 * 2**-52)

    @classmethod
    def of(cls, base: Any, low: Tensor, high: Tensor) -> "TruncatedRows":
        """Find the mass between the bounds."""
        first, last = base.window()
        clear = ((low <= _FIRST) | (low <= first)) & (high >= last)
        smooth = base.smooth and not base.tabulated and bool(clear.all())
        log_total = mass.of_rows(base, low, high)
        # An empty component of a mixture has weight 0: anything finite will do.
        return cls(base, low, high, torch.where(torch.isneginf(log_total), 0.0, log_total), smooth)

    def __len__(self) -> int:
        return len(self._low)

    @property
    def device(self) -> torch.device:
        return self._low.device

    @property
    def copies(self) -> int:  # type: ignore[override]
        return self._base.copies

    @property
    def location(self) -> Tensor:  # type: ignore[override]
        first, last = self.window()
        return torch.minimum(torch.maximum(self._base.location, first), last)

    def rows(self, index: Tensor | slice) -> "TruncatedRows":
        low, high, log_total = (take(x, index) for x in (self._low, self._high, self._log_total))
        return TruncatedRows(self._base.rows(index), low, high, log_total, self.smooth)

    def log_pmf(self, y: Tensor) -> Tensor:
        inside = (y >= beside(self._low, y)) & (y <= beside(self._high, y))
        return torch.where(inside, self._base.log_pmf(y) - beside(self._log_total, y), -torch.inf)

    def smooth_log_pmf(self, y: Tensor) -> Tensor:
        return self._base.smooth_log_pmf(y) - self._log_total.unsqueeze(1)

    def window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        first, last = sums.ends(self._base, self._low, self._high)
        if not isinstance(depth, float) or depth > DEPTH:
            # The logarithm of a tail is concave: as long again is as deep again.
            more = (depth / DEPTH - 1.0) * (last - first)
            first, last = torch.maximum(self._low, first - more), torch.minimum(self._high, last + more)
        return first, torch.maximum(first, last)

    def spread(self, first: Tensor, last: Tensor) -> Tensor:
        return self._base.spread(first, last)

    def one_panel(self) -> Tensor:
        return self._base.one_panel()

    def tail_end(self, y: Tensor, lower: Tensor) -> Tensor:
        end = self._base.tail_end(y, lower)
        return torch.minimum(torch.maximum(end, self._low), self._high)

    def mean_variance(self) -> tuple[Tensor, Tensor]:
        return range_moments(self._base, self._low, self._high)

    def sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.cut(y)[:2]

    def cut(self, y: Tensor) -> Cut:
        """Both sides summed apart, each to its own relative accuracy; the larger one is 1 minus the other."""
        parts = []
        for start, end in ((self._low, torch.minimum(y, self._high)), (torch.maximum(y + 1.0, self._low), self._high)):
            log_mass, mean = sums.over(self._base, start, end, sums.log_total_and_mean)
            parts.append(((log_mass - self._log_total).exp().clamp(max=1.0), mean))
        (below, mean_below), (above, mean_above) = parts
        less = below <= above
        cdf, survival = torch.where(less, below, 1.0 - above), torch.where(less, 1.0 - below, above)
        return Cut(cdf, survival, cdf * (y - mean_below) + survival * (mean_above - y))

    def far_distance(self, y: Tensor) -> Tensor:
        return self.cut(y).distance

    def far_moments(self) -> tuple[Tensor, Tensor]:
        return self.mean_variance()
