"""One progress bar for everything that takes a while."""

from collections.abc import Iterator
from contextlib import contextmanager


class ProgressBar:
    """What `progress_bar` yields: `advance` moves it on. This class itself shows nothing."""

    def advance(self, steps: int = 1, text: str = "") -> None:
        """Count `steps` more as done, and show `text` at the end of the line."""


class _Shown(ProgressBar):
    def __init__(self, progress: object, task: object) -> None:
        self._progress, self._task = progress, task

    def advance(self, steps: int = 1, text: str = "") -> None:
        self._progress.update(self._task, advance=steps, text=text)  # type: ignore[attr-defined]


@contextmanager
def progress_bar(
    title: str, total: int, shown: bool = True, done: int = 0, keep: bool = False, in_bytes: bool = False
) -> Iterator[ProgressBar]:
    """A bar with the time left on standard error, where that is a terminal or a notebook; elsewhere nothing.

    `keep` leaves the finished bar on the screen. `in_bytes` shows amounts and speed as for a download.
    """
    if not shown:
        yield ProgressBar()
        return
    from rich import progress as rich
    from rich.console import Console

    console = Console(stderr=True)
    amounts = [rich.DownloadColumn(), rich.TransferSpeedColumn()] if in_bytes else [rich.MofNCompleteColumn()]
    fields = ("description", "fields[text]")
    title_column, text_column = (rich.TextColumn(f"{{task.{name}}}", markup=False) for name in fields)
    columns = [title_column, rich.BarColumn(), *amounts, rich.TimeElapsedColumn()]
    columns += [rich.TextColumn("left"), rich.TimeRemainingColumn(), text_column]
    disabled = not (console.is_terminal or console.is_jupyter)
    with rich.Progress(*columns, console=console, transient=not keep, disable=disabled) as bar:
        yield _Shown(bar, bar.add_task(title, total=total, completed=done, text=""))
