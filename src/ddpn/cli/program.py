"""The program `ddpn`, and how a command is made."""

import atexit
import gc
import inspect
import os
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from importlib.metadata import version
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from ddpn.cli.console import MISUSE, friendly_errors, prompt_ctrl_c
from ddpn.cli.options import COLUMN_OPTIONS, option
from ddpn.cli.plan_options import OPTION_TEXTS
from ddpn.workflow.config import FitConfig

EXIT_CODES = (
    "Exit codes: 0 success; 1 a problem with the data, a file or the machine; 2 a wrong option or setting; "
    "3 drift was found (ddpn monitor); 130 stopped by Ctrl-C."
)

#: Parameters of commands that stand for several options.
_GROUPS = ("given", "columns")
#: Options of earlier versions, and what they are called now.
_NEW_OPTIONS = {"--members": "--networks"}


class _BareFlags:
    """Typer 0.29 puts <bool> behind flags such as --json, as if they took a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The arguments and options."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
        return params


class Group(_BareFlags, TyperGroup):
    """The program, or a group of its commands."""


class Command(_BareFlags, TyperCommand):
    """A command of the program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command, or say what an option of an earlier version is called now."""
        options = {name for param in self.get_params(ctx) for name in param.opts}
        for old in (word.partition("=")[0] for word in args):
            if old in _NEW_OPTIONS and _NEW_OPTIONS[old] in options:
                typer.echo(f"Error: {old} is called {_NEW_OPTIONS[old]} now.", err=True)
                raise typer.Exit(MISUSE)
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=Group, epilog=EXIT_CODES, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown"
)


def command(
    name: str,
    kept: str = "Nothing was written.",
    *,
    to: typer.Typer = app,
    ends_at_once: bool = True,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command that reports errors and Ctrl-C in one sentence.

    A parameter `given` of the function is replaced by the plan options of the command, and `columns` by options for the
    roles that its type names; the function gets each as a dictionary. A parameter `started` is when the program began,
    as `time.monotonic` counts. `kept` says what is left after Ctrl-C, which may end the command in the middle of a
    library's call if `ends_at_once`. `to` is the program, or a group of its commands.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function)
        groups = {each.name: _options(name, each) for each in own.parameters.values() if each.name in _GROUPS}

        @wraps(function)
        def run(context: typer.Context, **options: object) -> None:
            for group, known in groups.items():
                options[group] = {key: _read_value(key, options.pop(each.name)) for key, each in known.items()}
            if "started" in own.parameters:
                options["started"] = time.monotonic() if context.obj is None else context.obj
            with friendly_errors(kept, context), prompt_ctrl_c(kept) if ends_at_once else nullcontext():
                function(**options)

        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
        for each in own.parameters.values():
            if each.name != "started":
                parameters += groups[each.name].values() if each.name in groups else [each.replace(kind=kind)]
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        to.command(name, epilog=EXIT_CODES, cls=Command)(run)
        return function

    return add


def _options(command: str, group: inspect.Parameter) -> dict[str, inspect.Parameter]:
    """The parameters that stand for a group: options of the plan, or columns by role."""
    if group.name == "columns":
        names = get_args(group.annotation)[1]
        return {name.removesuffix("_column"): _optional(name, str, COLUMN_OPTIONS[name]) for name in names}
    found = {}
    for name, text in OPTION_TEXTS.items():
        if command in text.commands:
            flags = [text.flag] if text.flag else []
            found[name] = _optional(
                name, _type_of_option(name), option(text.metavar, text.help, *flags, panel=text.panel)
            )
    return found


def _type_of_option(name: str) -> Any:
    """Return the type that the command line reads a field of `FitConfig` as: a number, several texts, or a text."""
    hint = get_type_hints(FitConfig)[name]
    types = {part for part in (get_args(hint) or (hint,)) if part is not NoneType}
    if types in ({int}, {float}):
        return types.pop()
    return list[str] if hint in (tuple[str, ...], tuple[str, ...] | None) else str


def _read_value(name: str, value: object) -> object:
    """Return what was given for an option: None for a list that was not, and all words of one as one text."""
    if not isinstance(value, list):
        return value
    return (value if OPTION_TEXTS[name].metavar == "COLUMNS" else ",".join(value)) if value else None


def _optional(name: str, kind: Any, about: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, about]
    )


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("ddpn"))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Predict counts with honest uncertainty: boosted trees, GLMs and Deep Double Poisson Networks as one mixture."""


def main() -> None:
    """What the program runs."""
    # Before torch is read: threads that wait by spinning starve each other where other programs use the cores too.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Imports make hundreds of thousands of objects that stay: looking for garbage among them takes half a second.
    gc.set_threshold(50_000, 20, 100)
    # At exit nothing is collected that ends with the process anyway: a second less, with torch and its modules.
    atexit.register(gc.freeze)
    try:
        app(obj=time.monotonic())
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to stop: Python would print a traceback
