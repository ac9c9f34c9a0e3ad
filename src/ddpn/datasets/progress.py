"""A bar for work that takes a while."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def bar(name: str, total: int, progress: bool) -> Iterator[Callable[[int], None]]:
    """Count to `total` on a terminal's stderr, gone when it is done; nothing elsewhere. Yields what moves it on."""
    console = Console(stderr=True)
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not (progress and console.is_terminal)) as shown:
        task = shown.add_task(name, total=total)
        yield lambda done: shown.advance(task, done)
