"""How the program talks to people: errors and warnings as sentences, tables on a terminal, JSON for programs."""

import errno
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

import typer

from ddpn.cli.context import typed_options
from ddpn.cli.messages import in_options
from ddpn.runtime.errors import ConfigError, DDPNError, machine_error

#: As in shells: bad input, misuse of the command, and 128 + SIGINT.
BAD_INPUT, MISUSE, INTERRUPTED = 1, 2, 130
#: Seconds that a program gets to end by itself after Ctrl-C.
_PATIENCE = 0.5
#: Characters per line where there is no terminal.
_WIDE = 140


@contextmanager
def friendly_errors(after_ctrl_c: str) -> Iterator[None]:
    """Print errors and warnings as one sentence each, without a traceback; `after_ctrl_c` says what was kept."""
    try:
        with _warnings_as_sentences():
            yield
    except DDPNError as error:
        _fail(in_options(error, *typed_options()), MISUSE if isinstance(error, ConfigError) else BAD_INPUT)
    except KeyboardInterrupt:
        try:
            _print_stopped(after_ctrl_c)
        except KeyboardInterrupt:
            # One Ctrl-C arrives twice where a library such as polars raises it, too.
            _print_stopped(after_ctrl_c)
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # a reader such as `head` has closed the pipe, which typer handles
        _fail(machine_error(error), BAD_INPUT)


def _print_stopped(what_is_kept: str) -> None:
    typer.echo(f"Stopped. {what_is_kept}", err=True)


@contextmanager
def prompt_ctrl_c(what_is_kept: str) -> Iterator[None]:
    """Answer Ctrl-C within a second, also in a library's long call: for work that has written nothing yet.

    Python handles signals between two of its instructions only. Here a thread learns of Ctrl-C at once. If the program
    has not ended by itself after a moment, the thread prints what `friendly_errors` would, and ends it.
    """
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        yield  # elsewhere there are no such signals, and they reach the main thread only
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    before, finished = signal.set_wakeup_fd(write, warn_on_full_buffer=False), threading.Event()

    def watch() -> None:
        while number := os.read(read, 1):
            if number[0] == signal.SIGINT and not finished.wait(_PATIENCE):
                if sys.stderr.isatty():
                    sys.stderr.write("\x1b[?25h")  # a progress bar hides the cursor
                _print_stopped(what_is_kept)
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


def _fail(sentence: str, code: int) -> None:
    typer.echo(f"Error: {sentence}", err=True)
    raise typer.Exit(code) from None


@contextmanager
def _warnings_as_sentences() -> Iterator[None]:
    printed = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in printed:
            printed.add(str(message))
            _say(f"Warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for kind in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", kind)  # for programmers, not for users of the program
        warnings.showwarning = show
        yield


@contextmanager
def output_to_stderr() -> Iterator[None]:
    """Progress bars and whatever libraries print go to standard error."""
    with redirect_stdout(sys.stderr):
        yield


def show(table: Any, to_stderr: bool = False) -> None:
    """Print a table, as wide as the terminal, or wide enough where there is none.

    Its texts are printed as they are: a column named [/red]x or :smile: is not markup.
    """
    from rich.console import Console

    console = Console(stderr=to_stderr, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDE
    console.print(table)


def show_warnings(sentences: Sequence[str]) -> None:
    """Print warnings to standard error."""
    for sentence in sentences:
        typer.echo(f"Warning: {sentence}", err=True)


def print_step(step: str) -> None:
    """Print a step of a long work to standard error."""
    _say(f"{step} ...")


def _say(sentence: str) -> None:
    """Print to standard error, above a progress bar: `typer.echo` would write into it."""
    print(sentence, file=sys.stderr, flush=True)


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """Print one step after the other: on one line of a terminal that disappears in the end, else a line each."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    if not console.is_terminal:
        yield print_step
        return
    with console.status("Reading") as line:
        yield lambda step: line.update(Text(f"{step} ..."))


def print_json(document: Any) -> None:
    """Print one JSON document to standard output."""
    typer.echo(json.dumps(document, indent=1, ensure_ascii=False))
