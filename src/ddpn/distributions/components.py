"""`ComponentStack`: components of mixtures, as NumPy arrays for the kernels.

Kernels treat the distribution of every row as a mixture. A distribution of one family is a mixture of one component,
and the components of nested mixtures are components of the outer mixture. A component is either a family with
parameters, restricted to a range of counts, or a table of probabilities.
"""

from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from ddpn.distributions.calls import call_per_row
from ddpn.distributions.kernels import loops
from ddpn.distributions.kernels.family import Family

if TYPE_CHECKING:
    from ddpn.distributions.count import CountDistribution


class ComponentStack(NamedTuple):
    """Components of mixtures: k per row, all of one family or all tables of probabilities.

    Arrays have the shape (rows, k).

    Parameters
    ----------
    family : type of Family, or None
        The family of all components; None for tables.
    parameters : tuple of array
        One to three parameters of the family, in float64.
    weight, low, high : array, optional
        Mixture weights, and the first and the last possible count. Defaults: 1, 0 and infinity.
    table : CountDistribution, optional
        The distributions to tabulate, of batch shape (rows * k,). Kernels tabulate them in blocks of rows.
    size : int
        The number k of components per row.
    group : tuple of int
        The index of each of the k components in the mixture of the user, or 0 if there is no such mixture. It differs
        from the component's position if a component of that mixture is a mixture, too.
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
        """Reshape all arrays."""
        change = lambda x: None if x is None else x.reshape(shape)  # noqa: E731
        parameters = tuple(x.reshape(shape) for x in self.parameters)
        return self._replace(
            parameters=parameters, weight=change(self.weight), low=change(self.low), high=change(self.high)
        )

    def join(self, weights: np.ndarray, first_group: int) -> Self:
        """Merge every k consecutive rows into one row, a mixture with the `weights` (rows, k).

        The merged rows are components `first_group`, `first_group` + 1, ... of the user's mixture.
        """
        rows, k = weights.shape
        size = k * self.size
        joint = np.repeat(weights, self.size, axis=1) if self.size > 1 else weights
        new = self._reshape(rows, size)
        group = tuple(first_group + j // self.size for j in range(size))
        return new._replace(weight=joint if new.weight is None else joint * new.weight, size=size, group=group)

    def separate(self) -> Self:
        """Return the components as rows of their own, with one component of weight 1 per row."""
        return self._replace(weight=None)._reshape(-1, 1)._replace(size=1, group=(0,))

    def restrict(self, low: np.ndarray, high: np.ndarray) -> tuple[Self, np.ndarray]:
        """Restrict each row to the counts from `low` to `high`, arrays (rows, 1).

        Also return the log probability of this range under each component before the restriction, an array (rows, k).
        """
        first = np.maximum(low, 0.0 if self.low is None else self.low)
        last = np.minimum(high, np.inf if self.high is None else self.high)
        log_p = self._compute_log_range(first, last)
        if self.low is not None or self.high is not None:
            log_p = log_p - self._compute_log_range(self.low, self.high)
        shape = log_p.shape
        return self._replace(low=np.broadcast_to(first, shape), high=np.broadcast_to(last, shape)), log_p

    def _compute_log_range(self, low: np.ndarray | None, high: np.ndarray | None) -> np.ndarray:
        """Compute log P(low <= Z <= high) of each component, an array (rows, k).

        `low=None` stands for 0, and `high=None` for infinity.
        """
        shape = self.parameters[0].shape
        assert self.family is not None
        bounds = 0.0 if low is None else low, np.inf if high is None else high
        columns = [np.broadcast_to(x, shape).reshape(-1) for x in (*bounds, *self.parameters)]
        return call_per_row(loops.compute_log_ranges, self.family, columns, 4)[0].reshape(shape)
