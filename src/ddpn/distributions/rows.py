"""`Rows`: count distributions in the form that the algorithms of this package work on."""

from abc import ABC, abstractmethod
from typing import NamedTuple, Self

import torch
from torch import Tensor

from ddpn.distributions.special import SharedNodes

#: Windows leave out about e^-DEPTH of the mass: below 1e-13 of what they hold.
DEPTH = 32.0
#: Integers kept beyond a window's end, for distributions narrower than 1: their variance is what the next one holds.
MARGIN = 3.0


class Cut(NamedTuple):
    """P(Z <= y), P(Z > y) and E|Z - y|."""

    cdf: Tensor
    survival: Tensor
    distance: Tensor


class Rows(ABC):
    """One count distribution per row, in float64 and without gradients.

    Positions y are (rows,) or (rows, n); results have their shape.
    """

    #: Values of the pmf that one position costs.
    copies: int = 1
    #: Windows clear of 0 with at most so many integers are summed one by one.
    short: int = 128
    #: Whether the pmf continues smoothly between the integers from 12 on.
    smooth: bool = True
    #: Sums of the same terms in blocks of another shape may differ by so much, relatively; quantiles must not.
    rounding: float = 9e-16
    #: Whether sums always run over all integers of the window. Other rows have methods for long windows: `SmoothRows`.
    tabulated: bool = False
    #: Whether `guess` finds quantiles.
    has_guess: bool = False

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the parameters are."""

    @abstractmethod
    def rows(self, index: Tensor | slice) -> Self:
        """Some of the rows."""

    @abstractmethod
    def log_pmf(self, y: Tensor) -> Tensor:
        """log pmf at counts."""

    @abstractmethod
    def window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        """First and last position of a window that leaves out about e^-depth of the mass."""

    @abstractmethod
    def mean_variance(self) -> tuple[Tensor, Tensor]:
        """Mean and variance."""

    @abstractmethod
    def cut(self, y: Tensor) -> Cut:
        """Both sides of y, with the mean distance."""

    def sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """P(Z <= y) and P(Z > y)."""
        return self.cut(y)[:2]

    def fused_crps(self, y: Tensor) -> Tensor | None:
        """CRPS by one kernel, where there is one for these rows and their device."""
        return None

    def prepared(self, far: bool = False) -> Self:
        """The same rows with what their pmf needs computed once; `far` promises that all windows are long."""
        return self

    def normalised(self) -> Self:
        """The same rows with what their pmf, but not their tails, need computed once."""
        return self.prepared()

    def pmf_near(self, y: Tensor) -> Tensor:
        """pmf on integers that hold the whole distribution."""
        return self.log_pmf(y).exp()

    def pmf_window(self, y: Tensor) -> Tensor:
        """pmf on consecutive integers from the start of the window on. Shape: (rows, n)."""
        return self.log_pmf(y).exp()

    def pmf_table(self, n: int) -> Tensor:
        """pmf at 0..n-1, which hold the whole distribution."""
        return self.pmf_first(n)

    def pmf_first(self, n: int) -> Tensor:
        """pmf at 0..n-1."""
        return self.log_pmf(torch.arange(float(n), dtype=torch.float64, device=self.device).expand(len(self), n)).exp()

    def constant(self, value: float) -> Tensor:
        """One number per row, the same for all."""
        return torch.full((len(self),), value, dtype=torch.float64, device=self.device)

    def pmf(self, y: Tensor) -> Tensor:
        """pmf, continued smoothly to real y >= 12. Shape: (rows, n)."""
        return self.smooth_log_pmf(y).exp()

    def smooth_log_pmf(self, y: Tensor) -> Tensor:
        """log pmf, continued smoothly to real y >= 12. Shape: (rows, n)."""
        return self.log_pmf(y)

    def shared_pmf(self, at: SharedNodes) -> Tensor:
        """pmf of the k components of each row at positions that these share. Shape: (rows, n) -> (rows, k, n)."""
        n, k = at.y.shape[1], len(self) // max(len(at.y), 1)
        return self.pmf(at.y.unsqueeze(1).expand(-1, k, n).reshape(-1, n)).unflatten(0, (-1, k))

    def resolution(self, t: Tensor) -> Tensor | None:
        """Panels that the pmf needs per unit of t = sqrt(y), at t within its window; None where that is not known.

        Shape: (rows, n) -> (rows, n).
        """
        return None

    def upper_bound(self) -> Tensor:
        """A position at or beyond the last of the window, where that takes less time to find."""
        return self.window()[1]

    def window_from_zero(self) -> tuple[Tensor, Tensor] | None:
        """A wider window, from 0 on, where that takes much less time to find than `window`; else None."""
        return None

    def kernel_parameters(self) -> tuple[str, tuple[Tensor, ...]] | None:
        """The family's name in the kernels for GPUs and its parameters there, (rows,) each; None where it has none."""
        return None

    def guess(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Counts at or close to the quantiles of levels q, and where they are surely at them. Shape: (rows, n)."""
        raise NotImplementedError

    def one_panel(self) -> Tensor:
        """Whether one panel of many nodes, even in sqrt(y), integrates the pmf beyond its first counts."""
        return torch.ones(len(self), dtype=torch.bool, device=self.device)

    def on_grid(self) -> Tensor:
        """Whether the panels that `resolution` asks for integrate the pmf beyond its first counts."""
        return self.one_panel()

    def breaks(self) -> Tensor:
        """Increasing positions between neighbours of which a few nodes integrate the pmf. Shape: (rows, K)."""
        raise NotImplementedError
