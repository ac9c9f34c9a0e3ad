"""How the program talks to people: errors and warnings as sentences, tables on a terminal, JSON for programs.

Sentences name arguments as the options that the user typed.
"""

import errno
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Self

import typer

from ddpn.cli.wording import render_error, render_fit_options
from ddpn.runtime.errors import ConfigError, DDPNError, describe_os_error
from ddpn.runtime.time_plan import StepRunner

if TYPE_CHECKING:
    from rich.table import Table

#: As in shells: bad input, misuse of the command, and 128 + SIGINT.
BAD_INPUT, MISUSE, INTERRUPTED = 1, 2, 130
#: Seconds that a program gets to end by itself after Ctrl-C.
_GRACE_SECONDS = 0.5
#: Characters per line where there is no terminal.
_WIDTH_WITHOUT_TERMINAL = 140


# Errors, warnings and Ctrl-C ------------------------------------------------------------------------------------------


def read_option_names(context: typer.Context) -> tuple[dict[str, str], set[str]]:
    """Return the options of the running command by argument, and the arguments that were typed."""
    options = {
        parameter.name: max(parameter.opts, key=len)
        for parameter in context.command.params
        if parameter.opts[0].startswith("-")
    }
    sources = {name: context.get_parameter_source(name) for name in options}
    return options, {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}


@contextmanager
def report_errors(ctrl_c_message: str, context: typer.Context | None = None) -> Iterator[None]:
    """Print errors and warnings as one sentence each, without a traceback; after Ctrl-C, print `ctrl_c_message`.

    With `context`, sentences name the options of its command instead of arguments.
    """
    try:
        with _print_warnings():
            yield
    except DDPNError as error:
        sentence = str(error) if context is None else render_error(error, *read_option_names(context))
        typer.echo(f"Error: {sentence}", err=True)
        raise typer.Exit(MISUSE if isinstance(error, ConfigError) else BAD_INPUT) from None
    except KeyboardInterrupt:
        try:
            _print_stop(ctrl_c_message)
        except KeyboardInterrupt:
            # One Ctrl-C arrives twice where a library such as polars raises it, too.
            _print_stop(ctrl_c_message)
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # a reader such as `head` has closed the pipe, which typer handles
        typer.echo(f"Error: {describe_os_error(error)}", err=True)
        raise typer.Exit(BAD_INPUT) from None


def _print_stop(what_is_kept: str) -> None:
    typer.echo(f"Stopped. {what_is_kept}", err=True)


@contextmanager
def answer_ctrl_c(ctrl_c_message: str) -> Iterator[None]:
    """Answer Ctrl-C within a second, even inside a long call of a library; for work that has written nothing yet.

    Python handles signals between two of its instructions only. Here a thread learns of Ctrl-C at once. If the program
    has not ended by itself after a moment, the thread prints what `report_errors` would, and ends it.
    """
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        yield  # elsewhere there are no such signals, and they reach the main thread only
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    before, finished = signal.set_wakeup_fd(write, warn_on_full_buffer=False), threading.Event()

    def watch() -> None:
        while number := os.read(read, 1):
            if number[0] == signal.SIGINT and not finished.wait(_GRACE_SECONDS):
                if sys.stderr.isatty():
                    sys.stderr.write("\x1b[?25h")  # a progress bar hides the cursor
                _print_stop(ctrl_c_message)
                os._exit(INTERRUPTED)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        signal.set_wakeup_fd(before)
        os.close(write)
        watcher.join()
        os.close(read)


class CtrlCRunner(StepRunner):
    """Context manager for graceful Ctrl-C: it interrupts the running step only, and saving always completes.

    Before the first step, and outside the main thread, Ctrl-C raises a `KeyboardInterrupt` as usual.
    """

    def __init__(self) -> None:
        super().__init__()
        self._has_steps, self._is_inside = False, False
        self._before: Callable[[int, FrameType | None], object] | int | None = None

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
        if self._is_inside or not self._has_steps:
            self._is_inside = False  # raised once per step: a second Ctrl-C must not hit what follows
            raise KeyboardInterrupt
        self.is_stopped = True

    def run(self, step: Callable[[], object]) -> bool:
        """Run a step unless Ctrl-C was pressed before; return whether it was completed."""
        self._has_steps = True

        def end_by_ctrl_c() -> None:
            self._is_inside = True
            step()
            self._is_inside = False

        return super().run(end_by_ctrl_c)


@contextmanager
def _print_warnings() -> Iterator[None]:
    printed = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in printed:
            printed.add(str(message))
            print(f"Warning: {render_fit_options(str(message))}", file=sys.stderr, flush=True)  # above a progress bar

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for kind in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", kind)  # for programmers, not for users of the program
        warnings.showwarning = show
        yield


# Output ---------------------------------------------------------------------------------------------------------------


def show(table: "Table", to_stderr: bool = False) -> None:
    """Print a table as wide as the terminal, or 140 characters wide without a terminal.

    Markup in texts has no effect: a column named [/red]x or :smile: is printed as it is.
    """
    from rich.console import Console

    console = Console(stderr=to_stderr, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_WITHOUT_TERMINAL
    console.print(table)


def show_warnings(sentences: Sequence[str]) -> None:
    """Print warnings about a table to standard error, with the options of `ddpn fit` that they refer to."""
    for sentence in sentences:
        typer.echo(f"Warning: {render_fit_options(sentence)}", err=True)


def print_step(step: str) -> None:
    """Print a step of long work to standard error, above a progress bar, into which `typer.echo` would write."""
    print(f"{step} ...", file=sys.stderr, flush=True)


def print_json(document: object) -> None:
    """Print one JSON document to standard output."""
    typer.echo(json.dumps(document, indent=1, ensure_ascii=False))
