"""Mark methods as having no gradient, so that `backward` through their results raises an error."""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, NoReturn, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from ddpn.runtime.errors import DDPNError

if TYPE_CHECKING:
    from ddpn.distributions.count import CountDistribution

Dist = TypeVar("Dist", bound="CountDistribution")
Parameters = ParamSpec("Parameters")


class _BarrierContext(FunctionCtx):
    name: str | Tensor


class _Barrier(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(name: str, value: Tensor, *parameters: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def setup_context(ctx: _BarrierContext, inputs: tuple[str | Tensor, ...], output: Tensor) -> None:
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx: _BarrierContext, *grads: Tensor) -> NoReturn:
        raise DDPNError(f"{ctx.name} has no gradient, got a backward pass through it. Train on log_prob instead.")


def without_gradient(
    method: Callable[Concatenate[Dist, Parameters], Tensor],
) -> Callable[Concatenate[Dist, Parameters], Tensor]:
    """Decorate a method whose result has no gradient, so that `backward` through the result raises an error.

    Without the decorator, the result would look like a constant, and training on it would silently do nothing.
    """

    @wraps(method)
    def call_without_gradient(self: Dist, /, *args: Parameters.args, **options: Parameters.kwargs) -> Tensor:
        with torch.no_grad():
            value = method(self, *args, **options)
        leaves = self._leaves() if torch.is_grad_enabled() else ()
        if not any(leaf.requires_grad for leaf in leaves):
            return value
        name = type(self).__name__.removeprefix("_")
        return _Barrier.apply(f"{name}.{method.__name__}", value, *leaves)

    return call_without_gradient
