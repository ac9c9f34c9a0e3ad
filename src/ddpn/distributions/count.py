"""`CountDistribution`: the base class of all count distributions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Distribution, constraints

from ddpn.distributions import arguments, row_statistics
from ddpn.distributions.arguments import broadcast_shapes, flatten_rows, needs_validation
from ddpn.distributions.blocks import TABLE_DEPTH
from ddpn.distributions.components import ComponentStack
from ddpn.distributions.gradients import without_gradient
from ddpn.distributions.summaries import Interval, Summaries, Summary, SummaryRequest
from ddpn.runtime.errors import InputError


class CountDistribution(Distribution, ABC):
    """A distribution over the counts {0, 1, 2, ...}, the base class of all count distributions.

    A subclass implements `log_prob`, `rows`, and `bracket`, which returns a window of counts that holds nearly all
    mass. All other methods then work for a pmf of any shape: they sum over the counts of this window.

    Parameters
    ----------
    batch_shape : sequence of int
        Shape of the parameters; one distribution per element.
    validate_args : bool, optional
        Validate values. Default: only on a CPU.

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

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.nonnegative_integer

    def __init__(self, batch_shape: Sequence[int] = (), validate_args: bool | None = None) -> None:
        super().__init__(torch.Size(batch_shape), validate_args=False)
        self._check = validate_args

    @abstractmethod
    def log_prob(self, value: Tensor) -> Tensor:
        """Compute the log probability of counts; it is minus infinity where the probability is 0.

        Parameters
        ----------
        value : Tensor
            Counts y; their shape broadcasts with `batch_shape`.
        """

    def float32_log_prob(self, value: Tensor) -> Tensor:
        """Compute `log_prob` for training, where the precision of float32 suffices.

        This is faster than `log_prob` for families that have a formula of this precision. For all other families, it is
        `log_prob`.

        Parameters
        ----------
        value : Tensor
            Counts y; their shape broadcasts with `batch_shape`.
        """
        return self.log_prob(value)

    @abstractmethod
    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """Return the first and the last count of a window outside of which there is only about e^-depth of the mass.

        Parameters
        ----------
        depth : float
            Minus the natural logarithm of the mass outside of the window. A larger depth gives a wider window.
        """

    @abstractmethod
    def rows(self, index: Tensor) -> Self:
        """Select distributions along the first batch axis.

        Parameters
        ----------
        index : Tensor
            The positions of the distributions.
        """

    # What a subclass may override ------------------------------------------------------------------------------------

    @property
    @without_gradient
    def mean(self) -> Tensor:
        """Mean E[Z]."""
        return self._to_tensor(self._summarise(SummaryRequest()).moments[:, 0])

    @property
    @without_gradient
    def variance(self) -> Tensor:
        """Variance Var[Z]."""
        return self._to_tensor(self._summarise(SummaryRequest()).moments[:, 1])

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> "CountDistribution":
        """Return the distributions with a larger batch shape, repeated along new axes and axes of length 1."""
        return Selected(self, self._positions().expand(torch.Size(batch_shape)))

    def _reshape(self, shape: Sequence[int]) -> "CountDistribution":
        """Return the same distributions, reshaped to another batch shape with as many elements."""
        return Selected(self, self._positions().reshape(tuple(shape)))

    def _component_stacks(self, shape: torch.Size) -> list[ComponentStack]:
        """Return the components of the mixture that each distribution is, as inputs for kernels.

        The distributions are expanded to `shape` and flattened to rows. By default, a distribution is a mixture of a
        single component, given by a table of its probabilities. Parametric families and mixtures override this method.
        """
        if shape == self.batch_shape:
            return [ComponentStack(None, table=self if len(shape) == 1 else self._reshape((shape.numel(),)))]
        return [ComponentStack(None, table=self.expand(shape)._reshape((shape.numel(),)))]

    def _log_mass(self, low: Tensor, high: Tensor) -> Tensor:
        """Compute log P(low <= Z <= high) in float64, for float64 tensors `low` and `high` that broadcast.

        It is minus infinity if low > high. By default, the probabilities of all counts in the range are added. Families
        override this method by faster formulas.
        """
        first, last = (x.double() for x in self.bracket(TABLE_DEPTH))
        # If the range starts beyond the bracket, the sum has as many terms as the bracket has counts.
        start, end = torch.maximum(low, first), torch.minimum(high, torch.maximum(low + last - first, last))
        size = int((end - start).max().clamp(min=0.0).item()) + 1
        start, end = torch.broadcast_tensors(start, end)
        y = start + torch.arange(float(size), dtype=torch.float64).view(-1, *[1] * start.dim())
        log_p = self.log_prob(torch.minimum(y, end.clamp(min=0.0)).clamp(min=0.0)).double()
        return torch.where(y <= end, log_p, -torch.inf).logsumexp(0)

    def _leaves(self) -> tuple[Tensor, ...]:
        """Return the tensors on which results depend and that may require gradients: parameters and weights."""
        return ()

    @cached_property
    def _like(self) -> Tensor:
        """A tensor whose dtype and device all results take; its values are not used."""
        return self.log_prob(self.bracket(TABLE_DEPTH)[0]).detach()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of all results."""
        return self._like.dtype

    @property
    def device(self) -> torch.device:
        """The device of all results."""
        return self._like.device

    # Conversion between the user's tensors and rows -------------------------------------------------------------------

    def _positions(self) -> Tensor:
        """Return the index of each distribution in the flattened batch, a tensor of shape `batch_shape`."""
        return torch.arange(self.batch_shape.numel(), device=self.device).view(self.batch_shape)

    def _to_tensor(self, flat: Tensor | np.ndarray, shape: Sequence[int] | None = None) -> Tensor:
        """Convert results of kernels, a flat array with one number per row, to a tensor of shape `shape`.

        The tensor gets the dtype and the device of the distribution. By default, `shape` is `batch_shape`.
        """
        values = torch.as_tensor(flat)
        return values.reshape(self.batch_shape if shape is None else tuple(shape)).to(self._like)

    def as_counts(self, value: ArrayLike, negative: bool = False) -> Tensor:
        """Convert counts to a tensor on the device of the distribution.

        Raise an `InputError` if values are validated (see `validate_args`) and are not counts.

        Parameters
        ----------
        value : array-like
            Counts y.
        negative : bool
            Allow negative integers.
        """
        y = torch.as_tensor(value, device=self.device)
        if y.is_complex():
            raise InputError(f"y must hold counts, got dtype {y.dtype}. Pass real or integer tensors.")
        y = y.to(torch.uint8) if y.dtype == torch.bool else y
        if needs_validation(self._check, y):
            arguments.check_counts("y", y, negative)
        return y

    def _broadcast_counts(self, value: ArrayLike, negative: bool = False) -> tuple[np.ndarray, torch.Size]:
        """Validate the counts `value` and broadcast them with `batch_shape`.

        Return them as a flat float64 array, together with the broadcast shape. `negative` allows negative integers.
        """
        y = self.as_counts(value, negative)
        shape = broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        return flatten_rows(y, shape), shape

    def _summarise(self, request: SummaryRequest, shape: torch.Size | None = None) -> Summaries:
        """Compute the statistics that `request` asks for, for each distribution expanded to `shape`.

        The distributions are flattened to rows, so each array of the result has one row per distribution. By default,
        `shape` is `batch_shape`.
        """
        shape = self.batch_shape if shape is None else shape
        stacks, levels = self._component_stacks(shape), request.levels
        if levels is not None and any(stack.family is None for stack in stacks):
            # Tables hold exp(log p) in the distribution's own dtype.
            slack = 16.0 * torch.finfo(self.dtype).eps * np.minimum(levels, 1.0 - levels)
            request = request._replace(levels=levels - slack)
        return row_statistics.compute_summaries(stacks, shape.numel(), request)

    def _compute_tails(self, value: ArrayLike) -> Tensor:
        """Compute the lower tail P(Z <= y) and the upper tail P(Z > y) in float64.

        Return both as one tensor (2, ...), where ... is the broadcast shape of the counts and the batch.
        """
        y, shape = self._broadcast_counts(value, negative=True)
        # Several counts of one row go along the last axis, so that its probabilities are computed once.
        lead, batch = _split_shape(shape, self.batch_shape)
        columns = np.ascontiguousarray(y.reshape(lead.numel(), batch.numel()).T)
        both = torch.from_numpy(row_statistics.compute_tails(self._component_stacks(batch), columns))
        return both.transpose(1, 2).reshape(2, *shape).to(self.device)

    # Public methods ---------------------------------------------------------------------------------------------------

    @without_gradient
    def cdf(self, value: Tensor) -> Tensor:
        """Compute the cdf P(Z <= y), which is 0 at negative integers.

        The relative error is small even where the cdf is close to 0.

        Parameters
        ----------
        value : Tensor
            Counts y; their shape broadcasts with `batch_shape`.
        """
        return _round_down(self._compute_tails(value)[0], self.dtype)

    @without_gradient
    def survival(self, value: Tensor) -> Tensor:
        """Compute the survival function P(Z > y), which is 1 at negative integers.

        The relative error is small even where the survival function is close to 0.

        Parameters
        ----------
        value : Tensor
            Counts y; their shape broadcasts with `batch_shape`.
        """
        return self._compute_tails(value)[1].to(self.dtype)

    @without_gradient
    def crps(self, value: Tensor) -> Tensor:
        """Compute the continuous ranked probability score (CRPS); smaller is better.

        It is the sum of (F(z) - 1[z >= y])^2 over all counts z, with the cdf F.

        Parameters
        ----------
        value : Tensor
            Observed counts y; their shape broadcasts with `batch_shape`.
        """
        y, shape = self._broadcast_counts(value)
        return self._to_tensor(self._summarise(SummaryRequest(y=y[:, None]), shape).scores, shape)

    @without_gradient
    def entropy(self) -> Tensor:
        """Compute the entropy -E[log p(Z)] in nats."""
        return self._to_tensor(self._summarise(SummaryRequest(entropy=True)).moments[:, 3])

    def icdf(self, value: Tensor) -> Tensor:
        """Compute quantiles: the smallest count y with P(Z <= y) >= q.

        Parameters
        ----------
        value : Tensor
            Levels q from 0 to 1; the quantile is infinite at q = 1. Their shape broadcasts with `batch_shape`.
        """
        q = torch.as_tensor(value, device=self.device)
        if needs_validation(self._check, q):
            arguments.check_probabilities("q", q)
        shape = broadcast_shapes(q=tuple(q.shape), batch_shape=tuple(self.batch_shape))
        # Several levels of one row go along the last axis, so that its probabilities are computed once.
        lead, batch = _split_shape(shape, self.batch_shape)
        if batch != self.batch_shape:
            return self.expand(batch).icdf(q)
        levels = flatten_rows(q, shape).reshape(lead.numel(), batch.numel()).T
        return self._to_tensor(self._quantiles(levels).T, shape)

    def _quantiles(self, levels: np.ndarray) -> np.ndarray:
        """Compute the quantiles at `levels` (rows, n) of the distributions, flattened to rows. Shape: (rows, n)."""
        with torch.no_grad():
            return self._summarise(SummaryRequest(levels=levels)).quantiles

    @property
    def mode(self) -> Tensor:
        """The most probable count. If several counts are equally probable, it is the smallest of them."""
        with torch.no_grad():
            return self._to_tensor(self._summarise(SummaryRequest()).moments[:, 2])

    def interval(self, coverage: float) -> tuple[Tensor, Tensor]:
        """Compute central prediction intervals, with at most (1 - coverage) / 2 of the mass beyond either end.

        Parameters
        ----------
        coverage : float
            The least probability that a count lies in the interval, in (0, 1).

        Returns
        -------
        low, high : Tensor
            The first and the last count of the interval, of shape `batch_shape`.
        """
        coverage = arguments.check_coverage(coverage)
        tail = 0.5 * (1.0 - coverage)
        with torch.no_grad():
            quantiles = self._quantiles(np.tile([tail, 1.0 - tail], (self.batch_shape.numel(), 1)))
        return self._to_tensor(quantiles[:, 0]), self._to_tensor(quantiles[:, 1])

    @torch.no_grad()
    def narrowest_interval(self, level: ArrayLike) -> Interval:
        """Find the shortest interval of counts whose probability is at least `level`.

        If several intervals are this short, the most probable one is returned. If a distribution spans thousands of
        counts, the interval may be longer than necessary by a thousandth.

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
        return self._as_interval(
            self._summarise(SummaryRequest(interval_levels=self._interval_levels(level))).intervals
        )

    def _interval_levels(self, level: ArrayLike) -> np.ndarray:
        """Validate the argument `level` of `narrowest_interval`; return one level per row, an array (rows, 1)."""
        levels = torch.as_tensor(level, dtype=torch.float64, device="cpu")
        if needs_validation(self._check, levels):
            arguments.check_probabilities("level", levels)
        return np.ascontiguousarray(levels.expand(self.batch_shape).reshape(-1, 1).numpy())

    def _as_interval(self, columns: np.ndarray) -> Interval:
        low, high, probability = columns.T
        exact = torch.from_numpy(np.ascontiguousarray(probability)).reshape(self.batch_shape).to(self.device)
        return Interval(self._to_tensor(low), self._to_tensor(high), exact)

    @torch.no_grad()
    def entry_levels(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """Find the levels between which the narrowest interval first includes a count.

        The level of an interval is its probability. As the level rises, the narrowest interval grows and includes one
        count after another. For an observed count, draw a number uniformly between the two levels returned here. If the
        pmf has one peak and is correct, this number is uniform on [0, 1]. So it is a score for conformal prediction
        that does not depend on the size of the counts.

        Parameters
        ----------
        value : Tensor
            Counts y, of shape `batch_shape`.

        Returns
        -------
        outside, inside : Tensor
            The largest level whose interval excludes the count, and the smallest level whose interval includes it, in
            float64 and of shape `batch_shape`. They are equal if a distribution spans thousands of counts.
        """
        y, shape = self._broadcast_counts(value)
        entries = torch.from_numpy(self._summarise(SummaryRequest(y=y[:, None], entries=True), shape).entries)
        outside, inside = entries.T.reshape(2, *shape).to(self.device)
        return outside, inside

    @torch.no_grad()
    def summary(
        self, levels: Tensor, y: Tensor | None = None, entropy: bool = False, interval_level: ArrayLike | None = None
    ) -> Summary:
        """Compute moments, quantiles and the mode, and on request CRPS, entropy and intervals.

        This is faster than separate methods, because the probabilities of all counts are computed only once.

        Parameters
        ----------
        levels : Tensor
            Levels of quantiles in (0, 1): of shape (n,) for all rows, or (rows, n). The batch shape must be (rows,).
        y : Tensor, optional
            Observed counts for the CRPS, of shape (rows,).
        entropy : bool
            Compute the entropy. It takes a logarithm per count.
        interval_level : float or array-like, optional
            The level of the narrowest interval, as for `narrowest_interval`.

        Returns
        -------
        Summary
            The statistics, with one value per row in every field.
        """
        rows = self.batch_shape.numel()
        level_tensor = torch.as_tensor(levels, dtype=torch.float64, device="cpu")
        q = flatten_rows(level_tensor, (rows, level_tensor.shape[-1])).reshape(rows, level_tensor.shape[-1])
        counts = None if y is None else self._broadcast_counts(y)[0][:, None]
        interval_levels = None if interval_level is None else self._interval_levels(interval_level)
        results = self._summarise(SummaryRequest(q, counts, interval_levels, entropy=entropy))
        moments = self._to_tensor(results.moments.T, (6, *self.batch_shape))
        mean, variance, mode, spread, within, between = moments.unbind()
        scores = None if y is None else self._to_tensor(results.scores)
        quantiles = self._to_tensor(results.quantiles, q.shape)
        interval = None if interval_levels is None else self._as_interval(results.intervals)
        return Summary(mean, variance, within, between, quantiles, mode, scores, spread if entropy else None, interval)

    def sample(self, sample_shape: Sequence[int] = torch.Size(), generator: torch.Generator | None = None) -> Tensor:
        """Draw random counts.

        Each draw is the quantile of a uniformly distributed level.

        Parameters
        ----------
        sample_shape : sequence of int
            The shape of the draws from each distribution. Default: a single draw.
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
            return self._to_tensor(self._quantiles(u.T.cpu().numpy()).T, self._extended_shape(shape))


class Selected(CountDistribution):
    """Some distributions of another batch, `base`, in any order and with repetitions.

    They are given by a tensor `index` of their positions in the flattened batch of `base`. The tensor's shape is the
    batch shape. By default, `CountDistribution.expand` and `_reshape` return such a selection.
    """

    _base: CountDistribution
    _index: Tensor

    def __init__(self, base: CountDistribution, index: Tensor) -> None:
        if isinstance(base, Selected):
            index = base._index.reshape(-1)[index]
            base = base._base
        self._base, self._index, self._like = base, index, base._like
        super().__init__(index.shape, base._check)

    def log_prob(self, value: Tensor) -> Tensor:
        y = self.as_counts(value)
        shape = broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        lead = shape[: len(shape) - self._index.dim()]
        y = y.expand(shape).reshape(*lead, -1, *[1] * len(self._base.batch_shape[1:]))
        return self._select(lambda dist: dist.log_prob(y)).reshape(shape)

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        first = self._select(lambda dist: dist.bracket(depth)[0])
        last = self._select(lambda dist: dist.bracket(depth)[1])
        return first.reshape(self.batch_shape), last.reshape(self.batch_shape)

    def rows(self, index: Tensor) -> "Selected":
        return Selected(self._base, self._index[index])

    def _select(self, evaluate: Callable[[CountDistribution], Tensor]) -> Tensor:
        """Evaluate a function such as `log_prob` for the selected distributions.

        `evaluate` takes a batch of distributions and returns one value for each of them. It is called with a batch that
        has the selected distributions among others. The result has the values of the n selected distributions, a tensor
        (..., n).
        """
        shape, flat = self._base.batch_shape, self._index.reshape(-1)
        if len(shape) < 2:
            values = evaluate(self._base.rows(flat) if shape else self._base)
            return values if values.dim() else values.expand(len(flat))
        inner = shape[1:].numel()
        values = evaluate(self._base.rows(flat // inner)).flatten(1 - len(shape))
        return values.gather(-1, (flat % inner).unsqueeze(-1).expand(*values.shape[:-1], 1)).squeeze(-1)


def _split_shape(shape: torch.Size, batch_shape: torch.Size) -> tuple[torch.Size, torch.Size]:
    """Split a shape into its leading axes and its batch axes; the batch axes are the last `len(batch_shape)` ones.

    `shape` is the shape to which values and a batch of distributions broadcast.
    """
    axes = len(shape) - len(batch_shape)
    return shape[:axes], shape[axes:]


def _round_down(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a float64 tensor to a dtype, rounding down.

    A cdf must be rounded down so that icdf(cdf(y)) is y and not the next count.
    """
    rounded = x.to(dtype)
    return torch.where(rounded.double() > x, torch.nextafter(rounded, torch.zeros_like(rounded)), rounded)
