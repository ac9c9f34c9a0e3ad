"""Normals as count laws: rounded to the nearest integer, with what falls below 0 put on 0."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from ddpn.distributions import grid
from ddpn.distributions.arguments import as_parameters, check_positive, is_checked
from ddpn.distributions.count import CountDistribution
from ddpn.distributions.gradients import barrier, without_gradient
from ddpn.distributions.mixture import Mixture
from ddpn.distributions.normalizer import DEPTH
from ddpn.distributions.quadrature import JOIN, gauss_legendre
from ddpn.distributions.weights import HALF_LOG_TWO_PI
from ddpn.errors import InputError

_PANELS = 12
#: Nodes across one cell [k - 1/2, k + 1/2) that is narrow beside the Normal: exact to 1e-16 (GL error bound).
_CELL_NODES = 8


def log_mass(centre: Tensor, width: Tensor) -> Tensor:
    """log P(|X - centre| < width / 2) for a standard Normal X, relatively accurate in both tails.

    Narrow cells, where the difference of two cdfs would cancel, by quadrature of the density over that at the centre,
    cosh(centre t) exp(-t^2 / 2); others by log cdfs on the lower side.
    """
    m = centre.abs()
    narrow = width * m.clamp(min=1.0) < 1.0
    half = 0.5 * torch.where(narrow, width, 0.0)
    inner = torch.where(narrow, m, 0.0)
    nodes, weights = (x[_CELL_NODES // 2 :].tolist() for x in gauss_legendre(_CELL_NODES, torch.device("cpu")))
    ratio = torch.zeros_like(m)
    for node, weight in zip(nodes, weights, strict=True):
        t = (2.0 * node - 1.0) * half
        ratio = ratio + 2.0 * weight * torch.cosh(inner * t) * torch.exp(-0.5 * t * t)
    by_density = width.log() - 0.5 * m * m - HALF_LOG_TWO_PI + ratio.log()
    upper, lower = (torch.special.log_ndtr(side * 0.5 * width - m) for side in (1.0, -1.0))
    by_cdf = upper + torch.log(-torch.expm1(lower - upper))
    return torch.where(narrow, by_density, by_cdf)


class Discretized(CountDistribution):
    """The count nearest to X ~ Normal: p(k) = P(k - 1/2 <= X < k + 1/2) for k >= 1, p(0) = P(X < 1/2).

    What a Normal says about counts, so that it can be scored beside count laws. `discretized` takes mixtures too.

    Shape: that of `base`. Computation is in float64, results come in the parameters' dtype, without gradients.

    >>> law = Discretized(Normal(2.0, 1.0))
    >>> [round(p, 4) for p in law.log_prob(torch.arange(4.0)).exp().tolist()]
    [0.0668, 0.2417, 0.3829, 0.2417]
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, base: Normal, validate_args: bool | None = None) -> None:
        if not isinstance(base, Normal):
            raise InputError(
                f"base must be a Normal, got {type(base).__name__}. Use discretized() for mixtures of them."
            )
        loc, scale = as_parameters(loc=base.loc, scale=base.scale)
        if is_checked(validate_args, loc):
            check_positive("scale", scale, "Emit its logarithm and exponentiate, or clamp it.")
            _check_finite(loc)
        self.base = Normal(loc, scale, validate_args=False)
        super().__init__(loc.shape, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Discretized":
        return Discretized(self.base.expand(torch.Size(batch_shape)), validate_args=self._check)

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> "Discretized":
        loc, scale = change(self.base.loc), change(self.base.scale)
        new = Discretized(Normal(loc, scale, validate_args=False), validate_args=False)
        new._check = self._check
        return new

    @without_gradient
    def log_prob(self, value: Tensor) -> Tensor:
        """log p(y), finite and relatively accurate however far y is."""
        y, law, shape = self._paired(self._counts(value))
        return law._log_pmf(y).reshape(shape).to(self._dtype)

    @property
    def mean(self) -> Tensor:
        """E[Z]; that of the Normal where it is wide and clear of 0."""
        return self._moment(0)

    @property
    def variance(self) -> Tensor:
        """Var[Z]; the Normal's plus 1/12 where it is wide and clear of 0."""
        return self._moment(1)

    def _moment(self, index: int) -> Tensor:
        with torch.no_grad():
            value = self._flat()._mean_variance()[index].reshape(self.batch_shape).to(self._dtype)
        return barrier("a Discretized law's mean or variance", value, *self._leaves())

    @property
    def _dtype(self) -> torch.dtype:
        return self.base.loc.dtype

    def _leaves(self) -> tuple[Tensor, ...]:
        return self.base.loc, self.base.scale

    def _tensors(self) -> tuple[Tensor, ...]:
        return self.base.loc.reshape(-1).double(), self.base.scale.reshape(-1).double()

    def _of(self, tensors: tuple[Tensor, ...]) -> "Discretized":
        loc, scale = tensors
        return Discretized(Normal(loc, scale, validate_args=False), validate_args=False)

    def _log_pmf(self, y: Tensor) -> Tensor:
        loc, scale = (x.view(-1, *[1] * (y.dim() - 1)) for x in self._tensors())
        inner = log_mass((y - loc) / scale, (1.0 / scale).expand_as(y))
        return torch.where(y < 0.5, torch.special.log_ndtr((0.5 - loc) / scale), inner)

    def _pmf_near(self, y: Tensor) -> Tensor:
        """As a difference of cdfs on the lower side: a short window's cells are wide enough for it, and it is cheap."""
        loc, scale = (x.unsqueeze(1) for x in self._tensors())
        unit = 1.0 / (scale * math.sqrt(2.0))
        gap = (y - loc).abs()
        inner = 0.5 * (torch.erfc((gap - 0.5) * unit) - torch.erfc((gap + 0.5) * unit))
        return torch.where(y < 0.5, 0.5 * torch.erfc((loc - 0.5) * unit), inner)

    def _pmf_table(self, n: int) -> Tensor:
        loc, _ = self._tensors()
        return self._pmf_near(torch.arange(float(n), dtype=loc.dtype, device=loc.device).expand(len(loc), n))

    def _sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        loc, scale = self._tensors()
        z = (y + 0.5 - loc) / (scale * math.sqrt(2.0))
        # torch's ndtr is (1 + erf) / 2, which has no digits left in its lower tail.
        return 0.5 * torch.erfc(-z), 0.5 * torch.erfc(z)

    def _reach(self, y: Tensor, side: Tensor | float, depth: float | Tensor) -> Tensor:
        """Where the density has fallen by `depth` from what it is at y, or from its peak if that lies beyond y."""
        loc, scale = self._tensors()
        gap = (side * (y - loc) / scale).clamp(min=0.0)
        return loc + side * scale * torch.sqrt(gap * gap + 2.0 * depth)

    def _window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        loc, _ = self._tensors()
        # Of a Normal below 0 what matters is the part above, however small.
        first, last = self._reach(loc, -1.0, depth) - 0.5, self._reach(torch.zeros_like(loc), 1.0, depth) + 0.5
        return first.clamp(min=0.0), last.clamp(min=0.0)

    def _tail_end(self, y: Tensor, lower: Tensor) -> Tensor:
        side = torch.where(lower, -1.0, 1.0).to(y.dtype)
        return (self._reach(y, side, DEPTH) + 0.5 * side).clamp(min=0.0)

    def _spread(self, first: Tensor, last: Tensor) -> Tensor:
        return grid.spread_breaks(first, last, _PANELS)

    def _mean_variance(self) -> tuple[Tensor, Tensor]:
        loc, _ = self._tensors()
        mean, variance = grid.by_window(self, _moments_on_integers, _moments_far, loc.round().clamp(min=0.0))
        return mean, variance

    @property
    def mode(self) -> Tensor:
        """The count nearest to the Normal's mean, the smaller of two; or 0, where more of it lies below 1/2."""
        with torch.no_grad():
            law = self._flat()
            inner = (law._tensors()[0] - 0.5).ceil().clamp(min=1.0)
            zero = torch.zeros_like(inner)
            found = torch.where(law._log_pmf(zero) >= law._log_pmf(inner), zero, inner)
        return found.reshape(self.batch_shape).to(self._dtype)


def _check_finite(loc: Tensor) -> None:
    bad = loc[~torch.isfinite(loc)]
    if len(bad):
        raise InputError(f"loc must be finite, got {bad[0].item()}. Look for a loss that diverged.")


def _moments_on_integers(at: grid.Grid, centre: Tensor) -> tuple[Tensor, Tensor]:
    """Around the count nearest to the peak: variances far below 1e-16 stay right."""
    gap = at.y - centre.unsqueeze(1)
    shift = (at.pmf * gap).sum(1)
    return centre + shift, (at.pmf * gap * gap).sum(1) - shift * shift


def _moments_far(rows: Discretized, centre: Tensor) -> tuple[Tensor, Tensor]:
    """Clear of 0 rounding adds 1/12 to the variance (Sheppard), up to exp(-2 pi^2 scale^2); others by panels."""
    loc, scale = rows._tensors()
    first, _ = rows._window()
    p = grid.panels(rows, rows._breaks())
    counts = torch.arange(float(p.head.shape[1]), dtype=p.x.dtype, device=p.x.device)
    head_gap, gap = counts - centre.unsqueeze(1), p.x - centre.view(-1, 1, 1)
    shift = p.total(p.head * head_gap, p.pmf * gap)
    spread = p.total(p.head * head_gap**2, p.pmf * gap**2) - shift * shift
    clear = first >= JOIN
    return torch.where(clear, loc, centre + shift), torch.where(clear, scale * scale + 1 / 12, spread)


def discretized(dist: Distribution) -> Any:
    """The integer law of a Normal, or of a uniform mixture of Normals member by member; count laws as they are.

    Mass of [k - 1/2, k + 1/2) goes to k, that of the left tail to 0.

    >>> ensemble = Mixture(Normal(torch.tensor([1.0, 3.0]), torch.tensor([0.5, 1.0])))
    >>> law = discretized(ensemble)
    >>> law.interval(0.9)[1].item(), round(law.cdf(torch.tensor(0.0)).item(), 4)
    (4.0, 0.0824)
    """
    if isinstance(dist, CountDistribution):
        return dist
    if isinstance(dist, Normal):
        return Discretized(dist)
    if isinstance(dist, Mixture):
        return Mixture.concatenate([discretized(stack) for stack in dist._stacks], dist._weights, dist._check)
    raise InputError(
        f"dist must be a Normal, a mixture of Normals or a count law, got {type(dist).__name__}. Sample it."
    )
