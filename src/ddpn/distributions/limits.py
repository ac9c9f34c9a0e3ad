"""Truncated and right-censored count distributions, and the probability of a range of counts."""

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions import arguments, row_statistics
from ddpn.distributions.arguments import broadcast_shapes, flatten_rows, needs_validation
from ddpn.distributions.components import ComponentStack
from ddpn.distributions.count import CountDistribution
from ddpn.distributions.families.poisson import Poisson
from ddpn.distributions.modified import Modified
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import InputError

Bound = Tensor | float | None
#: A bound or recording limit, for all rows or (as an array) per row.
RowBound = Bound | np.ndarray
Dist = TypeVar("Dist", bound=Distribution)


def log_mass(dist: CountDistribution, low: Bound = 0, high: Bound = None) -> Tensor:
    """Compute log P(low <= Z <= high), with a small relative error in both tails.

    The result is differentiable in the parameters of the distribution.

    Parameters
    ----------
    dist : CountDistribution
        A count distribution or a `Mixture` of count distributions; its `log_prob` must be differentiable if gradients
        are needed.
    low : Tensor or float
        The first count of the range. Default: 0.
    high : Tensor or float, optional
        The last count of the range. None and infinity mean no upper end.

    Returns
    -------
    Tensor
        The broadcast shape of `low`, `high` and `dist.batch_shape`; minus infinity for an empty range.

    Notes
    -----
    The cost is bounded for the families of this package. For other distributions the sum runs over all counts of the
    range within their `bracket`.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> mu = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    >>> censored = log_mass(Poisson(mu), low=5)  # all that is known: at least 5
    >>> censored.backward()
    >>> round(censored.item(), 4), round(mu.grad.item(), 4)
    (-2.944, 1.7135)
    """
    if not isinstance(dist, CountDistribution):
        raise InputError(f"dist must be a count distribution of ddpn.distributions, got {type(dist).__name__}.")
    bounds = as_bounds(dist, low, high)
    broadcast_shapes(low=tuple(bounds[0].shape), high=tuple(bounds[1].shape), batch=tuple(dist.batch_shape))
    return dist._log_mass(*bounds).to(dist.dtype)


def as_bounds(dist: CountDistribution, low: Bound, high: Bound) -> tuple[Tensor, Tensor]:
    """Convert `low` and `high` to float64 tensors on the device of the distribution `dist`.

    If `high` is None, it becomes infinity.
    """
    high = torch.inf if high is None else high
    first, last = (torch.as_tensor(x, dtype=torch.float64, device=dist.device) for x in (low, high))
    return first.detach(), last.detach()


