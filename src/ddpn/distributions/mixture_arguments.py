"""Validate what users pass to a mixture, once."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions import arguments
from ddpn.distributions.arguments import is_checked
from ddpn.errors import InputError


def check_stack(stack: Distribution) -> None:
    """Raise an `InputError` for components without an axis that enumerates them, or with several variables."""
    if not stack.batch_shape:
        raise InputError("components must have a last axis, one entry per component, got batch_shape ().")
    if stack.event_shape:
        raise InputError(f"components must be univariate, got event_shape {tuple(stack.event_shape)}. Mix each margin.")


def normalised_weights(weights: Any, size: int, device: torch.device, validate_args: bool | None) -> Tensor:
    """Weights in float64 with sum 1 along their last axis, which has one for each of `size` components."""
    weights = torch.as_tensor(weights, dtype=None if isinstance(weights, Tensor) else torch.float64, device=device)
    if weights.dim() == 0 or weights.shape[-1] != size:
        raise InputError(f"weights must have a last axis of {size}, got shape {tuple(weights.shape)}.")
    if is_checked(validate_args, weights):
        arguments.check_weights(weights)
    return weights.double() / weights.double().sum(-1, keepdim=True)
