"""Likelihoods with a mean and at most one dispersion.

These are the Poisson and the Negative Binomial and, for comparison, the Generalised and the Conway-Maxwell-Poisson.
"""

import math
from typing import Any, ClassVar

from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import ConwayMaxwellPoisson, GeneralizedPoisson, NegativeBinomial, Poisson
from ddpn.networks.heads.clamps import LOG_ALPHA, LOG_MU, bend, log_mean, unbend
from ddpn.networks.heads.constant_fit import WeightedCounts
from ddpn.networks.heads.head import Head, promote_precision
from ddpn.rows.count_rows import CountRows

#: log of the dispersion alpha of a Generalised Poisson. At the lower bound it is a Poisson; at the upper bound its
#: standard deviation is 1,000 times that of a Poisson.
LOG_DISPERSION = (-16.0, 7.0)
#: log nu of a Conway-Maxwell-Poisson: from 1/400 to 100.
LOG_NU = (-6.0, math.log(100.0))
#: nu is at most 4 mu, or 4 if mu is below 1. Including the bend beyond the bound, nu stays below 20 mu, above which no
#: rate has exactly this mean.
_LOG_MAX_NU_RATIO = math.log(4.0)


class PoissonHead(Head):
    """The Poisson likelihood: equi-dispersed counts, variance mu.

    Raw outputs: (log mu,).

    >>> import torch
    >>> PoissonHead()(torch.tensor([1.0])).mean
    tensor(2.7183)
    """

    name = "poisson"
    is_baseline = True
    n_raw = 1
    support = constraints.nonnegative_integer
    parameter_names = ("log mu",)
    location_is_mean = True

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> Poisson:
        """Create a Poisson with mean exposure * e^raw, where raw is smoothly bounded."""
        return Poisson(log_mean(promote_precision(raw)[..., 0], exposure).exp(), validate_args=False)

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Return the maximum likelihood estimate, log(weighted sum of counts / weighted sum of exposures).

        Shape: (1,), as there is one raw output. See `Head.start` for the arguments.
        """
        rows = WeightedCounts(CountRows(None, y, weight, exposure))
        return unbend((rows.mean(rows.y) / rows.mean(rows.scale)).log(), *LOG_MU).reshape(1)


class RateHead(Head):
    """The base class of likelihoods with a mean and a dispersion.

    Raw outputs: (log mu, log dispersion). A subclass sets `distribution`, the class of the distribution, whose
    arguments are the mean and the dispersion, and `log_range`, the bounds of the log dispersion.
    """

    n_raw = 2
    support = constraints.nonnegative_integer
    dispersion_outputs = (1,)
    location_is_mean = True
    distribution: ClassVar[Any]
    log_range: ClassVar[tuple[float, float]]

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> Any:
        """Create the distribution with mean exposure * e^raw[0] and dispersion e^raw[1], both smoothly bounded."""
        first, second = promote_precision(raw).unbind(-1)
        log_mu = log_mean(first, exposure)
        return self.distribution(log_mu.exp(), self.log_dispersion(second, log_mu).exp(), validate_args=False)

    def log_dispersion(self, raw: Tensor, log_mu: Tensor) -> Tensor:
        """Compute the log dispersion of each row: its second raw output `raw`, smoothly bounded.

        `log_mu` is the log mean of each row. The bounds of some likelihoods depend on it. `raw`, `log_mu` and the
        result have the same shape.
        """
        return bend(raw, *self.log_range)


class NegativeBinomialHead(RateHead):
    """The Negative Binomial likelihood: over-dispersed counts, variance mu + alpha mu^2.

    Raw outputs: (log mu, log alpha).

    >>> import torch
    >>> NegativeBinomialHead()(torch.tensor([2.0, 0.0])).variance
    tensor(61.9872)
    """

    name = "negative_binomial"
    is_baseline = True
    parameter_names = ("log mu", "log alpha")
    distribution = NegativeBinomial
    log_range = LOG_ALPHA


class GeneralizedPoissonHead(RateHead):
    """The Generalised Poisson likelihood: over-dispersed counts, variance mu (1 + alpha)^2.

    Raw outputs: (log mu, log alpha). It serves for comparison with the Negative Binomial, whose tail is lighter.

    >>> import torch
    >>> GeneralizedPoissonHead()(torch.tensor([2.0, 0.0])).variance
    tensor(29.5562)
    """

    name = "generalized_poisson"
    parameter_names = ("log mu", "log alpha")
    distribution = GeneralizedPoisson
    log_range = LOG_DISPERSION


class ConwayMaxwellPoissonHead(RateHead):
    """The Conway-Maxwell-Poisson likelihood: over-, equi- and under-dispersed counts with mean mu.

    Raw outputs: (log mu, log nu). The variance is about mu / nu, and at most mu (1 + mu). The parametrisation is that
    of Huang (2017), and of the families in glmmTMB and brms. It serves for comparison with the Double Poisson, which
    trains several times as fast and has no bound on its variance.

    >>> import torch
    >>> ConwayMaxwellPoissonHead()(torch.tensor([2.0, 0.0])).mean
    tensor(7.3891)
    """

    name = "conway_maxwell_poisson"
    parameter_names = ("log mu", "log nu")
    distribution = ConwayMaxwellPoisson

    def log_dispersion(self, raw: Tensor, log_mu: Tensor) -> Tensor:
        """Compute log nu of each row: its second raw output `raw`, smoothly bounded.

        The upper bound depends on the log mean of the row, `log_mu`. `raw`, `log_mu` and the result have the same
        shape.
        """
        return bend(raw, LOG_NU[0], log_mu.clamp(0.0, LOG_NU[1] - _LOG_MAX_NU_RATIO) + _LOG_MAX_NU_RATIO)
