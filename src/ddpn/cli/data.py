"""ddpn data: the data sets and their state, and downloads."""

from typing import Annotated

import typer

from ddpn.cli.console import EXIT_CODES, friendly_errors, show
from ddpn.cli.flags import Command, Group

data = typer.Typer(cls=Group, help="List and download data sets.", epilog=EXIT_CODES, no_args_is_help=True)


@data.command("list", epilog=EXIT_CODES, cls=Command)
def list_() -> None:
    """Show every data set: its rows, origin, license, and whether it is available, missing or damaged."""
    with friendly_errors("Nothing was changed."):
        from rich.table import Table

        from ddpn.paper.datasets import data_folder, dataset_status

        table = Table("name", "rows", "origin", "license", "state", title=f"Data in {data_folder()}")
        for status in dataset_status():
            rows = "-" if status.rows is None else f"{status.rows:,}" + (" (sample)" if status.sample else "")
            table.add_row(status.name, rows, status.address, status.license, status.state)
        show(table)


@data.command(epilog=EXIT_CODES, cls=Command)
def get(name: Annotated[str, typer.Argument(metavar="NAME", help="A name from `ddpn data list`.")]) -> None:
    """Download a data set if it is not available, or explain where to put it."""
    with friendly_errors("Nothing was changed."):
        from ddpn.paper.datasets import download

        typer.echo(download(name))
