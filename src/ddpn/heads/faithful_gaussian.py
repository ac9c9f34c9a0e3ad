"""The faithful Gaussian head of Stirn et al. (2023): the mean is fitted as if there were no variance."""

import torch
from torch import Tensor
from torch.distributions import Normal, constraints

from ddpn.heads.gaussian import mean_and_log_variance, moments, nll, normal, rate
from ddpn.heads.head import Head


class FaithfulGaussianHead(Head):
    """raw = (mean, log variance): squared error for the mean, the likelihood for the variance around it.

    Neither disturbs the other: the variance's loss takes the mean as given, and the variance sees features without
    gradient, so the trunk learns from squared error alone.

    >>> FaithfulGaussianHead().sees
    ('features', 'detached')
    """

    name = "faithful_gaussian"
    n_raw = 2
    support = constraints.real

    @property
    def sees(self) -> tuple[str, ...]:
        """The variance looks at the trunk but does not pull at it."""
        return ("features", "detached")

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> Normal:
        """Normal(exposure * raw0, exposure * e^(raw1 / 2))."""
        return normal(*mean_and_log_variance(raw), exposure)

    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """(y / exposure - mean)^2 / 2 plus -log p(y) with the mean held fixed."""
        mean, log_variance = mean_and_log_variance(raw)
        error = rate(y, exposure, mean.dtype) - mean
        return 0.5 * error.square() + nll(mean.detach(), log_variance, y, exposure)

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Weighted mean and log variance of y / exposure."""
        return torch.stack(moments(y, weight, exposure))
