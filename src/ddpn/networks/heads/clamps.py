"""Smooth bounds on a network's raw outputs, so that no distribution leaves the range where it is exact.

Between its bounds a clamp is the identity, to the bit; beyond them it bends like an arctangent and ends pi/2 further
out. Value, slope and curvature are continuous, and the slope 1 / (1 + e^2), at a distance e outside, is never 0: a
network whose outputs drift away gets a gradient that brings them back. A hard clamp has none there.
"""

import math

import torch
from torch import Tensor

#: log mu: 8e-7 to 9e6, the range the Double Poisson's golden tables cover.
LOG_MU = (-14.0, 16.0)
#: log gamma: 1e-4 to 1e4, likewise; less for large mu, see `lowest_log_gamma`.
LOG_GAMMA = (-9.2, 9.2)
#: log alpha of a Negative Binomial: below, it is a Poisson even at a mean of e^16.
LOG_ALPHA = (-23.0, 9.2)
#: log variance of a Gaussian: a standard deviation from a thousandth of a count to 2e7.
LOG_VARIANCE = (-14.0, 34.0)
#: mu / gamma >= 1 / 100: a distribution with a standard deviation of 0.1 already sits on one or two integers.
_LOG_NARROWEST = math.log(100.0)
#: Below mu = 0.1 that bound would exclude small means (mu = 1e-6, gamma = 1e-4 has mean 244), so that gamma <= 10.
_LOG_SMALL = math.log(0.1)
#: Above this mu, gamma mu >= 0.1 bounds gamma instead of 1e-4: a standard deviation of three times the mean.
LOG_LARGE = math.log(1e3)
#: Largest distance from a bound that `unbend` inverts, as the exact inverse becomes infinite.
_MAX_EXCESS = 1.0


def bend(x: Tensor, low: float | Tensor, high: float | Tensor) -> Tensor:
    """Bound x smoothly: it stays as it is within [low, high], and is bent outside to stay within pi/2 of that range.

    Parameters
    ----------
    x : Tensor
        Raw outputs.
    low, high : float or Tensor
        The lower and the upper bound, or one per element.
    """
    inside = _clamp(x, low, high)
    return inside + (x - inside).atan()


def unbend(value: Tensor, low: float | Tensor, high: float | Tensor) -> Tensor:
    """Invert `bend`: return the x with bend(x) = value.

    Parameters
    ----------
    value : Tensor
        The result of `bend`. If `bend` does not reach a value, such as infinity, a finite x on its side is returned.
    low, high : float or Tensor
        The lower and the upper bound, or one per element.
    """
    inside = _clamp(value, low, high)
    return inside + (value - inside).clamp(-_MAX_EXCESS, _MAX_EXCESS).tan()


def log_mean(raw: Tensor, exposure: Tensor | None) -> Tensor:
    """Compute the logarithm of exposure times e^raw, with raw bent to the range of `LOG_MU`.

    Parameters
    ----------
    raw : Tensor
        The raw output for the mean.
    exposure : Tensor or None
        The known scale of each row; None is 1.
    """
    log_mu = bend(raw, *LOG_MU)
    return log_mu if exposure is None else log_mu + exposure.to(raw.dtype).log()


def highest_log_gamma(log_mu: Tensor) -> Tensor:
    """Return the upper bound on log gamma for log mu: gamma <= 100 mu, at least 10 and at most 1e4."""
    return log_mu.clamp(_LOG_SMALL, LOG_GAMMA[1] - _LOG_NARROWEST) + _LOG_NARROWEST


def lowest_log_gamma(log_mu: Tensor) -> Tensor:
    """Return the lower bound on log gamma for log mu: gamma >= 1e-4, or gamma mu >= 0.1 if mu is above 1,000."""
    return LOG_GAMMA[0] - (log_mu - LOG_LARGE).clamp(min=0.0)


def mean_preserving_log_gamma(log_gamma: Tensor, log_mu: Tensor) -> Tensor:
    """Limit gamma of rows with an exposure, so that the mean of a Double Poisson is mu to 6%; return log gamma.

    The mean is close to mu where gamma mu is large, or gamma is close to 1. For small mu it is about mu^gamma instead:
    with gamma = 0.3, a thousandth of the exposure would have an eighth of the mean. So 1 / gamma - 1 stays below
    mu^2 / (1 + mu) / 1.5, which is a variance up to that of a Negative Binomial with alpha = 2/3, and gamma - 1 below
    mu^2 (1 + mu) / 2. Both are smooth: the inverse of each is added to the inverse of its bound. `log_mu` includes the
    exposure.
    """
    g, mu = log_gamma.double(), log_mu.double().exp()
    over, under = torch.expm1(torch.where(g < 0.0, -g, 0.0)), torch.expm1(torch.where(g < 0.0, 0.0, g))
    over = over / (1.0 + 1.5 * over * (1.0 + mu) / mu.square())
    under = under / (1.0 + 2.0 * under / (mu.square() * (1.0 + mu)))
    return (torch.log1p(under) - torch.log1p(over)).to(log_gamma.dtype)


def _clamp(x: Tensor, low: float | Tensor, high: float | Tensor) -> Tensor:
    if not isinstance(low, Tensor) and not isinstance(high, Tensor):
        return x.clamp(low, high)
    x = x.minimum(high) if isinstance(high, Tensor) else x.clamp(max=high)
    return x.maximum(low) if isinstance(low, Tensor) else x.clamp(min=low)
