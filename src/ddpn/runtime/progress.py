"""Show the progress of long work: a bar on a terminal, a line of output in a notebook, and nothing elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: True inside work that shows a bar; and the line of the notebook that shows it, if there is one.
_IS_SHOWN: ContextVar[bool] = ContextVar("is_shown", default=False)
_LINE: ContextVar["NotebookLine | None"] = ContextVar("line", default=None)
#: Seconds between two updates of a line in a notebook.
_SECONDS_BETWEEN_UPDATES = 0.2


class ProgressBar(Protocol):
    """The protocol of the objects that `progress_bar` yields."""

    def advance(self, steps: int = 1, text: str = "") -> None:
        """Add `steps` to the number of completed steps, and show `text` at the end of the line."""


class TerminalBar:
    """A progress bar on a terminal, drawn by the package rich."""

    def __init__(self, progress: "Progress", task: "TaskID") -> None:
        self._progress, self._task = progress, task

    def advance(self, steps: int = 1, text: str = "") -> None:
        self._progress.update(self._task, advance=steps, text=text)


class NotebookLine:
    """A line of output in a notebook cell that shows progress. It is overwritten as the work goes on.

    Unlike a widget, it needs no other package, and its last text is saved with the notebook. If progress bars are
    nested, all write to the line of the outermost one. `title`, `total` and `done` are as for `progress_bar`.
    """

    def __init__(self, title: str, total: int | None, done: int) -> None:
        from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

        self._title, self._total, self._done = title, total, done
        self._whole, self._started, self._updated = _LINE.get(), time.monotonic(), 0.0
        if self._whole is None:
            self._handle = display({"text/plain": f"{title} ..."}, raw=True, display_id=True)

    def advance(self, steps: int = 1, text: str = "") -> None:
        self._done += steps
        if time.monotonic() - self._updated > _SECONDS_BETWEEN_UPDATES:
            self._updated = time.monotonic()
            count = f"{self._done}/{self._total}" if self._total else f"{self._done}"
            self.write(" ".join(filter(None, (self._title, count, text))))

    def write(self, text: str) -> None:
        """Show a text in the line, or in the line of the enclosing progress bar if there is one."""
        if self._whole is not None:
            self._whole.write(f"{self._whole._title} ({text})")
        else:
            self._handle.update({"text/plain": text}, raw=True)

    def finish(self) -> None:
        """Show how long the work took; if there is an enclosing progress bar, show its title again instead."""
        if self._whole is not None:
            self._whole.write(f"{self._whole._title} ...")
        else:
            self.write(_describe_time(self._title, self._started))


def is_notebook() -> bool:
    """Return True if the code runs in a Jupyter notebook."""
    from rich.console import Console

    return Console(stderr=True).is_jupyter


@contextmanager
def progress_bar(title: str, total: int | None, shown: bool = True, done: int = 0) -> Iterator[ProgressBar]:
    """Show a progress bar on a terminal (standard error) or a line of text in a notebook; elsewhere, show nothing.

    `total` is the number of steps. If it is given, the bar shows the time left; if it is None, the bar shows the time
    since the start. `done` is the number of steps that are already completed. `title` is the text before the bar. If
    `shown` is False, nothing is shown anywhere.
    """
    from rich import progress as rich
    from rich.console import Console

    console, token = Console(stderr=True), _IS_SHOWN.set(shown or _IS_SHOWN.get())
    try:
        if shown and console.is_jupyter:
            line = NotebookLine(title, total, done)
            line_token = _LINE.set(line)
            try:
                yield line
            finally:
                _LINE.reset(line_token)
            line.finish()
            return
        fields = ("description", "fields[text]")
        title_column, text_column = (rich.TextColumn(f"{{task.{name}}}", markup=False) for name in fields)
        columns: list[rich.ProgressColumn] = [rich.TimeElapsedColumn()]
        if total is not None:
            columns = [rich.MofNCompleteColumn(), *columns, rich.TextColumn("left"), rich.TimeRemainingColumn()]
        columns = [title_column, rich.BarColumn(), *columns, text_column]
        disabled = not shown or not console.is_terminal
        with rich.Progress(*columns, console=console, transient=True, disable=disabled) as bar:
            yield TerminalBar(bar, bar.add_task(title, total=total, completed=done, text=""))
    finally:
        _IS_SHOWN.reset(token)


def inner_bar(title: str, total: int) -> AbstractContextManager[ProgressBar]:
    """Show a progress bar inside the `with` block of another one, but only if the outer bar is shown.

    `title` and `total` are as for `progress_bar`.
    """
    return progress_bar(title, total, shown=_IS_SHOWN.get())


@contextmanager
def show_steps(shown: bool = True) -> Iterator[Callable[[str], object]]:
    """Show the steps of long work: a bar for the current step, and a line with the time taken for each finished one.

    The context manager yields a function to call with the name of each step when it begins.

    >>> with show_steps(shown=False) as begin:
    ...     begin("Fitting trees")
    """
    with ExitStack() as running:

        def begin(step: str) -> None:
            running.close()
            running.enter_context(_show_step(step))

        yield begin if shown else lambda step: None


@contextmanager
def _show_step(title: str) -> Iterator[None]:
    started = time.monotonic()
    with progress_bar(title, None):
        yield
    if not is_notebook():  # where the line has been written already
        print(_describe_time(title, started), file=sys.stderr, flush=True)


def _describe_time(title: str, started: float) -> str:
    return f"{title}: {time.monotonic() - started:.1f} s"
