"""The Gaussian head, and what all Gaussian heads share.

Counts are not Gaussian: these heads are baselines. With an exposure it is y / exposure that is Gaussian, so mean and
standard deviation both scale.
"""

import math

import torch
from torch import Tensor
from torch.distributions import Normal, constraints

from ddpn.heads.clamps import LOG_VARIANCE, bend
from ddpn.heads.head import Head, check_beta, promoted
from ddpn.heads.intercept import Rows

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class NormalHead(Head):
    """A normal distribution; a subclass may have other raw outputs than (mean, log variance), or another loss."""

    n_raw = 2
    support = constraints.real
    parameter_names = ("mean", "log variance")

    def links(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance at an exposure of 1."""
        raw = promoted(raw)
        return raw[..., 0], bend(raw[..., 1], *LOG_VARIANCE)

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> Normal:
        """Normal with `exposure` times the mean and the standard deviation of `links`."""
        mean, log_variance = self.links(raw)
        scale = (0.5 * log_variance).exp()
        if exposure is not None:
            exposure = exposure.to(mean.dtype)
            mean, scale = mean * exposure, scale * exposure
        return Normal(mean, scale, validate_args=False)

    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """-log p(y)."""
        return nll(*self.links(raw), y, exposure)

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Weighted mean and log variance of y / exposure."""
        return torch.stack(moments(y, weight, exposure))


class GaussianHead(NormalHead):
    """Gaussian baseline: mean and variance of the counts.

    raw = (mean, log variance), trained on -log p times variance^beta without gradient (Seitzer et al., 2022).

    >>> GaussianHead(beta=0.5)(torch.tensor([3.0, 0.0])).stddev
    tensor(1.)
    """

    name = "gaussian"

    def __init__(self, *, beta: float = 0.0) -> None:
        check_beta(beta)
        self.beta = beta

    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """-log p(y), times variance^beta."""
        mean, log_variance = self.links(raw)
        value = nll(mean, log_variance, y, exposure)
        return value * (self.beta * log_variance.detach()).exp() if self.beta else value


def rate(y: Tensor, exposure: Tensor | None, dtype: torch.dtype) -> Tensor:
    """y / exposure, what is Gaussian."""
    return y.to(dtype) if exposure is None else y.to(dtype) / exposure.to(dtype)


def nll(mean: Tensor, log_variance: Tensor, y: Tensor, exposure: Tensor | None) -> Tensor:
    """-log p(y), from the mean and log variance at an exposure of 1."""
    error = rate(y, exposure, mean.dtype) - mean
    value = 0.5 * (error.square() * (-log_variance).exp() + log_variance) + _HALF_LOG_TWO_PI
    return value if exposure is None else value + exposure.to(mean.dtype).log()


def moments(y: Tensor, weight: Tensor | None, exposure: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weighted mean of y / exposure and the log of its variance, which is kept above the clamp's lower bound, e^-14."""
    rows = Rows(y, weight, exposure)
    z = rate(rows.y, rows.exposure, torch.float64)
    mean = rows.mean(z)
    return mean, rows.mean((z - mean).square()).log().clamp(*LOG_VARIANCE)
