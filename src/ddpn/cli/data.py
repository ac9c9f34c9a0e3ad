"""ddpn data and ddpn likelihoods: what there is, and downloads."""

from typing import Annotated

import typer

from ddpn.cli import options as o
from ddpn.cli.commands import EXIT_CODES, Group, app, command
from ddpn.cli.console import print_json, show

data = typer.Typer(cls=Group, help="List and download data sets.", epilog=EXIT_CODES, no_args_is_help=True)
app.add_typer(data, name="data")


@command("list", "Nothing was changed.", to=data)
def list_() -> None:
    """Show every data set: its rows, origin, license, and whether it is available, missing or damaged."""
    from rich.table import Table

    from ddpn.paper.datasets import data_folder, dataset_status

    table = Table("name", "rows", "origin", "license", "state", title=f"Data in {data_folder()}")
    for status in dataset_status():
        rows = "-" if status.rows is None else f"{status.rows:,}" + (" (sample)" if status.sample else "")
        table.add_row(status.name, rows, status.address, status.license, status.state)
    show(table)


@command("get", "Nothing was changed.", to=data)
def get(name: Annotated[str, typer.Argument(metavar="NAME", help="A name from `ddpn data list`.")]) -> None:
    """Download a data set if it is not available, or explain where to put it."""
    from ddpn.paper.datasets import download

    typer.echo(download(name))


@command("likelihoods", "Nothing was changed.")
def likelihoods(as_json: o.Json = False) -> None:
    """List the distributions that --likelihood of `ddpn fit` accepts, and what each is for.

    `ddpn diagnose` recommends one for a table.
    """
    from rich.table import Table

    from ddpn.networks.heads.likelihoods import DEFAULT_LIKELIHOOD, DESCRIPTIONS

    if as_json:
        print_json(DESCRIPTIONS)
        return
    table = Table("name", "suits")
    for name, suits in DESCRIPTIONS.items():
        table.add_row(f"{name} (default)" if name == DEFAULT_LIKELIHOOD else name, suits)
    show(table)
