"""The conflation of count distributions: their normalised product."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import panels, tables
from ddpn.distributions.arguments import broadcast_shapes
from ddpn.distributions.count import CountDistribution, bracket_of
from ddpn.distributions.dispatch import take
from ddpn.distributions.gradients import without_gradient
from ddpn.distributions.rows import DEPTH, Rows
from ddpn.distributions.special import beside
from ddpn.distributions.tails import SmoothRows
from ddpn.errors import InputError

_HALVINGS = 64
#: Counts below this are tried one by one in the search for the peak.
_SMALL = 32


class ConflationRows(SmoothRows):
    """Rows of each component; the peak's place and height, the log normaliser, and windows of one and two depths."""

    panels = 10

    def __init__(self, parts: tuple[Rows, ...], *found: Tensor) -> None:
        self._parts, self._found = parts, found
        self._peak, self._top, self._log_total, *windows = found
        self._near, self._far = (windows[0], windows[1]), (windows[2], windows[3])
        self.location = self._peak

    @classmethod
    def fitted(cls, parts: tuple[Rows, ...]) -> "ConflationRows":
        """Find the peak of the product, then its windows and its normaliser."""
        zeros = parts[0].constant(0.0)
        start = cls(parts, *[zeros] * 7)
        peak = start._find_peak()
        top = start.log_pmf(peak)
        rows = cls(parts, peak, top, top, *[zeros] * 4)
        windows = *rows._search(DEPTH), *rows._search(2.0 * DEPTH)
        rows = cls(parts, peak, top, top, *windows)
        (total,) = tables.by_window(
            rows, lambda at: (at.pmf.sum(1),), lambda part: (panels.total_mass(panels.panels(part, part.breaks())),)
        )
        return cls(parts, peak, top, top + total.log(), *windows)

    def __len__(self) -> int:
        return len(self._peak)

    @property
    def device(self) -> torch.device:
        return self._peak.device

    @property
    def copies(self) -> int:  # type: ignore[override]
        return sum(part.copies for part in self._parts)

    def rows(self, index: Tensor | slice) -> "ConflationRows":
        parts = tuple(part.rows(index) for part in self._parts)
        return ConflationRows(parts, *(take(t, index) for t in self._found))

    def log_pmf(self, y: Tensor) -> Tensor:
        return sum(part.log_pmf(y) for part in self._parts) - beside(self._log_total, y)

    def smooth_log_pmf(self, y: Tensor) -> Tensor:
        return sum(part.smooth_log_pmf(y) for part in self._parts) - self._log_total.unsqueeze(1)

    def _find_peak(self) -> Tensor:
        """The highest of the first counts and of one peak between the components' windows, by halving its slope."""
        windows = [part.window() for part in self._parts]
        low = torch.stack([first for first, _ in windows]).amin(0).floor()
        high = torch.stack([last for _, last in windows]).amax(0).ceil() + 1
        for _ in range(_HALVINGS):
            middle = ((low + high) / 2).floor()
            here, after = self.log_pmf(torch.stack([middle, middle + 1], dim=1)).unbind(1)
            rising = after > here
            low, high = torch.where(rising, middle + 1, low), torch.where(rising, high, middle)
            if (low >= high).all():
                break
        small = torch.arange(float(_SMALL), dtype=low.dtype, device=low.device).expand(len(low), _SMALL)
        y = torch.cat([small, low.unsqueeze(1)], dim=1)
        return y.gather(1, self.log_pmf(y).argmax(1, keepdim=True)).squeeze(1)

    def _depth(self, y: Tensor) -> Tensor:
        return (beside(self._top - self._log_total, y) - self.log_pmf(y)).clamp(min=0.0)

    def tail_end(self, y: Tensor, lower: Tensor) -> Tensor:
        depth = self._depth(y)
        # Beyond the kept window, which is the rare case, the end is searched for.
        first, last = self._search(DEPTH + depth) if (depth > DEPTH).any() else self._far
        return torch.where(lower, first, last)

    def window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        return self._near if isinstance(depth, float) and depth == DEPTH else self._search(depth)

    def _search(self, depth: float | Tensor) -> tuple[Tensor, Tensor]:
        """Where the product has fallen by depth: by halving below the peak, by doubling and halving above."""
        depth = depth + torch.zeros_like(self._peak)
        low, inside = torch.full_like(self._peak, -1.0), self._peak
        log_low, log_high = torch.zeros_like(inside), torch.full_like(inside, 60.0)
        for _ in range(_HALVINGS):
            middle, step = ((low + inside) / 2).floor(), 0.5 * (log_low + log_high)
            y = torch.stack([middle.clamp(min=0.0), (self._peak + step.exp()).ceil()], dim=1)
            below, above = (self._depth(y) > depth.unsqueeze(1)).unbind(1)
            below = below | (middle < 0)
            low, inside = torch.where(below, middle, low), torch.where(below, inside, middle)
            log_low, log_high = torch.where(above, log_low, step), torch.where(above, step, log_high)
            last = (self._peak + log_high.exp()).ceil()
            if ((inside - low <= 1) & (last - (self._peak + log_low.exp()).ceil() <= 1)).all():
                break
        reaches_zero = self._depth(torch.zeros_like(low)) <= depth
        return torch.where(reaches_zero, 0.0, low.clamp(min=0.0)), last


