"""Change the batch shape of any distribution, torch's own included."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution


def map_parameters(dist: Distribution, change: Callable[[Tensor], Tensor]) -> Distribution:
    """Rebuild a torch distribution from its parameters, expanded to the batch shape and then mapped by `change`."""
    family: Callable[..., Distribution] = type(dist)
    parameters = {name: change(getattr(dist, name).expand(dist.batch_shape)) for name in dist.arg_constraints}
    return family(**parameters, validate_args=False)


def select_rows(dist: Distribution, index: Tensor) -> Distribution:
    """Select rows of any distribution along its first batch axis."""
    return dist.rows(index) if hasattr(dist, "rows") else map_parameters(dist, lambda x: x[index])


def reshape_batch(dist: Distribution, shape: Sequence[int]) -> Distribution:
    """Reshape the batch of any distribution."""
    return (
        dist._reshape(shape) if hasattr(dist, "_reshape") else map_parameters(dist, lambda x: x.reshape(tuple(shape)))
    )


def join_stacks(stacks: Sequence[Distribution]) -> list[Distribution]:
    """Join neighbouring stacks of the same family along their last axis; the other axes must agree."""
    joined = [stacks[0]]
    for stack in stacks[1:]:
        last, names = joined[-1], stack.arg_constraints
        # Stacks can be joined if they are defined completely by parameters of the batch shape.
        is_parametric = bool(names) and all(getattr(stack, name).shape == stack.batch_shape for name in names)
        if type(stack) is type(last) and is_parametric:
            parameters = {
                name: torch.cat([getattr(d, name).expand(d.batch_shape) for d in (last, stack)], dim=-1)
                for name in names
            }
            family: Callable[..., Distribution] = type(stack)
            joined[-1] = family(**parameters, validate_args=False)
        else:
            joined.append(stack)
    return joined
