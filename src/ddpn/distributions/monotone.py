"""Strictly increasing maps of [0, 1], by which cdfs are recalibrated."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ddpn.runtime.errors import InputError


class MonotoneMap(NamedTuple):
    """A strictly increasing, piecewise-linear map of [0, 1] onto itself, by its knots and its values there.

    Slopes are positive and finite, also in the outermost pieces: no count gets a probability of 0, and the tails of a
    distribution are multiplied by a constant.

    Parameters
    ----------
    at : Tensor, shape (K + 1,)
        The knots in float64, from 0 to 1.
    value : Tensor, shape (K + 1,)
        The map at the knots in float64, from 0 to 1.

    Examples
    --------
    >>> half = MonotoneMap.of([0.0, 0.5, 1.0], [0.0, 0.2, 1.0])
    >>> half(torch.tensor([0.25, 0.75])), half.inverse(torch.tensor([0.1, 0.6]))
    (tensor([0.1000, 0.6000], dtype=torch.float64), tensor([0.2500, 0.7500], dtype=torch.float64))
    """

    at: Tensor
    value: Tensor

    @classmethod
    def of(cls, at: Any, value: Any) -> "MonotoneMap":
        """Make a map of validated knots and values.

        Parameters
        ----------
        at, value : array-like
            Knots and values there, both strictly increasing from 0 to 1.
        """
        both = cls(*(torch.as_tensor(x, dtype=torch.float64).contiguous() for x in (at, value)))
        good = both.at.dim() == 1 and both.at.shape == both.value.shape and len(both.at) > 1
        good = good and all(bool(x[0] == 0) and bool(x[-1] == 1) and bool((x.diff() > 0).all()) for x in both)
        if not good:
            raise InputError("knots and values of a monotone map must both increase strictly from 0 to 1.")
        return both

    @property
    def slope(self) -> Tensor:
        """The slope of each piece. Shape: (K,)."""
        return self.value.diff() / self.at.diff()

    def mirrored(self) -> "MonotoneMap":
        """1 - G(1 - u): the map of upper tails."""
        return MonotoneMap(1.0 - self.at.flip(0), 1.0 - self.value.flip(0))

    def to(self, device: torch.device) -> "MonotoneMap":
        """The same map on a device."""
        return MonotoneMap(self.at.to(device), self.value.to(device))

    def __call__(self, u: Tensor) -> Tensor:
        return _piecewise(u, self.at, self.value)

    def inverse(self, v: Tensor) -> Tensor:
        """Evaluate the inverse map: u with G(u) = v.

        Parameters
        ----------
        v : Tensor
            Numbers from 0 to 1.
        """
        return _piecewise(v, self.value, self.at)

    def mean_slope(self, pmf: Tensor, cdf: Tensor) -> Tensor:
        """(G(F) - G(F - p)) / p for the probability p of a count and F up to it, without cancellation."""
        slope, inner = self.slope, self.at[1:-1]
        before = cdf - pmf
        first, last = (torch.bucketize(x.contiguous(), inner, right=True) for x in (before, cdf))
        low, high = slope[first], slope[last]
        # The parts of p before the first knot within it, beyond the last one, and between.
        start, end = self.at[first + 1] - before, cdf - self.at[last]
        mass = low * start + high * end + (self.value[last] - self.value[first + 1])
        across = (mass / pmf).nan_to_num(nan=1.0, posinf=torch.inf).clamp(slope.min(), slope.max())
        return torch.where(first == last, high, across)

    def changed(self, pmf: Tensor) -> Tensor:
        """G(F) - G(F - p) for the probabilities p of consecutive counts from where F is 0 on, without cancellation.

        Parameters
        ----------
        pmf : Tensor
            Shape: (rows, n).
        """
        cdf = pmf.cumsum(1)
        piece = torch.bucketize(cdf, self.at[1:-1], right=True)
        found = self.slope[piece].mul_(pmf)
        row, column = (piece != torch.nn.functional.pad(piece[:, :-1], (1, 0))).nonzero(as_tuple=True)
        across = pmf[row, column]
        found[row, column] = across * self.mean_slope(across, cdf[row, column])
        return found


def _piecewise(x: Tensor, at: Tensor, value: Tensor) -> Tensor:
    x = x.double().contiguous()
    piece = torch.bucketize(x, at[1:-1], right=True)
    slope = value.diff() / at.diff()
    return value[piece] + slope[piece] * (x - at[piece])
