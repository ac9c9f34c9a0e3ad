"""Proper scores of distributions and errors of point predictions; smaller is better."""

from collections.abc import Callable

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Normal

from ddpn.distributions.continuous import normal_crps
from ddpn.metrics.predictive import (
    Predicted,
    Supported,
    quantile,
    require_supported,
    unwrap,
    validate_observations,
    validate_prediction,
)
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_choice

_STATISTICS: dict[str, Callable[[Supported], Tensor]] = {
    "mean": lambda dist: dist.mean,
    "median": lambda dist: quantile(dist, 0.5),
    "mode": lambda dist: dist.mode,
}


def crps(dist: Predicted, y: ArrayLike) -> Tensor:
    """Compute the continuous ranked probability score (Appendix B.2 of the paper).

    It is the integral of (F(z) - 1[z >= y])^2 over z, with the cdf F.

    Parameters
    ----------
    dist : Distribution
        Predicted distributions, one per row: the result of `predict_distribution`, or a Normal of torch.
    y : array-like
        Observed counts: a tensor, an array, a list, or a column of pandas or polars. Broadcasts with
        `dist.batch_shape`.

    Returns
    -------
    Tensor
        One score per row, in units of y; smaller is better.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> crps(Poisson(torch.tensor([2.0, 3.0])), torch.tensor([2, 5]))
    tensor([0.3112, 1.3131])
    """
    dist, y = validate_prediction(dist, y)
    return normal_crps(dist.loc, dist.scale, y) if isinstance(dist, Normal) else dist.crps(y)


def nll(dist: Predicted, y: ArrayLike) -> Tensor:
    """Compute the negative log-likelihood, -log p(y). All distributions of torch are supported.

    Parameters
    ----------
    dist : Distribution
        Predicted distributions, one per row, see `crps`.
    y : array-like
        Observed counts.

    Returns
    -------
    Tensor
        One score per row, in nats; smaller is better.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> nll(Poisson(2.0), torch.tensor(0))
    tensor(2.)
    """
    dist = unwrap(dist)
    if not isinstance(dist, torch.distributions.Distribution):
        raise InputError(argument="dist", must="be a torch distribution", got=type(dist).__name__)
    return -dist.log_prob(validate_observations(y, dist))


def point(dist: Predicted, statistic: str) -> Tensor:
    """Return a point prediction of each row: the mean, median or mode of its predicted distribution.

    The median of a count distribution is the smallest y with F(y) >= 1/2.

    Parameters
    ----------
    dist : Distribution
        Predicted distributions, one per row, see `crps`.
    statistic : {"mean", "median", "mode"}
        The point prediction.

    Returns
    -------
    Tensor
        Of shape `dist.batch_shape`.

    Examples
    --------
    >>> from ddpn.distributions import NegativeBinomial
    >>> dist = NegativeBinomial(torch.tensor([10.0]), torch.tensor([0.5]))
    >>> [point(dist, statistic).item() for statistic in ("mean", "median", "mode")]
    [10.0, 8.0, 4.0]
    """
    return _STATISTICS[check_choice("statistic", statistic, _STATISTICS)](require_supported(dist))


def absolute_error(dist: Predicted, y: ArrayLike, statistic: str = "median") -> Tensor:
    """Compute the absolute error of a point prediction, |point - y|.

    Its expectation is smallest for the median. Appendix B.2 of the paper uses the mode.

    Parameters
    ----------
    dist : Distribution
        Predicted distributions, one per row, see `crps`.
    y : array-like
        Observed counts.
    statistic : {"mean", "median", "mode"}
        The point prediction.

    Returns
    -------
    Tensor
        One error per row.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> absolute_error(Poisson(torch.tensor([2.0, 3.5])), torch.tensor([5, 3]))
    tensor([3., 0.])
    """
    dist, y = validate_prediction(dist, y)
    return (point(dist, statistic) - y).abs()
