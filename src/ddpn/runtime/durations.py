"""Durations as text, such as 90s, 10m or 1h30m. Imports no torch."""

import math
import re
from typing import Any

from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import is_number

#: Seconds of each unit, largest first.
_UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_DURATION = re.compile(r"\s*".join(rf"(?:(?P<{unit}>{_NUMBER})\s*{unit})?" for unit in _UNITS))


def parse_duration(value: Any, name: str = "duration") -> float:
    """The seconds of a duration.

    Parameters
    ----------
    value : str or float
        Text such as "90s", "10m", "1.5h" or "1h30m" (days, hours, minutes, seconds), or a number of seconds.
    name : str
        What messages call the value.

    Returns
    -------
    float
        Seconds, above 0.

    Examples
    --------
    >>> parse_duration("90s"), parse_duration("1h30m"), parse_duration(2.5)
    (90.0, 5400.0, 2.5)
    """
    seconds = math.nan
    if is_number(value):
        seconds = float(value)
    elif isinstance(value, str) and value.strip() and (found := _DURATION.fullmatch(value.strip().lower())):
        seconds = sum(float(number) * _UNITS[unit] for unit, number in found.groupdict().items() if number)
    if not 0.0 < seconds < math.inf:
        must = "be a duration above 0 such as 90s, 10m or 1h30m"
        raise ConfigError(argument=name, must=must, got=f"{value!r:.40}")
    return seconds


def format_duration(seconds: float) -> str:
    """A duration as short text that `parse_duration` reads; below 10 seconds with two digits, else to the second.

    Parameters
    ----------
    seconds : float
        At least 0.

    Examples
    --------
    >>> [format_duration(seconds) for seconds in (0.034, 7.25, 90, 600, 5400)]
    ['0.034s', '7.2s', '1m30s', '10m', '1h30m']
    """
    if round(seconds, 1) < 10:
        digits = 1 if seconds >= 1 or seconds <= 0 else 1 - math.floor(math.log10(seconds))
        return f"{seconds:.{digits}f}".rstrip("0").rstrip(".") + "s"
    rest, parts = round(seconds), []
    for unit, size in _UNITS.items():
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts)
