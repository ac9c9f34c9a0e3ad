"""Logarithms of weighted sums, differentiable in their terms and in the weights."""

import torch
from torch import Tensor


def weighted_logsumexp(each: Tensor, weights: Tensor) -> Tensor:
    """log sum_k w_k exp(each_k) over the last axis, differentiable in both, also where a weight is 0."""
    with torch.no_grad():
        top = torch.where(weights > 0, each, -torch.inf).amax(-1, keepdim=True)
        top = torch.where(torch.isfinite(top), top, 0.0)
    # A component of weight 0 may exceed the others by any factor: only its gradient is cut.
    scaled = (each - top).clamp(max=80.0).exp()
    return (weights * scaled).sum(-1).log() + top.squeeze(-1)


def weighted_log_masses(each: Tensor, weights: Tensor) -> Tensor:
    """log sum_k w_k exp(each_k) of log masses over the last axis, relatively accurate also where all are close to 0."""
    missing = (weights * torch.expm1(each)).sum(-1)
    most = missing.detach() > -0.5
    empty = ((weights > 0) & (each > -torch.inf)).logical_not().all(-1)
    summed = weighted_logsumexp(torch.where(empty.unsqueeze(-1), -1.0, each), weights)
    return torch.where(most, torch.log1p(torch.where(most, missing, 0.0)), summed.masked_fill(empty, -torch.inf))
