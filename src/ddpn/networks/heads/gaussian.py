"""The Gaussian head, and the variants of Stirn et al. (2023) and Immer et al. (2023).

Counts are not Gaussian: these heads are baselines. With an exposure it is y / exposure that is Gaussian, so mean and
standard deviation both scale.
"""

import torch
from torch import Tensor
from torch.distributions import Normal, constraints

from ddpn.networks.heads.clamps import LOG_VARIANCE, bend
from ddpn.networks.heads.head import Head, WeightedCounts, check_beta, promote_precision
from ddpn.rows.count_rows import CountRows


class GaussianHead(Head):
    """Gaussian baseline: mean and variance of the counts.

    raw = (mean, log variance), trained on -log p times variance^beta without gradient (Seitzer et al., 2022).

    Parameters
    ----------
    beta : float
        In [0, 1]; 0 is the likelihood, at 1 the mean is fitted regardless of the variance.

    Examples
    --------
    >>> GaussianHead(beta=0.5)(torch.tensor([3.0, 0.0])).stddev
    tensor(1.)
    """

    name = "gaussian"
    n_raw = 2
    support = constraints.real
    parameter_names = ("mean", "log variance")
    dispersion_outputs = (1,)
    objective_options = ("beta",)

    def __init__(self, *, beta: float = 0.0) -> None:
        check_beta(beta)
        self.beta = beta

    def links(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log variance at an exposure of 1."""
        raw = promote_precision(raw)
        return raw[..., 0], bend(raw[..., 1], *LOG_VARIANCE)

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> Normal:
        """Make a Normal with `exposure` times the mean and the standard deviation of `links`."""
        mean, log_variance = self.links(raw)
        scale = (0.5 * log_variance).exp()
        if exposure is not None:
            exposure = exposure.to(mean.dtype)
            mean, scale = mean * exposure, scale * exposure
        return Normal(mean, scale, validate_args=False)

    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """Compute -log p(y), times variance^beta."""
        value = super().loss(raw, y, exposure)
        return value * (self.beta * self.links(raw)[1].detach()).exp() if self.beta else value

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Return the weighted mean and log variance of y / exposure; the variance is at least e^-14, as clamped."""
        rows = WeightedCounts(CountRows(None, y, weight, exposure))
        rate = rows.y / rows.scale
        mean = rows.mean(rate)
        return torch.stack([mean, rows.mean((rate - mean).square()).log().clamp(*LOG_VARIANCE)])


class FaithfulGaussianHead(GaussianHead):
    """Gaussian baseline whose mean is fitted by squared error (Stirn et al., 2023).

    raw = (mean, log variance): squared error for the mean, the likelihood for the variance around it. Neither disturbs
    the other: the variance's loss takes the mean as given, and the variance sees features without gradient, so the
    backbone learns from squared error alone. That is no likelihood of both, hence no generalised linear model.

    >>> FaithfulGaussianHead().sees
    ('features', 'detached')
    """

    name = "faithful_gaussian"
    has_glm = False

    def __init__(self) -> None:
        super().__init__()

    @property
    def sees(self) -> tuple[str, ...]:
        """Inputs of the raw outputs: the variance uses the features but sends no gradient back."""
        return ("features", "detached")

    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """Compute (y / exposure - mean)^2 / 2 plus -log p(y) with the mean held fixed."""
        mean, log_variance = promote_precision(raw).unbind(-1)
        rate = y if exposure is None else y / exposure
        fixed = torch.stack([mean.detach(), log_variance], dim=-1)
        return 0.5 * (rate.to(mean.dtype) - mean).square() + super().loss(fixed, y, exposure)


class NaturalGaussianHead(GaussianHead):
    """Gaussian baseline in natural parameters (Immer et al., 2023).

    raw = (eta1, log precision): eta1 = mean / variance, eta2 = -precision / 2. The negative log-likelihood is convex in
    (eta1, eta2).

    >>> dist = NaturalGaussianHead()(torch.tensor([6.0, 0.6931472]))
    >>> dist.mean, dist.variance
    (tensor(3.), tensor(0.5000))
    """

    name = "natural_gaussian"
    parameter_names = ("mean / variance", "log precision")
    location_note = "Coefficients are those of the mean divided by the variance."

    def __init__(self) -> None:
        super().__init__()

    def links(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log variance at an exposure of 1: eta1 / precision and -log precision."""
        raw = promote_precision(raw)
        log_variance = bend(-raw[..., 1], *LOG_VARIANCE)
        return raw[..., 0] * log_variance.exp(), log_variance

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Return the weighted mean and variance of y / exposure as natural parameters."""
        mean, log_variance = super().start(y, weight, exposure)
        return torch.stack([mean * (-log_variance).exp(), -log_variance])
