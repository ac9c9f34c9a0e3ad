"""`Modified`: the base class of distributions that modify another count distribution."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions.count import CountDistribution


class Modified(CountDistribution):
    """Base class of count distributions that are made from another one, `base`, for example by truncation.

    The result and `base` have the same batch shape.
    """

    base: CountDistribution
    #: True if the class maps the cdf of its base. The base can then be censored instead of the result.
    changes_cdf_only: ClassVar[bool] = False

    @abstractmethod
    def _modify(self, base: CountDistribution, change: Callable[[Tensor], Tensor]) -> Self:
        """Apply the same modification, such as a truncation, to another distribution `base`.

        `change` is a function of tensors, such as a reshape. It maps tensors of the old batch shape to the batch shape
        of `base`. It must be applied to the parameters of the modification, such as bounds.
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
