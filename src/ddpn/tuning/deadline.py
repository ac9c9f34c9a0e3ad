"""End work at a deadline, in the middle of it."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

#: Seconds between two attempts: a library may lose an exception that is raised inside of it.
_AGAIN = 0.25
_SHIELDED: ContextVar[bool] = ContextVar("shielded", default=False)


class TimeUpError(BaseException):
    """Raised at a deadline; not an `Exception`, so that no library handles it as a failure of its own."""


@contextmanager
def stopped_at(deadline: float | None) -> Iterator[None]:
    """Raise a `TimeUpError` in this block once `time.monotonic()` has reached `deadline`; None is no deadline.

    In the main thread of a POSIX system, a timer interrupts Python wherever it is. Elsewhere only the calls of
    `check_deadline` do, and `deadline` is met as far as these are frequent.

    Parameters
    ----------
    deadline : float or None
        A time of `time.monotonic()`.
    """
    check_deadline(deadline)
    if deadline is None or os.name != "posix" or threading.current_thread() is not threading.main_thread():
        yield
        return
    ended = False

    def stop(number: int, frame: FrameType | None) -> None:
        # While shielded, the next attempt is soon enough.
        if not ended and not _SHIELDED.get():
            raise TimeUpError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(1e-3, deadline - time.monotonic()), _AGAIN)
    try:
        yield
    finally:
        ended = True
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def check_deadline(deadline: float | None) -> None:
    """Raise a `TimeUpError` if the deadline has passed."""
    if deadline is not None and time.monotonic() >= deadline:
        raise TimeUpError


@contextmanager
def shielded() -> Iterator[None]:
    """Let this block end before a deadline interrupts: for files that are written."""
    token = _SHIELDED.set(True)
    try:
        yield
    finally:
        _SHIELDED.reset(token)
