"""ddpn tune: search the settings of a model within a budget. Arguments and printing only."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddpn.cli import options as o
from ddpn.cli.cluster import Cluster, GpusPerJob, cluster_of
from ddpn.cli.console import EXIT_CODES, INTERRUPTED, friendly_errors, output_to_stderr, prompt_ctrl_c, show
from ddpn.cli.flags import Command
from ddpn.cli.model import show_fitted, show_prepared, show_stopped, steps

if TYPE_CHECKING:
    from rich.table import Table

    from ddpn.workflow.tuning import TuningResult

Budget = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Total time, such as 90s, 10m or 1h, including the final fit. Default: 10m, or none with --trials.",
    ),
]
Trials = Annotated[
    int | None, typer.Option(metavar="NUMBER", help="Number of trials, including the one with the defaults.")
]
SearchOf = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Settings to search, separated by commas: lr, weight_decay, hidden, batch_size, epochs, numeric, "
        "likelihood, mix_with; or a TOML file with ranges and choices. Default: all that are not fixed by an option.",
    ),
]
Page = Annotated[
    Path | None, typer.Option(metavar="HTML", help="The HTML page about the search. Default: MODEL.tuning.html.")
]


def tune(
    data: o.Data,
    out: o.NewModel,
    target: o.Target = None,
    budget: Budget = None,
    trials: Trials = None,
    search: SearchOf = None,
    page: Page = None,
    exposure: o.Exposure = None,
    weight: o.Weight = None,
    lower: o.Lower = None,
    upper: o.Upper = None,
    upper_column: o.UpperColumn = None,
    censored: o.Censored = None,
    censored_above: o.CensoredAbove = None,
    drop: o.Drop = None,
    use: o.Use = None,
    category: o.Category = None,
    missing: o.Missing = None,
    likelihood: o.Likelihood = None,
    components: o.Components = None,
    members: o.Members = None,
    epochs: o.Epochs = None,
    mix_with: o.MixWith = None,
    compare_with: o.CompareWith = None,
    recalibrate: o.Recalibrate = None,
    interval_groups: o.IntervalGroups = None,
    seed: o.Seed = None,
    group: o.Group = None,
    split_column: o.SplitColumn = None,
    time: o.Time = None,
    config: o.Config = None,
    device: o.Device = None,
    cluster: Cluster = None,
    gpus_per_job: GpusPerJob = None,
    overwrite: o.Overwrite = False,
    as_json: o.Json = False,
) -> None:
    """Search for good settings of a model, and fit it with the best ones, as `ddpn fit` does.

    Trials are scored by the CRPS of held-out training and validation rows, never of test rows. The
    first trial has the default settings. The page shows the best settings, whether their gain is more than noise, and
    which settings mattered. After Ctrl-C or a crash, the same command continues.

    Example: ddpn tune bikes.csv --target rentals --drop casual,registered -o bikes.model --budget 30m
    """
    given = {
        "target": target, "exposure": exposure, "weight": weight, "drop": drop, "use": use, "category": category,
        "lower": lower, "upper": upper, "upper_column": upper_column, "censored": censored,
        "censored_above": censored_above, "missing": missing, "likelihood": likelihood, "components": components,
        "members": members, "epochs": epochs, "mix_with": mix_with, "compare_with": compare_with, "seed": seed,
        "recalibrate": recalibrate, "interval_groups": interval_groups, "group": group, "split_column": split_column,
        "time": time,
        "device": device,
    }  # fmt: skip
    limits = {"budget": budget, "trials": trials, "search": search}
    with friendly_errors("Finished trials are kept: the same command continues."):
        _tune(data, out, given, config, limits, (cluster, gpus_per_job), page, overwrite, as_json)


def _tune(
    data: str,
    out: Path,
    given: dict[str, Any],
    config: Path | None,
    limits: dict[str, Any],
    where: tuple[str | None, float | None],
    page: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    from ddpn.storage.model_files import check_destination
    from ddpn.tables.reading import read
    from ddpn.tables.writing import check_free
    from ddpn.workflow.plan import plan_of
    from ddpn.workflow.preparing import prepare
    from ddpn.workflow.tuning.limits import check_limits

    plan = plan_of(given, config)
    check_limits(plan, **limits)
    check_destination(out, overwrite)
    page = page or out.with_name(f"{out.name}.tuning.html")
    check_free(page, overwrite, data)
    plan.check_with_torch()
    with prompt_ctrl_c("Nothing was saved."):
        prepared = prepare(read(data, plan.category), plan)
    show_prepared(data, prepared, as_json)
    about = {"data": data, "command": shlex.join(["ddpn", *sys.argv[1:]])}
    # Only now, as they import torch: wrong options and tables are reported at once.
    from ddpn.workflow.tuning import tune as run
    from ddpn.workflow.tuning.page import write_tuning

    n_jobs = cluster_of(*where)
    with output_to_stderr(), steps() as step:
        found = run(out, prepared, **limits, about=about, overwrite=overwrite, on_step=step, n_jobs=n_jobs)
    task = found.fitted.folder.task
    write_tuning(page, found.result, plan.target, task.get("test"))
    if not as_json:
        _show_result(found.result)
    show_fitted(out, task, as_json)
    typer.echo(f"Page on the search written to {page}", err=True)
    if found.fitted.interrupted:
        show_stopped(out, found.fitted)
        raise typer.Exit(INTERRUPTED)


def _show_result(found: "TuningResult") -> None:
    show(_table(found))
    typer.echo(found.headline)
    for _, sentence in found.details:
        typer.echo(sentence)


def _table(found: "TuningResult") -> "Table":
    from rich.table import Table

    table = Table("setting", "default", "used", "importance", title="Settings", title_justify="left")
    table.columns[3].justify = "right"
    for name, _, default, value in found.changes:
        share = f"{found.importances[name]:.0%}" if name in found.importances else ""
        table.add_row(name, default, value, share, style="bold" if value != default else None)
    return table


def add_to(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("tune", epilog=EXIT_CODES, cls=Command)(tune)
