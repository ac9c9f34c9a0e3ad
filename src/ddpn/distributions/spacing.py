"""The counts next to a count, as far as floating point can tell them apart: searches that step by these always end.

Up to 2^53 float64 holds every integer; beyond, a count plus 1 is the count itself.
"""

import torch
from torch import Tensor

#: The largest count up to which all counts are exact in float64.
LAST_EXACT = 2.0**53


def following(y: Tensor) -> Tensor:
    """The next larger count.

    >>> following(torch.tensor([4.0, 2.0**53], dtype=torch.float64)).tolist()
    [5.0, 9007199254740994.0]
    """
    return torch.maximum(y + 1.0, torch.nextafter(y, torch.full_like(y, torch.inf)))


def preceding(y: Tensor) -> Tensor:
    """The next smaller count; of infinity the largest finite number."""
    return torch.minimum(y - 1.0, torch.nextafter(y, torch.full_like(y, -torch.inf)))


def are_neighbours(low: Tensor, high: Tensor) -> Tensor:
    """Whether no count is between the two, or one of them is NaN."""
    return ~(high > following(low))
