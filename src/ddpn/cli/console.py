"""How the program speaks: errors and warnings as sentences, tables for people, JSON for machines."""

import errno
import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import typer

from ddpn.errors import ConfigError, DDPNError, of_the_machine

#: As shells have it: misuse, and 128 + SIGINT.
WRONG_INPUT, MISUSE, INTERRUPTED = 1, 2, 130
#: Characters a line where no terminal says how many there are.
_WIDE = 140
EXIT_CODES = (
    "Exit codes: 0 done; 1 the data, a file or the machine would not do; 2 the command or a setting is wrong; "
    "130 stopped by Ctrl-C."
)


@contextmanager
def told(how_to_go_on: str) -> Iterator[None]:
    """Errors and warnings as one sentence each, without a traceback."""
    try:
        with _warnings_as_sentences():
            yield
    except DDPNError as error:
        _fail(str(error), MISUSE if isinstance(error, ConfigError) else WRONG_INPUT)
    except KeyboardInterrupt:
        typer.echo(f"Stopped. {how_to_go_on}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # a reader such as `head` has had enough, which typer knows
        _fail(of_the_machine(error), WRONG_INPUT)


def _fail(sentence: str, code: int) -> None:
    typer.echo(f"Error: {sentence}", err=True)
    raise typer.Exit(code) from None


@contextmanager
def _warnings_as_sentences() -> Iterator[None]:
    said = set()

    def say(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            typer.echo(f"Warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for kind in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", kind)  # for who writes programs, not for who runs them
        warnings.showwarning = say
        yield


@contextmanager
def stdout_kept_free() -> Iterator[None]:
    """Bars and whatever else libraries print go to standard error."""
    with redirect_stdout(sys.stderr):
        yield


def show(table: Any, to_stderr: bool = False) -> None:
    """A table, as wide as the terminal; wide enough where there is none."""
    from rich.console import Console

    console = Console(stderr=to_stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDE
    console.print(table)


def print_json(document: Any) -> None:
    """One document on standard output."""
    typer.echo(json.dumps(document, indent=1, ensure_ascii=False))
