"""Gradients that a family writes out row by row, and errors for results that have none."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from ddpn.errors import DDPNError


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
    def guarded(self: Any, *args: Any, **keywords: Any) -> Tensor:
        with torch.no_grad():
            value = method(self, *args, **keywords)
        name = type(self).__name__.removeprefix("_")
        return barrier(f"{name}.{method.__name__}", value, *(self._leaves() if torch.is_grad_enabled() else ()))

    return guarded


class RowWise(torch.autograd.Function):
    """A function of vectors (rows,), one row at a time: `torch.func.vmap` computes the rows of all examples at once."""

    @classmethod
    def apply(cls, *inputs: Tensor) -> Any:
        # Outside of transforms without torch's own step, which inspects a signature: that takes as long as a small row.
        if torch._C._functorch.peek_interpreter_stack() is None:
            return super(torch.autograd.Function, cls).apply(*inputs)  # type: ignore[misc]
        return super().apply(*inputs)

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> Any:
        size, pairs = info.batch_size, zip(inputs, in_dims, strict=True)
        moved = [x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in pairs]
        found = cls.apply(*(x.flatten() for x in moved))
        return tuple(x.unflatten(0, (size, -1)) for x in found), (0,) * len(found)
