"""`CountDistribution`: from a pmf and where it lives to cdf, quantiles, intervals, entropy, CRPS and samples."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ddpn.distributions import arguments, mass, quantiles, tables
from ddpn.distributions.arguments import broadcast_shapes, is_checked
from ddpn.distributions.gradients import without_gradient
from ddpn.distributions.mixture_rows import MixtureRows
from ddpn.distributions.rows import DEPTH, Rows
from ddpn.distributions.tables import TabulatedRows, by_window
from ddpn.errors import InputError


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
        return self._shaped(self._flat().mean_variance()[0])

    @property
    @without_gradient
    def variance(self) -> Tensor:
        """Variance Var[Z]."""
        return self._shaped(self._flat().mean_variance()[1])

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distributions, repeated along new or singleton batch axes."""
        return Selected(self, self._positions().expand(torch.Size(batch_shape)))

    def _reshape(self, shape: Sequence[int]) -> Any:
        """The same distributions in another batch shape."""
        return Selected(self, self._positions().reshape(tuple(shape)))

    def _mixture(self) -> Any:
        """The same distribution as a `Mixture` of simpler ones; None for a distribution that is none."""
        return None

    def _with_gradients(self, shape: torch.Size) -> Any:
        """Rows like those of `_flat(shape)`, prepared, whose log pmf carries gradients; None where there are none."""
        return None

    def _summable(self, shape: torch.Size) -> Any:
        """Rows whose pmf can be summed over a range of counts, with gradients if any are needed."""
        if torch.is_grad_enabled() and any(leaf.requires_grad for leaf in self._leaves()):
            rows = self._with_gradients(shape)
            return CountDistribution._flat(self, shape) if rows is None else rows
        return self._flat(shape).prepared()

    def _log_mass(self, low: Tensor, high: Tensor, is_absolute: bool = False) -> Tensor:
        """log P(low <= Z <= high) in float64, differentiable. Shape: bounds broadcast with `batch_shape`."""
        shape = broadcast_shapes(low=tuple(low.shape), high=tuple(high.shape), batch_shape=tuple(self.batch_shape))
        first, last = (x.expand(shape).reshape(-1) for x in (low, high))
        return mass.of_rows(self._summable(shape), first, last, is_absolute).reshape(shape)

    def _leaves(self) -> tuple[Tensor, ...]:
        """Tensors that a gradient could be asked for."""
        return ()

    def _flat(self, shape: torch.Size | None = None) -> Rows:
        """One distribution per row, after `expand(shape)`."""
        if len(self.batch_shape) == 1 and shape in (None, self.batch_shape):
            return DerivedRows(self)
        shape = self.batch_shape if shape is None else shape
        return DerivedRows(Selected(self, self._positions().expand(shape).reshape(-1)))

    @cached_property
    def _like(self) -> Tensor:
        """A tensor of the dtype and on the device of all results: what `log_prob` makes of counts in its own dtype."""
        return self.log_prob(self.bracket(DEPTH)[0]).detach()

    @property
    def _dtype(self) -> torch.dtype:
        return self._like.dtype

    @property
    def _device(self) -> torch.device:
        return self._like.device

    # From the user's shapes and dtypes to rows and back --------------------------------------------------------------

    def _positions(self) -> Tensor:
        """The position of each element in the flattened batch."""
        return torch.arange(self.batch_shape.numel(), device=self._device).view(self.batch_shape)

    def _shaped(self, flat: Tensor, shape: torch.Size | None = None) -> Tensor:
        return flat.reshape(self.batch_shape if shape is None else shape).to(self._dtype)

    def _counts(self, value: Any, negative: bool = False) -> Tensor:
        y = torch.as_tensor(value, device=self._device)
        if y.is_complex():
            raise InputError(f"y must hold counts, got dtype {y.dtype}. Pass real or integer tensors.")
        y = y.to(torch.uint8) if y.dtype == torch.bool else y
        if is_checked(self._check, y):
            arguments.check_counts("y", y, negative)
        return y

    def _paired(self, value: Any, negative: bool = False) -> tuple[Tensor, Any, torch.Size]:
        """Counts as flat float64 values, the distribution of each, and the shape they came in."""
        y = self._counts(value, negative)
        shape = broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        return y.expand(shape).reshape(-1).double(), self._flat(shape), shape

    # What users call -------------------------------------------------------------------------------------------------

    @without_gradient
    def cdf(self, value: Tensor) -> Tensor:
        """Cumulative distribution function P(Z <= y), relatively accurate in the lower tail; 0 at negative integers.

        Parameters
        ----------
        value : Tensor
            Counts y; their shape broadcasts with `batch_shape`.
        """
        y, dist, shape = self._paired(value, negative=True)
        return _rounded_down(quantiles.cdf(dist, y), self._dtype).reshape(shape)

    @without_gradient
    def survival(self, value: Tensor) -> Tensor:
        """Survival function P(Z > y), relatively accurate in the upper tail; 1 at negative integers.

        Parameters
        ----------
        value : Tensor
            Counts y; their shape broadcasts with `batch_shape`.
        """
        y, dist, shape = self._paired(value, negative=True)
        return self._shaped(torch.where(y < 0, 1.0, dist.sides(y.clamp(min=0.0))[1]), shape)

    @without_gradient
    def crps(self, value: Tensor) -> Tensor:
        """Continuous ranked probability score, sum over z of (F(z) - 1[z >= y])^2; smaller is better.

        Parameters
        ----------
        value : Tensor
            Observed counts y; their shape broadcasts with `batch_shape`.
        """
        y, dist, shape = self._paired(value)
        return self._shaped(crps_of(dist, y)[0], shape)

    @without_gradient
    def entropy(self) -> Tensor:
        """Entropy -E[log p(Z)] in nats."""
        dist = self._flat()
        return self._shaped(dist.entropy() if isinstance(dist, MixtureRows) else tables.entropy_of(dist))

    def icdf(self, value: Tensor) -> Tensor:
        """Quantile: the smallest count y with P(Z <= y) >= q.

        Parameters
        ----------
        value : Tensor
            Levels q from 0 to 1; the quantile is infinite at q = 1. Their shape broadcasts with `batch_shape`.
        """
        q = torch.as_tensor(value, device=self._device)
        if is_checked(self._check, q):
            arguments.check_probabilities("q", q)
        shape = broadcast_shapes(q=tuple(q.shape), batch_shape=tuple(self.batch_shape))
        with torch.no_grad():
            y = quantiles.smallest_count(self._flat(shape), q.double().expand(shape).reshape(-1))
        return self._shaped(y, shape)

    @property
    def mode(self) -> Tensor:
        """The most probable count, the smallest of several."""
        with torch.no_grad():
            dist = self._flat()
            if isinstance(dist, MixtureRows):
                return self._shaped(dist.mode())
            return self._shaped(by_window(dist, tables.mode, lambda rows: (rows.far_mode(),))[0])

    def interval(self, coverage: float, kind: str = "central") -> tuple[Tensor, Tensor]:
        """Prediction interval: counts low and high, both included, that hold at least `coverage` of the mass.

        Parameters
        ----------
        coverage : float
            Probability that a count lies in the interval, in (0, 1).
        kind : {"central", "highest"}
            "central" leaves at most half of the rest on either side; "highest" is the shortest such interval.

        Returns
        -------
        low, high : Tensor
            Of shape `batch_shape`.
        """
        coverage = arguments.check_coverage(coverage)
        arguments.check_interval_kind(kind)
        with torch.no_grad():
            low, high = (quantiles.highest if kind == "highest" else quantiles.central)(self._flat(), coverage)
        return self._shaped(low), self._shaped(high)

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
            u = torch.rand(size, dtype=torch.float64, device=self._device, generator=generator)
            return self._shaped(quantiles.many_counts(self._flat(), u.T).T, self._extended_shape(shape))


