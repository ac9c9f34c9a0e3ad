"""What every count law gets from a look at its pmf: cdf, quantiles, intervals, entropy, CRPS, samples."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ddpn.distributions import grid, quantiles
from ddpn.distributions.arguments import (
    broadcast_shapes,
    check_counts,
    check_coverage,
    check_interval_kind,
    check_probabilities,
    is_checked,
)
from ddpn.distributions.cuts import Cut, cut_at
from ddpn.distributions.gradients import without_gradient
from ddpn.distributions.normalizer import DEPTH
from ddpn.distributions.quadrature import PREFIX
from ddpn.errors import InputError


class CountDistribution(Distribution):
    """A law over {0, 1, 2, ...}.

    A subclass is made of tensors with one row a law (`_tensors`, `_of`) and knows its pmf (`_pmf`) and where it lives
    (`_window`, `_breaks`). All that is internal: float64, rows flattened, no gradient.
    """

    support = constraints.nonnegative_integer
    #: Values of the pmf that one node of a grid costs.
    _copies = 1
    #: Windows clear of 0 with at most so many integers are looked at one by one.
    _short = grid.SHORT

    def __init__(self, batch_shape: torch.Size, validate_args: bool | None = None) -> None:
        super().__init__(batch_shape, validate_args=False)
        self._check = validate_args

    def rows(self, index: Any) -> Self:
        """The distributions of some rows along the first batch axis."""
        return self._mapped(lambda x: x[index])

    def _reshape(self, shape: Sequence[int]) -> Self:
        return self._mapped(lambda x: x.reshape(tuple(shape)))

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Self:
        new = self.__new__(type(self))
        for name in self._names:
            setattr(new, name, change(getattr(self, name)))
        CountDistribution.__init__(new, getattr(new, self._names[0]).shape, self._check)
        return new

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(self.arg_constraints)

    # What a subclass says of itself -------------------------------------------------------------------------------

    def _tensors(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _of(self, tensors: tuple[Tensor, ...]) -> Self:
        raise NotImplementedError

    def _leaves(self) -> tuple[Tensor, ...]:
        """What a gradient could be asked for."""
        return self._tensors()

    def _log_pmf(self, y: Tensor) -> Tensor:
        """log pmf at counts. Shape: (rows,) -> (rows,) or (rows, n) -> (rows, n)."""
        raise NotImplementedError

    def _smooth_log_pmf(self, y: Tensor) -> Tensor:
        """log pmf, continued smoothly to real y >= 12. Shape: (rows, n) -> (rows, n)."""
        return self._log_pmf(y)

    def _window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        """First and last position of a window that leaves out about e^-depth of the law."""
        raise NotImplementedError

    def _tail_end(self, y: Tensor, lower: Tensor) -> Tensor:
        """Where the tail beyond y, on the side that `lower` tells, has fallen by DEPTH."""
        raise NotImplementedError

    def _spread(self, first: Tensor, last: Tensor) -> Tensor:
        """Breaks (see `grid`) that resolve the law between two positions. Shape: (rows,) -> (rows, K)."""
        raise NotImplementedError

    # What follows from it; a subclass may know better --------------------------------------------------------------

    def _prepared(self, far: bool = False) -> Self:
        """The same law, with what its pmf needs a row computed once; `far` says that all windows are long."""
        return self

    def _breaks(self) -> Tensor:
        return self._spread(*self._window())

    def _pmf(self, y: Tensor) -> Tensor:
        return self._smooth_log_pmf(y).exp()

    def _pmf_near(self, y: Tensor) -> Tensor:
        """pmf on integers that hold the whole law."""
        return self._pmf(y)

    def _pmf_table(self, n: int) -> Tensor:
        """pmf at 0..n-1, which hold the whole law."""
        return self._first_integers(n)

    def _pmf_prefix(self) -> Tensor:
        return self._first_integers(PREFIX)

    def _first_integers(self, n: int) -> Tensor:
        rows = self._tensors()[0]
        return self._log_pmf(torch.arange(float(n), dtype=torch.float64, device=rows.device).expand(len(rows), n)).exp()

    def _mean_variance(self) -> tuple[Tensor, Tensor]:
        return self.mean, self.variance

    def _cut(self, y: Tensor) -> Cut:
        return cut_at(self, y)

    def _sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """P(Z <= y) and P(Z > y), without the distance."""
        return self._cut(y)[:2]

    def _far_distance(self, y: Tensor) -> Tensor:
        """E|Z - y| of laws with a long window."""
        return self._cut(y).distance

    def _half_mean_difference(self) -> Tensor:
        """E|Z - Z'| / 2 of laws with a long window."""
        return grid.half_mean_difference(grid.panels(self, self._breaks()))

    def _entropy_of_panels(self) -> tuple[Tensor]:
        return (grid.entropy(grid.panels(self, self._breaks())),)

    def _mode_of_panels(self) -> Tensor:
        """Mode of laws with a long window."""
        return quantiles.mode_of_panels(self)

    # From the user's shapes and dtypes to rows and back -----------------------------------------------------------

    @property
    def _dtype(self) -> torch.dtype:
        return self.mean.dtype

    def _flat(self, shape: torch.Size | None = None) -> Self:
        law = self if shape is None or shape == self.batch_shape else self.expand(shape)
        return self._of(law._tensors())

    def _counts(self, value: Any, name: str = "y") -> Tensor:
        y = torch.as_tensor(value, device=self._device)
        if y.is_complex():
            raise InputError(f"{name} must hold counts, got dtype {y.dtype}. Pass real or integer tensors.")
        y = y.to(torch.uint8) if y.dtype == torch.bool else y
        if is_checked(self._check, y):
            check_counts(name, y)
        return y

    @property
    def _device(self) -> torch.device:
        return self._tensors()[0].device

    def _paired(self, value: Tensor) -> tuple[Tensor, Self, torch.Size]:
        """Flat float64 values, the law of each, and the shape they came in."""
        shape = broadcast_shapes(y=tuple(value.shape), batch_shape=tuple(self.batch_shape))
        return value.expand(shape).reshape(-1).double(), self._flat(shape), shape

    # What users ask ---------------------------------------------------------------------------------------------

    @without_gradient
    def cdf(self, value: Tensor) -> Tensor:
        """P(Z <= y), relatively accurate in the lower tail."""
        y, law, shape = self._paired(self._counts(value))
        return _rounded_down(law._sides(y)[0], self._dtype).reshape(shape)

    @without_gradient
    def survival(self, value: Tensor) -> Tensor:
        """P(Z > y), relatively accurate in the upper tail."""
        y, law, shape = self._paired(self._counts(value))
        return law._sides(y)[1].reshape(shape).to(self._dtype)

    @without_gradient
    def crps(self, value: Tensor) -> Tensor:
        """Continuous ranked probability score, sum over z of (F(z) - 1[z >= y])^2; smaller is better."""
        y, law, shape = self._paired(self._counts(value))
        (score,) = grid.by_window(law, _crps_on_integers, _crps_by_parts, y)
        return score.reshape(shape).to(self._dtype)

    @without_gradient
    def entropy(self) -> Tensor:
        """-E[log p(Z)] in nats."""
        return entropy_of(self._flat()).reshape(self.batch_shape).to(self._dtype)

    def icdf(self, value: Tensor) -> Tensor:
        """The smallest count y with P(Z <= y) >= q; infinite at q = 1."""
        q = torch.as_tensor(value, device=self._device)
        if is_checked(self._check, q):
            check_probabilities("q", q)
        shape = broadcast_shapes(q=tuple(q.shape), batch_shape=tuple(self.batch_shape))
        with torch.no_grad():
            found = quantiles.smallest_count(self._flat(shape), q.double().expand(shape).reshape(-1))
        return found.reshape(shape).to(self._dtype)

    @property
    def mode(self) -> Tensor:
        """The most probable count, the smallest of several."""
        with torch.no_grad():
            found = quantiles.most_probable_count(self._flat())
        return found.reshape(self.batch_shape).to(self._dtype)

    def interval(self, coverage: float, kind: str = "central") -> tuple[Tensor, Tensor]:
        """Counts (low, high), both included, that hold at least `coverage` of the mass.

        `kind="central"` leaves at most half of the rest on either side; `kind="highest"` is the shortest such interval.
        """
        coverage = check_coverage(coverage)
        check_interval_kind(kind)
        with torch.no_grad():
            search = quantiles.highest if kind == "highest" else quantiles.central
            low, high = search(self._flat(), coverage)
        return low.reshape(self.batch_shape).to(self._dtype), high.reshape(self.batch_shape).to(self._dtype)

    def sample(self, sample_shape: Any = torch.Size(), generator: torch.Generator | None = None) -> Tensor:
        """Draws by inversion of the cdf, from uniforms in float64."""
        shape = self._extended_shape(torch.Size(sample_shape))
        with torch.no_grad():
            u = torch.rand(shape, dtype=torch.float64, device=self._device, generator=generator)
            found = quantiles.smallest_count(self._flat(shape), u.reshape(-1))
        return found.reshape(shape).to(self._dtype)