class Truncated(Modified):
    """A count distribution truncated to low <= Z <= high, normalised exactly.

    p(y) = base.p(y) / P(low <= Z <= high) inside of this range, and 0 outside. The range may have a tiny probability
    under `base`, because logarithms of probabilities are used throughout.

    Parameters
    ----------
    base : CountDistribution
        Any count distribution, such as a Poisson or a `Mixture`.
    low : Tensor or float
        The smallest count, or one per row; broadcasts with `base.batch_shape`. Default: 0.
    high : Tensor or float, optional
        The largest count, or one per row. None and infinity mean no upper end.
    validate_args : bool, optional
        Validate values. Default: only on a CPU.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> stays = Truncated(Poisson(1.2), low=1)
    >>> round(stays.mean.item(), 4), round(stays.cdf(torch.tensor(1)).item(), 4)
    (1.7172, 0.5172)
    """

    low: Tensor
    high: Tensor

    def __init__(
        self, base: Distribution, low: Bound = 0, high: Bound = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(base, CountDistribution):
            raise InputError(f"base must be a count distribution of ddpn.distributions, got {type(base).__name__}.")
        first, last = as_bounds(base, low, high)
        if needs_validation(validate_args, first):
            arguments.check_counts("low", first, allow_negative=True)
            arguments.check_counts("high", torch.where(torch.isposinf(last), 0.0, last), allow_negative=True)
            if bool((first > last).any()):
                raise InputError(
                    "low must be at most high, got low > high in some rows. Swap them, or drop these rows."
                )
        shapes = {"low": tuple(first.shape), "high": tuple(last.shape), "base": tuple(base.batch_shape)}
        shape = broadcast_shapes(**shapes)
        super().__init__(shape, validate_args)
        if isinstance(base, Truncated):
            first, last = torch.maximum(first, base.low), torch.minimum(last, base.high)
            base = base.base
        self.base = base if base.batch_shape == shape else base.expand(shape)
        self.low, self.high = first.clamp(min=0.0), last
        with torch.no_grad():
            if needs_validation(validate_args, first) and bool(torch.isneginf(self._log_total()).any()):
                raise InputError(
                    "base must have mass between low and high, got none. Choose a range inside of its support."
                )

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute the log probability of counts. It is minus infinity outside of the range.

        The result is differentiable in the parameters of `base`.
        """
        y = self.as_counts(value)
        broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        inside = (y >= self.low) & (y <= self.high)
        log_p = self.base.log_prob(y).double() - self._log_total()
        return torch.where(inside, log_p, -torch.inf).to(self.dtype)

    def _log_total(self) -> Tensor:
        return self.base._log_mass(self.low, self.high)

    def _log_mass(self, low: Tensor, high: Tensor) -> Tensor:
        first, last = torch.maximum(low, self.low), torch.minimum(high, self.high)
        return (self.base._log_mass(first, last) - self._log_total()).clamp(max=0.0)

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """Return the first and the last count of a window outside of which there is only about e^-depth of the mass."""
        first, last = self.base.bracket(depth)
        low, high, span = self.low.to(first), self.high.to(first), last - first
        # If the range is in a tail of the base, the window has as many counts as the base's, from the end of the range
        # on.
        first, last = torch.minimum(first, high - span), torch.maximum(last, low + span)
        return torch.maximum(first, low), torch.minimum(last, high)

    def _modify(self, base: CountDistribution, change: Callable[[Tensor], Tensor]) -> "Truncated":
        low, high = (x if x.dim() == 0 else change(x.expand(self.batch_shape)) for x in (self.low, self.high))
        return Truncated(base, low, high, validate_args=False)

    def _component_stacks(self, shape: torch.Size) -> list[ComponentStack]:
        """Return the components of `base`, restricted to the counts from `low` to `high`, as inputs for kernels.

        The mixture weight of a component is multiplied by its probability of this range, and weights are rescaled to a
        sum of 1.
        """
        stacks = self.base._component_stacks(shape)
        if any(stack.family is None for stack in stacks):
            return super()._component_stacks(shape)
        low, high = (flatten_rows(x, shape)[:, None] for x in (self.low, self.high))
        inner, logs = zip(*(stack.restrict(low, high) for stack in stacks), strict=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            pairs = zip(stacks, logs, strict=True)
            joint = np.hstack(
                [log_p if stack.weight is None else log_p + np.log(stack.weight) for stack, log_p in pairs]
            )
            shares = np.exp(joint - joint.max(1, keepdims=True))
            shares /= shares.sum(1, keepdims=True)
        weights = np.split(shares, np.cumsum([stack.size for stack in stacks])[:-1], axis=1)
        return [stack._replace(weight=weight) for stack, weight in zip(inner, weights, strict=True)]


class Censored(Modified):
    """The distribution of a count Z that is recorded as min(Z, limit): the limit stands for "limit or more".

    `log_prob` is the likelihood of a right-censored count. `crps` is the threshold-weighted score of Gneiting and
    Ranjan (2011), which compares cdfs only below the limit. Both are proper scores if limits do not depend on the
    counts.

    Parameters
    ----------
    base : CountDistribution
        The distribution of Z, or a `Mixture` of count distributions.
    limit : Tensor or float
        The largest count that can be recorded, at least 0; infinite if all counts are recorded exactly. Broadcasts with
        the batch shape of `base`.
    validate_args : bool, optional
        Validate values. Default: only on a CPU.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> visits = Censored(Poisson(torch.tensor(8.0, dtype=torch.float64)), limit=10)  # "10 or more"
    >>> visits.log_prob(torch.tensor([9, 10, 11])).exp().round(decimals=4)
    tensor([0.1241, 0.2834, 0.0000], dtype=torch.float64)
    """

    limit: Tensor

    def __init__(self, base: Distribution, limit: Tensor | float, validate_args: bool | None = None) -> None:
        if not isinstance(base, CountDistribution):
            raise InputError(f"base must be a count distribution, got {type(base).__name__}.")
        limit = torch.as_tensor(limit, dtype=torch.float64, device=base.device).detach()
        if validate_args is not False and limit.device.type == "cpu" and not bool((limit >= 0).all()):
            raise InputError(f"limit must be at least 0, got {limit.min().item():g}.")
        if isinstance(base, Censored):
            limit = torch.minimum(limit, base.limit)
            base = base.base
        shape = torch.Size(broadcast_shapes(base=tuple(base.batch_shape), limit=tuple(limit.shape)))
        self.base = base if base.batch_shape == shape else base.expand(shape)
        self.limit = limit.floor().expand(shape)
        super().__init__(shape, validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log P(Z = y) for y below the limit, and log P(Z >= limit) for y = limit.

        For y above the limit, the result is minus infinity. It is differentiable in the parameters of `base`.
        """
        y = self.as_counts(value)
        shape = broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        y, limit = y.double().expand(shape), self.limit.expand(shape)
        is_censored = y >= limit
        # Gradients pass through both branches for all rows, so the unused branch gets finite values.
        exact = self.base.log_prob(torch.where(is_censored, 0.0, y))
        beyond = log_mass(self.base, torch.where(is_censored, limit, 0.0))
        return torch.where(is_censored, torch.where(y > limit, -torch.inf, beyond), exact)

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        first, last = self.base.bracket(depth)
        limit = self.limit.to(first)
        return torch.minimum(first, limit), torch.minimum(last, limit)

    def _modify(self, base: CountDistribution, change: Callable[[Tensor], Tensor]) -> "Censored":
        return Censored(base, change(self.limit), validate_args=False)

    def _broadcast_counts(self, value: ArrayLike, negative: bool = False) -> tuple[np.ndarray, torch.Size]:
        y, shape = super()._broadcast_counts(value, negative)
        return np.minimum(y, flatten_rows(self.limit, shape)), shape

    def _quantiles(self, levels: np.ndarray) -> np.ndarray:
        return np.minimum(super()._quantiles(levels), flatten_rows(self.limit, self.batch_shape)[:, None])

    def _component_stacks(self, shape: torch.Size) -> list[ComponentStack]:
        """Split each component of `base` into its part below the limit and a point mass at the limit.

        Return both parts of all components as inputs for kernels. The mixture weights are those of the components of
        `base`, times the component's probability of either part.
        """
        limit = flatten_rows(self.limit, shape)[:, None]
        inner, points = [], []
        for stack in self.base._component_stacks(shape):
            at = np.repeat(limit, stack.size, axis=1)
            if stack.table is not None:
                table = Censored(stack.table, torch.from_numpy(at).reshape(-1), validate_args=False)
                inner.append(stack._replace(table=table))
                continue
            sides = row_statistics.compute_tails([stack.separate()], at.reshape(-1, 1) - 1.0)
            below, beyond = sides.reshape(2, *at.shape)
            weight = np.ones_like(below) if stack.weight is None else stack.weight
            high = at - 1.0 if stack.high is None else np.minimum(at - 1.0, stack.high)
            inner.append(stack._replace(weight=weight * below, high=high))
            point = stack._replace(family=Poisson.family, parameters=(np.ones_like(below),), low=at, high=at)
            points.append(point._replace(weight=weight * beyond))
        return inner + points


# Bounds and limits of rows --------------------------------------------------------------------------------------------


def truncate_rows(dist: Dist, lower: RowBound, upper: RowBound) -> Dist | Truncated:
    """Truncate the distribution of each row to the counts from `lower` to `upper`.

    Parameters
    ----------
    dist : Distribution
        Distributions of batch shape (rows,) or (rows, k).
    lower, upper : float, array, Tensor or None
        A bound for all rows; an array (rows,); or a tensor that broadcasts with the batch shape. None means no bound.

    Returns
    -------
    Truncated
        The truncated distributions, or `dist` itself if both bounds are None.
    """
    if lower is None and upper is None:
        return dist
    low, high = 0.0 if lower is None else lower, math.inf if upper is None else upper
    return Truncated(dist, _align_bound(low, dist), _align_bound(high, dist), validate_args=False)


def apply_record_limits(dist: Distribution, sample: CountRows[object, Tensor]) -> Distribution:
    """Truncate the distribution of each row to its bounds, and censor it at its recording limit.

    `dist` has one distribution for each row of `sample`, which holds the bounds and limits. A recorded count equal to
    the limit stands for "that many or more". So `log_prob` of the result is the likelihood of a right-censored count,
    and `crps` compares cdfs only below the limit.
    """
    return censor_rows(truncate_rows(dist, sample.lower, sample.upper), sample.limit)


def censor_rows(dist: Dist, limit: RowBound) -> Dist | Censored:
    """Censor the distribution of each row at its recording limit, the largest count that can be recorded.

    `limit` has the same shapes as the bounds of `truncate_rows`. None means no limit, and `dist` is returned unchanged.
    """
    if isinstance(dist, Modified) and dist.changes_cdf_only:
        return dist._modify(censor_rows(dist.base, limit), lambda x: x)
    return dist if limit is None else Censored(dist, _align_bound(limit, dist), validate_args=False)


def _align_bound(bound: Tensor | float | np.ndarray, dist: Distribution) -> Tensor | float:
    """Reshape an array of one bound per row so that it broadcasts with the batch shape of `dist`, (rows,) or (rows, k).

    Numbers and tensors are returned unchanged.
    """
    if not isinstance(bound, np.ndarray):
        return bound
    return torch.from_numpy(bound).reshape(-1, *[1] * (len(dist.batch_shape) - 1))
