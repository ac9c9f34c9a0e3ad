"""Deadlines, and durations as text, such as 90s or 1h30m.

Deadlines are cooperative. Work that can stop early and still return a result asks its `Clock` how much time is left.
Other work calls `check_deadline` in its loops, which raises an error once the time of the surrounding `Clock.limit` is
up. Imports no torch.
"""

import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ddpn.runtime.errors import ConfigError, DDPNError
from ddpn.runtime.validation import is_number

#: Seconds of each unit, largest first.
_UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_DURATION = re.compile(r"\s*".join(rf"(?:(?P<{unit}>{_NUMBER})\s*{unit})?" for unit in _UNITS))


def parse_duration(value: object, name: str = "duration") -> float:
    """Convert a duration to seconds. It is a number of seconds, or text such as "90s", "10m", "1h30m" or "2d".

    `name` is the name of the argument in error messages.

    >>> parse_duration("90s"), parse_duration("1h30m"), parse_duration(2.5)
    (90.0, 5400.0, 2.5)
    """
    seconds = math.nan
    if is_number(value):
        seconds = float(value)
    elif isinstance(value, str) and value.strip() and (match := _DURATION.fullmatch(value.strip().lower())):
        seconds = sum(float(number) * _UNITS[unit] for unit, number in match.groupdict().items() if number)
    if not 0.0 < seconds < math.inf:
        must = "be a duration above 0 such as 90s, 10m or 1h30m"
        raise ConfigError(argument=name, must=must, got=f"{value!r:.40}")
    return seconds


def format_duration(seconds: float) -> str:
    """Format a duration as short text, which `parse_duration` can read.

    Durations below 10 seconds have two digits; longer ones are rounded to the second.

    >>> [format_duration(seconds) for seconds in (0.034, 7.25, 90, 600, 5400)]
    ['0.034s', '7.2s', '1m30s', '10m', '1h30m']
    """
    if round(seconds, 1) < 10:
        digits = 1 if seconds >= 1 or seconds <= 0 else 1 - math.floor(math.log10(seconds))
        return f"{seconds:.{digits}f}".rstrip("0").rstrip(".") + "s"
    seconds_left, parts = round(seconds), []
    for unit, size in _UNITS.items():
        number, seconds_left = divmod(seconds_left, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts)


#: The time at which the surrounding `Clock.limit` ends, as a value of `time.monotonic`; infinity without one.
_END: ContextVar[float] = ContextVar("end", default=math.inf)


class TimeLimitError(DDPNError):
    """The time limit was reached before there was a result."""


def check_deadline() -> None:
    """Raise a `TimeLimitError` if the time of the surrounding `Clock.limit` is up.

    Loops that take long call this function.

    >>> check_deadline()
    >>> with Clock(1e-9).limit():
    ...     check_deadline()
    Traceback (most recent call last):
    ddpn.runtime.deadlines.TimeLimitError: the time is up
    """
    if time.monotonic() >= _END.get():
        raise TimeLimitError("the time is up")


class Clock:
    """A soft and a hard time limit for some work.

    The soft limit is `seconds` after `started`. Work should check how much time is left (`left`) and stop by itself.
    The hard limit is `hard_seconds` after `started`, and by default equals the soft limit. It ends work that runs
    inside a `with clock.limit()` block and calls `check_deadline`. If `seconds` is None, there is no limit. `started`
    is a value of `time.monotonic`, by default the current time.

    >>> Clock().left, Clock(60.0).left > 59.0
    (inf, True)
    """

    def __init__(
        self, seconds: float | None = None, started: float | None = None, hard_seconds: float | None = None
    ) -> None:
        self.started = time.monotonic() if started is None else started
        self.end = float("inf") if seconds is None else self.started + seconds
        self.hard_end = self.end if hard_seconds is None else self.started + hard_seconds

    def __getstate__(self) -> dict[str, float]:
        # Pickled in wall-clock time: `time.monotonic` differs between processes and machines.
        now = time.monotonic() - time.time()
        return {name: value - now for name, value in vars(self).items()}

    def __setstate__(self, state: dict[str, float]) -> None:
        now = time.monotonic() - time.time()
        vars(self).update({name: value + now for name, value in state.items()})

    def __deepcopy__(self, memo: object) -> "Clock":
        return self  # a clock is never changed

    @property
    def left(self) -> float:
        """The seconds until the soft limit: 0 if it has passed, infinity if there is none."""
        return max(0.0, self.end - time.monotonic())

    @property
    def has_limit(self) -> bool:
        """True if the clock has a time limit."""
        return self.end < float("inf")

    def part(self, seconds: float) -> "Clock":
        """Return a clock for a part of the work. It ends after `seconds`, but not later than this clock.

        If this clock has no limit, the result is this clock.
        """
        return Clock(min(seconds, self.left)) if self.has_limit else self

    @contextmanager
    def limit(self) -> Iterator[None]:
        """Make `check_deadline` raise a `TimeLimitError` inside the `with` block once the hard limit has passed.

        If such blocks are nested, the earliest limit applies.
        """
        token = _END.set(min(self.hard_end, _END.get()))
        try:
            check_deadline()
            yield
        finally:
            _END.reset(token)


#: A clock without a limit.
NO_LIMIT = Clock()
