"""The program `ddpn`, which imports the module of a command when it is named."""

import atexit
import gc
import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer

from ddpn.cli.commands import COMMANDS, EXIT_CODES, Group
from ddpn.runtime.deadlines import program_start

#: Commands in the order of the help, and the modules that make them.
_MODULES = {
    "diagnose": "analysis", "fit": "fit", "tune": "fit", "predict": "model", "evaluate": "model", "show": "model",
    "report": "model", "explain": "analysis", "monitor": "analysis", "serve": "model", "export": "model",
    "likelihoods": "analysis", "reproduce": "paper", "data": "paper",
}  # fmt: skip


class _Commands(Mapping[str, Any]):
    """All commands by name."""

    def __getitem__(self, name: str) -> Any:
        import_module(f"ddpn.cli.{_MODULES[name]}")
        return COMMANDS[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


class Program(Group):
    """The group of all commands."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        commands: Any = _Commands()
        self.commands = commands


app = typer.Typer(
    cls=Program, epilog=EXIT_CODES, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown"
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

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
    app(obj=program_start())
