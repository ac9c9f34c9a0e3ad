"""The Double Poisson as an output distribution for the torch models of GluonTS. Only this module imports gluonts."""

from typing import Any, ClassVar

from torch import Tensor

from ddpn.distributions import DoublePoisson
from ddpn.forecasting.links import double_poisson, inverse_dispersion, location
from ddpn.runtime.extras import base_class

_Output: Any = base_class("gluonts.torch.distributions", "DistributionOutput", "gluonts")


class DoublePoissonOutput(_Output):
    """A Double Poisson for each time step, to pass as `distr_output` to the torch estimators of GluonTS.

    The network has two raw outputs per step: mu is softplus(first raw output), and gamma is e^(second raw output).

    GluonTS divides each series by its scale before the network sees it. Samples are nevertheless integers, because the
    scale is applied to the parameters and not to the samples. The mean is multiplied by the scale. If gamma > 1
    (under-dispersion), variance / mean does not change. If gamma < 1 (over-dispersion), the excess of the variance over
    the mean is multiplied by scale^2, as in GluonTS's Negative Binomial. `ddpn.forecasting.links.double_poisson` gives
    the reasons.

    `SimpleFeedForwardEstimator` predicts distributions instead of samples; its quantiles and means are exact.

    The argument `beta` is GluonTS's: the loss is multiplied by variance^beta, without a gradient through this factor.
    With the default, 0, the loss is the negative log-likelihood.

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
        """Convert raw outputs to mu and gamma, which are positive.

        Parameters
        ----------
        mu, gamma : Tensor, shape (..., 1)
            Raw outputs of the network.
        """
        return location(mu).squeeze(-1), inverse_dispersion(gamma).squeeze(-1)

    def distribution(self, distr_args: Any, loc: Tensor | None = None, scale: Tensor | None = None) -> DoublePoisson:
        """Make the distributions of the counts on their original scale.

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
        """The shape of an observation: (), because it is a single count."""
        return ()
