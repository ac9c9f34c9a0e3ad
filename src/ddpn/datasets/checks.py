"""Integers and seeds of data sets."""

from typing import Any

from ddpn.errors import DDPNError, InputError
from ddpn.validation import LARGEST_COUNT as LARGEST
from ddpn.validation import check_integer, is_count

__all__ = ["LARGEST", "is_count", "seeded", "whole"]


def whole(name: str, value: Any, least: int, remedy: str, error: type[DDPNError] = InputError) -> int:
    """`value` as an int of at least `least`."""
    return check_integer(name, value, least, error)


def seeded(seed: Any) -> int:
    """A seed that numpy's generators take."""
    return check_integer("seed", seed, 0, InputError)
