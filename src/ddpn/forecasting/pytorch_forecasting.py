"""The Double Poisson as a loss of PyTorch Forecasting. Only this module imports pytorch_forecasting."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from ddpn.distributions import DoublePoisson
from ddpn.forecasting.links import double_poisson, exponential_location, inverse_dispersion, location
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.extras import base_class

_Loss: Any = base_class("pytorch_forecasting.metrics", "DistributionLoss", "pytorch-forecasting")


class DoublePoissonDistributionLoss(_Loss):
    """A Double Poisson for each time step, to pass as `loss` to the networks of PyTorch Forecasting.

    The network has two raw outputs per step. mu is scale * softplus(first raw output), and gamma is computed from
    e^(second raw output), where the scale is that of the target normaliser. If e^(second raw output) > 1
    (under-dispersion), gamma equals it and does not depend on the scale. If it is < 1 (over-dispersion), the excess of
    the variance over the mean is multiplied by scale^2. `ddpn.forecasting.links.double_poisson` gives the reasons. If
    the normaliser has the transformation "log1p", mu is instead e^(scale * first raw output), and gamma is not scaled.

    As with the library's Negative Binomial, the normaliser must not be centred (`GroupNormalizer(center=False)`), and
    its transformation must not be "log" or "logit".

    Quantiles are exact. The arguments are those of all distribution losses: `name`, `quantiles` and `reduction`.
    """

    distribution_class: ClassVar[type] = DoublePoisson
    distribution_arguments: ClassVar[list[str]] = ["mu", "gamma"]

    def map_x_to_distribution(self, x: Tensor) -> DoublePoisson:
        """Make the distributions of all time steps from mu and gamma.

        Parameters
        ----------
        x : Tensor, shape (series, steps, 2)
            mu and gamma from `rescale_parameters`.
        """
        return DoublePoisson(x[..., 0], x[..., 1])

    def rescale_parameters(self, parameters: Tensor, target_scale: Tensor, encoder: Any) -> Tensor:
        """Convert raw outputs to mu and gamma, on the original scale of the target.

        Parameters
        ----------
        parameters : Tensor, shape (series, steps, 2)
            Raw outputs of the network.
        target_scale : Tensor, shape (series, 2)
            Centre and scale of each series. Only the scale is used.
        encoder : TorchNormalizer
            The normaliser of the target.

        Raises
        ------
        ConfigError
            If the normaliser is centred or takes logarithms or logits of the target.
        """
        name, transformation = type(encoder).__name__, encoder.transformation
        if encoder.center:
            raise ConfigError(f"target_normalizer must not be centred for counts, got {name}(center=True).")
        if transformation in ("log", "logit"):
            must = 'not have the transformation "log" or "logit" for counts'
            raise ConfigError(f'target_normalizer must {must}, got {name}(transformation="{transformation}").')
        scale = target_scale[..., 1].unsqueeze(-1)
        gamma = inverse_dispersion(parameters[..., 1])
        if transformation == "log1p":
            dist = double_poisson(exponential_location(parameters[..., 0] * scale), gamma)
        else:
            dist = double_poisson(location(parameters[..., 0]), gamma, scale)
        return torch.stack([dist.mu, dist.gamma], dim=-1)
