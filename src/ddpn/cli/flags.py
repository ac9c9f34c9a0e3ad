"""Commands whose help shows flags such as --json alone, and whose errors name options as they were typed.

typer 0.29 puts <bool> behind flags, as if they took a value, and reports values in the words of pydantic.
"""

from typing import TYPE_CHECKING, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from ddpn.cli.context import running
from ddpn.cli.messages import number_sentence

if TYPE_CHECKING:
    _Base = TyperCommand
else:
    _Base = object


class _BareFlags(_Base):
    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters; a flag takes no value, so none is named behind it."""
        params = super().get_params(ctx)
        for param in params:
            if getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
        return params


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


class Group(_BareFlags, TyperGroup):
    """The program, or a group of its commands."""
