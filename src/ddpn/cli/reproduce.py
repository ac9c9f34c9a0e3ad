"""ddpn reproduce: the paper's experiments."""

from pathlib import Path
from typing import Annotated

import typer

from ddpn.cli.console import friendly_errors
from ddpn.cli.console import show as show_table


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Experiments; all is every one but paper-*.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show all experiments and what they need.")] = False,
    members: Annotated[int | None, typer.Option(help="Members of an ensemble; 5 as in the paper.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tenth of the training, 2 members, a folder of its own.")
    ] = False,
    only: Annotated[str, typer.Option(help="Methods to run, with commas between: ddpn,poisson.")] = "",
    out: Annotated[Path, typer.Option(help="The folder of all results.")] = Path("results"),
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    seed: Annotated[int | None, typer.Option(help="The first member's; the others count on from it.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at once; one a core, or one on a GPU.")] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="A dry run: so many steps, few rows, random weights, a folder of its own.")
    ] = None,
) -> None:
    """Run experiments of the paper and write their tables and figures.

    What is finished is kept and skipped; what was stopped goes on where it was.
    """
    with friendly_errors("What is finished is kept: the same command goes on from here."):
        from rich.console import Console

        from ddpn.experiments.reproduce import Options, listing
        from ddpn.experiments.reproduce import reproduce as run

        if show:
            show_table(listing())
            return
        methods = tuple(name.strip() for name in only.split(",") if name.strip())
        options = Options(out, members, seed, quick, methods, device, jobs, max_steps)
        if not run(names or [], options, Console()):
            raise typer.Exit(1)
