"""The Gaussian head in natural parameters of Immer et al. (2023)."""

import torch
from torch import Tensor

from ddpn.heads.clamps import LOG_VARIANCE, bend
from ddpn.heads.gaussian import NormalHead, moments
from ddpn.heads.head import promoted


class NaturalGaussianHead(NormalHead):
    """Gaussian baseline in natural parameters (Immer et al., 2023).

    raw = (eta1, log precision): eta1 = mean / variance, eta2 = -precision / 2. The negative log-likelihood is convex in
    (eta1, eta2).

    >>> dist = NaturalGaussianHead()(torch.tensor([6.0, 0.6931472]))
    >>> dist.mean, dist.variance
    (tensor(3.), tensor(0.5000))
    """

    name = "natural_gaussian"
    parameter_names = ("mean / variance", "log precision")

    def links(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance at an exposure of 1: eta1 / precision and -log precision."""
        raw = promoted(raw)
        log_variance = bend(-raw[..., 1], *LOG_VARIANCE)
        return raw[..., 0] * log_variance.exp(), log_variance

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Weighted mean and variance of y / exposure, as natural parameters."""
        mean, log_variance = moments(y, weight, exposure)
        return torch.stack([mean * (-log_variance).exp(), -log_variance])
