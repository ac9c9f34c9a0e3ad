"""`Modified`: the base class of distributions that modify another count distribution."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions.count import CountDistribution


class Modified(CountDistribution):
    """A count distribution that modifies another one, `base`, such as a truncation. Both have the same batch shape."""

    base: CountDistribution
    #: True if the class maps the cdf of its base. The base can then be censored instead of the result.
    changes_cdf_only: ClassVar[bool] = False

    @abstractmethod
    def _modify(self, base: CountDistribution, change: Callable[[Tensor], Tensor]) -> Self:
        """Return the same modification of another distribution, `base`.

        `change` maps the parameters of the modification, such as bounds, from the old batch shape to that of `base`.
        """

    def rows(self, index: Tensor) -> Self:
        """Select distributions along the first batch axis, by a tensor `index` of positions."""
        return self._change_base(self.base.rows(index), lambda x: x[index])

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> Self:
        """Return the distributions with a larger batch shape, repeated along new axes and axes of length 1."""
        shape = torch.Size(batch_shape)
        return self._change_base(self.base.expand(shape), lambda x: x.expand(shape))

    def _reshape(self, shape: Sequence[int]) -> Self:
        return self._change_base(self.base._reshape(shape), lambda x: x.reshape(tuple(shape)))

    def _change_base(self, base: CountDistribution, change: Callable[[Tensor], Tensor]) -> Self:
        new = self._modify(base, change)
        new._check = self._check
        return new

    @property
    def _like(self) -> Tensor:
        return self.base._like

    def _leaves(self) -> tuple[Tensor, ...]:
        return self.base._leaves()
