"""Normals as count distributions: rounded to the nearest integer, with what falls below 0 put on 0."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from ddpn.distributions.arguments import as_parameters, check_positive, is_checked
from ddpn.distributions.count import CountDistribution
from ddpn.distributions.gradients import without_gradient
from ddpn.distributions.mixture import Mixture
from ddpn.distributions.parametric import ParametricDistribution
from ddpn.distributions.quadrature import JOIN, gauss_legendre
from ddpn.distributions.rows import DEPTH
from ddpn.distributions.special import HALF_LOG_TWO_PI, beside
from ddpn.distributions.tails import ParameterRows
from ddpn.errors import InputError

#: Nodes across one cell [k - 1/2, k + 1/2) that is narrow beside the Normal: exact to 1e-16 (GL error bound).
_CELL_NODES = 8


def log_cell_mass(centre: Tensor, width: Tensor) -> Tensor:
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


class DiscretizedRows(ParameterRows):
    """Rows of the Normal's loc and scale."""

    def __init__(self, loc: Tensor, scale: Tensor, known: tuple[Tensor, ...] = ()) -> None:
        super().__init__(loc, scale)
        self.loc, self.scale = loc, scale

    def log_pmf(self, y: Tensor) -> Tensor:
        loc, scale = beside(self.loc, y), beside(self.scale, y)
        inner = log_cell_mass((y - loc) / scale, (1.0 / scale).expand_as(y))
        return torch.where(y < 0.5, torch.special.log_ndtr((0.5 - loc) / scale), inner)

    def pmf_near(self, y: Tensor) -> Tensor:
        """As a difference of cdfs on the lower side: a short window's cells are wide enough for it, and it is cheap."""
        loc = self.loc.unsqueeze(1)
        unit = 1.0 / (self.scale.unsqueeze(1) * math.sqrt(2.0))
        gap = (y - loc).abs()
        inner = 0.5 * (torch.erfc((gap - 0.5) * unit) - torch.erfc((gap + 0.5) * unit))
        return torch.where(y < 0.5, 0.5 * torch.erfc((loc - 0.5) * unit), inner)

    def pmf_table(self, n: int) -> Tensor:
        return self.pmf_near(torch.arange(float(n), dtype=torch.float64, device=self.device).expand(len(self), n))

    def sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        z = (y + 0.5 - self.loc) / (self.scale * math.sqrt(2.0))
        # torch's ndtr is (1 + erf) / 2, which has no digits left in its lower tail.
        return 0.5 * torch.erfc(-z), 0.5 * torch.erfc(z)

    def _reach(self, y: Tensor, side: Tensor | float, depth: float | Tensor) -> Tensor:
        """Where the density has fallen by `depth` from what it is at y, or from its peak if that lies beyond y."""
        gap = (side * (y - self.loc) / self.scale).clamp(min=0.0)
        return self.loc + side * self.scale * torch.sqrt(gap * gap + 2.0 * depth)

    def window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        # Of a Normal below 0 what matters is the part above, however small.
        zero = torch.zeros_like(self.loc)
        first, last = self._reach(self.loc, -1.0, depth) - 0.5, self._reach(zero, 1.0, depth) + 0.5
        return first.clamp(min=0.0), last.clamp(min=0.0)

    def tail_end(self, y: Tensor, lower: Tensor) -> Tensor:
        side = torch.where(lower, -1.0, 1.0).to(y.dtype)
        return (self._reach(y, side, DEPTH) + 0.5 * side).clamp(min=0.0)

    def far_moments(self) -> tuple[Tensor, Tensor]:
        """Clear of 0 rounding adds 1/12 to the variance (Sheppard), up to exp(-2 pi^2 scale^2); others by panels."""
        mean, variance = super().far_moments()
        clear = self.window()[0] >= JOIN
        return torch.where(clear, self.loc, mean), torch.where(clear, self.scale * self.scale + 1 / 12, variance)


class Discretized(ParametricDistribution):
    """A Normal rounded to counts: p(k) = P(k - 1/2 <= X < k + 1/2) for k >= 1, p(0) = P(X < 1/2).

    What a Normal predicts about counts, so that it can be scored beside count distributions. `discretized` takes
    mixtures, too.

    Shape: that of `base`. Computation is in float64, results come in the parameters' dtype, without gradients.

    Parameters
    ----------
    base : torch.distributions.Normal
        The Normal that is rounded to counts.
    validate_args : bool, optional
        Whether values are checked. Default: only on a CPU.

    Examples
    --------
    >>> dist = Discretized(Normal(2.0, 1.0))
    >>> [round(p, 4) for p in dist.log_prob(torch.arange(4.0)).exp().tolist()]
    [0.0668, 0.2417, 0.3829, 0.2417]
    """

    _names = ("_loc", "_scale")
    _rows = DiscretizedRows

    def __init__(self, base: Normal, validate_args: bool | None = None) -> None:
        if not isinstance(base, Normal):
            raise InputError(f"base must be a Normal, got {type(base).__name__}. Use discretized() for mixtures.")
        self._loc, self._scale = as_parameters(loc=base.loc, scale=base.scale)
        if is_checked(validate_args, self._loc):
            check_positive("scale", self._scale, "Emit its logarithm and exponentiate, or clamp it.")
            if len(bad := self._loc[~torch.isfinite(self._loc)]):
                raise InputError(f"loc must be finite, got {bad[0].item()}. Look for a loss that diverged.")
        super().__init__(self._loc.shape, validate_args)

    @property
    def base(self) -> Normal:
        """The Normal that is rounded."""
        return Normal(self._loc, self._scale, validate_args=False)

    @without_gradient
    def log_prob(self, value: Tensor) -> Tensor:
        """log p(y), finite and relatively accurate however far y is."""
        y, dist, shape = self._paired(value)
        return self._shaped(dist.log_pmf(y), shape)

    @property
    def mode(self) -> Tensor:
        """The count nearest to the Normal's mean, the smaller of two; or 0, where more of it lies below 1/2."""
        with torch.no_grad():
            dist = self._flat()
            inner = (dist.loc - 0.5).ceil().clamp(min=1.0)
            zero = torch.zeros_like(inner)
            return self._shaped(torch.where(dist.log_pmf(zero) >= dist.log_pmf(inner), zero, inner))


def discretized(dist: Distribution) -> Any:
    """Round a Normal, or a mixture component by component, to a count distribution.

    Mass of [k - 1/2, k + 1/2) goes to k, that of the left tail to 0. A mixture keeps its weights.

    Parameters
    ----------
    dist : Distribution
        A Normal, a `Mixture` of Normals and count distributions, or a count distribution, which is returned as it is.

    Examples
    --------
    >>> ensemble = Mixture(Normal(torch.tensor([1.0, 3.0]), torch.tensor([0.5, 1.0])))
    >>> dist = discretized(ensemble)
    >>> dist.interval(0.9)[1].item(), round(dist.cdf(torch.tensor(0.0)).item(), 4)
    (4.0, 0.0824)
    """
    if isinstance(dist, CountDistribution):
        return dist
    if isinstance(dist, Normal):
        return Discretized(dist)
    if isinstance(dist, Mixture):
        return Mixture.concatenate([discretized(stack) for stack in dist._stacks], dist._weights, dist._check)
    raise InputError(
        f"dist must be a Normal, a mixture of Normals or a count distribution, got {type(dist).__name__}. Sample it."
    )
