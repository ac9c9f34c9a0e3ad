"""The commands for the paper's data sets and experiments: their arguments and their output."""

from pathlib import Path
from typing import Annotated

import typer

from ddpn.cli.console import print_table
from ddpn.cli.options import option
from ddpn.cli.program import EXIT_CODES, Group, app, command
from ddpn.cli.tables import build_table

data = typer.Typer(name="data", cls=Group, help="List and download data sets.", epilog=EXIT_CODES, no_args_is_help=True)


@command("list", "Nothing was changed.", to=data)
def list_() -> None:
    """Show every data set: its rows, origin, license and state (available, missing or damaged)."""
    from ddpn.paper.datasets import data_folder, dataset_status

    rows = []
    for status in dataset_status():
        count = "-" if status.rows is None else f"{status.rows:,}" + (" (sample)" if status.sample else "")
        rows.append(((status.name, count, status.address, status.license, status.state), False))
    print_table(build_table(("name", "rows", "origin", "license", "state"), rows, title=f"Data in {data_folder()}"))


@command("get", "Nothing was changed.", to=data)
def get(name: Annotated[str, typer.Argument(metavar="NAME", help="A name from `ddpn data list`.")]) -> None:
    """Download a data set if it is not available. If it cannot be downloaded, say which file to put where."""
    from ddpn.paper.datasets import download

    typer.echo(download(name))


app.add_typer(data)

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="Experiments from --list; `all` runs every experiment except paper-*."),
]
List = Annotated[bool, option(None, "List all experiments and what they need.", "--list")]
Networks = Annotated[
    int | None,
    option(
        "NUMBER",
        "Networks per ensemble. Default: 5, as in the paper; more in experiments that count networks.",
        "--networks",
    ),
]
Quick = Annotated[
    bool, option(None, "For a first look: a tenth of the training and two networks, in a separate folder.", "--quick")
]
Only = Annotated[str, option("NAMES", "Run only these methods, separated by commas, such as ddpn,poisson.")]
Results = Annotated[Path, option("FOLDER", "The folder for all results.")]
Device = Annotated[str, option("NAME", "Where to train: cpu, cuda, or auto (a GPU if there is one).")]
Seed = Annotated[int | None, option("NUMBER", "Seed of the first network; the others add 1, 2, ...")]
Jobs = Annotated[
    int | None, option("NUMBER", "Number of runs at the same time. Default: one per core, or one on a GPU.")
]


@command("reproduce", "Finished runs are kept: the same command resumes from here.", ends_at_once=False)
def reproduce(
    names: Names = None,
    listing: List = False,
    n_networks: Networks = None,
    quick: Quick = False,
    only: Only = "",
    out: Results = Path("results"),
    device: Device = "auto",
    seed: Seed = None,
    jobs: Jobs = None,
) -> None:
    """Run experiments of the paper and write their tables and figures.

    Finished runs are kept and skipped; interrupted runs are resumed.

    Example: ddpn reproduce bikes --quick
    """
    from ddpn.paper.experiments import catalogue
    from ddpn.runtime.validation import check_integer

    if listing:
        print_table(catalogue.build_listing())
        return
    if jobs is not None:
        check_integer("jobs", jobs, minimum=1)
    methods = [name.strip() for name in only.split(",") if name.strip()]
    training = {name: value for name, value in (("n_networks", n_networks), ("seed", seed)) if value is not None}
    experiments = catalogue.select_experiments(names or [], only=methods, quick=quick, **training)

    # Imported late, because it imports torch: --list and invalid options should be answered at once.
    from rich.console import Console

    from ddpn.paper.experiments.reproduce import reproduce as run

    if not run(experiments, out, Console(), methods, device, jobs):
        raise typer.Exit(1)
