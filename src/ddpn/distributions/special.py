"""Stirling's series and other functions that several families share. All in float64."""

import torch
from torch import Tensor

#: log(2 pi) / 2
HALF_LOG_TWO_PI = 0.9189385332046727


def stirling_error(y: Tensor) -> Tensor:
    """log y! - log(sqrt(2 pi y) y^y e^-y) for real y >= 12; what is left out is 2e-11 at y = 12."""
    r = torch.reciprocal(y)
    r2 = r * r
    return torch.mul(r2, 1 / 1260).sub_(1 / 360).mul_(r2).add_(1 / 12).mul_(r)


def stirling_error_from_zero(x: Tensor) -> Tensor:
    """`stirling_error` for any x > 0."""
    small = x.clamp(max=16.0)
    exact = torch.lgamma(small + 1.0) - (small + 0.5) * small.log() + small - HALF_LOG_TWO_PI
    return torch.where(x < 16.0, exact, stirling_error(x.clamp(min=16.0)))


def beside(x: Tensor, y: Tensor) -> Tensor:
    """A parameter per row shaped to broadcast with y. Shape: x (rows,), y (rows, ...) -> (rows, 1, ...)."""
    return x.view(-1, *[1] * (y.dim() - 1))
