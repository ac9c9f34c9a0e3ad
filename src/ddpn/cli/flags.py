"""Commands whose help shows flags such as --json alone: typer 0.29 puts <bool> behind them, as if they took a value."""

from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

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


class Group(_BareFlags, TyperGroup):
    """The program, or a group of its commands."""
