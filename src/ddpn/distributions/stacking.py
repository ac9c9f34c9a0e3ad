"""Changing the batch shape of any distribution: some rows, another shape, several stacks side by side."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution


def mapped(dist: Distribution, change: Callable[[Tensor], Tensor]) -> Any:
    """The torch distribution whose parameters are those of `dist`, expanded to its batch shape and then changed."""
    family: Any = type(dist)
    parameters = {name: change(getattr(dist, name).expand(dist.batch_shape)) for name in dist.arg_constraints}
    return family(**parameters, validate_args=False)


def rows_of(dist: Any, index: Any) -> Any:
    """The distributions of some rows along the first batch axis."""
    return dist.rows(index) if hasattr(dist, "rows") else mapped(dist, lambda x: x[index])


def reshaped(dist: Any, shape: Sequence[int]) -> Any:
    """The same distributions in another batch shape."""
    return dist._reshape(shape) if hasattr(dist, "_reshape") else mapped(dist, lambda x: x.reshape(tuple(shape)))


def concatenated(stacks: Sequence[Any]) -> list[Any]:
    """Neighbouring stacks of one family joined along their last axis; all have the same batch shape but for it."""
    joined: list[Any] = [stacks[0]]
    for stack in stacks[1:]:
        last = joined[-1]
        if type(stack) is type(last) and _is_parametric(stack):
            parameters = {
                name: torch.cat([getattr(d, name).expand(d.batch_shape) for d in (last, stack)], dim=-1)
                for name in stack.arg_constraints
            }
            joined[-1] = type(stack)(**parameters, validate_args=False)
        elif type(stack) is type(last) and hasattr(stack, "_joined") and (pair := last._joined(stack)) is not None:
            joined[-1] = pair
        else:
            joined.append(stack)
    return joined


def _is_parametric(dist: Any) -> bool:
    """Whether a distribution is its parameters, each of its batch shape."""
    return bool(dist.arg_constraints) and all(
        getattr(dist, name).shape == dist.batch_shape for name in dist.arg_constraints
    )