class Selected(CountDistribution):
    """Elements of another distribution, given by their positions in its flattened batch."""

    def __init__(self, base: Any, index: Tensor) -> None:
        if isinstance(base, Selected):
            base, index = base._base, base._index.reshape(-1)[index]
        self._base: Any = base
        self._index, self._like = index, base._like
        super().__init__(index.shape, base._check)

    def log_prob(self, value: Tensor) -> Tensor:
        y = self._counts(value)
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


class DerivedRows(TabulatedRows):
    """Rows of a distribution with one batch axis, by its public methods."""

    def __init__(self, dist: Any, ends: tuple[Tensor, Tensor] | None = None) -> None:
        self._dist = dist
        # Of exp(log p) in the distribution's own dtype.
        self.rounding = 16.0 * torch.finfo(dist._dtype).eps
        if ends is None:
            first, last = dist.bracket(DEPTH)
            ends = first.double(), last.double()
        self._ends = ends

    def __len__(self) -> int:
        return self._dist.batch_shape[0]

    @property
    def device(self) -> torch.device:
        return self._ends[0].device

    def rows(self, index: Tensor | slice) -> "DerivedRows":
        if isinstance(index, slice):
            index = torch.arange(len(self), device=self.device)[index]
        first, last = self._ends
        return DerivedRows(self._dist.rows(index), (first[index], last[index]))

    def distinct(self) -> tuple["TabulatedRows", Tensor]:
        if not isinstance(self._dist, Selected):
            return super().distinct()
        index, place = self._dist._index.unique(return_inverse=True)
        return DerivedRows(Selected(self._dist._base, index)), place

    def log_pmf(self, y: Tensor) -> Tensor:
        return self._dist.log_prob(y.T).T.double()

    def window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        if isinstance(depth, float) and depth != DEPTH:
            first, last = self._dist.bracket(depth)
            return first.double(), last.double()
        return self._ends


def _rounded_down(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in `dtype`, never above x: so icdf(cdf(y)) = y in every dtype."""
    rounded = x.to(dtype)
    return torch.where(rounded.double() > x, torch.nextafter(rounded, torch.zeros_like(rounded)), rounded)


def crps_of(dist: Rows, y: Tensor) -> tuple[Tensor, ...]:
    """CRPS per row."""
    if isinstance(dist, MixtureRows):
        return (dist.crps(y),)
    if (fused := dist.fused_crps(y)) is not None:
        return (fused,)
    return by_window(dist, tables.crps, crps_by_parts, y)


def crps_by_parts(dist: Any, y: Tensor) -> tuple[Tensor]:
    """E|Z - y| - E|Z - Z'| / 2; at least 0, whatever rounding leaves of the difference."""
    dist = dist.prepared(far=True)
    return ((dist.far_distance(y) - dist.far_half_mean_difference()).clamp(min=0.0),)


def bracket_of(dist: CountDistribution, depth: float) -> tuple[Tensor, Tensor]:
    """The window of a distribution's rows, widened to integers, in its batch shape."""
    with torch.no_grad():
        first, last = dist._flat().window(depth)
    return dist._shaped((first.floor() - 1.0).clamp(min=0.0)), dist._shaped(last.ceil() + 1.0)
