"""Results that have no gradient say so when one is asked for, instead of quietly giving none."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from ddpn.errors import DDPNError


class _Barrier(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str, value: Tensor, *parameters: Tensor) -> Tensor:
        ctx.name = name
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise DDPNError(f"{ctx.name} has no gradient, got a call to backward through it. Train on log_prob instead.")


def without_gradient(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Run a law's method outside autograd; a later `backward` through its result raises."""

    @wraps(method)
    def guarded(self: Any, *args: Any) -> Tensor:
        with torch.no_grad():
            value = method(self, *args)
        parameters = self._tensors() if torch.is_grad_enabled() else ()
        if any(p.requires_grad for p in parameters):
            value = _Barrier.apply(f"{type(self).__name__}.{method.__name__}", value, *parameters)
        return value

    return guarded