def _rounded_down(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in `dtype`, never above x: so icdf(cdf(y)) = y in every dtype."""
    rounded = x.to(dtype)
    return torch.where(rounded.double() > x, torch.nextafter(rounded, torch.zeros_like(rounded)), rounded)


def _crps_on_integers(at: grid.Grid, y: Tensor) -> tuple[Tensor]:
    """Both tails are summed from their own end, so that a law with nearly all its mass on one count keeps its score."""
    cdf, survival = grid.both_tails(at.pmf)
    below = (y.unsqueeze(1) - at.y).clamp_(0.0, 1.0)
    score = torch.lerp(survival.square_(), cdf.square_(), below).sum(1)
    first, past = at.y[:, 0], at.y[:, -1] + 1.0
    return (score + (first - y).clamp(min=0.0) + (y - past).clamp(min=0.0),)


def _crps_by_parts(law: CountDistribution, y: Tensor) -> tuple[Tensor]:
    law = law._prepared(far=True)
    return (law._far_distance(y) - law._half_mean_difference(),)


def entropy_of(law: CountDistribution) -> Tensor:
    """Entropy of a flat law. Shape: (rows,)."""
    return grid.by_window(law, entropy_on_integers, lambda rows: rows._prepared()._entropy_of_panels())[0]


def entropy_on_integers(at: grid.Grid) -> tuple[Tensor]:
    """-sum p log p of a law on every integer of its window."""
    # The largest probability as 1 minus the others: entropies far below 1e-16 stay right.
    others = at.pmf.scatter(1, at.pmf.argmax(1, keepdim=True), 0.0)
    rest = others.sum(1)
    return (torch.special.entr(others).sum(1) - (1.0 - rest) * torch.log1p(-rest),)
