"""The Negative Binomial head: logarithms of the mean and of the overdispersion."""

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import NegativeBinomial
from ddpn.networks.heads.clamps import LOG_ALPHA, LOG_MU, bend, log_mean
from ddpn.networks.heads.head import Head, promoted
from ddpn.networks.heads.start import Rows


class NegativeBinomialHead(Head):
    """Negative Binomial: over-dispersed counts, variance mu + alpha mu^2.

    raw = (log mu, log alpha).

    >>> NegativeBinomialHead()(torch.tensor([2.0, 0.0])).variance
    tensor(61.9872)
    """

    name = "negative_binomial"
    n_raw = 2
    support = constraints.nonnegative_integer
    parameter_names = ("log mu", "log alpha")

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> NegativeBinomial:
        """NegativeBinomial(exposure * e^raw0, e^raw1)."""
        first, second = promoted(raw).unbind(-1)
        mu = log_mean(first, exposure).exp()
        return NegativeBinomial(mu, bend(second, *LOG_ALPHA).exp(), validate_args=False)

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Maximum likelihood, searched from the moments; alpha at its lower bound where y is under-dispersed."""
        rows = Rows(y, weight, exposure)
        mean, scale = rows.mean(rows.y), rows.mean(rows.scale)
        excess = rows.mean((rows.y - rows.scale * mean / scale).square()) - mean
        guess = torch.stack([mean / scale, excess / mean.square()]).log().nan_to_num(-2.0, 9.0, -2.0)
        bounds = ((LOG_MU[0] - 1.0, LOG_MU[1] + 1.0), LOG_ALPHA)
        return self.most_likely(rows, guess, bounds)
