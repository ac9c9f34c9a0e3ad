"""Point predictions of a distribution, and their errors: each error has its own best point."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.distributions import Distribution

from ddpn.metrics.predictive import known, observed, quantile
from ddpn.validation import check_choice

_STATISTICS: dict[str, Callable[[Any], Tensor]] = {
    "mean": lambda dist: dist.mean,
    "median": lambda dist: quantile(dist, 0.5),
    "mode": lambda dist: dist.mode,
}


def point(dist: Distribution, statistic: str) -> Tensor:
    """The mean, median or mode of each row. The median of a count distribution is the smallest y with F(y) >= 1/2.

    Shape: dist.batch_shape.

    >>> import torch
    >>> from ddpn.distributions import NegativeBinomial
    >>> dist = NegativeBinomial(torch.tensor([10.0]), torch.tensor([0.5]))
    >>> [point(dist, statistic).item() for statistic in ("mean", "median", "mode")]
    [10.0, 8.0, 4.0]
    """
    return _STATISTICS[check_choice("statistic", statistic, _STATISTICS)](known(dist))


def absolute_error(dist: Distribution, y: Tensor, statistic: str = "median") -> Tensor:
    """|point - y|, whose mean is smallest for the median (Appendix B.2 takes the mode).

    Shape: y broadcasts with dist.batch_shape.

    >>> import torch
    >>> from ddpn.distributions import Poisson
    >>> absolute_error(Poisson(torch.tensor([2.0, 3.5])), torch.tensor([5, 3]))
    tensor([3., 0.])
    """
    return (point(dist, statistic) - observed(y, dist)).abs()


def squared_error(dist: Distribution, y: Tensor, statistic: str = "mean") -> Tensor:
    """(point - y)^2, whose mean is smallest for the mean.

    Shape: y broadcasts with dist.batch_shape.

    >>> import torch
    >>> from ddpn.distributions import Poisson
    >>> squared_error(Poisson(torch.tensor([2.0, 3.5])), torch.tensor([5, 3]))
    tensor([9.0000, 0.2500])
    """
    return (point(dist, statistic) - observed(y, dist)).square()
