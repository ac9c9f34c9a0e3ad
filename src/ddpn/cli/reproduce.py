"""ddpn reproduce: the paper's experiments."""

from pathlib import Path
from typing import Annotated

import typer

from ddpn.cli.cluster import Cluster, GpusPerJob, cluster_of
from ddpn.cli.console import friendly_errors
from ddpn.cli.console import show as show_table


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Experiments from --list; all runs every experiment except paper-*."),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List all experiments and what they need.")] = False,
    members: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Networks per ensemble. Default: 5, as in the paper.")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="For a first look: a tenth of the training and 2 members, in a separate folder."),
    ] = False,
    only: Annotated[
        str, typer.Option(metavar="NAMES", help="Run only these methods, separated by commas, such as ddpn,poisson.")
    ] = "",
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder of all results.")] = Path("results"),
    device: Annotated[
        str, typer.Option(metavar="NAME", help="Where to train: cpu, cuda, or auto (a GPU if there is one).")
    ] = "auto",
    seed: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Seed of the first member; the others add 1, 2, ...")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="Number of runs at the same time. Default: one per core, or one on a GPU."),
    ] = None,
    cluster: Cluster = None,
    gpus_per_job: GpusPerJob = None,
    max_steps: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER", help="A dry run: this many steps, few rows, random weights, in a separate folder."
        ),
    ] = None,
) -> None:
    """Run experiments of the paper and write their tables and figures.

    Finished runs are kept and skipped; interrupted runs are resumed.

    Example: ddpn reproduce bikes --quick
    """
    with friendly_errors("Finished runs are kept: the same command resumes from here."):
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

        where = cluster_of(cluster, gpus_per_job, jobs) or jobs
        if not run(experiments, out, Console(), methods, device, where):
            raise typer.Exit(1)
