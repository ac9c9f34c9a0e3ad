"""The Double Poisson as a distribution of Pyro. The only file that imports pyro."""

from typing import Any

from ddpn.distributions import DoublePoisson as TorchDoublePoisson
from ddpn.forecasting.libraries import base_class

_Mixin: Any = base_class("pyro.distributions.torch_distribution", "TorchDistributionMixin", "pyro")


class DoublePoisson(TorchDoublePoisson, _Mixin):
    """`ddpn.DoublePoisson` for `pyro.sample`: plates, `mask`, `to_event` and inference work as for other distributions.

    Counts are not reparameterised and have no finite support: as observations they suit every algorithm; as latent
    variables they need score-function gradients, and cannot be enumerated.

    Parameters
    ----------
    mu : Tensor or float
        Location, positive.
    gamma : Tensor or float
        Inverse dispersion, positive.
    validate_args : bool, optional
        Whether values are checked. Default: only on a CPU.

    Examples
    --------
    >>> import pyro
    >>> import torch
    >>> from ddpn.forecasting.pyro import DoublePoisson
    >>> def model(y):
    ...     mu = pyro.sample("mu", pyro.distributions.LogNormal(1.0, 1.0))
    ...     gamma = pyro.sample("gamma", pyro.distributions.LogNormal(0.0, 1.0))
    ...     with pyro.plate("rows", len(y)):
    ...         pyro.sample("y", DoublePoisson(mu, gamma), obs=y)
    >>> trace = pyro.poutine.trace(model).get_trace(torch.tensor([4.0, 5.0, 5.0]))
    >>> trace.nodes["y"]["fn"].batch_shape
    torch.Size([3])
    """
