"""The Generalised Poisson head: logarithms of the mean and of the dispersion."""

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import GeneralizedPoisson
from ddpn.networks.heads.clamps import LOG_MU, bend, log_mean
from ddpn.networks.heads.head import Head, promoted
from ddpn.networks.heads.start import Rows
from ddpn.runtime.validation import check_number

#: log of the dispersion alpha mu^(power - 1): below, it is a Poisson; above, the standard deviation is 1,000 times that
#: of a Poisson.
LOG_DISPERSION = (-16.0, 7.0)


class GeneralizedPoissonHead(Head):
    """Generalised Poisson: over-dispersed counts, variance mu (1 + alpha)^2.

    raw = (log mu, log alpha). A comparison for the Negative Binomial, with a heavier tail.

    Parameters
    ----------
    power : {1, 2}
        2 has the variance mu (1 + alpha mu)^2, as p = 2 (GP-2) in statsmodels.

    Examples
    --------
    >>> GeneralizedPoissonHead()(torch.tensor([2.0, 0.0])).variance
    tensor(29.5562)
    """

    name = "generalized_poisson"
    n_raw = 2
    support = constraints.nonnegative_integer
    parameter_names = ("log mu", "log alpha")
    is_baseline = False

    def __init__(self, *, power: int = 1) -> None:
        check_number("power", power, "1 or 2", power in (1, 2))
        self.power = power

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> GeneralizedPoisson:
        """GeneralizedPoisson(exposure * e^raw0, e^raw1), for power 2 with e^raw1 times the mean."""
        raw = promoted(raw)
        log_mu = log_mean(raw[..., 0], exposure)
        log_alpha = raw[..., 1] if self.power == 1 else raw[..., 1] + log_mu
        return GeneralizedPoisson(log_mu.exp(), bend(log_alpha, *LOG_DISPERSION).exp(), validate_args=False)

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Maximum likelihood, searched from the moments; alpha near its lower bound where y is under-dispersed."""
        rows = Rows(y, weight, exposure)
        mean, scale = rows.mean(rows.y), rows.mean(rows.scale)
        ratio = rows.mean((rows.y - rows.scale * mean / scale).square()) / mean
        alpha = (ratio.sqrt() - 1.0).clamp(min=1e-2) / (1.0 if self.power == 1 else mean)
        guess = torch.stack([mean / scale, alpha]).log().nan_to_num(-2.0, 9.0, -2.0)
        reach = 0.0 if self.power == 1 else 16.0
        bounds = ((LOG_MU[0] - 1.0, LOG_MU[1] + 1.0), (LOG_DISPERSION[0] - reach, LOG_DISPERSION[1] + reach))
        return self.most_likely(rows, guess, bounds)
