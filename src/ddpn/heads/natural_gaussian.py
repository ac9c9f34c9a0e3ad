"""The Gaussian head in natural parameters of Immer et al. (2023)."""

import torch
from torch import Tensor
from torch.distributions import Normal, constraints

from ddpn.heads.clamps import LOG_VARIANCE, bend
from ddpn.heads.gaussian import moments, nll, normal
from ddpn.heads.head import Head, promoted


class NaturalGaussianHead(Head):
    """raw = (eta1, log precision): eta1 = mean / variance, eta2 = -precision / 2.

    The negative log-likelihood is convex in (eta1, eta2).

    >>> law = NaturalGaussianHead()(torch.tensor([6.0, 0.6931472]))
    >>> law.mean, law.variance
    (tensor(3.), tensor(0.5000))
    """

    name = "natural_gaussian"
    n_raw = 2
    support = constraints.real

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> Normal:
        """Normal with mean exposure * eta1 / precision and variance exposure^2 / precision."""
        return normal(*_mean_and_log_variance(raw), exposure)

    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """-log p(y)."""
        return nll(*_mean_and_log_variance(raw), y, exposure)

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Weighted mean and variance of y / exposure, as natural parameters."""
        mean, log_variance = moments(y, weight, exposure)
        return torch.stack([mean * (-log_variance).exp(), -log_variance])


def _mean_and_log_variance(raw: Tensor) -> tuple[Tensor, Tensor]:
    raw = promoted(raw)
    log_variance = bend(-raw[..., 1], *LOG_VARIANCE)
    return raw[..., 0] * log_variance.exp(), log_variance
