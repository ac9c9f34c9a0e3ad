"""ddpn reproduce: the paper's experiments."""

from pathlib import Path
from typing import Annotated

import typer

from ddpn.cli.commands import command
from ddpn.cli.console import show as show_table
from ddpn.cli.options import option

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="Experiments from --list; `all` runs every experiment except paper-*."),
]
List = Annotated[bool, option(None, "List all experiments and what they need.", "--list")]
Members = Annotated[int | None, option("NUMBER", "Networks per ensemble. Default: 5, as in the paper.")]
Quick = Annotated[
    bool, option(None, "For a first look: a tenth of the training and 2 members, in a separate folder.", "--quick")
]
Only = Annotated[str, option("NAMES", "Run only these methods, separated by commas, such as ddpn,poisson.")]
Results = Annotated[Path, option("FOLDER", "The folder for all results.")]
Device = Annotated[str, option("NAME", "Where to train: cpu, cuda, or auto (a GPU if there is one).")]
Seed = Annotated[int | None, option("NUMBER", "Seed of the first member; the others add 1, 2, ...")]
Jobs = Annotated[
    int | None, option("NUMBER", "Number of runs at the same time. Default: one per core, or one on a GPU.")
]
MaxSteps = Annotated[
    int | None, option("NUMBER", "A dry run: this many steps, few rows, random weights, in a separate folder.")
]


@command("reproduce", "Finished runs are kept: the same command resumes from here.", ends_at_once=False)
def reproduce(
    names: Names = None,
    show: List = False,
    members: Members = None,
    quick: Quick = False,
    only: Only = "",
    out: Results = Path("results"),
    device: Device = "auto",
    seed: Seed = None,
    jobs: Jobs = None,
    max_steps: MaxSteps = None,
) -> None:
    """Run experiments of the paper and write their tables and figures.

    Finished runs are kept and skipped; interrupted runs are resumed.

    Example: ddpn reproduce bikes --quick
    """
    from ddpn.paper.experiments import catalogue
    from ddpn.runtime.validation import check_integer

    if show:
        show_table(catalogue.listing())
        return
    if jobs is not None:
        check_integer("jobs", jobs, minimum=1)
    methods = [name.strip() for name in only.split(",") if name.strip()]
    training = {name: value for name, value in (("members", members), ("seed", seed)) if value is not None}
    experiments = catalogue.select(names or [], only=methods, quick=quick, max_steps=max_steps, **training)

    # Imports torch: not for --list, and not for an option that is invalid.
    from rich.console import Console

    from ddpn.paper.experiments.reproduce import reproduce as run

    if not run(experiments, out, Console(), methods, device, jobs):
        raise typer.Exit(1)
