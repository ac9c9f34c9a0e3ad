"""What users hand to networks, checked at the door: sizes where they are built, rows where they are used.

Rows are told by type, shape and dtype, which costs a GPU nothing; who looks at values says where.
"""

from collections.abc import Sequence, Sized
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.errors import ConfigError, InputError
from ddpn.validation import is_integer, is_number


class Takes(NamedTuple):
    """What a network takes, in words: shown where it is given something else, with the remedy."""

    what: str
    remedy: str


def is_size(value: Any) -> bool:
    """An integer of at least 1."""
    return is_integer(value) and int(value) >= 1


def check_members(members: Any) -> None:
    """How many networks there are side by side."""
    if not is_size(members):
        raise ConfigError(f"members must be an integer of at least 1, got {members!r}. Use 1 for a single network.")


def check_seeds(given: Sized, members: int) -> None:
    """One seed, or stream of random numbers, a member: others would keep the zeros that layers are made of."""
    if len(given) != members:
        raise ConfigError(f"seeds must be {members}, one a member, got {len(given)}. Use range({members}), say.")


def widths_of(hidden: Any) -> tuple[int, ...]:
    """The widths of a perceptron's layers."""
    if is_size(hidden):
        raise ConfigError(f"hidden must hold widths of at least 1, got {hidden}. Use ({hidden},) for one layer.")
    try:
        widths = tuple(hidden)
    except TypeError:
        widths = ()
    if not widths or not all(is_size(width) for width in widths):
        shown = tuple(hidden) if isinstance(hidden, Sequence) and not isinstance(hidden, str) else hidden
        raise ConfigError(f"hidden must hold widths of at least 1, got {shown!r}. Use Identity for none.")
    return tuple(int(width) for width in widths)


def check_rate(name: str, value: Any) -> None:
    """A share of what is left out at random."""
    if not is_number(value) or not 0.0 <= value < 1.0:
        raise ConfigError(f"{name} must lie in [0, 1), got {value!r}. Use 0 for none.")


def check_rows(x: Any, row_axes: int, takes: Takes | None = None, members: int | None = None) -> None:
    """A tensor of rows with `row_axes` axes, or with one more behind the batch's, of each of `members`."""
    axes = x.dim() - row_axes if isinstance(x, Tensor) else 0
    if axes == 1 or (axes == 2 and members in (None, x.shape[1])):
        return
    words = f"a tensor with {row_axes + 1} axes, or {row_axes + 2} with members' own rows"
    what, remedy = takes or Takes(words, "Use x.unsqueeze(0) for one row.")
    if not isinstance(x, Tensor):
        remedy = "Use torch.as_tensor(x)." if isinstance(x, np.ndarray) else remedy
        raise InputError(f"x must be {what}, got {type(x).__name__}. {remedy}")
    if axes == 2:
        raise InputError(
            f"x must hold rows of {members} members on its second axis, got shape {tuple(x.shape)}. Give each its own."
        )
    raise InputError(f"x must be {what}, got shape {tuple(x.shape)}. {remedy}")


def check_dtype(x: Tensor, weight: Tensor) -> None:
    """Numbers as the weights are; autocast converts them itself."""
    if x.dtype == weight.dtype or (x.is_floating_point() and torch.is_autocast_enabled(x.device.type)):
        return
    raise InputError(f"x must be {weight.dtype} as the weights are, got {x.dtype}. Use x.to({weight.dtype}).")
