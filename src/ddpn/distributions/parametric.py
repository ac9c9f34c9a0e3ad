"""Count distributions that are given by parameters of their batch shape."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ddpn.distributions.count import CountDistribution, bracket_of
from ddpn.distributions.rows import Rows


class ParametricDistribution(CountDistribution):
    """A family: parameters named in `_names`, and `_rows`, which makes rows of them."""

    _names: ClassVar[tuple[str, ...]]
    _rows: ClassVar[Callable[..., Rows]]

    @classmethod
    def trusted(cls, *parameters: Tensor) -> Self:
        """The distributions with these parameters, which are valid, of one shape and of one floating dtype.

        Parameters
        ----------
        *parameters : Tensor
            In the order of the constructor.
        """
        new = object.__new__(cls)
        for name, parameter in zip(cls._names, parameters, strict=True):
            setattr(new, name, parameter)
        CountDistribution.__init__(new, parameters[0].shape, False)
        return new

    def _parameters(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, name) for name in self._names)

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Self:
        new = object.__new__(type(self))
        for name, parameter in zip(self._names, self._parameters(), strict=True):
            setattr(new, name, change(parameter))
        CountDistribution.__init__(new, new._parameters()[0].shape, self._check)
        return new

    def rows(self, index: Any) -> Self:
        """The distributions of some rows along the first batch axis."""
        return self._mapped(lambda x: x[index])

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        """The same distributions, repeated along new or singleton batch axes."""
        return self._mapped(lambda x: x.expand(torch.Size(batch_shape)))

    def _reshape(self, shape: Sequence[int]) -> Self:
        return self._mapped(lambda x: x.reshape(tuple(shape)))

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """First and last integer of a window outside of which about e^-depth of the mass lies."""
        return bracket_of(self, depth)

    def _leaves(self) -> tuple[Tensor, ...]:
        return self._parameters()

    def _flat(self, shape: torch.Size | None = None) -> Any:
        shape = self.batch_shape if shape is None else shape
        return type(self)._rows(*(x.detach().expand(shape).reshape(-1).double() for x in self._parameters()))

    @cached_property
    def _like(self) -> Tensor:
        return self._parameters()[0]
