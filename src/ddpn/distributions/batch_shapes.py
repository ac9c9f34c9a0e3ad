"""Change the batch shape of count distributions and of the distributions of torch."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution


def map_parameters(dist: Distribution, transform: Callable[[Tensor], Tensor]) -> Distribution:
    """Return a copy of a torch distribution with transformed parameters.

    Each parameter is first expanded to the batch shape, and then passed to the function `transform`, which may index or
    reshape it.
    """
    family: Callable[..., Distribution] = type(dist)
    parameters = {name: transform(getattr(dist, name).expand(dist.batch_shape)) for name in dist.arg_constraints}
    return family(**parameters, validate_args=False)


def select_rows(dist: Distribution, index: Tensor) -> Distribution:
    """Select distributions from the batch `dist` along its first axis, by a tensor `index` of positions."""
    return dist.rows(index) if hasattr(dist, "rows") else map_parameters(dist, lambda x: x[index])


def reshape_batch(dist: Distribution, shape: Sequence[int]) -> Distribution:
    """Return the distributions `dist`, reshaped to another batch shape."""
    return (
        dist._reshape(shape) if hasattr(dist, "_reshape") else map_parameters(dist, lambda x: x.reshape(tuple(shape)))
    )


def join_stacks(stacks: Sequence[Distribution]) -> list[Distribution]:
    """Concatenate neighbouring distributions of the same family along their last batch axis.

    Each element of `stacks` is a distribution of batch shape (..., k): it stacks k components of a mixture along the
    last axis. The leading axes of all stacks agree. A stack that is not fully defined by parameters of its batch shape,
    such as a truncated distribution, is not joined with another one.
    """
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
