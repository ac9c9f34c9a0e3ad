"""The Poisson head: one raw output, the logarithm of the mean."""

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import Poisson
from ddpn.heads import scores
from ddpn.heads.clamps import LOG_MU, log_mean, unbend
from ddpn.heads.derivatives import closed_form
from ddpn.heads.head import Head, promoted
from ddpn.heads.intercept import Rows
from ddpn.heads.scores import Counts


class PoissonHead(Head):
    """Poisson: equi-dispersed counts, variance mu.

    raw = (log mu).

    >>> PoissonHead()(torch.tensor([1.0])).mean
    tensor(2.7183)
    """

    name = "poisson"
    n_raw = 1
    support = constraints.nonnegative_integer
    parameter_names = ("log mu",)

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> Poisson:
        """Poisson(exposure * e^raw)."""
        return Poisson(log_mean(promoted(raw)[..., 0], exposure).exp(), validate_args=False)

    def differentiable_loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """-log p(y) = mu - y log mu + log y!, in float64: for large counts its terms nearly cancel."""
        log_mu, y = log_mean(raw.double()[..., 0], exposure), y.double()
        return (log_mu.exp() - y * log_mu + torch.lgamma(y + 1.0)).to(promoted(raw).dtype)

    def loss_and_gradient(self, raw: Tensor, counts: Counts, exposure: Tensor | None) -> tuple[Tensor, Tensor]:
        """mu - y for log mu."""
        return scores.of_family(scores.poisson, _links, (LOG_MU,), raw, counts, exposure)

    def derivatives(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Exact gradient and expected curvature."""
        return closed_form(self, raw, y, exposure)

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """log of sum w y / sum w exposure."""
        rows = Rows(y, weight, exposure)
        return unbend((rows.mean(rows.y) / rows.mean(rows.scale)).log(), *LOG_MU).reshape(1)


def _links(raw: Tensor, exposure: Tensor | None) -> tuple[Tensor]:
    return (log_mean(raw[..., 0], exposure),)
