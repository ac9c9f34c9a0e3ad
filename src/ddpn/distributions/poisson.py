"""The Poisson distribution, with the methods that torch's own lacks."""

import torch
from torch import Tensor
from torch.distributions import constraints, register_kl

from ddpn.distributions.arguments import as_parameters, broadcast_shapes, check_positive, is_checked
from ddpn.distributions.double_poisson.distribution import DoublePoisson, kl_divergence
from ddpn.distributions.double_poisson.rows import DoublePoissonRows
from ddpn.distributions.double_poisson.weights import deviance, log_h_of_count
from ddpn.distributions.parametric import ParametricDistribution


def _rows(mu: Tensor) -> DoublePoissonRows:
    return DoublePoissonRows(mu, torch.ones_like(mu))


class Poisson(ParametricDistribution):
    """The Poisson distribution with mean mu.

    It is the Double Poisson with gamma = 1, whose algorithms serve all but the closed forms.

    Parameters
    ----------
    mu : Tensor or float
        Mean, positive.
    validate_args : bool, optional
        Whether values are checked. Default: only on a CPU.

    Examples
    --------
    >>> Poisson(3.0).cdf(torch.tensor(2.0))
    tensor(0.4232)
    """

    arg_constraints = {"mu": constraints.positive}
    _names = ("mu",)
    _rows = _rows

    def __init__(self, mu: Tensor | float, validate_args: bool | None = None) -> None:
        (self.mu,) = as_parameters(mu=mu)
        if is_checked(validate_args, self.mu):
            check_positive("mu", self.mu, "Emit its logarithm and exponentiate, or clamp it.")
        super().__init__(self.mu.shape, validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(y), differentiable."""
        y = self._counts(value).double()
        broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        return (log_h_of_count(y) - deviance(y, self.mu.double())).to(self._dtype)

    def _with_gradients(self, shape: torch.Size) -> DoublePoissonRows:
        mu = self.mu.expand(shape).reshape(-1).double()
        return DoublePoissonRows(mu, torch.ones_like(mu), known=(torch.zeros_like(mu), mu))

    @property
    def mean(self) -> Tensor:
        """The parameter mu."""
        return self.mu

    @property
    def variance(self) -> Tensor:
        """The parameter mu."""
        return self.mu

    @property
    def mode(self) -> Tensor:
        """The largest count below mu; the smaller of two where mu is an integer."""
        return (self.mu.ceil() - 1.0).clamp(min=0.0)


for _pair in ((DoublePoisson, Poisson), (Poisson, DoublePoisson), (Poisson, Poisson)):
    register_kl(*_pair)(kl_divergence)
