"""The Double Poisson as an output of torch models of GluonTS. Only this file imports gluonts."""

from typing import Any, ClassVar

from torch import Tensor

from ddpn.distributions import DoublePoisson
from ddpn.forecasting.links import double_poisson, inverse_dispersion, location
from ddpn.runtime.extras import base_class

_Output: Any = base_class("gluonts.torch.distributions", "DistributionOutput", "gluonts")


class DoublePoissonOutput(_Output):
    """A Double Poisson per time step, for the `distr_output` of GluonTS's torch estimators.

    The network has two raw outputs per step: mu = softplus(raw 0) and gamma = e^(raw 1). GluonTS divides each series by
    its scale before the network sees it. Samples are integers nevertheless, because the scale changes the parameters:
    the mean is multiplied by the scale. Under-dispersion (gamma > 1) keeps variance / mean. For over-dispersion, the
    excess of the variance over the mean is multiplied by scale^2, as in GluonTS's Negative Binomial;
    `ddpn.forecasting.links.double_poisson` gives the reasons. Quantiles and means of `SimpleFeedForwardEstimator`,
    which predicts distributions instead of samples, are exact.

    `beta` is as in GluonTS: the loss is multiplied by variance^beta, which counts as a constant in the gradient. The
    default, 0, is the likelihood.

    Examples
    --------
    >>> import torch
    >>> from ddpn.forecasting import DoublePoissonOutput
    >>> output = DoublePoissonOutput()
    >>> raw = torch.zeros(3, 1), torch.ones(3, 1)  # of three time steps
    >>> dist = output.distribution(output.domain_map(*raw), scale=torch.tensor([10.0]))
    >>> dist.mu, dist.gamma
    (tensor([6.9315, 6.9315, 6.9315]), tensor([2.7183, 2.7183, 2.7183]))
    """

    args_dim: ClassVar[dict[str, int]] = {"mu": 1, "gamma": 1}
    distr_cls: ClassVar[type] = DoublePoisson

    @classmethod
    def domain_map(cls, mu: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
        """Convert raw outputs to mu and gamma.

        Parameters
        ----------
        mu, gamma : Tensor, shape (..., 1)
            Raw outputs of the network.
        """
        return location(mu).squeeze(-1), inverse_dispersion(gamma).squeeze(-1)

    def distribution(self, distr_args: Any, loc: Tensor | None = None, scale: Tensor | None = None) -> DoublePoisson:
        """Make the distribution of counts on their original scale.

        Parameters
        ----------
        distr_args : tuple of Tensor
            mu and gamma from `domain_map`. They are not changed.
        loc : Tensor, optional
            Ignored, as in GluonTS's Negative Binomial, because counts cannot be shifted.
        scale : Tensor, optional
            The number by which each series was divided.
        """
        mu, gamma = distr_args
        return double_poisson(mu, gamma, scale)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """One count per time step."""
        return ()
