"""Proper scores: f(dist, y) -> one value per row; smaller is better."""

from collections.abc import Callable
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from ddpn.distributions import CountDistribution, Mixture, discretized
from ddpn.distributions.normal import normal_crps
from ddpn.errors import InputError
from ddpn.metrics.predictive import known, observed

Score = Callable[[Any, Tensor], Tensor]


@singledispatch
def _crps(dist: Any, y: Tensor) -> Tensor:
    name = type(dist).__name__
    raise InputError(f"dist must be a distribution with a registered CRPS, got {name}. Use @register_crps({name}).")


@_crps.register(CountDistribution)
@_crps.register(Mixture)
def _own_crps(dist: Any, y: Tensor) -> Tensor:
    return dist.crps(y)


@_crps.register(Normal)
def _normal_crps(dist: Normal, y: Tensor) -> Tensor:
    return normal_crps(dist.loc, dist.scale, y)


def register_crps(kind: type) -> Callable[[Score], Score]:
    """Register the CRPS of another distribution: decorates a function (dist, y) -> one value per row.

    >>> from torch.distributions import Laplace
    >>> @register_crps(Laplace)
    ... def laplace_crps(dist, y):
    ...     z = (y - dist.loc).abs() / dist.scale
    ...     return dist.scale * (z + torch.exp(-z) - 0.75)
    >>> crps(Laplace(0.0, 1.0), torch.tensor(0.0))
    tensor(0.2500)
    """
    return _crps.register(kind)


def crps(dist: Distribution, y: Tensor) -> Tensor:
    """Continuous ranked probability score (Appendix B.2): the integral of (F(z) - 1[z >= y])^2.

    Shape: y broadcasts with dist.batch_shape.

    >>> from ddpn.distributions import Poisson
    >>> crps(Poisson(torch.tensor([2.0, 3.0])), torch.tensor([2, 5]))
    tensor([0.3112, 1.3131])
    """
    return _crps(dist, observed(y, dist) if isinstance(dist, Distribution) else y)


def nll(dist: Distribution, y: Tensor) -> Tensor:
    """Negative log-likelihood, -log p(y), for any torch distribution.

    Shape: y broadcasts with dist.batch_shape.

    >>> from ddpn.distributions import Poisson
    >>> nll(Poisson(2.0), torch.tensor(0))
    tensor(2.)
    """
    if not isinstance(dist, Distribution):
        raise InputError(f"dist must be a torch distribution, got {type(dist).__name__}.")
    return -dist.log_prob(observed(y, dist))


def ranked_probability(dist: Distribution, y: Tensor) -> Tensor:
    """Ranked probability score: the sum over k = 0, 1, 2, ... of (F(k) - 1[y <= k])^2.

    The `crps` of a count distribution. Normals and their mixtures are scored as the counts they round to
    (`discretized`), so that all distributions are compared on the same integers.

    Shape: y broadcasts with dist.batch_shape.

    >>> ranked_probability(Normal(torch.tensor([2.0, 3.0]), 1.5), torch.tensor([2, 5]))
    tensor([0.3257, 1.2718])
    """
    return discretized(dist).crps(observed(y, dist))


def dawid_sebastiani(dist: Distribution, y: Tensor) -> Tensor:
    """Dawid and Sebastiani's score, (y - mean)^2 / variance + log variance: uses the first two moments only.

    Shape: y broadcasts with dist.batch_shape.

    >>> from ddpn.distributions import Poisson
    >>> dawid_sebastiani(Poisson(torch.tensor([2.0, 3.0])), torch.tensor([2, 5]))
    tensor([0.6931, 2.4319])
    """
    y = observed(y, known(dist))
    mean, variance = dist.mean, dist.variance
    # If all mass is on one count, the score is very low there and very high elsewhere, but never NaN.
    variance = variance.clamp(min=torch.finfo(variance.dtype).tiny)
    return (y - mean).square() / variance + variance.log()
