"""The Double Binomial distribution of Efron (1986): counts k of a known total n, exactly normalised."""

import math
from math import sqrt
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import rule
from ddpn.distributions.arguments import as_parameters, check_positive, check_totals, is_checked
from ddpn.distributions.family import Family
from ddpn.distributions.gradients import without_gradient
from ddpn.distributions.kernels.placing import DEPTH, JOIN, MARGIN
from ddpn.distributions.kernels.scalar import deviance, log_h
from ddpn.distributions.parametric import ParametricDistribution
from ddpn.runtime.errors import InputError


def log_mass(k, p):
    """log h(k) + log h(n - k) - gamma D(k)."""
    n = p[2]
    rest = max(n - k, 0.0)
    return log_h(k) + log_h(rest) - p[1] * (deviance(k, p[0]) + deviance(rest, n - p[0]))


def score(k, p):
    """Derivatives in mu and gamma."""
    n = p[2]
    rest = max(n - k, 0.0)
    by_mu = p[1] * (k / p[0] - rest / (n - p[0]))
    return by_mu, -(deviance(k, p[0]) + deviance(rest, n - p[0])), 0.0


def shape(p):
    """mu, and the standard deviation where that is not the width of the whole support."""
    n = p[2]
    return p[0], min(sqrt(p[0] * (1.0 - p[0] / n) / p[1]), n) + 0.5, n


