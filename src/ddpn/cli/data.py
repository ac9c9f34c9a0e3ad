"""ddpn data and ddpn likelihoods: list data sets and likelihoods, and download data sets."""

from typing import Annotated

import typer

from ddpn.cli import options as o
from ddpn.cli.commands import COMMANDS, EXIT_CODES, Group, command
from ddpn.cli.console import print_json, show
from ddpn.cli.tables import table_of

data = typer.Typer(
    name="data", cls=Group, help="List and download data sets.", epilog=EXIT_CODES, no_args_is_help=True,
    add_completion=False,
)  # fmt: skip


@command("list", "Nothing was changed.", to=data)
def list_() -> None:
    """Show every data set: its rows, origin, license and state (available, missing or damaged)."""
    from ddpn.paper.datasets import data_folder, dataset_status

    rows = []
    for status in dataset_status():
        count = "-" if status.rows is None else f"{status.rows:,}" + (" (sample)" if status.sample else "")
        rows.append(((status.name, count, status.address, status.license, status.state), False))
    show(table_of(("name", "rows", "origin", "license", "state"), rows, title=f"Data in {data_folder()}"))


@command("get", "Nothing was changed.", to=data)
def get(name: Annotated[str, typer.Argument(metavar="NAME", help="A name from `ddpn data list`.")]) -> None:
    """Download a data set if it is not available, or explain where to put it."""
    from ddpn.paper.datasets import download

    typer.echo(download(name))


COMMANDS["data"] = typer.main.get_command(data)


@command("likelihoods", "Nothing was changed.")
def likelihoods(as_json: o.Json = False) -> None:
    """List the distributions that --likelihood of `ddpn fit` accepts, and what each is for.

    `ddpn diagnose` recommends one for a table.
    """
    from ddpn.networks.heads import DEFAULT_LIKELIHOOD, DESCRIPTIONS

    if as_json:
        print_json(DESCRIPTIONS)
        return
    names = {name: f"{name} (default)" if name == DEFAULT_LIKELIHOOD else name for name in DESCRIPTIONS}
    show(table_of(("name", "suits"), [((names[name], suits), False) for name, suits in DESCRIPTIONS.items()]))