class Conflation(CountDistribution):
    """The normalised product of count distributions, in logarithms throughout: nothing underflows.

    Parameters
    ----------
    components : sequence of CountDistribution
        Count distributions of this package, of any families; each should have one peak, or one at 0 and one beyond.
        Their product may live where none of them does.
    validate_args : bool, optional
        Whether values are checked. Default: only on a CPU.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> dist = Conflation([Poisson(20.0)] * 5)
    >>> round(dist.mean.item(), 2), round(dist.variance.item(), 2)
    (19.6, 4.0)
    """

    def __init__(self, components: Sequence[CountDistribution], validate_args: bool | None = None) -> None:
        self.components = tuple(components)
        if not self.components or not all(isinstance(part, CountDistribution) for part in self.components):
            kinds = ", ".join(type(part).__name__ for part in self.components) or "none"
            raise InputError(f"components must be one or more count distributions of ddpn.distributions, got {kinds}.")
        shape = broadcast_shapes(**{f"component {i}": tuple(d.batch_shape) for i, d in enumerate(self.components)})
        super().__init__(shape, validate_args)
        with torch.no_grad():
            parts = tuple(part._flat(shape).prepared() for part in self.components)
            if not all(part.smooth for part in parts):
                raise InputError("components of a Conflation must have a pmf that is smooth from count to count.")
            self._fitted = ConflationRows.fitted(parts)

    def rows(self, index: Any) -> "Conflation":
        """The distributions of some rows along the first batch axis."""
        return self._changed(lambda x: x[index], lambda part: part.expand(self.batch_shape).rows(index))

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Conflation":
        """The same distributions, repeated along new or singleton batch axes."""
        return self._changed(lambda x: x.expand(torch.Size(batch_shape)), lambda part: part.expand(batch_shape))

    def _reshape(self, shape: Sequence[int]) -> "Conflation":
        size = tuple(shape)
        return self._changed(lambda x: x.reshape(size), lambda part: part.expand(self.batch_shape)._reshape(size))

    def _changed(self, change: Callable[[Tensor], Tensor], of_part: Callable[[Any], Any]) -> "Conflation":
        new = object.__new__(Conflation)
        new.components = tuple(of_part(part) for part in self.components)
        # What was found for a row holds for all its copies.
        index = change(self._positions())
        new._fitted = self._fitted.rows(index.reshape(-1))
        CountDistribution.__init__(new, index.shape, self._check)
        return new

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """First and last integer of a window outside of which about e^-depth of the mass lies."""
        return bracket_of(self, depth)

    @without_gradient
    def log_prob(self, value: Tensor) -> Tensor:
        """log p(y), normalised."""
        y, dist, shape = self._paired(value)
        return self._shaped(dist.log_pmf(y), shape)

    def _leaves(self) -> tuple[Tensor, ...]:
        return tuple(t for part in self.components for t in part._leaves())

    @cached_property
    def _like(self) -> Tensor:
        return self.components[0]._like

    def _flat(self, shape: torch.Size | None = None) -> Any:
        if shape is None or shape == self.batch_shape:
            return self._fitted
        return self._fitted.rows(self._positions().expand(shape).reshape(-1))
