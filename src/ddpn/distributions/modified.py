"""`Modified`: the base class of count distributions that are made from another one."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions.count import CountDistribution


class Modified(CountDistribution):
    """A count distribution made from another one, its `base`, which has the same batch shape."""

    base: CountDistribution
    #: True if the class maps the cdf of its base. The base can then be censored instead of the result.
    changes_cdf_only: ClassVar[bool] = False

    @abstractmethod
    def _modify(self, base: CountDistribution, change: Callable[[Tensor], Tensor]) -> Self:
        """Apply the same modification to another base; `change` maps parameters to the shape of that base."""

    def rows(self, index: Tensor) -> Self:
        """Select rows along the first batch axis."""
        return self._change_base(self.base.rows(index), lambda x: x[index])

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> Self:
        """Repeat the distributions along new or singleton batch axes."""
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
