"""Helpers of the metrics: validation, quantiles and probabilities of predicted distributions, and weighted averages."""

from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Distribution, Normal

from ddpn.distributions import CountDistribution, Mixture
from ddpn.distributions.arguments import broadcast_shapes, check_coverage
from ddpn.distributions.mixture import ContinuousMixture
from ddpn.runtime.errors import InputError


class HasDistribution(Protocol):
    """An object with predicted distributions as the attribute `distribution`, such as a `Prediction`.

    All metrics accept such an object in place of distributions.
    """

    @property
    def distribution(self) -> Distribution:
        """The predicted distributions, one per row."""


#: The first argument of metrics: distributions, or an object that holds them.
Predicted = Distribution | HasDistribution
#: The distributions that all metrics support; `nll` supports others as well.
Supported = CountDistribution | ContinuousMixture | Normal


def unwrap(dist: Predicted) -> Distribution:
    """Return the torch distribution of a `Prediction`. A torch distribution itself is returned unchanged."""
    distributions: Any = getattr(dist, "distribution", dist)
    return distributions


def require_supported(dist: Predicted) -> Supported:
    """Return the predicted distributions `dist` as a torch distribution if all metrics support it.

    Count distributions, Normals and mixtures of these are supported. Raise an `InputError` for other distributions.
    """
    distributions = unwrap(dist)
    if isinstance(distributions, CountDistribution | Mixture | Normal):
        return cast(Supported, distributions)  # a mixture of counts and Normals raises its own errors
    kinds = "a count distribution of ddpn.distributions, a Normal or a Mixture"
    raise InputError(argument="dist", must=f"be {kinds}", got=type(distributions).__name__)


def read_tensor_options(dist: Distribution) -> dict[str, Any]:
    """Return the device and the dtype of a distribution, as keyword arguments for new tensors.

    The dictionary is empty if the distribution has no parameters that are tensors.
    """
    if isinstance(dist, CountDistribution):
        return {"device": dist.device, "dtype": dist.dtype}
    if isinstance(dist, Mixture):
        return {"device": dist.mean.device, "dtype": dist.mean.dtype}
    parameters = (getattr(dist, name, None) for name in getattr(dist, "arg_constraints", ()))
    return next(({"device": p.device, "dtype": p.dtype} for p in parameters if isinstance(p, Tensor)), {})


def validate_prediction(dist: Predicted, y: ArrayLike) -> tuple[Supported, Tensor]:
    """Return the predicted distributions as a torch distribution, and the observed counts as a tensor.

    Raise an `InputError` if metrics do not support the distributions, if a count is not finite, or if shapes do not
    broadcast.
    """
    predicted = require_supported(dist)
    return predicted, validate_observations(y, predicted)


def as_tensor(values: ArrayLike) -> Tensor:
    """Convert an array, a list or a column of a data frame to a tensor. Labels of rows (a pandas index) are dropped."""
    return values if isinstance(values, Tensor) else torch.as_tensor(np.array(values))


def validate_observations(y: ArrayLike, dist: Distribution) -> Tensor:
    """Convert observed counts to a tensor on the device of `dist`.

    Raise an `InputError` if a count is not finite, or if y and `dist.batch_shape` do not broadcast.
    """
    y = as_tensor(y)
    y = y.to(torch.uint8) if y.dtype == torch.bool else y
    if y.device.type == "cpu" and not torch.isfinite(y).all():
        bad = (~torch.isfinite(y)).nonzero()[0].tolist()
        row = bad[0] if len(bad) == 1 else bad
        remedy = "Drop rows without an observation."
        raise InputError(argument="y", must="be finite", got=f"{y[tuple(bad)]}", rows=[row], remedy=remedy)
    try:
        np.broadcast_shapes(y.shape, dist.batch_shape)
    except ValueError:
        shapes = f"y {tuple(y.shape)} and dist {tuple(dist.batch_shape)}"
        raise InputError(f"shapes must broadcast, got {shapes}.") from None
    return y.to(read_tensor_options(dist).get("device", y.device))


def quantile(dist: Distribution, q: float) -> Tensor:
    """Compute the q-quantile of each row's distribution. Shape: `dist.batch_shape`."""
    return dist.icdf(torch.full(dist.batch_shape, q, **read_tensor_options(dist)))


def interval(dist: Supported, coverage: float) -> tuple[Tensor, Tensor]:
    """Compute the central prediction interval of each row with a nominal `coverage`; return its lower and upper ends.

    Both ends are included in the interval.
    """
    if not isinstance(dist, Normal):
        return dist.interval(coverage)
    coverage = check_coverage(coverage)
    return quantile(dist, 0.5 * (1.0 - coverage)), quantile(dist, 0.5 * (1.0 + coverage))


def cdf_limits(dist: Supported, y: Tensor) -> tuple[Tensor, Tensor]:
    """Compute P(Z < y) and P(Z <= y) for each row, the limits of the cdf at y from the left and from the right.

    For continuous distributions they are equal.
    """
    if isinstance(dist, CountDistribution):
        counts = y.double().expand(broadcast_shapes(y=tuple(y.shape), dist=tuple(dist.batch_shape)))
        before, upto = dist.cdf(torch.stack([counts - 1.0, counts]))
        return before, upto
    upper = dist.cdf(y)
    return upper, upper


def interval_probability(dist: Supported, low: Tensor, high: Tensor) -> Tensor:
    """Compute P(low <= Z <= high) for each row, where Z follows the distribution of the row."""
    return cdf_limits(dist, high)[1] - cdf_limits(dist, low)[0]


# Weighted rows: a weight of 2 equals giving the row twice --------------------------------------------------------


def validate_weights(weight: ArrayLike | None, like: Tensor) -> Tensor:
    """Validate row weights, and return them as a flat float64 tensor with one weight per element of `like`.

    If `weight` is None, all weights are 1. `like` is a tensor with one value per row.
    """
    if like.numel() == 0:
        raise InputError(argument="y", must="hold at least one row", got="none")
    if weight is None:
        return torch.ones(like.numel(), dtype=torch.float64, device=like.device)
    weight = as_tensor(weight).to(like.device, torch.float64)
    try:
        weight = weight.expand(like.shape).reshape(-1)
    except RuntimeError:
        shapes = f"shape {tuple(weight.shape)} for {tuple(like.shape)}"
        raise InputError(argument="weight", must="have one entry per row", got=shapes) from None
    if not (torch.isfinite(weight).all() and (weight >= 0).all() and weight.sum() > 0):
        shown = f"min {weight.min().item():g}, sum {weight.sum().item():g}"
        raise InputError(argument="weight", must="be finite, not negative and not all 0", got=shown)
    return weight


def mean(values: Tensor, weight: Tensor) -> Tensor:
    """Compute the weighted mean over the rows in float64. Shape: values (rows, ...), weight (rows,) -> (...)."""
    return torch.tensordot(weight / weight.sum(), values.double(), dims=1)


def median(values: Tensor, weight: Tensor) -> Tensor:
    """Compute the weighted median of `values` (rows,) over the rows in float64.

    If exactly half of the total weight is on the smaller and half on the larger values, the result is the mean of the
    two middle values.
    """
    order = values.double().argsort()
    values, upto = values.double()[order], weight[order].cumsum(0)
    half = 0.5 * upto[-1]
    # Rounded sums of weights such as 0.1 can fall just short of one half.
    low = values[(upto >= half * (1 - 1e-12)).nonzero()[0, 0]]
    high = values[(upto > half * (1 + 1e-12)).nonzero()[0, 0]]
    return torch.where(low == high, low, 0.5 * (low + high))
