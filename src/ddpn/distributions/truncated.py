"""Count distributions restricted to a range of counts."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import arguments
from ddpn.distributions.arguments import broadcast_shapes, is_checked
from ddpn.distributions.components import Part
from ddpn.distributions.count import CountDistribution
from ddpn.distributions.range_mass import Bound, as_bounds, is_everything
from ddpn.distributions.stacking import concatenated
from ddpn.runtime.errors import InputError


class Truncated(CountDistribution):
    """A count distribution given that low <= Z <= high, normalised exactly.

    p(y) = base.p(y) / P(low <= Z <= high) inside, 0 outside; in logarithms throughout, so that the range may hold next
    to nothing of the base's mass.

    Parameters
    ----------
    base : CountDistribution
        Any count distribution, such as a Poisson or a `Mixture`.
    low : Tensor or float
        The smallest count, or one per row; broadcasts with `base.batch_shape`. Default: 0.
    high : Tensor or float, optional
        The largest count, or one per row. None and infinity: no upper end.
    validate_args : bool, optional
        Whether values are checked. Default: only on a CPU.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> stays = Truncated(Poisson(1.2), low=1)
    >>> round(stays.mean.item(), 4), round(stays.cdf(torch.tensor(1)).item(), 4)
    (1.7172, 0.5172)
    """

    base: Any

    def __init__(
        self, base: CountDistribution, low: Bound = 0, high: Bound = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(base, CountDistribution):
            raise InputError(f"base must be a count distribution of ddpn.distributions, got {type(base).__name__}.")
        first, last = as_bounds(base, low, high)
        if is_checked(validate_args, first):
            _check_bounds(first, last)
        shapes = {"low": tuple(first.shape), "high": tuple(last.shape), "base": tuple(base.batch_shape)}
        shape = broadcast_shapes(**shapes)
        # A range of 0..infinity needs no sum; whether the pmf is smooth inside is known for constants.
        self._set(base, first, last, shape, validate_args, is_everything(low, high))
        if is_checked(validate_args, first):
            _check_mass(self)

    def _set(self, base: Any, low: Tensor, high: Tensor, shape: Any, check: bool | None, whole: bool) -> None:
        super().__init__(shape, check)
        if isinstance(base, Truncated):
            base, low, high = base.base, torch.maximum(low, base.low), torch.minimum(high, base.high)
            whole = False
        self.base = base if base.batch_shape == shape else base.expand(shape)
        self.low, self.high, self._whole = low.clamp(min=0.0), high, whole

    @property
    def _like(self) -> Tensor:
        return self.base._like

    def log_prob(self, value: Tensor) -> Tensor:
        """Logarithm of the probability of counts, minus infinity outside of the range; differentiable in the base.

        Parameters
        ----------
        value : Tensor
            Counts y; their shape broadcasts with `batch_shape`.
        """
        y = self._counts(value)
        broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        inside = (y >= self.low) & (y <= self.high)
        log_p = self.base.log_prob(y).double() - self._log_total()
        return torch.where(inside, log_p, -torch.inf).to(self._dtype)

    def _log_total(self) -> Tensor:
        return self.low.new_zeros(()) if self._whole else self.base._log_mass(self.low, self.high)

    def _log_mass(self, low: Tensor, high: Tensor) -> Tensor:
        first, last = torch.maximum(low, self.low), torch.minimum(high, self.high)
        return (self.base._log_mass(first, last) - self._log_total()).clamp(max=0.0)

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """First and last integer of a window outside of which about e^-depth of the mass lies."""
        first, last = self.base.bracket(depth)
        low, high = self.low.to(first), self.high.to(first)
        return torch.minimum(torch.maximum(first, low), high), torch.minimum(torch.maximum(last, low), high)

    def rows(self, index: Any) -> "Truncated":
        """The distributions of some rows along the first batch axis."""
        return self._changed(self.base.rows(index), lambda x: x[index])

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Truncated":
        """The same distributions, repeated along new or singleton batch axes."""
        return self._changed(self.base.expand(batch_shape), lambda x: x.expand(torch.Size(batch_shape)))

    def _reshape(self, shape: Sequence[int]) -> "Truncated":
        return self._changed(self.base._reshape(shape), lambda x: x.reshape(tuple(shape)))

    def _changed(self, base: Any, change: Callable[[Tensor], Tensor]) -> "Truncated":
        low, high = (x if x.dim() == 0 else change(x.expand(self.batch_shape)) for x in (self.low, self.high))
        return _made(base, low, high, base.batch_shape, self._check, self._whole)

    def _joined(self, other: "Truncated") -> Any:
        """This and another stack side by side along the last axis; None where their bases cannot be joined."""
        bases = concatenated([self.base, other.base])
        if len(bases) > 1:
            return None
        low, high = (
            torch.cat([x.expand(d.batch_shape) for x, d in ((a, self), (b, other))], dim=-1)
            for a, b in ((self.low, other.low), (self.high, other.high))
        )
        return _made(bases[0], low, high, bases[0].batch_shape, self._check, self._whole and other._whole)

    def _leaves(self) -> tuple[Tensor, ...]:
        return self.base._leaves()

    def _parts(self, shape: torch.Size) -> list[Part]:
        """Those of the base within the range, each weighted by its mass there."""
        parts = self.base._parts(shape)
        if any(part.family is None for part in parts):
            return super()._parts(shape)
        low, high = (x.cpu().expand(shape).reshape(-1) for x in (self.low, self.high))
        found, masses = zip(*(part.restricted(low, high) for part in parts), strict=True)
        top = torch.cat(masses, 1).amax(1, keepdim=True).clamp(min=-1e300)
        weights = [
            (log_p - top).exp() * (1.0 if part.weight is None else part.weight)
            for part, log_p in zip(parts, masses, strict=True)
        ]
        total = torch.cat(weights, 1).sum(1, keepdim=True)
        return [part._replace(weight=weight / total) for part, weight in zip(found, weights, strict=True)]


def _made(base: Any, low: Tensor, high: Tensor, shape: Any, check: bool | None, whole: bool) -> Truncated:
    """A `Truncated` whose bounds have been checked."""
    new = object.__new__(Truncated)
    new._set(base, low, high, shape, check, whole)
    return new


def _check_bounds(low: Tensor, high: Tensor) -> None:
    arguments.check_counts("low", low, negative=True)
    arguments.check_counts("high", torch.where(torch.isinf(high) & (high > 0), 0.0, high), negative=True)
    if bool((low > high).any()):
        raise InputError("low must be at most high, got a range without counts. Exchange the two, or drop such rows.")


def _check_mass(dist: Truncated) -> None:
    with torch.no_grad():
        empty = torch.isneginf(dist._log_total())
    if bool(empty.any()):
        raise InputError("base must have mass between low and high, got none. Choose a range inside of its support.")
