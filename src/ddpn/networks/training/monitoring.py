"""Follow trainings from outside, however deep in a fit they run: a callback that may end them by an exception."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class EpochReport(NamedTuple):
    """An epoch that was completed.

    Attributes
    ----------
    title : str
        The name of the training.
    epoch, epochs : int
        Its number from 1, and how many there are.
    metric : str
        The name of the validation score.
    scores : list of float or None
        The validation score of each member; None without validation rows.
    """

    title: str
    epoch: int
    epochs: int
    metric: str
    scores: list[float] | None


_MONITOR: ContextVar[Callable[[EpochReport], object] | None] = ContextVar("monitor", default=None)


@contextmanager
def monitored(on_epoch: Callable[[EpochReport], object]) -> Iterator[None]:
    """Call `on_epoch` after every epoch of all trainings in this block.

    What it raises ends the training and leaves the block; a KeyboardInterrupt ends the training as Ctrl-C does.

    Parameters
    ----------
    on_epoch : callable
        Takes an `EpochReport`.
    """
    token = _MONITOR.set(on_epoch)
    try:
        yield
    finally:
        _MONITOR.reset(token)


def report_epoch(report: EpochReport) -> None:
    """Call the monitor of this block, if there is one."""
    if (call := _MONITOR.get()) is not None:
        call(report)
