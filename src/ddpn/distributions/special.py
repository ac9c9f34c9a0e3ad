"""Stirling's series and other functions that several families share. All in float64."""

from typing import NamedTuple

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


class SharedNodes(NamedTuple):
    """Positions y >= 12 (rows, n) that all components of a mixture share, and what their pmf needs of y alone.

    `centre` (rows, 1) is any position among them; `gap` is y - centre, `deviance` is y log(y / centre) - gap, and
    `log_h` is log(e^-y y^y / y!).
    """

    y: Tensor
    centre: Tensor
    gap: Tensor
    deviance: Tensor
    log_h: Tensor
    log_h_minus_deviance: Tensor

    @classmethod
    def of(cls, y: Tensor, centre: Tensor) -> "SharedNodes":
        """Shape: y (rows, n), centre (rows, 1)."""
        gap = y - centre
        log_ratio = torch.log1p(gap / centre)
        deviance = (y * log_ratio).sub_(gap)
        log_h = (log_ratio.add_(centre.log())).mul_(-0.5).sub_(HALF_LOG_TWO_PI).sub_(stirling_error(y))
        return cls(y, centre, gap, deviance, log_h, log_h - deviance)
