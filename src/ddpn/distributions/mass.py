"""The logarithm of the mass between two counts, of rows of distributions."""

from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import sums
from ddpn.distributions.dispatch import Case, by_case, is_host

#: Beyond this share of the mass, the rest is summed instead, and log1p keeps the digits of a mass close to 1.
_MOST = 0.5
#: Ranges that are summed as they are where an absolute accuracy is enough.
_FEW = 32.0


def of_rows(rows: Any, low: Tensor, high: Tensor, is_absolute: bool = False) -> Tensor:
    """log P(low <= Z <= high) per row. rows: as in `sums.over`, prepared.

    With `is_absolute`, a mass close to 1 has a logarithm that is accurate beside 1, not beside 0: enough to normalise a
    pmf, and short ranges are then summed as they are.
    """
    with torch.no_grad():
        middle = sum(rows.window()) / 2.0 if rows.tabulated else rows.location
        # Where the middle lies inside, what is left out is summed: that keeps log(1 - tiny), and is often shorter.
        inside = ((low <= 0) | (low <= middle)) & (high >= middle)
        if is_absolute:
            inside &= high - low >= _FEW
    zero = torch.zeros_like(low)
    none, every = torch.full_like(low, -1.0), torch.full_like(low, torch.inf)
    # One sum per row, but where both sides are left out.
    lower, upper = inside & (low > 0), inside & torch.isfinite(high)
    start = torch.where(inside, torch.where(lower, zero, high + 1.0), low)
    end = torch.where(inside, torch.where(lower, low - 1.0, torch.where(upper, every, none)), high)
    start = torch.where(torch.isfinite(start), start, zero)
    found = sums.over(rows, start, end, sums.log_total)[0]
    both = lower & upper
    if not is_host(both) or bool(both.any()):
        more = sums.over(rows, torch.where(both, high + 1.0, zero), torch.where(both, every, none), sums.log_total)[0]
        found = torch.where(both, _log_add(found, more), found)
    return _inverted(rows, found, inside, low, high)


def _inverted(rows: Any, found: Tensor, inside: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """log(1 - exp(found)) where `found` is what is left out; and where that is most of the mass, a sum of the rest."""
    few = inside & (found.detach().exp() <= _MOST)
    rest = torch.where(few, torch.log1p(-torch.where(few, found, -1.0).exp()), found)

    def kept(rows: Any, low: Tensor, high: Tensor, rest: Tensor) -> tuple[Tensor]:
        return (rest,)

    def summed(rows: Any, low: Tensor, high: Tensor, rest: Tensor) -> tuple[Tensor, ...]:
        return sums.over(rows, low, high, sums.log_total)

    wrong = inside & ~few
    found = by_case([Case(~wrong, kept, 1), Case(wrong, summed, 1)], rows, low, high, rest)[0]
    # Rounding must not lift a mass above 1; gradients stay.
    return found - found.detach().clamp(min=0.0)


def _log_add(a: Tensor, b: Tensor) -> Tensor:
    """log(e^a + e^b), where both may be minus infinity, with gradients that are never NaN."""
    top = torch.maximum(a, b).detach()
    top = torch.where(torch.isfinite(top), top, 0.0)
    total = (a - top).exp() + (b - top).exp()
    return torch.where(total > 0, torch.where(total > 0, total, 1.0).log() + top, -torch.inf)
