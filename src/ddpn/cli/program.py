"""The program `ddpn`, and the decorator that turns functions into its commands."""

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
from typer.core import TyperArgument, TyperCommand, TyperGroup

from ddpn.cli.console import MISUSE, end_on_ctrl_c, report_errors
from ddpn.cli.options import COLUMN_OPTIONS, option
from ddpn.cli.plan_options import OPTION_TEXTS
from ddpn.workflow.config import FitConfig

EXIT_CODES = (
    "Exit codes: 0 success; 1 problem with data, file or machine; 2 wrong option or setting; 3 drift; 130 Ctrl-C."
)

#: Parameters of commands that are replaced by several options.
_PARAMETER_GROUPS = ("settings", "columns")
#: The type of each field of `FitConfig`.
_FIELD_TYPES = get_type_hints(FitConfig)
#: New names of options of earlier versions.
_NEW_OPTIONS = {"--members": "--networks"}


#: The key under which a typer context stores whether its help page shows all options.
_SHOWS_ALL = "ddpn.shows_all"


def _has_panel(param: Any) -> bool:
    return getattr(param, "rich_help_panel", None) is not None


def _print_all_help(context: typer.Context, is_requested: bool) -> None:
    if is_requested:
        context.meta[_SHOWS_ALL] = True
        typer.echo(context.get_help(), color=context.color)
        raise typer.Exit


_HelpAll = Annotated[
    bool, typer.Option("--help-all", is_eager=True, callback=_print_all_help, help="Show all options and exit.")
]


class _PlainHelp:
    """A mixin that removes the types of arguments and options from help pages.

    Without it, Typer 0.29 writes <bool> after --json, and {DATA...}... and <list[str]> for DATA.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the arguments and options of the command, without types on the help page."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
            if isinstance(param, TyperArgument):
                vars(param)["display_type_rich"] = lambda ctx: None
        return params

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words that follow the command in the usage line, such as DATA, without types."""
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        arguments = [param for param in self.get_params(ctx) if isinstance(param, TyperArgument)]
        names = [param.metavar if param.required else f"[{param.metavar}]" for param in arguments]
        return [*pieces[: len(pieces) - len(names)], *map(str, names)] if names else pieces


class Group(_PlainHelp, TyperGroup):
    """A group of typer commands with plain help pages: the program `ddpn`, or a part of it such as `ddpn data`."""


