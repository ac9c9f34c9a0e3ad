"""Errors for results that have no gradient."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from ddpn.runtime.errors import DDPNError


class _Barrier(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(name: str, value: Tensor, *parameters: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise DDPNError(f"{ctx.name} has no gradient, got a backward pass through it. Train on log_prob instead.")


def barrier(name: str, value: Tensor, *parameters: Tensor) -> Tensor:
    """`value`, computed outside autograd from `parameters`: a backward pass through it raises."""
    if torch.is_grad_enabled() and any(p.requires_grad for p in parameters):
        return _Barrier.apply(name, value, *parameters)
    return value


def without_gradient(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Run a method of a distribution outside autograd; a later `backward` through its result raises."""

    @wraps(method)
    def guarded(self: Any, *args: Any, **options: Any) -> Tensor:
        with torch.no_grad():
            value = method(self, *args, **options)
        name = type(self).__name__.removeprefix("_")
        return barrier(f"{name}.{method.__name__}", value, *(self._leaves() if torch.is_grad_enabled() else ()))

    return guarded
