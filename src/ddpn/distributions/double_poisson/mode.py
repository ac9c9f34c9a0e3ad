"""The mode of the Double Poisson, from ratios of neighbouring probabilities."""

import torch
from torch import Tensor

from ddpn.distributions.double_poisson.weights import deviance, log_h_of_count

#: Below this count every local peak is a candidate.
_SMALL = 6


def log_ratio(y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
    """log p(y + 1) / p(y) = (1 - gamma)(y log(1 + 1/y) - 1) - gamma log((y + 1) / mu), without cancellation."""
    safe = y.clamp(min=1.0)
    r = 1.0 / safe
    # y log(1 + 1/y) - 1, by its series where the difference would lose digits.
    tail = r * (-0.5 + r * (1 / 3 + r * (-0.25 + r * (0.2 - r * (1 / 6)))))
    shrink = torch.where(y > 1000.0, tail, torch.where(y > 0, safe * torch.log1p(r) - 1.0, -1.0))
    return (1.0 - gamma) * shrink - gamma * torch.log1p((y + 1.0 - mu) / mu)


def _interior(mu: Tensor, gamma: Tensor) -> Tensor:
    """A count next to the peak of the continued pmf: mu exp(L) with L + exp(-L) / (2 gamma mu) = 0, by Newton."""
    half = 0.5 / (gamma * mu)
    log_y = torch.zeros_like(mu)
    for _ in range(6):
        pull = half * torch.exp(-log_y)
        log_y = (log_y - (log_y + pull) / (1.0 - pull).clamp(min=0.05)).clamp(-1.0, 0.0)
    return (mu * torch.exp(log_y)).floor()


def most_probable_count(mu: Tensor, gamma: Tensor) -> Tensor:
    """The most probable count per row, the smaller of two. Shape: float64 vectors (rows,)."""
    steps = torch.arange(-4.0, 5.0, dtype=mu.dtype, device=mu.device)
    small = torch.arange(float(_SMALL), dtype=mu.dtype, device=mu.device).expand(len(mu), _SMALL)
    around = (_interior(mu, gamma).unsqueeze(1) + steps).clamp(min=0.0)
    y = torch.cat([small, around], dim=1)
    mu, gamma = mu.unsqueeze(1), gamma.unsqueeze(1)
    falls_after = log_ratio(y, mu, gamma) <= 0
    rises_before = (y == 0) | (log_ratio((y - 1.0).clamp(min=0.0), mu, gamma) > 0)
    height = log_h_of_count(y) - gamma * deviance(y, mu)
    height = torch.where(falls_after & rises_before, height, -torch.inf)
    return y.gather(1, height.argmax(1, keepdim=True)).squeeze(1)
