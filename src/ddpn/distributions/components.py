"""`Part`: the components of rows of count distributions, each a mixture.

A distribution of one family is a mixture of one component, and a nested mixture is replaced by its components. A
component is a family with parameters, restricted to a range of counts, or a table of probabilities.
"""

from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from ddpn.distributions.calls import call_per_row
from ddpn.distributions.kernels import loops
from ddpn.distributions.kernels.family import Family

if TYPE_CHECKING:
    from ddpn.distributions.count import CountDistribution


class Part(NamedTuple):
    """The components of one family, or tables of probabilities: k per row. Shape of arrays: (rows, k).

    Parameters
    ----------
    family : type of Family, or None
        None for tables.
    parameters : tuple of array
        One to three, in float64.
    weight, low, high : array, optional
        Mixture weights, and the first and the last possible count. None stands for 1, 0 and infinity.
    table : CountDistribution, optional
        A distribution of batch shape (rows * k,), which is tabulated in blocks of rows.
    size : int
        k
    group : tuple of int
        For each of the k components, the index of its component in the user's mixture; 0 if the user has no mixture.
    """

    family: type[Family] | None
    parameters: tuple[np.ndarray, ...] = ()
    weight: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    table: "CountDistribution | None" = None
    size: int = 1
    group: tuple[int, ...] = (0,)

    def _reshape(self, *shape: int) -> Self:
        change = lambda x: None if x is None else x.reshape(shape)  # noqa: E731
        parameters = tuple(x.reshape(shape) for x in self.parameters)
        return self._replace(
            parameters=parameters, weight=change(self.weight), low=change(self.low), high=change(self.high)
        )

    def join(self, weights: np.ndarray, first: int) -> Self:
        """Join every k rows to a mixture of k components with weights (rows, k), numbered from `first` on."""
        rows, k = weights.shape
        size = k * self.size
        joint = np.repeat(weights, self.size, axis=1) if self.size > 1 else weights
        new = self._reshape(rows, size)
        group = tuple(first + j // self.size for j in range(size))
        return new._replace(weight=joint if new.weight is None else joint * new.weight, size=size, group=group)

    def separate(self) -> Self:
        """Make every component a separate row of weight 1."""
        return self._replace(weight=None)._reshape(-1, 1)._replace(size=1, group=(0,))

    def restrict(self, low: np.ndarray, high: np.ndarray) -> tuple[Self, np.ndarray]:
        """Restrict counts to a range (rows, 1); also return the log mass of each component in it. Shape: (rows, k)."""
        first = np.maximum(low, 0.0 if self.low is None else self.low)
        last = np.minimum(high, np.inf if self.high is None else self.high)
        log_p = self._log_range(first, last)
        if self.low is not None or self.high is not None:
            log_p = log_p - self._log_range(self.low, self.high)
        shape = log_p.shape
        return self._replace(low=np.broadcast_to(first, shape), high=np.broadcast_to(last, shape)), log_p

    def _log_range(self, low: np.ndarray | None, high: np.ndarray | None) -> np.ndarray:
        """Compute log P(low <= Z <= high) of each component; None stands for 0 and infinity. Shape: (rows, k)."""
        shape = self.parameters[0].shape
        assert self.family is not None
        bounds = 0.0 if low is None else low, np.inf if high is None else high
        columns = [np.broadcast_to(x, shape).reshape(-1) for x in (*bounds, *self.parameters)]
        return call_per_row(loops.compute_log_ranges, self.family, columns, 4)[0].reshape(shape)
