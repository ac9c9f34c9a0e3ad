"""The Gaussian head, and the variants of Stirn et al. (2023) and Immer et al. (2023).

Counts are not Gaussian, so these heads are baselines. If there are exposures, y / exposure is Gaussian: the exposure
multiplies both the mean and the standard deviation.
"""

import torch
from torch import Tensor
from torch.distributions import Normal, constraints

from ddpn.networks.heads.clamps import LOG_VARIANCE, bend
from ddpn.networks.heads.constant_fit import WeightedCounts
from ddpn.networks.heads.head import Head, check_beta, promote_precision
from ddpn.rows.count_rows import CountRows


class GaussianHead(Head):
    """A Gaussian baseline, which predicts the mean and the variance of the counts.

    Raw outputs: (mean, log variance). The loss is the negative log-likelihood times variance^beta, which is treated as
    a constant in the gradient (Seitzer et al., 2022).

    Parameters
    ----------
    beta : float
        A number from 0 to 1. With 0, the loss is the negative log-likelihood. With 1, the variance does not influence
        the fit of the mean.

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
        """Convert raw outputs to the mean and the log variance of a row with an exposure of 1.

        Shape: (..., 2) -> two tensors (...).
        """
        raw = promote_precision(raw)
        return raw[..., 0], bend(raw[..., 1], *LOG_VARIANCE)

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> Normal:
        """Create a Normal with the mean and standard deviation from `links`, both multiplied by the exposure."""
        mean, log_variance = self.links(raw)
        scale = (0.5 * log_variance).exp()
        if exposure is not None:
            exposure = exposure.to(mean.dtype)
            mean, scale = mean * exposure, scale * exposure
        return Normal(mean, scale, validate_args=False)

    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """Compute -log p(y) times variance^beta for each row (see `Head.loss` for the arguments).

        `variance` is that at an exposure of 1. No gradient flows through the factor variance^beta.
        """
        value = super().loss(raw, y, exposure)
        return value * (self.beta * self.links(raw)[1].detach()).exp() if self.beta else value

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Return the raw outputs of an intercept-only fit: the weighted mean and the log variance of y / exposure.

        The variance is at least e^-14. See `Head.start` for the arguments.
        """
        rows = WeightedCounts(CountRows(None, y, weight, exposure))
        rate = rows.y / rows.scale
        mean = rows.mean(rate)
        return torch.stack([mean, rows.mean((rate - mean).square()).log().clamp(*LOG_VARIANCE)])


class FaithfulGaussianHead(GaussianHead):
    """A Gaussian baseline whose mean is fitted by squared error (Stirn et al., 2023).

    Raw outputs: (mean, log variance). The variance is fitted by maximum likelihood around the mean, but does not
    influence the mean: in the likelihood, the mean is treated as a constant, and gradients of the variance are not
    passed to the backbone. The backbone therefore learns from squared error only. Because this is not the likelihood of
    a single model, there is no corresponding GLM.

    >>> FaithfulGaussianHead().projection_inputs
    ('features', 'detached')
    """

    name = "faithful_gaussian"
    has_glm = False

    def __init__(self) -> None:
        super().__init__()

    @property
    def projection_inputs(self) -> tuple[str, ...]:
        """The inputs of the two raw outputs: features for the mean, and detached features for the log variance.

        Detached features pass no gradient to the backbone.
        """
        return ("features", "detached")

    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """Compute (y / exposure - mean)^2 / 2 - log p(y) for each row, where p treats the mean as a constant.

        See `Head.loss` for the arguments.
        """
        mean, log_variance = promote_precision(raw).unbind(-1)
        rate = y if exposure is None else y / exposure
        fixed = torch.stack([mean.detach(), log_variance], dim=-1)
        return 0.5 * (rate.to(mean.dtype) - mean).square() + super().loss(fixed, y, exposure)


class NaturalGaussianHead(GaussianHead):
    """A Gaussian baseline in natural parameters (Immer et al., 2023).

    Raw outputs: (eta1, log precision). The natural parameters are eta1 = mean / variance and eta2 = -precision / 2. The
    negative log-likelihood is convex in them.

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
        """Convert raw outputs to the mean and the log variance of a row with an exposure of 1.

        The mean is eta1 / precision, and the log variance is -log precision. Shape: (..., 2) -> two tensors (...).
        """
        raw = promote_precision(raw)
        log_variance = bend(-raw[..., 1], *LOG_VARIANCE)
        return raw[..., 0] * log_variance.exp(), log_variance

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Return the raw outputs of an intercept-only fit, from the weighted mean and variance of y / exposure."""
        mean, log_variance = super().start(y, weight, exposure)
        return torch.stack([mean * (-log_variance).exp(), -log_variance])
