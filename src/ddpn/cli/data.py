"""ddpn data: which data sets there are, and getting them."""

from typing import TYPE_CHECKING, Annotated

import typer

from ddpn.cli.console import EXIT_CODES, friendly_errors

if TYPE_CHECKING:
    from rich.table import Table

data = typer.Typer(help="Data sets: which there are, and getting them.", epilog=EXIT_CODES, no_args_is_help=True)


@data.command("list")
def list_() -> None:
    """Show every data set: its rows, where it is from, its licence, and whether it is here, whole or damaged."""
    with friendly_errors("Nothing was changed."):
        from rich.console import Console

        Console().print(_holdings())


@data.command()
def get(name: Annotated[str, typer.Argument(help="A data set of `ddpn data list`.")]) -> None:
    """Download a data set unless it is here, or say where to put it."""
    with friendly_errors("The same command goes on with the download."):
        from ddpn.datasets import DATASETS, obtain
        from ddpn.experiments.settings import known

        known("data sets", [name], DATASETS, "ddpn.datasets")
        typer.echo(obtain(name))


def _holdings() -> "Table":
    from rich.markup import escape
    from rich.table import Table

    from ddpn.datasets import data_folder, holdings

    table = Table("name", "rows", "where from", "licence", "state", title=f"Data in {data_folder()}")
    for found in holdings():
        rows = "-" if found.rows is None else f"{found.rows:,}" + (" (sample)" if found.sample else "")
        table.add_row(found.name, rows, found.whence, found.licence, escape(found.state))
    return table
