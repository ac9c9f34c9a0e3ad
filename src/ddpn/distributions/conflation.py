"""The conflation of count laws: their normalised product."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ddpn.distributions import grid
from ddpn.distributions.arguments import broadcast_shapes
from ddpn.distributions.count import CountDistribution
from ddpn.distributions.gradients import barrier, without_gradient
from ddpn.distributions.normalizer import DEPTH
from ddpn.errors import InputError

_PANELS = 10
_HALVINGS = 64
#: Counts below this are looked at one by one in the search for the peak.
_SMALL = 32


class Conflation(CountDistribution):
    """p(y) proportional to the product of the laws' p(y), in logarithms throughout, so that nothing underflows.

    The laws may be of any kinds; each should have one peak, or one at 0 and one beyond. Their product may live where
    none of them does.

    >>> from ddpn.distributions import Poisson
    >>> law = Conflation([Poisson(20.0)] * 5)
    >>> round(law.mean.item(), 2), round(law.variance.item(), 2)
    (19.6, 4.0)
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, laws: Sequence[CountDistribution], validate_args: bool | None = None) -> None:
        self.laws = tuple(laws)
        if not self.laws or not all(isinstance(law, CountDistribution) for law in self.laws):
            kinds = ", ".join(type(law).__name__ for law in self.laws) or "none"
            raise InputError(
                f"laws must be one or more count laws of ddpn.distributions, got {kinds}. Wrap them first."
            )
        shape = broadcast_shapes(**{f"law {i}": tuple(law.batch_shape) for i, law in enumerate(self.laws)})
        super().__init__(shape, validate_args)
        with torch.no_grad():
            flat = tuple(law._flat(shape)._prepared() for law in self.laws)
            self._fitted = _Rows.fitted(flat)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Conflation":
        return self._changed(lambda x: x.expand(torch.Size(batch_shape)), lambda law: law.expand(batch_shape))

    def rows(self, index: Any) -> "Conflation":
        """The distributions of some rows along the first batch axis."""
        return self._changed(lambda x: x[index], lambda law: law.expand(self.batch_shape).rows(index))

    def _reshape(self, shape: Sequence[int]) -> "Conflation":
        return self._changed(
            lambda x: x.reshape(tuple(shape)), lambda law: law.expand(self.batch_shape)._reshape(shape)
        )

    def _changed(self, change: Callable[[Tensor], Tensor], of_law: Callable[[Any], Any]) -> "Conflation":
        new = self.__new__(type(self))
        new.laws = tuple(of_law(law) for law in self.laws)
        # What was found for a row holds for all its copies.
        index = change(torch.arange(self.batch_shape.numel(), device=self._device).view(self.batch_shape))
        new._fitted = self._fitted._of(tuple(t[index.reshape(-1)] for t in self._fitted._tensors()))
        CountDistribution.__init__(new, index.shape, self._check)
        return new

    @without_gradient
    def log_prob(self, value: Tensor) -> Tensor:
        """log p(y), normalised."""
        y, law, shape = self._paired(self._counts(value))
        return law._log_pmf(y).reshape(shape).to(self._dtype)

    @property
    def mean(self) -> Tensor:
        """E[Z]."""
        return self._moment(0)

    @property
    def variance(self) -> Tensor:
        """Var[Z]."""
        return self._moment(1)

    def _moment(self, index: int) -> Tensor:
        with torch.no_grad():
            value = self._fitted._mean_variance()[index].reshape(self.batch_shape).to(self._dtype)
        return barrier("a Conflation's mean or variance", value, *self._leaves())

    def _leaves(self) -> tuple[Tensor, ...]:
        return tuple(t for law in self.laws for t in law._leaves())

    @property
    def _dtype(self) -> torch.dtype:
        return self.laws[0]._dtype

    def _tensors(self) -> tuple[Tensor, ...]:
        return self._fitted._tensors()

    def _of(self, tensors: tuple[Tensor, ...]) -> Any:
        return self._fitted._of(tensors)