class Command(_PlainHelp, TyperCommand):
    """A typer command with a plain help page, which shows only everyday options unless --help-all is typed."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page to `formatter`; options in panels are hidden unless --help-all was typed."""
        params, shows_all = self.get_params(ctx), _SHOWS_ALL in ctx.meta
        for param in params:
            param.hidden = _has_panel(param) and not shows_all
        hidden = sum(param.hidden for param in params)
        self.epilog = f"{hidden} more options: `{ctx.command_path} --help-all`" if hidden else EXIT_CODES
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments that the user typed; if an option was renamed, exit and print its new name."""
        options = {name for param in self.get_params(ctx) for name in param.opts}
        for old in (word.partition("=")[0] for word in args):
            if old in _NEW_OPTIONS and _NEW_OPTIONS[old] in options:
                typer.echo(f"Error: {old} is now called {_NEW_OPTIONS[old]}.", err=True)
                raise typer.Exit(MISUSE)
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=Group, epilog=EXIT_CODES, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown"
)


def command(
    name: str,
    ctrl_c_message: str = "Nothing was written.",
    *,
    to: typer.Typer = app,
    ends_at_once: bool = True,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a function to make it the command `name`, which reports errors and Ctrl-C in one sentence.

    `to` is the program, or the group of commands, to which the command is added. After Ctrl-C, `ctrl_c_message` is
    printed; if `ends_at_once` is True, Ctrl-C ends the program even in the middle of a library call.

    Three parameters of the function are not options themselves:

    - `settings` stands for all options of `ddpn.cli.plan_options` that the command has. The function receives a dict of
      their values.
    - `columns` stands for options that name columns, such as --target. The type of the parameter, such as
      `ddpn.cli.options.Columns`, lists them. The function receives a dict of their values.
    - `started` is the time at which the program started, on the scale of `time.monotonic`.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function)
        groups = {
            parameter.name: _expand_group(name, parameter)
            for parameter in signature.parameters.values()
            if parameter.name in _PARAMETER_GROUPS
        }

        @wraps(function)
        def run(context: typer.Context, help_all: bool = False, **options: object) -> None:
            for group, parameters_by_key in groups.items():
                options[group] = {
                    key: _read_value(key, options.pop(parameter.name)) for key, parameter in parameters_by_key.items()
                }
            if "started" in signature.parameters:
                options["started"] = time.monotonic() if context.obj is None else context.obj
            with (
                report_errors(ctrl_c_message, context),
                end_on_ctrl_c(ctrl_c_message) if ends_at_once else nullcontext(),
            ):
                function(**options)

        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
        for parameter in signature.parameters.values():
            if parameter.name != "started":
                parameters += (
                    groups[parameter.name].values() if parameter.name in groups else [parameter.replace(kind=kind)]
                )
        if any(_has_panel(getattr(parameter.annotation, "__metadata__", [None])[0]) for parameter in parameters):
            parameters.append(inspect.Parameter("help_all", kind, default=False, annotation=_HelpAll))
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        to.command(name, cls=Command)(run)
        return function

    return add


def _expand_group(command: str, group: inspect.Parameter) -> dict[str, inspect.Parameter]:
    """Return the options that replace one parameter of a command's function.

    `command` is the name of the command. `group` is the parameter that stands for several options, `settings` or
    `columns` (see the function `command`). The result maps the keys of the dict that the function receives to function
    parameters, one per option.
    """
    if group.name == "columns":
        names = get_args(group.annotation)[1]
        return {name.removesuffix("_column"): _make_option(name, str, COLUMN_OPTIONS[name]) for name in names}
    parameters = {}
    for name, option_text in OPTION_TEXTS.items():
        if command in option_text.commands:
            flags = [option_text.flag] if option_text.flag else []
            parameters[name] = _make_option(
                name,
                _get_option_type(name),
                option(option_text.metavar, option_text.help, *flags, panel=option_text.panel),
            )
    return parameters


def _get_option_type(name: str) -> Any:
    """Return the type of the command-line option for a field of `FitConfig`: int, float, str, or a list of str."""
    hint = _FIELD_TYPES[name]
    types = {part for part in (get_args(hint) or (hint,)) if part is not NoneType}
    if types in ({int}, {float}):
        return types.pop()
    return list[str] if hint in (tuple[str, ...], tuple[str, ...] | None) else str


def _read_value(name: str, value: object) -> object:
    """Convert the value that Typer parsed for the option `name`, a field of `FitConfig`, to a value of this field.

    Values of an option that was typed several times are joined by commas, unless they are names of columns. Return None
    if the option was not typed.
    """
    if not isinstance(value, list):
        return value
    return (value if OPTION_TEXTS[name].metavar == "COLUMNS" else ",".join(value)) if value else None


def _make_option(name: str, value_type: Any, typer_option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[value_type | None, typer_option]
    )


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(version("ddpn"))
        raise typer.Exit


@app.callback()
def run_program(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Predict counts with honest uncertainty: boosted trees, GLMs and Deep Double Poisson Networks as one mixture."""


def main() -> None:
    """Run the command line."""
    # Set before torch is imported: threads that wait by spinning starve each other if other programs use the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Imports create hundreds of thousands of permanent objects, and collecting garbage among them takes half a second.
    gc.set_threshold(50_000, 20, 100)
    # With torch and its modules, the garbage collection at exit would take a second.
    atexit.register(gc.freeze)
    try:
        app(obj=time.monotonic())
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # otherwise Python would print a traceback
