"""`CountDistribution`: from a pmf and where it lives to cdf, quantiles, intervals, entropy, CRPS and samples."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, wraps
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ddpn.distributions import arguments, components
from ddpn.distributions.arguments import as_rows, broadcast_shapes, is_checked
from ddpn.distributions.components import DEPTH, Asked, Interval, Part, Summaries, Summary
from ddpn.runtime.errors import DDPNError, InputError


class _Barrier(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(name: str, value: Tensor, *parameters: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise DDPNError(f"{ctx.name} has no gradient, got a backward pass through it. Train on log_prob instead.")


def without_gradient(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Run a method of a distribution outside autograd; a later `backward` through its result raises."""

    @wraps(method)
    def guarded(self: Any, *args: Any, **options: Any) -> Tensor:
        with torch.no_grad():
            value = method(self, *args, **options)
        leaves = self._leaves() if torch.is_grad_enabled() else ()
        if not any(leaf.requires_grad for leaf in leaves):
            return value
        name = type(self).__name__.removeprefix("_")
        return _Barrier.apply(f"{name}.{method.__name__}", value, *leaves)

    return guarded


class CountDistribution(Distribution, ABC):
    """A distribution over the counts {0, 1, 2, ...}.

    A subclass implements `log_prob`, `bracket` and `rows`; everything else follows from sums over the integers of the
    bracket, in blocks of rows. The pmf may have any shape.

    Parameters
    ----------
    batch_shape : sequence of int
        Shape of the parameters; one distribution per element.
    validate_args : bool, optional
        Whether values are checked. Default: only on a CPU.

    Examples
    --------
    >>> class Dice(CountDistribution):
    ...     def __init__(self, sides):
    ...         self.sides = sides
    ...         super().__init__(sides.shape)
    ...     def log_prob(self, y):
    ...         return torch.where((y >= 1) & (y <= self.sides), -self.sides.log(), -torch.inf)
    ...     def bracket(self, depth):
    ...         return torch.ones_like(self.sides), self.sides
    ...     def rows(self, index):
    ...         return Dice(self.sides[index])
    >>> dice = Dice(torch.tensor([6.0, 20.0]))
    >>> dice.mean, dice.icdf(torch.tensor(0.5)), dice.interval(0.9)
    (tensor([ 3.5000, 10.5000]), tensor([ 3., 10.]), (tensor([1., 1.]), tensor([ 6., 19.])))
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.nonnegative_integer

    def __init__(self, batch_shape: Sequence[int] = (), validate_args: bool | None = None) -> None:
        super().__init__(torch.Size(batch_shape), validate_args=False)
        self._check = validate_args

    @abstractmethod
    def log_prob(self, value: Tensor) -> Tensor:
        """Logarithm of the probability of counts, minus infinity where the probability is 0.

        Parameters
        ----------
        value : Tensor
            Counts y; their shape broadcasts with `batch_shape`.
        """

    def float32_log_prob(self, value: Tensor) -> Tensor:
        """`log_prob`, or the same to the digits of float32 where that takes less time: for training.

        Parameters
        ----------
        value : Tensor
            Counts y; their shape broadcasts with `batch_shape`.
        """
        return self.log_prob(value)

    @abstractmethod
    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """First and last integer of a window outside of which about e^-depth of the mass lies. Shape: `batch_shape`."""

    @abstractmethod
    def rows(self, index: Any) -> Self:
        """The distributions of some rows: `index` is a tensor of positions along the first batch axis."""

    # What a subclass may know better ---------------------------------------------------------------------------------

    @property
    @without_gradient
    def mean(self) -> Tensor:
        """Mean E[Z]."""
        return self._shaped(self._summarised().moments[:, 0])

    @property
    @without_gradient
    def variance(self) -> Tensor:
        """Variance Var[Z]."""
        return self._shaped(self._summarised().moments[:, 1])

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distributions, repeated along new or singleton batch axes."""
        return Selected(self, self._positions().expand(torch.Size(batch_shape)))

    def _reshape(self, shape: Sequence[int]) -> Any:
        """The same distributions in another batch shape."""
        return Selected(self, self._positions().reshape(tuple(shape)))

    def _parts(self, shape: torch.Size) -> list[Part]:
        """The components of each row after `expand(shape)`; tables of probabilities unless a subclass knows better."""
        if shape == self.batch_shape:
            return [Part(None, table=self if len(shape) == 1 else self._reshape((shape.numel(),)))]
        return [Part(None, table=self.expand(shape)._reshape((shape.numel(),)))]

    def _log_mass(self, low: Tensor, high: Tensor) -> Tensor:
        """log P(low <= Z <= high) in float64, by `log_prob` at every count; bounds broadcast with `batch_shape`."""
        first, last = (x.double() for x in self.bracket(DEPTH))
        # Where a range starts beyond the bracket, as many counts from there on.
        start, end = torch.maximum(low, first), torch.minimum(high, torch.maximum(low + last - first, last))
        size = int((end - start).max().clamp(min=0.0).item()) + 1
        start, end = torch.broadcast_tensors(start, end)
        y = start + torch.arange(float(size), dtype=torch.float64).view(-1, *[1] * start.dim())
        each = self.log_prob(torch.minimum(y, end.clamp(min=0.0)).clamp(min=0.0)).double()
        return torch.where(y <= end, each, -torch.inf).logsumexp(0)

    def _leaves(self) -> tuple[Tensor, ...]:
        """Tensors that a gradient could be asked for."""
        return ()

    @cached_property
    def _like(self) -> Tensor:
        """A tensor of the dtype and on the device of all results."""
        return self.log_prob(self.bracket(DEPTH)[0]).detach()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of all results."""
        return self._like.dtype

    @property
    def device(self) -> torch.device:
        """The device of all results."""
        return self._like.device

    # From the user's shapes and dtypes to rows and back --------------------------------------------------------------

    def _positions(self) -> Tensor:
        """The position of each element in the flattened batch."""
        return torch.arange(self.batch_shape.numel(), device=self.device).view(self.batch_shape)

    def _shaped(self, flat: Any, shape: Sequence[int] | None = None) -> Tensor:
        """Results of kernels, float64 per row, in a shape, dtype and on the device of the distribution."""
        values = torch.as_tensor(flat)
        return values.reshape(self.batch_shape if shape is None else tuple(shape)).to(self._like)

    def as_counts(self, value: Any, negative: bool = False) -> Tensor:
        """Counts as a tensor on the device of the distribution; raises an `InputError` for values that are not counts.

        Parameters
        ----------
        value : Tensor
            Counts y.
        negative : bool
            Whether negative integers are allowed.
        """
        y = torch.as_tensor(value, device=self.device)
        if y.is_complex():
            raise InputError(f"y must hold counts, got dtype {y.dtype}. Pass real or integer tensors.")
        y = y.to(torch.uint8) if y.dtype == torch.bool else y
        if is_checked(self._check, y):
            arguments.check_counts("y", y, negative)
        return y

    def _paired(self, value: Any, negative: bool = False) -> tuple[np.ndarray, torch.Size]:
        """Counts as flat float64 values, one per row, and the shape they came in."""
        y = self.as_counts(value, negative)
        shape = broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        return as_rows(y, shape), shape

    def _summarised(self, shape: torch.Size | None = None, **asked: Any) -> Summaries:
        """`components.summaries` of every row after `expand(shape)`."""
        shape = self.batch_shape if shape is None else shape
        nothing, parts = np.empty((shape.numel(), 0)), self._parts(shape)
        complete = Asked(**({"levels": nothing, "y": nothing} | asked))
        if any(part.family is None for part in parts):  # of exp(log p) in the distribution's own dtype
            slack = 16.0 * torch.finfo(self.dtype).eps * np.minimum(complete.levels, 1.0 - complete.levels)
            complete = complete._replace(levels=complete.levels - slack)
        return components.summaries(parts, shape.numel(), complete)

    def _sides(self, value: Any) -> Tensor:
        """P(Z <= y) and P(Z > y), in float64. Shape: (2, ...)."""
        y, shape = self._paired(value, negative=True)
        # Several counts for one row go along the last axis: its probabilities are computed once.
        lead, own = _split_shape(shape, self.batch_shape)
        columns = np.ascontiguousarray(y.reshape(lead.numel(), own.numel()).T)
        both = torch.from_numpy(components.sides(self._parts(own), columns))
        return both.transpose(1, 2).reshape(2, *shape).to(self.device)

    # What users call -------------------------------------------------------------------------------------------------

    @without_gradient
    def cdf(self, value: Tensor) -> Tensor:
        """Cumulative distribution function P(Z <= y), relatively accurate in the lower tail; 0 at negative integers.

        Parameters
        ----------
        value : Tensor
            Counts y; their shape broadcasts with `batch_shape`.
        """
        return _rounded_down(self._sides(value)[0], self.dtype)

    @without_gradient
    def survival(self, value: Tensor) -> Tensor:
        """Survival function P(Z > y), relatively accurate in the upper tail; 1 at negative integers.

        Parameters
        ----------
        value : Tensor
            Counts y; their shape broadcasts with `batch_shape`.
        """
        return self._sides(value)[1].to(self.dtype)

    @without_gradient
    def crps(self, value: Tensor) -> Tensor:
        """Continuous ranked probability score, sum over z of (F(z) - 1[z >= y])^2; smaller is better.

        Parameters
        ----------
        value : Tensor
            Observed counts y; their shape broadcasts with `batch_shape`.
        """
        y, shape = self._paired(value)
        return self._shaped(self._summarised(shape, y=y[:, None]).scores, shape)

    @without_gradient
    def entropy(self) -> Tensor:
        """Entropy -E[log p(Z)] in nats."""
        return self._shaped(self._summarised(entropy=True).moments[:, 3])

    def icdf(self, value: Tensor) -> Tensor:
        """Quantile: the smallest count y with P(Z <= y) >= q.

        Parameters
        ----------
        value : Tensor
            Levels q from 0 to 1; the quantile is infinite at q = 1. Their shape broadcasts with `batch_shape`.
        """
        q = torch.as_tensor(value, device=self.device)
        if is_checked(self._check, q):
            arguments.check_probabilities("q", q)
        shape = broadcast_shapes(q=tuple(q.shape), batch_shape=tuple(self.batch_shape))
        # Rows that levels are repeated for are computed once: levels go along the last axis.
        lead, own = _split_shape(shape, self.batch_shape)
        if own != self.batch_shape:
            return self.expand(own).icdf(q)
        levels = as_rows(q, shape).reshape(lead.numel(), own.numel()).T
        return self._shaped(self._quantiles(levels).T, shape)

    def _quantiles(self, levels: np.ndarray) -> np.ndarray:
        """Quantiles of the flattened rows at levels (rows, n)."""
        with torch.no_grad():
            return self._summarised(levels=levels).quantiles

    @property
    def mode(self) -> Tensor:
        """The most probable count, the smallest of several."""
        with torch.no_grad():
            return self._shaped(self._summarised().moments[:, 2])

    def interval(self, coverage: float) -> tuple[Tensor, Tensor]:
        """Central prediction interval: counts low and high, both included, with at most half of the rest beyond each.

        Parameters
        ----------
        coverage : float
            Probability that a count lies in the interval, in (0, 1).

        Returns
        -------
        low, high : Tensor
            Of shape `batch_shape`.
        """
        coverage = arguments.check_coverage(coverage)
        rest = 0.5 * (1.0 - coverage)
        with torch.no_grad():
            found = self._quantiles(np.tile([rest, 1.0 - rest], (self.batch_shape.numel(), 1)))
        return self._shaped(found[:, 0]), self._shaped(found[:, 1])

    @torch.no_grad()
    def narrowest_interval(self, level: Any) -> Interval:
        """Fewest consecutive counts, both ends included, that together have at least the probability `level`.

        Of several intervals with that number of counts, the most probable is returned. Where a distribution spans
        thousands of counts, the number may be larger than necessary by a thousandth.

        Parameters
        ----------
        level : float or array-like
            A probability in (0, 1) for all rows, or one per row, of shape `batch_shape`.

        Returns
        -------
        Interval
            `low`, `high` and their `probability`, each of shape `batch_shape`.

        Examples
        --------
        >>> from ddpn.distributions import Poisson
        >>> low, high, probability = Poisson(torch.tensor([0.3, 6.0]).double()).narrowest_interval(0.8)
        >>> low.tolist(), high.tolist(), probability.round(decimals=3).tolist()
        ([0.0, 3.0], [1.0, 9.0], [0.963, 0.854])
        """
        return self._as_interval(self._summarised(interval_levels=self._interval_levels(level)).intervals)

    def _interval_levels(self, level: Any) -> np.ndarray:
        """Levels of narrowest intervals as the kernels take them. Shape: (rows, 1)."""
        levels = torch.as_tensor(level, dtype=torch.float64, device="cpu")
        if is_checked(self._check, levels):
            arguments.check_probabilities("level", levels)
        return np.ascontiguousarray(levels.expand(self.batch_shape).reshape(-1, 1).numpy())

    def _as_interval(self, columns: np.ndarray) -> Interval:
        low, high, probability = columns.T
        exact = torch.from_numpy(np.ascontiguousarray(probability)).reshape(self.batch_shape).to(self.device)
        return Interval(self._shaped(low), self._shaped(high), exact)

    @torch.no_grad()
    def entry_levels(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """Levels between which a count enters the narrowest interval: outside at the first, inside at the second.

        If counts follow the distribution and it has one peak, a point drawn uniformly between the two levels is uniform
        on [0, 1]. This makes it a score for conformal prediction whose distribution does not depend on the counts.

        Parameters
        ----------
        value : Tensor
            Counts y, of shape `batch_shape`.

        Returns
        -------
        outside, inside : Tensor
            In float64, of shape `batch_shape`; equal where a distribution spans thousands of counts.
        """
        y, shape = self._paired(value)
        entries = torch.from_numpy(self._summarised(shape, y=y[:, None], entries=True).entries)
        outside, inside = entries.T.reshape(2, *shape).to(self.device)
        return outside, inside

    @torch.no_grad()
    def summary(
        self, levels: Tensor, y: Tensor | None = None, entropy: bool = False, interval_level: Any = None
    ) -> Summary:
        """Moments, quantiles, mode, score and interval at once, which takes as long as one of them.

        Parameters
        ----------
        levels : Tensor
            Levels in (0, 1) per row, of shape (rows, n), or (n,) for all rows of a batch shape (rows,).
        y : Tensor, optional
            Observed counts to score, of shape (rows,).
        entropy : bool
            Whether to compute the entropy, which takes a logarithm per count.
        interval_level : float or array-like, optional
            The level of the narrowest interval, as for `narrowest_interval`.
        """
        rows = self.batch_shape.numel()
        given = torch.as_tensor(levels, dtype=torch.float64, device="cpu")
        q = as_rows(given, (rows, given.shape[-1])).reshape(rows, given.shape[-1])
        counts = np.empty((rows, 0)) if y is None else self._paired(y)[0][:, None]
        interval_levels = None if interval_level is None else self._interval_levels(interval_level)
        found = self._summarised(levels=q, y=counts, entropy=entropy, interval_levels=interval_levels)
        moments = self._shaped(found.moments.T, (6, *self.batch_shape))
        mean, variance, mode, spread, within, between = moments.unbind()
        scores = None if y is None else self._shaped(found.scores)
        quantiles = self._shaped(found.quantiles, q.shape)
        interval = None if interval_levels is None else self._as_interval(found.intervals)
        return Summary(mean, variance, within, between, quantiles, mode, scores, spread if entropy else None, interval)

    def sample(self, sample_shape: Any = torch.Size(), generator: torch.Generator | None = None) -> Tensor:
        """Draw counts by inversion of the cdf, from uniforms in float64.

        Parameters
        ----------
        sample_shape : sequence of int
            Shape of the draws of each distribution. Default: one draw.
        generator : torch.Generator, optional
            The source of randomness. Default: torch's own.

        Returns
        -------
        Tensor
            Of shape `sample_shape` + `batch_shape`.
        """
        shape = torch.Size(sample_shape)
        with torch.no_grad():
            size = shape.numel(), self.batch_shape.numel()
            u = torch.rand(size, dtype=torch.float64, device=self.device, generator=generator)
            return self._shaped(self._quantiles(u.T.cpu().numpy()).T, self._extended_shape(shape))


class Selected(CountDistribution):
    """Elements of another distribution, given by their positions in its flattened batch."""

    def __init__(self, base: Any, index: Tensor) -> None:
        if isinstance(base, Selected):
            base, index = base._base, base._index.reshape(-1)[index]
        self._base: Any = base
        self._index, self._like = index, base._like
        super().__init__(index.shape, base._check)

    def log_prob(self, value: Tensor) -> Tensor:
        y = self.as_counts(value)
        shape = broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        lead = shape[: len(shape) - self._index.dim()]
        y = y.expand(shape).reshape(*lead, -1, *[1] * len(self._base.batch_shape[1:]))
        return self._picked(lambda rows: rows.log_prob(y)).reshape(shape)

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        first, last = (self._picked(lambda rows, i=i: rows.bracket(depth)[i]) for i in (0, 1))
        return first.reshape(self.batch_shape), last.reshape(self.batch_shape)

    def rows(self, index: Any) -> "Selected":
        return Selected(self._base, self._index[index])

    def _picked(self, of: Any) -> Tensor:
        """`of` the base's rows that are needed, then the elements in them. Shape: (..., positions)."""
        shape, flat = self._base.batch_shape, self._index.reshape(-1)
        if len(shape) < 2:
            found = of(self._base.rows(flat) if shape else self._base)
            return found if found.dim() else found.expand(len(flat))
        inner = shape[1:].numel()
        found = of(self._base.rows(flat // inner)).flatten(1 - len(shape))
        return found.gather(-1, (flat % inner).unsqueeze(-1).expand(*found.shape[:-1], 1)).squeeze(-1)


class Modified(CountDistribution):
    """A count distribution that is made of another one, its `base`, of the same batch shape."""

    base: Any
    #: Whether it changes the cdf alone: then counts may be censored before or after it.
    is_of_cdf: ClassVar[bool] = False

    @abstractmethod
    def _changed(self, base: Any, change: Callable[[Tensor], Tensor]) -> Self:
        """The same modification of `base`, which is `self.base` after a change of the batch shape."""

    def rows(self, index: Any) -> Self:
        """The distributions of some rows along the first batch axis."""
        return self._changed(self.base.rows(index), lambda x: x[index])

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        """The same distributions, repeated along new or singleton batch axes."""
        shape = torch.Size(batch_shape)
        return self._changed(self.base.expand(shape), lambda x: x.expand(shape))

    def _reshape(self, shape: Sequence[int]) -> Self:
        return self._changed(self.base._reshape(shape), lambda x: x.reshape(tuple(shape)))

    @property
    def _like(self) -> Tensor:
        return self.base._like

    def _leaves(self) -> tuple[Tensor, ...]:
        return self.base._leaves()


def _split_shape(shape: torch.Size, batch_shape: torch.Size) -> tuple[torch.Size, torch.Size]:
    """Split a shape that values and distributions broadcast to into its leading axes and those of the batch."""
    axes = len(shape) - len(batch_shape)
    return shape[:axes], shape[axes:]


def _rounded_down(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in `dtype`, never above x: so icdf(cdf(y)) = y in every dtype."""
    rounded = x.to(dtype)
    return torch.where(rounded.double() > x, torch.nextafter(rounded, torch.zeros_like(rounded)), rounded)


# Changing the batch shape of any distribution, torch's own included ------------------------------------------------


def mapped(dist: Distribution, change: Callable[[Tensor], Tensor]) -> Any:
    """The torch distribution whose parameters are those of `dist`, expanded to its batch shape and then changed."""
    family: Any = type(dist)
    parameters = {name: change(getattr(dist, name).expand(dist.batch_shape)) for name in dist.arg_constraints}
    return family(**parameters, validate_args=False)


def rows_of(dist: Any, index: Any) -> Any:
    """The distributions of some rows along the first batch axis."""
    return dist.rows(index) if hasattr(dist, "rows") else mapped(dist, lambda x: x[index])


def reshaped(dist: Any, shape: Sequence[int]) -> Any:
    """The same distributions in another batch shape."""
    return dist._reshape(shape) if hasattr(dist, "_reshape") else mapped(dist, lambda x: x.reshape(tuple(shape)))


def concatenated(stacks: Sequence[Any]) -> list[Any]:
    """Neighbouring stacks of one family joined along their last axis; all have the same batch shape but for it."""
    joined: list[Any] = [stacks[0]]
    for stack in stacks[1:]:
        last, names = joined[-1], stack.arg_constraints
        # Of distributions that are their parameters, each of their batch shape.
        is_parametric = bool(names) and all(getattr(stack, name).shape == stack.batch_shape for name in names)
        if type(stack) is type(last) and is_parametric:
            parameters = {
                name: torch.cat([getattr(d, name).expand(d.batch_shape) for d in (last, stack)], dim=-1)
                for name in names
            }
            joined[-1] = type(stack)(**parameters, validate_args=False)
        else:
            joined.append(stack)
    return joined
