"""Whole numbers and counts, told from what only looks like them."""

from typing import Any

from ddpn.distributions.arguments import is_number, is_whole
from ddpn.errors import DDPNError, InputError

#: The largest count: beyond it float64 skips whole numbers.
LARGEST = 2**53


def whole(name: str, value: Any, least: int, remedy: str, error: type[DDPNError] = InputError) -> int:
    """`value` as an int, where it is a whole number of at least `least`.

    >>> whole("size", 8, 1, "Use 224.")
    8
    """
    if not is_whole(value):
        raise error(f"{name} must be a whole number, got {value!r:.40}. {remedy}")
    if value < least:
        raise error(f"{name} must be at least {least}, got {value}. {remedy}")
    return int(value)


def seeded(seed: Any) -> int:
    """A seed that numpy's generators take."""
    return whole("seed", seed, 0, "Use 0, 1, 2 and so on.")


def is_count(value: Any) -> bool:
    """Whether it is a non-negative integer, in whatever type of number."""
    return is_number(value) and bool(0 <= value <= LARGEST) and float(value).is_integer()
