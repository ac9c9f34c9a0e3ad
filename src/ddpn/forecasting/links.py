"""Convert raw outputs of a forecasting network to a Double Poisson, on the original scale of the series."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ddpn.distributions import DoublePoisson
from ddpn.networks.heads.clamps import LOG_GAMMA, LOG_MU, bend, highest_log_gamma
from ddpn.networks.heads.head import promote_precision

#: Below this x, log(softplus(x)) differs from x by less than float32 can represent.
_MIN_SOFTPLUS = -15.0


def location(raw: Tensor) -> Tensor:
    """Compute mu = softplus(raw), the usual link of forecasting libraries, with a gradient that never vanishes."""
    raw = promote_precision(raw)
    log_mu = torch.where(raw < _MIN_SOFTPLUS, raw, softplus(raw.clamp(min=_MIN_SOFTPLUS)).log())
    return bend(log_mu, *LOG_MU).exp()


def exponential_location(raw: Tensor) -> Tensor:
    """Compute mu = e^raw, for networks that predict logarithms, with a gradient that never vanishes."""
    return bend(promote_precision(raw), *LOG_MU).exp()


def inverse_dispersion(raw: Tensor) -> Tensor:
    """Compute gamma = e^raw, the inverse dispersion; a raw output of 0 gives a Poisson."""
    return bend(promote_precision(raw), *LOG_GAMMA).exp()


def double_poisson(mu: Tensor, gamma: Tensor, scale: Tensor | None = None) -> DoublePoisson:
    """Make the Double Poisson of the counts of a series that was divided by `scale`.

    A count distribution cannot simply be multiplied by a number, because the products would not be integers. Instead,
    its parameters change. mu, and so approximately the mean, is multiplied by `scale`. What happens to the variance,
    about mu / gamma, depends on gamma:

    - gamma = 1: the distribution is a Poisson at every scale.
    - gamma > 1 (under-dispersion): gamma does not change, so variance / mean is the same at every scale. This holds for
      Binomial counts, where variance / mean is 1 - p for every total, and for sums of independent counts.
    - gamma < 1 (over-dispersion) arises from a rate that varies. So the part of the variance that exceeds the mean is
      multiplied by scale^2: variance / mean = 1 + scale * (1 / gamma - 1). GluonTS's Negative Binomial does the same,
      because its mean is multiplied and its other parameter does not change. So the same raw output fits noisy series
      of any size. This matters for networks that do not see the scale.

    gamma is limited to 100 times mu, or to 10 if that is larger, as in `ddpn.networks.heads.DoublePoissonHead`.

    Parameters
    ----------
    mu, gamma : Tensor
        Location and inverse dispersion of the divided series, positive.
    scale : Tensor, optional
        The number by which each series was divided. Default: 1.

    Examples
    --------
    >>> scale = torch.tensor([1.0, 50.0])
    >>> under, over = (double_poisson(torch.tensor(1.0), torch.tensor(gamma), scale) for gamma in (4.0, 0.5))
    >>> under.mu, under.gamma, (1 / over.gamma).round(decimals=3)
    (tensor([ 1.0000, 50.0000]), tensor([4., 4.]), tensor([ 2., 51.]))
    """
    log_mu, log_gamma = mu.log(), gamma.log()
    if scale is not None:
        scale = scale.to(mu.dtype)
        log_mu = log_mu + scale.log()
        over = -torch.log1p(scale * torch.expm1(-log_gamma.clamp(max=0.0)))
        log_gamma = torch.where(log_gamma < 0.0, over, log_gamma)
    log_mu = bend(log_mu, *LOG_MU)
    log_gamma = bend(log_gamma, LOG_GAMMA[0], highest_log_gamma(log_mu))
    return DoublePoisson(log_mu.exp(), log_gamma.exp())
