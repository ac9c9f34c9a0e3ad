"""A bar with time left, or silence."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Bar(Protocol):
    """Told after every epoch."""

    def __call__(self, epoch: int, text: str) -> None: ...


@contextmanager
def bar(epochs: int, first: int, shown: bool, title: str = "Training") -> Iterator[Bar]:
    """A bar to tell of every finished epoch."""
    if not shown:
        yield lambda epoch, text: None
        return
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
    ]
    with Progress(*columns) as progress:
        task = progress.add_task(title, total=epochs, completed=first, text="")
        yield lambda epoch, text: progress.update(task, completed=epoch, text=text)
