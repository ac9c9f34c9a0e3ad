"""The Double Poisson as a likelihood for the torch models of darts. Only this module imports darts."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Literal

import numpy as np
from torch import Tensor

from ddpn.distributions import DoublePoisson
from ddpn.forecasting.links import double_poisson, exponential_location, inverse_dispersion, location
from ddpn.runtime.errors import InputError
from ddpn.runtime.extras import base_class
from ddpn.runtime.validation import check_choice

_Likelihood: Any = base_class("darts.utils.likelihood_models.torch", "TorchLikelihood", "darts")


class DoublePoissonType(Enum):
    """The likelihood type that darts requires, as a separate enum because `LikelihoodType` cannot be extended."""

    DoublePoisson = "doublepoisson"


class DoublePoissonLikelihood(_Likelihood):
    """A Double Poisson for each time step and component, to pass as `likelihood` to the torch models of darts.

    The network has two raw outputs per step and component. gamma is e^(second raw output), and mu is a function of the
    first one (`link`). As with other count likelihoods of darts, the target series must hold counts, so do not scale it
    (`Scaler`); you may scale covariates. `predict(..., predict_likelihood_parameters=True)` returns components NAME_mu
    and NAME_gamma.

    Parameters
    ----------
    link : {"log", "softplus"}
        "log" is mu = e^raw and "softplus" is mu = softplus(raw). With "log", a network learns the level of an unscaled
        target in far fewer steps. "softplus", as in other likelihoods of darts, suits models that are linear in the
        target, such as `DLinearModel`.
    prior_mu, prior_gamma : float or sequence of float, optional
        Parameters of a Double Poisson towards which predictions are shrunk, for all components or for each of them.
        Default: no prior.
    prior_strength : float
        The weight of KL(prior, prediction) in the loss. Default: 1.

    Examples
    --------
    >>> import torch
    >>> from ddpn.forecasting import DoublePoissonLikelihood
    >>> likelihood = DoublePoissonLikelihood()
    >>> likelihood.num_parameters, likelihood.component_names(components=["sales"])
    (2, ['sales_mu', 'sales_gamma'])
    >>> raw = torch.zeros(1, 3, 1, 2)  # one sample of three time steps, one component, two parameters
    >>> likelihood.predict_likelihood_parameters(raw)[0, 0]
    tensor([1., 1.])
    """

    def __init__(
        self,
        link: Literal["log", "softplus"] = "log",
        prior_mu: float | Sequence[float] | None = None,
        prior_gamma: float | Sequence[float] | None = None,
        prior_strength: float = 1.0,
    ) -> None:
        check_choice("link", link, ("log", "softplus"))
        for name, prior in (("prior_mu", prior_mu), ("prior_gamma", prior_gamma)):
            if prior is not None and not (np.asarray(prior, dtype=float) > 0.0).all():
                raise InputError(argument=name, must="be positive", got=str(prior))
        self.link, self.prior_mu, self.prior_gamma = link, prior_mu, prior_gamma
        super().__init__(
            likelihood_type=DoublePoissonType.DoublePoisson,
            parameter_names=["mu", "gamma"],
            prior_strength=prior_strength,
        )

    @property
    def _prior_params(self) -> tuple[Any, Any]:
        return self.prior_mu, self.prior_gamma

    def _params_from_output(self, model_output: Tensor) -> tuple[Tensor, Tensor]:
        mu = exponential_location if self.link == "log" else location
        dist = double_poisson(mu(model_output[..., 0]), inverse_dispersion(model_output[..., 1]))
        return dist.mu, dist.gamma

    def _distr_from_params(self, params: tuple[Tensor, ...]) -> DoublePoisson:
        mu, gamma = params
        return DoublePoisson(mu, gamma)

    def sample(self, model_output: Tensor) -> Tensor:
        """Draw one count for each sample, time step and component.

        Parameters
        ----------
        model_output : Tensor, shape (samples, steps, components, 2)
            Raw outputs of the network.
        """
        return self._distr_from_params(self._params_from_output(model_output)).sample()
