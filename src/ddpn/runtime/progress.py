"""Progress bars for long computations."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: True inside work that shows a progress bar.
_IS_SHOWN: ContextVar[bool] = ContextVar("is_shown", default=False)


class ProgressBar:
    """The progress bar that `progress_bar` yields."""

    def __init__(self, progress: "Progress", task: "TaskID") -> None:
        self._progress, self._task = progress, task

    def advance(self, steps: int = 1, text: str = "") -> None:
        """Advance the bar by `steps`, and show `text` at the end of the line."""
        self._progress.update(self._task, advance=steps, text=text)


@contextmanager
def progress_bar(title: str, total: int | None, shown: bool = True, done: int = 0) -> Iterator[ProgressBar]:
    """Show a progress bar on standard error, if that is a terminal or a notebook.

    It shows the time left or, if the `total` is None, the time since the start. The bar begins at `done` steps.
    """
    from rich import progress as rich
    from rich.console import Console

    console = Console(stderr=True)
    fields = ("description", "fields[text]")
    title_column, text_column = (rich.TextColumn(f"{{task.{name}}}", markup=False) for name in fields)
    columns: list[rich.ProgressColumn] = [rich.TimeElapsedColumn()]
    if total is not None:
        columns = [rich.MofNCompleteColumn(), *columns, rich.TextColumn("left"), rich.TimeRemainingColumn()]
    columns = [title_column, rich.BarColumn(), *columns, text_column]
    disabled = not shown or not (console.is_terminal or console.is_jupyter)
    token = _IS_SHOWN.set(shown or _IS_SHOWN.get())
    try:
        with rich.Progress(*columns, console=console, transient=True, disable=disabled) as bar:
            yield ProgressBar(bar, bar.add_task(title, total=total, completed=done, text=""))
    finally:
        _IS_SHOWN.reset(token)


def inner_bar(title: str, total: int) -> AbstractContextManager[ProgressBar]:
    """Show a progress bar for a part of the work, but only if the whole work shows one."""
    return progress_bar(title, total, shown=_IS_SHOWN.get())