class DoubleBinomial(ParametricDistribution):
    r"""Double Binomial: counts 0..total with location mu and inverse dispersion gamma.

    p(k) = h(k) h(n - k) exp(-gamma D(k)) / S, with n the total, h(k) = e^-k k^k / k! and
    D(k) = k log(k / mu) + (n - k) log((n - k) / (n - mu)). This is Efron's (1986)
    C(n, k) [k^k (n - k)^(n - k) / n^n]^(1 - gamma) q^(gamma k) (1 - q)^(gamma (n - k)) with q = mu / n, normalised.

    gamma = 1 is the Binomial, gamma > 1 is under-, gamma < 1 over-dispersed. The mean is close to mu, the variance to
    mu (1 - mu / n) / gamma where that is large; `mean` and `variance` are exact everywhere.

    Shape: total (integers of at least 1), mu (between 0 and the total) and gamma broadcast to `batch_shape`.

    Parameters
    ----------
    total : Tensor or float
        The largest possible count of each row.
    mu : Tensor or float
        Location, strictly between 0 and the total.
    gamma : Tensor or float
        Inverse dispersion, positive.
    validate_args : bool, optional
        Whether values are checked. Default: only on a CPU.

    Examples
    --------
    >>> dist = DoubleBinomial(total=12, mu=9.0, gamma=2.0)
    >>> round(dist.mean.item(), 4), round(dist.variance.item(), 4), dist.interval(0.9)[1].item()
    (8.9922, 1.1174, 11.0)
    >>> dist.log_prob(torch.tensor([12.0, 13.0]))
    tensor([-6.5401,    -inf])
    """

    arg_constraints = {
        "total": constraints.positive_integer,
        "mu": constraints.positive,
        "gamma": constraints.positive,
    }
    family = Family("double_binomial", log_mass, score, shape)
    _names = ("mu", "gamma", "total")

    def __init__(
        self,
        total: Tensor | float,
        mu: Tensor | float,
        gamma: Tensor | float,
        validate_args: bool | None = None,
    ) -> None:
        self.total, self.mu, self.gamma = as_parameters(total=total, mu=mu, gamma=gamma)
        if is_checked(validate_args, self.mu):
            check_totals("total", self.total)
            remedy = "Emit its logarithm and exponentiate, or clamp it."
            check_positive("mu", self.mu, remedy)
            check_positive("gamma", self.gamma, remedy)
            if len(bad := (self.mu >= self.total).nonzero()):
                at = tuple(bad[0].tolist())
                got = f"{self.mu[at].item():g} of {self.total[at].item():g}"
                raise InputError(f"mu must be below the total, got {got} at {at[0] if len(at) == 1 else at}.")
        super().__init__(self.mu.shape, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        """The integers 0..total."""
        return constraints.integer_interval(0, self.total)

    @staticmethod
    def torch_log_prob(y: Tensor, mu: Tensor, gamma: Tensor, total: Tensor) -> Tensor:  # type: ignore[override]
        """By a sum of 84 terms."""
        value = log_weight(torch.minimum(y, total), mu, gamma, total) - _sums(mu, gamma, total)[0]
        return torch.where(y <= total, value, -torch.inf)

    @property
    def mean(self) -> Tensor:
        """Exact mean E[K], differentiable."""
        if torch.is_grad_enabled() and any(x.requires_grad for x in self._parameters()):
            return _sums(*(x.double() for x in self._parameters()))[1].to(self._dtype)
        return self._shaped(self._facts()[1])

    @property
    @without_gradient
    def variance(self) -> Tensor:
        """Exact variance Var[K]."""
        return self._shaped(self._facts()[2])

    def icdf(self, value: Tensor) -> Tensor:
        """The smallest count y with P(K <= y) >= q; the total at q = 1."""
        return torch.minimum(super().icdf(value), self.total)


def _terms(mu: Tensor, gamma: Tensor, n: Tensor) -> rule.Terms:
    """Terms of a sum over the counts 0..n: all of a short window, else counts at both ends joined to nodes between.

    The nodes are even in asin(sqrt(k / n)), in which the distribution has about constant width.
    """
    head, head_weights, nodes, node_weights, _ = rule.constants(mu.device)
    low, high = (x.unsqueeze(-1) for x in _window(mu, gamma, n))
    n, edge = n.unsqueeze(-1), JOIN - 0.5
    size = 2 * len(head) + len(nodes)
    first = (low.floor() - MARGIN).clamp(min=0.0)
    integers = first + torch.arange(float(size), dtype=mu.dtype, device=mu.device)
    is_short = (torch.minimum(high, n) - first < size - MARGIN) | (n < 2.0 * edge + 2.0)
    start, end = torch.maximum(low, low * 0.0 + edge), torch.minimum(high, n - edge)
    phi = [torch.asin((x / n).clamp(0.0, 1.0).sqrt()) for x in (start, torch.maximum(start, end))]
    t = phi[0] + (phi[1] - phi[0]) * nodes
    inner, slope = n * torch.sin(t).square(), 2.0 * n * torch.sin(t) * torch.cos(t)
    y = torch.cat([head.expand(*mu.shape, -1), n - head, inner], dim=-1)
    lower, upper = (low < JOIN) * head_weights, (high > n - JOIN) * head_weights
    weight = torch.cat([lower, upper, (phi[1] - phi[0]) * slope * node_weights], dim=-1)
    counted = (integers <= n).to(mu.dtype)
    return rule.Terms(torch.where(is_short, torch.minimum(integers, n), y), torch.where(is_short, counted, weight))


def _window(mu: Tensor, gamma: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """First and last position with gamma D <= 32, both from outside, within 0..n.

    With phi = asin(sqrt(k / n)), D >= n (phi - phi_mu)^2 (from Hellinger's distance) bounds both ends; D is convex in
    k, so Newton's method from there never passes them.
    """
    phi, target = torch.asin((mu / n).sqrt().clamp(max=1.0)), DEPTH / gamma
    reach = (target / n).sqrt()
    low = n * torch.sin((phi - reach).clamp(min=0.0)).square()
    high = n * torch.sin((phi + reach).clamp(max=0.5 * math.pi)).square()
    for _ in range(3):
        low, high = (
            k - side * (binomial_deviance(k, mu, n) - target).clamp(min=0.0) / _slope(k, mu, n, side)
            for k, side in ((low, -1.0), (high, 1.0))
        )
    return low.clamp(min=0.0), torch.minimum(high, n)


def _slope(k: Tensor, mu: Tensor, n: Tensor, side: float) -> Tensor:
    """The size of dD / dk on a side of mu, infinite at 0 and n."""
    return (side * (torch.log(k / mu) - torch.log((n - k) / (n - mu)))).clamp(min=1e-300)


def _sums(mu: Tensor, gamma: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """log of the sum of all weights, and the mean, differentiable."""
    with torch.no_grad():
        terms = _terms(mu, gamma, total)
    log_w = log_weight(terms.y, mu.unsqueeze(-1), gamma.unsqueeze(-1), total.unsqueeze(-1))
    log_total, share = rule.log_sum(log_w, terms.weight)
    return log_total, (share * terms.y).sum(-1)


def log_weight(k: Tensor, mu: Tensor, gamma: Tensor, n: Tensor) -> Tensor:
    """log h(k) + log h(n - k) - gamma D(k) of tensors."""
    return rule.log_h_of_count(k) + rule.log_h_of_count(n - k) - gamma * binomial_deviance(k, mu, n)


def binomial_deviance(k: Tensor, mu: Tensor, n: Tensor) -> Tensor:
    """D(k) = k log(k / mu) + (n - k) log((n - k) / (n - mu)), with no cancellation where k is close to mu."""
    return rule.deviance(k, mu) + rule.deviance(n - k, n - mu)
