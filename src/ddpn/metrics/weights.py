"""Means and medians over weighted rows: a weight of 2 equals giving the row twice."""

from typing import Any

import torch
from torch import Tensor

from ddpn.metrics.predictive import as_tensor
from ddpn.runtime.errors import InputError


def checked_weight(weight: Any, like: Tensor) -> Tensor:
    """Weights as float64, flat, one per element of `like`, which must have at least one row; ones for None."""
    if like.numel() == 0:
        raise InputError("y must hold at least one row, got none.")
    if weight is None:
        return torch.ones(like.numel(), dtype=torch.float64, device=like.device)
    weight = as_tensor(weight).to(like.device, torch.float64)
    try:
        weight = weight.expand(like.shape).reshape(-1)
    except RuntimeError:
        shapes = f"shape {tuple(weight.shape)} for {tuple(like.shape)}"
        raise InputError(f"weight must have one entry per row, got {shapes}.") from None
    if not (torch.isfinite(weight).all() and (weight >= 0).all() and weight.sum() > 0):
        shown = f"min {weight.min().item():g}, sum {weight.sum().item():g}"
        raise InputError(f"weight must be finite, not negative and not all 0, got {shown}.")
    return weight


def mean(values: Tensor, weight: Tensor) -> Tensor:
    """Weighted mean in float64. Shape: values (n, ...), weight (n,) -> (...)."""
    return torch.tensordot(weight / weight.sum(), values.double(), dims=1)


def median(values: Tensor, weight: Tensor) -> Tensor:
    """Weighted median in float64, halfway between two middle values where they share the weight. Shape: (n,) -> ()."""
    order = values.double().argsort()
    values, upto = values.double()[order], weight[order].cumsum(0)
    half = 0.5 * upto[-1]
    # Sums of weights such as 0.1 miss the half by rounding.
    low = values[(upto >= half * (1 - 1e-12)).nonzero()[0, 0]]
    high = values[(upto > half * (1 + 1e-12)).nonzero()[0, 0]]
    return torch.where(low == high, low, 0.5 * (low + high))
