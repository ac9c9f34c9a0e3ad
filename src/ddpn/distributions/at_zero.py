"""The distribution that is always 0, a component of distributions with extra zeros."""

from typing import Any

import torch
from torch import Tensor

from ddpn.distributions.parametric import ParametricDistribution
from ddpn.distributions.rows import DEPTH, Cut
from ddpn.distributions.tails import ParameterRows


class AtZeroRows(ParameterRows):
    """Rows of zeros."""

    panels = 1

    def log_pmf(self, y: Tensor) -> Tensor:
        return torch.where(y == 0, 0.0, -torch.inf).to(torch.float64)

    def window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        return self.constant(0.0), self.constant(0.0)

    def tail_end(self, y: Tensor, lower: Tensor) -> Tensor:
        return y

    def mean_variance(self) -> tuple[Tensor, Tensor]:
        return self.constant(0.0), self.constant(0.0)

    def cut(self, y: Tensor) -> Cut:
        return Cut(torch.ones_like(y), torch.zeros_like(y), y)

    def sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.cut(y)[:2]


class AtZero(ParametricDistribution):
    """p(0) = 1. Its one parameter, `zero`, holds zeros of the batch shape."""

    _names = ("zero",)
    _rows = AtZeroRows

    def __init__(self, zero: Tensor) -> None:
        self.zero = zero.detach()
        super().__init__(zero.shape, False)

    def log_prob(self, value: Tensor) -> Tensor:
        """0 at 0, minus infinity elsewhere."""
        return torch.where(self._counts(value) == 0, self.zero, -torch.inf)

    def _with_gradients(self, shape: torch.Size) -> Any:
        return self._flat(shape)

    @property
    def mean(self) -> Tensor:
        """0."""
        return self.zero

    @property
    def variance(self) -> Tensor:
        """0."""
        return self.zero

    @property
    def mode(self) -> Tensor:
        """0."""
        return self.zero
