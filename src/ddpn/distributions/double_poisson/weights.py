"""The Double Poisson's weight w(y) = h(y) exp(-gamma D(y; mu)) and the window where it lives.

h(y) = e^-y y^y / y! and D(y; mu) = mu - y + y log(y / mu), half the Poisson deviance. All in float64.
"""

from functools import cache

import numpy as np
import torch
from scipy.special import gammaln
from torch import Tensor

from ddpn.distributions.dispatch import constant
from ddpn.distributions.special import HALF_LOG_TWO_PI, stirling_error


def deviance(y: Tensor, mu: Tensor) -> Tensor:
    """D(y; mu), with no cancellation where y is close to mu."""
    x = (y - mu) / mu
    return mu * ((1.0 + x) * torch.log1p(x.clamp(min=-1 + 2**-53)) - x)


def minus_stirling_error(x: Tensor, y: Tensor) -> Tensor:
    """x, in place, minus `stirling_error(y)` by two terms.

    For sums where 9e-10 of a weight near y = 15.5, 4e-12 near 45, does not show.
    """
    r = torch.reciprocal(y)
    return x.addcmul_(r, torch.mul(r, r).sub_(30.0), value=1 / 360)


def log_h(y: Tensor) -> Tensor:
    """log h(y) for real y >= 12."""
    return -0.5 * torch.log(y) - HALF_LOG_TWO_PI - stirling_error(y)


@cache
def _small_log_h(device: torch.device) -> Tensor:
    return constant(exact_log_h(np.arange(32.0)), device)


def exact_log_h(y: np.ndarray) -> np.ndarray:
    """log h(y) by the log-gamma function, for tables of constants."""
    return y * np.log(np.maximum(y, 1)) - y - gammaln(y + 1)


def log_h_of_count(y: Tensor) -> Tensor:
    """log h(y) for any count y, by table below 32."""
    # With an axis more, as vmap would read the value of an index without axes.
    small = log_h_of_small_count(y.clamp(0, 31).unsqueeze(-1)).squeeze(-1)
    return torch.where(y < 32, small, log_h(y.clamp(min=32.0)))


def log_h_of_small_count(y: Tensor) -> Tensor:
    """log h(y) for counts y = 0..31."""
    return _small_log_h(y.device)[y.long()]


@cache
def count_table(n: int, device: torch.device) -> Tensor:
    """Rows y - y log y, y, log h(y) and y log y for y = 0..n-1."""
    y = np.arange(float(n))
    y_log_y = y * np.log(np.maximum(y, 1))
    return constant(np.stack([y - y_log_y, y, exact_log_h(y), y_log_y]), device)


def log_weight_table(mu: Tensor, gamma: Tensor, n: int) -> Tensor:
    """log w(y) + gamma mu at y = 0..n-1: one matrix product, no logarithm a cell.

    Rounding is gamma * y log y * 2^-53: 6e-10 at gamma = 1e4 and y = 63.
    """
    table = count_table(n, mu.device)
    return torch.addmm(table[2], torch.stack([gamma, gamma * mu.log()], dim=1), table[:2])


@cache
def _exponents(n: int, device: torch.device) -> Tensor:
    """Rows y - y log y, y and -1 for y = 0..n-1."""
    table = count_table(n, device)
    with torch.inference_mode(False):
        return torch.stack([table[0], table[1], -torch.ones_like(table[1])])


def log_weights(mu: Tensor, gamma: Tensor, log_mu: Tensor, n: int) -> Tensor:
    """log w(y), at most 0, at y = 0..n-1, as `log_weight_table`."""
    factors = torch.stack([gamma, gamma * log_mu, gamma * mu], dim=1)
    return torch.addmm(count_table(n, mu.device)[2], factors, _exponents(n, mu.device))


def upper_end(mu: Tensor, gamma: Tensor, depth: float | Tensor, steps: int = 3, start: Tensor | None = None) -> Tensor:
    """The y > mu with gamma D(y; mu) = depth, from above: what it leaves out is below e^-depth of the peak.

    Newton in s = sqrt(y) on a convex function from an upper bound (or from `start`, one found before), so every
    iterate is one too; `steps` says how close to come.
    """
    target = depth / gamma
    constant_part, log_mu = mu - target, mu.log()
    s = mu.sqrt() + (0.5 * target).sqrt() if start is None else start.sqrt()
    for _ in range(steps):
        square = s * s
        log_ratio = square.log().sub_(log_mu)
        s = s - torch.addcmul(constant_part, square, log_ratio - 1.0).div_(log_ratio.mul_(2.0 * s))
    return s * s


def lower_end(mu: Tensor, gamma: Tensor, depth: float | Tensor) -> Tensor:
    """The y < mu with gamma D(y; mu) = depth, from below; 0 where the window reaches 0.

    D is decreasing and convex there, so Newton from the left never passes the root.
    """
    target = depth / gamma
    tiny = torch.finfo(mu.dtype).tiny
    y = (mu.sqrt() - target.sqrt()).clamp(min=0.0).square()
    for _ in range(3):
        log_ratio = torch.log((y / mu).clamp(min=tiny))
        y = y + (mu - y + y * log_ratio - target).clamp(min=0.0) / -log_ratio.clamp(max=-1e-300)
    return torch.where(target >= mu, torch.zeros_like(y), y)
