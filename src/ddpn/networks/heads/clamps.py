"""Smooth bounds on raw outputs, which keep distributions in the range where they are computed accurately.

Within its bounds, a smooth bound is the identity. At a distance e outside, it continues as arctan(e) and so moves at
most pi/2 further. Value, slope and curvature are continuous. The slope is 1 / (1 + e^2), which is never 0, so outputs
outside the bounds get a gradient that brings them back. With a hard bound, this gradient would be 0.
"""

import math

import torch
from torch import Tensor

#: log mu: from 8e-7 to 9e6, the range of the reference tables of the Double Poisson.
LOG_MU = (-14.0, 16.0)
#: log gamma: from 1e-4 to 1e4, for the same reason. For large mu the lower bound is lower, see `lowest_log_gamma`.
LOG_GAMMA = (-9.2, 9.2)
#: log alpha of a Negative Binomial. At the lower bound it is a Poisson even for a mean of e^16.
LOG_ALPHA = (-23.0, 9.2)
#: log variance of a Gaussian: a standard deviation from a thousandth of a count to 2e7.
LOG_VARIANCE = (-14.0, 34.0)
#: gamma <= 100 mu: with a standard deviation of 0.1, a distribution already sits on one or two integers.
_LOG_MAX_GAMMA_RATIO = math.log(100.0)
#: For mu below 0.1, the bound gamma <= 100 mu would exclude small means (mu = 1e-6 with gamma = 1e-4 has a mean of
#: 244). There the bound is gamma <= 10.
_LOG_SMALL_MU = math.log(0.1)
#: Above this mu, the lower bound of gamma is 0.1 / mu instead of 1e-4: a standard deviation of three times the mean.
LOG_LARGE_MU = math.log(1e3)
#: The largest distance from a bound that `unbend` inverts, because the exact inverse becomes infinite.
_MAX_INVERTED_EXCESS = 1.0


def bend(x: Tensor, low: float | Tensor, high: float | Tensor) -> Tensor:
    """Bound `x` smoothly.

    Within [low, high], the result is x. At a distance e beyond a bound, it exceeds this bound by arctan(e), which is at
    most pi/2.

    Parameters
    ----------
    x : Tensor, any shape
        Raw outputs.
    low, high : float or Tensor
        The bounds: one number for all elements, or a tensor that broadcasts with `x`.

    Returns
    -------
    Tensor, shape of x
    """
    inside = _clamp(x, low, high)
    return inside + (x - inside).atan()


def unbend(value: Tensor, low: float | Tensor, high: float | Tensor) -> Tensor:
    """Invert `bend`: return x such that bend(x) = value.

    Parameters
    ----------
    value : Tensor
        The result of `bend`. If `bend` cannot produce it, as for infinity, x is a finite number beyond the bound.
    low, high : float or Tensor
        The bounds: one number for all elements, or a tensor that broadcasts with `value`.
    """
    inside = _clamp(value, low, high)
    return inside + (value - inside).clamp(-_MAX_INVERTED_EXCESS, _MAX_INVERTED_EXCESS).tan()


def log_mean(raw: Tensor, exposure: Tensor | None) -> Tensor:
    """Compute the log mean of each row: its raw output, smoothly bounded, plus the log of its exposure.

    The bounds of the raw output are `LOG_MU`, -14 and 16 (see `bend`).

    Parameters
    ----------
    raw : Tensor, any shape
        The raw output for the log mean at an exposure of 1.
    exposure : Tensor or None
        The exposure of each row, which broadcasts with `raw`; None for 1.
    """
    log_mu = bend(raw, *LOG_MU)
    return log_mu if exposure is None else log_mu + exposure.to(raw.dtype).log()


def highest_log_gamma(log_mu: Tensor) -> Tensor:
    """Return the upper bound on log gamma of a Double Poisson, given log mu.

    gamma is the inverse dispersion. The bound is the log of 100 mu, but at least log 10 and at most log 1e4. It has the
    shape of `log_mu`.
    """
    return log_mu.clamp(_LOG_SMALL_MU, LOG_GAMMA[1] - _LOG_MAX_GAMMA_RATIO) + _LOG_MAX_GAMMA_RATIO


def lowest_log_gamma(log_mu: Tensor) -> Tensor:
    """Return the lower bound on log gamma of a Double Poisson, given log mu.

    gamma is the inverse dispersion. The bound is the log of 1e-4, or of 0.1 / mu if mu is above 1,000. It has the shape
    of `log_mu`.
    """
    return LOG_GAMMA[0] - (log_mu - LOG_LARGE_MU).clamp(min=0.0)


def mean_preserving_log_gamma(log_gamma: Tensor, log_mu: Tensor) -> Tensor:
    """Limit log gamma so that the mean of a Double Poisson stays within 6% of mu; return the limited log gamma.

    gamma is the inverse dispersion, and `log_mu` includes the exposure. Both arguments have one value per row and
    network, and so has the result. Without this limit, means would not be proportional to the exposure. The mean is
    close to mu if gamma mu is large or gamma is close to 1. For small mu, it is about mu^gamma instead: with gamma =
    0.3, a thousandth of the exposure would have an eighth of the mean.

    A quantity q that measures the distance of gamma from 1 is limited smoothly: it is replaced by a smaller one, r,
    with 1 / r = 1 / q + 1 / limit.

    - For gamma below 1, q is 1 / gamma - 1, and the limit is mu^2 / (1 + mu) / 1.5. This still allows the variance of a
      Negative Binomial with alpha = 2/3.
    - For gamma above 1, q is gamma - 1, and the limit is mu^2 (1 + mu) / 2.
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
