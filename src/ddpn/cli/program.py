"""The program `ddpn` and its commands."""

import atexit
import gc
import os
from typing import Annotated

import typer

from ddpn.cli import data, diagnose, explain, export, fit, model, monitor, reproduce, serve  # noqa: F401 (adds commands)
from ddpn.cli.commands import app
from ddpn.runtime.deadlines import program_start

#: Commands in the order of the help.
_ORDER = (
    "diagnose", "fit", "tune", "predict", "evaluate", "show", "report", "explain", "monitor", "serve", "export",
    "likelihoods", "reproduce",
)  # fmt: skip
app.registered_commands.sort(key=lambda each: _ORDER.index(str(each.name)))


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
