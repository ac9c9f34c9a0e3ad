"""Print results, errors and warnings: as sentences and tables for people, and as JSON for programs.

In sentences, arguments of the library are replaced by options of the command line.
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

#: Exit codes as in shells: bad input, misuse of the command, and 128 + SIGINT.
BAD_INPUT, MISUSE, INTERRUPTED = 1, 2, 130
#: The time that the program has to end by itself after Ctrl-C.
_GRACE_SECONDS = 0.5
#: The width of tables if the output is not a terminal, in characters.
_WIDTH_WITHOUT_TERMINAL = 140


def format_program() -> list[str]:
    """Return the words that start this program: `ddpn`, or Python and the user's script that calls `ddpn.cli.main`.

    Users write such a script to register their own classes.
    """
    script = sys.argv[0]
    is_user_script = script.endswith(".py") and os.path.basename(script) != "__main__.py"
    return ["python", script] if is_user_script else ["ddpn"]


# Errors, warnings and Ctrl-C ------------------------------------------------------------------------------------------


def read_option_names(context: typer.Context) -> tuple[dict[str, str], set[str]]:
    """Return the options of the running command, and which of them the user typed.

    The first result maps names of arguments to options. The second is the set of arguments whose options the user
    typed.
    """
    options = {
        parameter.name: max(parameter.opts, key=len)
        for parameter in context.command.params
        if parameter.opts[0].startswith("-")
    }
    sources = {name: context.get_parameter_source(name) for name in options}
    return options, {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}


@contextmanager
def report_errors(ctrl_c_message: str, context: typer.Context | None = None) -> Iterator[None]:
    """Return a context manager that prints errors and warnings as sentences, without a traceback.

    After an error, the command exits with a status that depends on the kind of the error. After Ctrl-C,
    `ctrl_c_message` is printed. If `context`, the running command, is given, error messages name its options, such as
    --time, where the library's messages name arguments, such as `time`.
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
            # One Ctrl-C arrives twice if a library such as polars raises it as well.
            _print_stop(ctrl_c_message)
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # a program such as `head` has closed the pipe; typer handles this
        typer.echo(f"Error: {describe_os_error(error)}", err=True)
        raise typer.Exit(BAD_INPUT) from None


def _print_stop(what_is_kept: str) -> None:
    typer.echo(f"Stopped. {what_is_kept}", err=True)


@contextmanager
def end_on_ctrl_c(ctrl_c_message: str) -> Iterator[None]:
    """Return a context manager in which Ctrl-C ends the program within a second, even inside a long library call.

    It must not be used for work that may be in the middle of writing results. `ctrl_c_message` says what was
    written.

    Python handles a signal only between two bytecode instructions, so a long call delays it. A thread is therefore
    notified of Ctrl-C as well. If the program does not end within half a second, the thread prints the message and ends
    the process.
    """
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        yield  # only the main thread of a POSIX system receives such signals
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
    """A `StepRunner` with which Ctrl-C interrupts only the current step, and never the saving between or after steps.

    It is used as a context manager, which handles Ctrl-C. Before the first step, and outside of the main thread, Ctrl-C
    raises a `KeyboardInterrupt` as usual.
    """

    def __init__(self) -> None:
        super().__init__()
        self._has_steps, self._is_inside = False, False
        self._before: Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        # If the program was started with Ctrl-C ignored, it stays ignored.
        if is_main and callable(signal.getsignal(signal.SIGINT)):
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._is_inside or not self._has_steps:
            self._is_inside = False  # raised once per step, so that a second Ctrl-C does not interrupt what follows
            raise KeyboardInterrupt
        self.is_stopped = True

    def run(self, step: Callable[[], object]) -> bool:
        """Run a step, unless Ctrl-C was pressed during or after an earlier one.

        Return True if the step was completed. If Ctrl-C is pressed during the step, the step ends, and the result is
        False.
        """
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


def print_table(table: "Table", to_stderr: bool = False) -> None:
    """Print a table.

    It is as wide as the terminal, or 140 characters wide if the output is not a terminal. Text is not interpreted as
    markup: a column named [/red]x or :smile: is printed unchanged.
    """
    from rich.console import Console

    console = Console(stderr=to_stderr, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_WITHOUT_TERMINAL
    console.print(table)


def show_warnings(sentences: Sequence[str]) -> None:
    """Print warnings about a table to standard error.

    Where a sentence names an argument of the library, such as `time`, the option of `ddpn fit` is named instead, such
    as --time.
    """
    for sentence in sentences:
        typer.echo(f"Warning: {render_fit_options(sentence)}", err=True)


def print_step(step: str) -> None:
    """Print the name of a step to standard error.

    Unlike `typer.echo`, this does not disturb a progress bar.
    """
    print(f"{step} ...", file=sys.stderr, flush=True)


def print_json(document: object) -> None:
    """Print a JSON document to standard output."""
    typer.echo(json.dumps(document, indent=1, ensure_ascii=False))
