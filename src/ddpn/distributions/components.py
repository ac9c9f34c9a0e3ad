"""`ComponentStack`: several components of mixtures as NumPy arrays, from which the inputs of kernels are made.

Kernels treat the distribution of every row as a mixture. A distribution of one family is a mixture of one component. If
a component is itself a mixture, its components become components of the outer mixture. Each component either belongs to
a family and has parameters and a range of possible counts, or it is given by a table of its probabilities.
"""

from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from ddpn.distributions.calls import call_per_row
from ddpn.distributions.kernels import loops
from ddpn.distributions.kernels.family import Family

if TYPE_CHECKING:
    from ddpn.distributions.count import CountDistribution


class ComponentStack(NamedTuple):
    """k components of the mixture of each row, either all of one family or all given by tables of probabilities.

    Arrays have the shape (rows, k).

    Parameters
    ----------
    family : type of Family, or None
        The family of all components; None if they are given by tables.
    parameters : tuple of array
        One to three parameters of the family, in float64.
    weight : array, optional
        Mixture weights. Default: 1.
    low, high : array, optional
        The first and the last count to which components are restricted. Defaults: 0 and infinity.
    table : CountDistribution, optional
        The components as distributions of batch shape (rows * k,), if there is no family. Tables of their probabilities
        are computed when they are needed, for a block of rows at a time.
    size : int
        The number k of components per row.
    group : tuple of int
        For each of the k components, the index of the component of the user's mixture that it is part of; 0 if the
        user's distribution is not a mixture. It differs from the component's own index if the user's mixture is nested.
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
        """Return a copy in which all arrays have another shape; `size` and `group` stay unchanged."""
        change = lambda x: None if x is None else x.reshape(shape)  # noqa: E731
        parameters = tuple(x.reshape(shape) for x in self.parameters)
        return self._replace(
            parameters=parameters, weight=change(self.weight), low=change(self.low), high=change(self.high)
        )

    def join(self, weights: np.ndarray, first_group: int) -> Self:
        """Merge every k consecutive rows into one row, a mixture of all their components.

        `weights` (merged rows, k) are the mixture weights of the k rows. `first_group` is the index of the first of
        these k rows among the components of the user's mixture. The other rows have the following indices.
        """
        rows, k = weights.shape
        size = k * self.size
        joint = np.repeat(weights, self.size, axis=1) if self.size > 1 else weights
        new = self._reshape(rows, size)
        group = tuple(first_group + j // self.size for j in range(size))
        return new._replace(weight=joint if new.weight is None else joint * new.weight, size=size, group=group)

    def separate(self) -> Self:
        """Return a stack in which every component is a row of its own, with the mixture weight 1."""
        return self._replace(weight=None)._reshape(-1, 1)._replace(size=1, group=(0,))

    def restrict(self, low: np.ndarray, high: np.ndarray) -> tuple[Self, np.ndarray]:
        """Restrict the components of each row to the counts from `low` to `high`, arrays (rows, 1).

        Return a copy with the restricted components, and the log probability of this range under each component before
        the restriction, an array (rows, k). Mixture weights stay unchanged. The components must belong to a family.
        """
        first = np.maximum(low, 0.0 if self.low is None else self.low)
        last = np.minimum(high, np.inf if self.high is None else self.high)
        log_p = self._compute_log_range(first, last)
        if self.low is not None or self.high is not None:
            log_p = log_p - self._compute_log_range(self.low, self.high)
        shape = log_p.shape
        return self._replace(low=np.broadcast_to(first, shape), high=np.broadcast_to(last, shape)), log_p

    def _compute_log_range(self, low: np.ndarray | None, high: np.ndarray | None) -> np.ndarray:
        """Compute log P(low <= Z <= high) of each component, ignoring any range to which it is restricted.

        `low` and `high` are arrays (rows, 1) or (rows, k). `low=None` stands for 0, and `high=None` for infinity.
        Return an array (rows, k).
        """
        shape = self.parameters[0].shape
        assert self.family is not None
        bounds = 0.0 if low is None else low, np.inf if high is None else high
        columns = [np.broadcast_to(x, shape).reshape(-1) for x in (*bounds, *self.parameters)]
        return call_per_row(loops.compute_log_ranges, self.family, columns, 4)[0].reshape(shape)
