"""The Poisson head: one raw output, the logarithm of the mean."""

from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import Poisson
from ddpn.networks.heads.clamps import LOG_MU, log_mean, unbend
from ddpn.networks.heads.head import Head, promoted
from ddpn.networks.heads.start import Rows


class PoissonHead(Head):
    """Poisson: equi-dispersed counts, variance mu.

    raw = (log mu).

    >>> import torch
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

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """log of sum w y / sum w exposure."""
        rows = Rows(y, weight, exposure)
        return unbend((rows.mean(rows.y) / rows.mean(rows.scale)).log(), *LOG_MU).reshape(1)