class _Rows(CountDistribution):
    """Rows of a conflation: the laws' tensors, then the peak's place and height, the log normaliser, a deep window."""

    def __init__(self, laws: tuple[CountDistribution, ...], tensors: tuple[Tensor, ...]) -> None:
        self._laws, self._stacked = laws, tensors
        *rest, self._peak, self._top, self._log_total, self._first, self._last = tensors
        self._flat_laws, start = [], 0
        for law in laws:
            count = len(law._tensors())
            self._flat_laws.append(law._of(tuple(rest[start : start + count])))
            start += count
        super().__init__(torch.Size([len(tensors[0])]), validate_args=False)

    @classmethod
    def fitted(cls, laws: tuple[CountDistribution, ...]) -> "_Rows":
        """Find the peak of the product of flat laws, then its normaliser and a window of twice the usual depth."""
        tensors = tuple(t for law in laws for t in law._tensors())
        zeros = torch.zeros(len(tensors[0]), dtype=torch.float64, device=tensors[0].device)
        peak = cls(laws, (*tensors, zeros, zeros, zeros, zeros, zeros))._find_peak()
        top = cls(laws, (*tensors, zeros, zeros, zeros, zeros, zeros))._log_pmf(peak)
        rows = cls(laws, (*tensors, peak, top, top, zeros, zeros))
        (log_sum,) = grid.by_window(rows, _log_sum_on_integers, _log_sum_on_panels)
        return cls(laws, (*tensors, peak, top, top + log_sum, *rows._window(2.0 * DEPTH)))

    @property
    def _copies(self) -> int:  # type: ignore[override]
        return len(self._laws)

    def _tensors(self) -> tuple[Tensor, ...]:
        return self._stacked

    def _of(self, tensors: tuple[Tensor, ...]) -> "_Rows":
        return _Rows(self._laws, tensors)

    def _log_pmf(self, y: Tensor) -> Tensor:
        total = sum(law._log_pmf(y) for law in self._flat_laws)
        return total - self._log_total.view(-1, *[1] * (y.dim() - 1))

    def _smooth_log_pmf(self, y: Tensor) -> Tensor:
        return sum(law._smooth_log_pmf(y) for law in self._flat_laws) - self._log_total.unsqueeze(1)

    def _find_peak(self) -> Tensor:
        """The highest of the first counts and of one peak between the laws' windows, found by halving its slope."""
        windows = [law._window() for law in self._flat_laws]
        low = torch.stack([first for first, _ in windows]).amin(0).floor()
        high = torch.stack([last for _, last in windows]).amax(0).ceil() + 1
        for _ in range(_HALVINGS):
            middle = ((low + high) / 2).floor()
            rising = self._log_pmf(middle + 1) > self._log_pmf(middle)
            low, high = torch.where(rising, middle + 1, low), torch.where(rising, high, middle)
        small = torch.arange(float(_SMALL), dtype=low.dtype, device=low.device).expand(len(low), _SMALL)
        y = torch.cat([small, low.unsqueeze(1)], dim=1)
        return y.gather(1, self._log_pmf(y).argmax(1, keepdim=True)).squeeze(1)

    def _depth(self, y: Tensor) -> Tensor:
        return (self._top - self._log_total - self._log_pmf(y)).clamp(min=0.0)

    def _tail_end(self, y: Tensor, lower: Tensor) -> Tensor:
        depth = self._depth(y)
        # Beyond the kept window, which is the rare case, the end is searched for.
        first, last = self._window(DEPTH + depth) if (depth > DEPTH).any() else (self._first, self._last)
        return torch.where(lower, first, last)

    def _window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        """Where the product has fallen by depth: by halving below the peak, by doubling and halving above."""
        depth = depth + torch.zeros_like(self._peak)
        low, inside = torch.full_like(self._peak, -1.0), self._peak
        log_low, log_high = torch.zeros_like(inside), torch.full_like(inside, 60.0)
        for _ in range(_HALVINGS):
            middle = ((low + inside) / 2).floor()
            deep = (middle < 0) | (self._depth(middle.clamp(min=0.0)) > depth)
            low, inside = torch.where(deep, middle, low), torch.where(deep, inside, middle)
            step = 0.5 * (log_low + log_high)
            deep = self._depth((self._peak + step.exp()).ceil()) > depth
            log_low, log_high = torch.where(deep, log_low, step), torch.where(deep, step, log_high)
        reaches_zero = self._depth(torch.zeros_like(low)) <= depth
        return torch.where(reaches_zero, 0.0, low.clamp(min=0.0)), (self._peak + log_high.exp()).ceil()

    def _spread(self, first: Tensor, last: Tensor) -> Tensor:
        return grid.spread_breaks(first, last, _PANELS)

    def _mean_variance(self) -> tuple[Tensor, Tensor]:
        mean, variance = grid.by_window(self, _moments_on_integers, _moments_on_panels)
        return mean, variance


def _log_sum_on_integers(at: grid.Grid) -> tuple[Tensor]:
    return (at.pmf.sum(1).log(),)


def _log_sum_on_panels(rows: _Rows) -> tuple[Tensor]:
    p = grid.panels(rows, rows._breaks())
    return (p.total(p.head, p.pmf).log(),)


def _moments_on_integers(at: grid.Grid) -> tuple[Tensor, Tensor]:
    mode = at.y.gather(1, at.pmf.argmax(1, keepdim=True))
    gap = at.y - mode
    shift = (at.pmf * gap).sum(1)
    return mode.squeeze(1) + shift, (at.pmf * gap * gap).sum(1) - shift**2


def _moments_on_panels(rows: _Rows) -> tuple[Tensor, Tensor]:
    p = grid.panels(rows, rows._breaks())
    counts = torch.arange(float(p.head.shape[1]), dtype=p.x.dtype, device=p.x.device)
    head_gap, gap = counts - rows._peak.unsqueeze(1), p.x - rows._peak.view(-1, 1, 1)
    shift = p.total(p.head * head_gap, p.pmf * gap)
    return rows._peak + shift, p.total(p.head * head_gap**2, p.pmf * gap**2) - shift**2
