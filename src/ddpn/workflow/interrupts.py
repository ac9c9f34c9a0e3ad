"""Ctrl-C after the training: it ends the step that runs, and never loses what was fitted before."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self


class Interrupts:
    """A context in which, after `hold`, Ctrl-C ends steps only; what lies between them, such as saving, is completed.

    Before `hold`, Ctrl-C raises a `KeyboardInterrupt` as usual. Signals reach the main thread only; in others, and
    outside of the context, steps run as they are.

    Attributes
    ----------
    stopped : bool
        Whether Ctrl-C was pressed. No further step is begun then.

    Examples
    --------
    >>> with Interrupts() as interrupts:
    ...     interrupts.hold()
    ...     interrupts.step(lambda: None), interrupts.step(lambda: signal.raise_signal(signal.SIGINT))
    (True, False)
    >>> interrupts.step(lambda: None)
    False
    """

    def __init__(self) -> None:
        self.stopped, self._holds, self._raises = False, False, True
        self._before: Any = None

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        # A program that was started to ignore Ctrl-C goes on ignoring it.
        if is_main and callable(signal.getsignal(signal.SIGINT)):
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._raises:
            self._raises = not self._holds  # raised once per step: a second Ctrl-C must not hit what follows
            raise KeyboardInterrupt
        self.stopped = True

    def hold(self) -> None:
        """From now on, Ctrl-C ends steps only."""
        self._holds, self._raises = True, False

    def step(self, work: Callable[[], object]) -> bool:
        """Run a step, unless Ctrl-C was pressed before; returns whether the step was completed.

        Parameters
        ----------
        work : callable
            The step, which Ctrl-C ends with a `KeyboardInterrupt`.
        """
        if self.stopped:
            return False
        try:
            self._raises = True
            work()
            self._raises = not self._holds
        except KeyboardInterrupt:
            self.stopped = True
            return False
        return True
