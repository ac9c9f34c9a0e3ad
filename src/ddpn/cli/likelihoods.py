"""ddpn likelihoods: the names that --likelihood takes."""

import typer

from ddpn.cli import options as o
from ddpn.cli.console import EXIT_CODES, friendly_errors, print_json, show
from ddpn.cli.flags import Command


def likelihoods(as_json: o.Json = False) -> None:
    """List the distributions that --likelihood of `ddpn fit` accepts, and what each is for.

    `ddpn diagnose` recommends one for a table.
    """
    with friendly_errors("Nothing was changed."):
        from rich.table import Table

        from ddpn.networks.heads.likelihoods import DEFAULT_LIKELIHOOD, DESCRIPTIONS

        if as_json:
            print_json(DESCRIPTIONS)
            return
        table = Table("name", "suits")
        for name, suits in DESCRIPTIONS.items():
            table.add_row(f"{name} (default)" if name == DEFAULT_LIKELIHOOD else name, suits)
        show(table)


def add_to(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("likelihoods", epilog=EXIT_CODES, cls=Command)(likelihoods)
