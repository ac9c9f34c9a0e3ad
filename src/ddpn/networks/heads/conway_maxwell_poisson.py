"""The Conway-Maxwell-Poisson head: logarithms of the mean and of the inverse dispersion."""

import math

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import ConwayMaxwellPoisson
from ddpn.networks.heads.clamps import LOG_MU, bend, log_mean
from ddpn.networks.heads.head import Head, promoted
from ddpn.networks.heads.start import Rows

#: log nu: 1/400 to 100.
LOG_NU = (-6.0, math.log(100.0))
#: nu <= 4 mu, or 4: with what a bound lets through, below the 20 mu from which on the mean fixes no rate.
_LOG_NARROWEST = math.log(4.0)


class ConwayMaxwellPoissonHead(Head):
    """Conway-Maxwell-Poisson: over-, equi- and under-dispersed counts with mean mu.

    raw = (log mu, log nu); the variance is about mu / nu, and never above mu (1 + mu). The parameters are those of
    Huang (2017) and of glmmTMB's and brms's families. A comparison for the Double Poisson, which trains several times
    as fast and has no bound on its variance.

    >>> ConwayMaxwellPoissonHead()(torch.tensor([2.0, 0.0])).mean
    tensor(7.3891)
    """

    name = "conway_maxwell_poisson"
    n_raw = 2
    support = constraints.nonnegative_integer
    parameter_names = ("log mu", "log nu")
    is_baseline = False

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> ConwayMaxwellPoisson:
        """ConwayMaxwellPoisson(exposure * e^raw0, e^raw1)."""
        raw = promoted(raw)
        log_mu = log_mean(raw[..., 0], exposure)
        highest = log_mu.clamp(0.0, LOG_NU[1] - _LOG_NARROWEST) + _LOG_NARROWEST
        nu = bend(raw[..., 1], LOG_NU[0], highest).exp()
        return ConwayMaxwellPoisson(log_mu.exp(), nu, validate_args=False)

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Maximum likelihood, searched from the moments."""
        rows = Rows(y, weight, exposure)
        mean, scale = rows.mean(rows.y), rows.mean(rows.scale)
        spread = rows.mean((rows.y - rows.scale * mean / scale).square())
        guess = torch.stack([mean / scale, mean / spread]).log().nan_to_num(0.0, 0.0, LOG_MU[0])
        # From a wide distribution the search does not end on a plateau.
        guess[1].clamp_(LOG_NU[0], 1.0)
        bounds = [(low - 1.0, high + 1.0) for low, high in (LOG_MU, LOG_NU)]
        return self.most_likely(rows, guess, bounds)
