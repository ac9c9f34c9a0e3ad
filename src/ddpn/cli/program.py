"""The program `ddpn` and its commands."""

import atexit
import gc
import os
from typing import Annotated

import typer

from ddpn.cli import data, diagnose, explain, export, likelihoods, model, monitor, serve, tune
from ddpn.cli.console import EXIT_CODES
from ddpn.cli.flags import Command, Group
from ddpn.cli.reproduce import reproduce
from ddpn.runtime.deadlines import program_start

app = typer.Typer(
    cls=Group,
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
diagnose.add_to(app)
model.add_to(app)
explain.add_to(app)
monitor.add_to(app)
serve.add_to(app)
export.add_to(app)
tune.add_to(app)
likelihoods.add_to(app)
app.add_typer(data.data, name="data")
app.command(epilog=EXIT_CODES, cls=Command)(reproduce)


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
