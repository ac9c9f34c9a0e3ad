"""Recalibrated count distributions: a monotone map G turns a cdf F(y) into G(F(y))."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions.count import CountDistribution
from ddpn.distributions.discretized import discretize
from ddpn.distributions.gradients import without_gradient
from ddpn.distributions.mixture import Mixture
from ddpn.distributions.modified import Modified
from ddpn.distributions.summaries import Summaries, Summary, SummaryRequest
from ddpn.runtime.errors import InputError

#: Levels of quantiles are lowered by this relative amount, to allow for rounding in G and its inverse.
_ROUNDING = 1e-14


class MonotoneMap(NamedTuple):
    """A strictly increasing, piecewise-linear map of [0, 1] onto itself, defined by its values at knots.

    All slopes are positive and finite. So recalibration gives no count the probability 0, and multiplies the
    probabilities far in a tail by a constant.

    Parameters
    ----------
    at : Tensor, shape (K + 1,)
        The knots in float64, from 0 to 1.
    value : Tensor, shape (K + 1,)
        The values of the map at the knots in float64, from 0 to 1.

    Examples
    --------
    >>> half = MonotoneMap.from_knots([0.0, 0.5, 1.0], [0.0, 0.2, 1.0])
    >>> half(torch.tensor([0.25, 0.75])), half.inverse(torch.tensor([0.1, 0.6]))
    (tensor([0.1000, 0.6000], dtype=torch.float64), tensor([0.2500, 0.7500], dtype=torch.float64))
    """

    at: Tensor
    value: Tensor

    @classmethod
    def from_knots(cls, at: ArrayLike, value: ArrayLike) -> "MonotoneMap":
        """Make a map from its knots and its values at the knots.

        Raise an `InputError` unless both increase strictly from 0 to 1.

        Parameters
        ----------
        at, value : array-like
            The knots, and the values of the map at the knots.
        """
        both = cls(*(torch.as_tensor(x, dtype=torch.float64).contiguous() for x in (at, value)))
        good = both.at.dim() == 1 and both.at.shape == both.value.shape and len(both.at) > 1
        good = good and all(bool(x[0] == 0) and bool(x[-1] == 1) and bool((x.diff() > 0).all()) for x in both)
        if not good:
            raise InputError("knots and values of a monotone map must both increase strictly from 0 to 1.")
        return both

    @property
    def slope(self) -> Tensor:
        """The slopes of the K linear pieces between neighbouring knots, a tensor (K,)."""
        return self.value.diff() / self.at.diff()

    def reflect(self) -> "MonotoneMap":
        """Return the map u -> 1 - G(1 - u). It recalibrates survival functions if G recalibrates cdfs."""
        return MonotoneMap(1.0 - self.at.flip(0), 1.0 - self.value.flip(0))

    def to(self, device: torch.device) -> "MonotoneMap":
        """Return a copy of the map on a device."""
        return MonotoneMap(self.at.to(device), self.value.to(device))

    def __call__(self, u: Tensor) -> Tensor:
        return _piecewise(u, self.at, self.value)

    def inverse(self, v: Tensor) -> Tensor:
        """Evaluate the inverse of the map: return the u with G(u) = v.

        Parameters
        ----------
        v : Tensor
            Numbers from 0 to 1.
        """
        return _piecewise(v, self.value, self.at)

    def mean_slope(self, pmf: Tensor, cdf: Tensor) -> Tensor:
        """Compute the mean slope of the map G between the cdfs F(y - 1) and F(y) of neighbouring counts.

        `pmf` is p(y) and `cdf` is F(y), tensors of one shape, which is also the shape of the result. The recalibrated
        probability of the count y is p(y) times this slope. It could also be computed as G(F(y)) - G(F(y - 1)), but the
        product is more accurate for a small p(y).
        """
        slope, inner = self.slope, self.at[1:-1]
        before = cdf - pmf
        first, last = (torch.bucketize(x.contiguous(), inner, right=True) for x in (before, cdf))
        low, high = slope[first], slope[last]
        # The parts of p before the first knot in its interval, beyond the last knot, and between.
        start, end = self.at[first + 1] - before, cdf - self.at[last]
        mass = low * start + high * end + (self.value[last] - self.value[first + 1])
        across = (mass / pmf).nan_to_num(nan=1.0, posinf=torch.inf).clamp(slope.min(), slope.max())
        return torch.where(first == last, high, across)


def _piecewise(x: Tensor, at: Tensor, value: Tensor) -> Tensor:
    x = x.double().contiguous()
    piece = torch.bucketize(x, at[1:-1], right=True)
    slope = value.diff() / at.diff()
    return value[piece] + slope[piece] * (x - at[piece])


class Recalibrated(Modified):
    """A count distribution whose cdf F is replaced by G(F), with a monotone map G.

    The result is a count distribution with p(y) = G(F(y)) - G(F(y - 1)). All methods of `CountDistribution` are exact,
    but there are no gradients.

    Parameters
    ----------
    base : Distribution
        A count distribution, or a Normal or mixture of Normals, which are rounded. A distribution that is recalibrated
        already raises an `InputError`.
    change : MonotoneMap
        The map G, such as the one learnt by `ddpn.calibration.recalibration.Recalibration`.

    Notes
    -----
    `aleatoric` and `epistemic` have the same shares of the variance as in the base, because recalibration multiplies
    both parts by the same factor. The parts before recalibration are `base.aleatoric` and `base.epistemic`.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> wider = MonotoneMap.from_knots([0.0, 0.1, 0.9, 1.0], [0.0, 0.2, 0.8, 1.0])
    >>> dist = Recalibrated(Poisson(torch.tensor([4.0, 30.0]).double()), wider)
    >>> dist.interval(0.8)[1].tolist(), dist.base.interval(0.8)[1].tolist()
    ([8.0, 39.0], [7.0, 37.0])
    """

    changes_cdf_only = True

    def __init__(self, base: Distribution, change: MonotoneMap) -> None:
        if isinstance(base, Recalibrated):
            raise InputError("base is already recalibrated. Pass base.base instead.")
        self.base = discretize(base)
        self.map = change.to(self.base.device)
        super().__init__(self.base.batch_shape, self.base._check)

    @without_gradient
    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log p(y).

        The result is finite and accurate even far in the tails if that of `base` is.
        """
        y = self.as_counts(value)
        log_p = self.base.log_prob(y).double()
        slope = self.map.mean_slope(log_p.exp(), self.base._compute_tails(y)[0])
        return (log_p + slope.log()).to(self.dtype)

    def _broadcast_counts(self, value: ArrayLike, negative: bool = False) -> tuple[np.ndarray, torch.Size]:
        return self.base._broadcast_counts(value, negative)

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """Return the first and the last count of a window outside of which there is only about e^-depth of the mass.

        It is the window of `base`. Recalibration changes the mass outside of it at most by a constant factor.
        """
        return self.base.bracket(depth)

    def _modify(self, base: CountDistribution, change: Callable[[Tensor], Tensor]) -> "Recalibrated":
        return Recalibrated(base, self.map)

    def _log_mass(self, low: Tensor, high: Tensor) -> Tensor:
        is_finite = torch.isfinite(high)
        (before, above), (upto, beyond) = (
            self._compute_tails(y) for y in (low - 1.0, torch.where(is_finite, high, 0.0))
        )
        upto, beyond = torch.where(is_finite, upto, 1.0), torch.where(is_finite, beyond, 0.0)
        # Above the median, the difference of upper tail probabilities has more digits.
        between = torch.where(before > 0.5, above - beyond, upto - before)
        return torch.where(low <= high, between.clamp(min=0.0), 0.0).log()

    def _summarise(self, request: SummaryRequest, shape: torch.Size | None = None) -> Summaries:
        cdf_map = np.ascontiguousarray(np.stack([x.cpu().numpy() for x in self.map]))
        return self.base._summarise(request._replace(cdf_map=cdf_map), shape)

    def _compute_tails(self, value: ArrayLike) -> Tensor:
        below, above = self.base._compute_tails(value)
        return torch.stack([self.map(below), self.map.reflect()(above)])

    def _quantiles(self, levels: np.ndarray) -> np.ndarray:
        # G(F(y)) >= q exactly where F(y) >= the inverse of G at q.
        q = torch.from_numpy(np.ascontiguousarray(levels))
        return self.base._quantiles(self.map.inverse(q - _ROUNDING * torch.minimum(q, 1.0 - q)).cpu().numpy())

    @torch.no_grad()
    def summary(
        self, levels: Tensor, y: Tensor | None = None, entropy: bool = False, interval_level: ArrayLike | None = None
    ) -> Summary:
        """Compute moments, quantiles and other statistics, as `CountDistribution.summary` does.

        The aleatoric and epistemic parts have the same shares of the variance as in `base`.
        """
        result = super().summary(levels, y, entropy, interval_level)
        share = result.epistemic / (result.aleatoric + result.epistemic)
        epistemic = result.variance * torch.where(share.isnan(), 0.0, share)
        return result._replace(aleatoric=result.variance - epistemic, epistemic=epistemic)

    @property
    def size(self) -> int:
        """The number of components of `base`, or 1 if it is not a mixture."""
        return self.base.size if isinstance(self.base, Mixture) else 1

    @property
    @without_gradient
    def epistemic(self) -> Tensor:
        """Epistemic variance: the variance times the epistemic share of the variance of `base`."""
        return self.summary(torch.zeros(0)).epistemic

    @property
    @without_gradient
    def aleatoric(self) -> Tensor:
        """Aleatoric variance: the variance minus the epistemic variance."""
        return self.summary(torch.zeros(0)).aleatoric
