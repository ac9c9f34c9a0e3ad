"""Checks of networks' arguments: sizes where they are built, inputs where they are used.

Inputs are checked by type, shape and dtype only, so that a GPU need not wait.
"""

from collections.abc import Sized
from typing import Any

import torch
from torch import Tensor

from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import check_number, is_integer, is_number


def check_seeds(given: Sized, members: int) -> None:
    """Raise a `ConfigError` if there is not one seed, or random stream, per member."""
    if len(given) != members:
        raise ConfigError(f"seeds must have one entry per member ({members}), got {len(given)}.")


def check_widths(name: str, widths: Any) -> tuple[int, ...]:
    """Return the widths of layers as integers, or raise a `ConfigError`."""
    found = tuple(widths) if hasattr(widths, "__iter__") else ()
    if not found or not all(is_integer(width) and width >= 1 for width in found):
        raise ConfigError(f"{name} must list integers of at least 1, such as (128, 64), got {widths!r:.40}.")
    return tuple(int(width) for width in found)


def check_rate(name: str, value: Any) -> None:
    """Raise a `ConfigError` if `value` is no rate of dropout."""
    check_number(name, value, "a number in [0, 1)", is_number(value) and 0.0 <= value < 1.0)


def check_rows(x: Any, row_axes: int, takes: str | None = None, members: int | None = None) -> None:
    """Raise an `InputError` if `x` is not a batch of rows with `row_axes` axes, or of such rows per member."""
    axes = x.dim() - row_axes if isinstance(x, Tensor) else 0
    if axes == 1 or (axes == 2 and members in (None, x.shape[1])):
        return
    if axes == 2:
        raise InputError(f"x must have {members} members on its second axis, got shape {tuple(x.shape)}.")
    got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
    expected = f"a tensor with {row_axes + 1} axes, or {row_axes + 2} with rows of each member"
    raise InputError(f"x must be {takes or expected}, got {got}.")


def check_dtype(x: Tensor, weight: Tensor) -> None:
    """Raise an `InputError` if `x` has another dtype than the weights; autocast converts floats itself."""
    if x.dtype != weight.dtype and not (x.is_floating_point() and torch.is_autocast_enabled(x.device.type)):
        raise InputError(f"x must be {weight.dtype} like the weights, got {x.dtype}.")
