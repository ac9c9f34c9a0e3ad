"""How a command is made: its options, its errors, and what Ctrl-C does."""

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from ddpn.cli.console import friendly_errors, number_sentence, prompt_ctrl_c, running
from ddpn.workflow.plan import PLAN_OPTIONS

EXIT_CODES = (
    "Exit codes: 0 success; 1 a problem with the data, a file or the machine; 2 a wrong option or setting; "
    "130 stopped by Ctrl-C."
)

#: Commands by name, of the modules that are imported.
COMMANDS: dict[str, Any] = {}

if TYPE_CHECKING:
    _Base = TyperCommand
else:
    _Base = object


class _BareFlags(_Base):
    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters. Typer 0.29 puts <bool> behind flags such as --json, as if they took a value."""
        params = super().get_params(ctx)
        for param in params:
            if getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
        return params


class Group(_BareFlags, TyperGroup):
    """The program, or a group of its commands."""


class Command(_BareFlags, TyperCommand):
    """A command of the program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options; a value that is not a number is reported in one sentence."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            sentence = number_sentence(error, given, get_type_hints(self.callback))
            if sentence is None:
                raise
            typer.echo(f"Error: {sentence}", err=True)
            raise typer.Exit(2) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with running(ctx):
            return super().invoke(ctx)


def command(
    name: str,
    kept: str = "Nothing was written.",
    *,
    to: typer.Typer | None = None,
    codes: str = EXIT_CODES,
    ends_at_once: bool = True,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command that reports errors and Ctrl-C in one sentence.

    A parameter `given` of the function is replaced by the plan options of the command; the function gets them as a
    dictionary.

    Parameters
    ----------
    name : str
        The name of the command.
    kept : str
        What is left after Ctrl-C.
    to : Typer, optional
        A group of commands. Default: the program.
    codes : str
        The sentence on exit codes.
    ends_at_once : bool
        Whether Ctrl-C may end the command in the middle of a library's call.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def run(**options: Any) -> None:
            if plan:
                options["given"] = {each: options.pop(each) for each in plan}
            with friendly_errors(kept), prompt_ctrl_c(kept) if ends_at_once else nullcontext():
                function(**options)

        own = inspect.signature(function)
        plan = _plan_options(name) if "given" in own.parameters else {}
        parameters: list[inspect.Parameter] = []
        for each in own.parameters.values():
            parameters += plan.values() if each.name == "given" else [each]
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        program = to or typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
        program.command(name, epilog=codes, cls=Command)(run)
        if to is None:
            COMMANDS[name] = typer.main.get_command(program)
        return function

    return add


def _plan_options(command: str) -> dict[str, inspect.Parameter]:
    """The options of a plan that a command has, as parameters."""
    found = {}
    for each in PLAN_OPTIONS.values():
        if command in each.commands and each.help:
            kind = {"integer": int, "number": float}.get(each.kind, str)
            names = [each.option] if each.option else []
            option = typer.Option(*names, help=each.help, metavar=each.metavar, rich_help_panel=each.panel)
            found[each.name] = inspect.Parameter(
                each.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
            )
    return found
