"""The commands fit and tune: their arguments and their output."""

import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ddpn.cli import options as o
from ddpn.cli.console import (
    INTERRUPTED,
    CtrlCRunner,
    end_on_ctrl_c,
    format_program,
    print_json,
    print_step,
    print_table,
    show_warnings,
)
from ddpn.cli.options import option
from ddpn.cli.program import command
from ddpn.cli.tables import build_column_table, build_table, describe_skipped_steps, show_scores
from ddpn.storage.contents import JsonObject

if TYPE_CHECKING:
    from ddpn.workflow.fitting import Fitted
    from ddpn.workflow.preparing import Prepared
    from ddpn.workflow.tuning import TuningResult

Stream = Annotated[
    bool | None,
    option(
        None,
        "Read files as a stream. Default: if they would fill more than half of the free memory.",
        "--stream/--no-stream",
        panel="More options",
    ),
]
Budget = Annotated[
    str | None,
    option(
        "DURATION",
        "Total time, such as 90s, 10m or 1h, with the final fit. Default: 10m; none with --trials.",
    ),
]
Trials = Annotated[int | None, option("NUMBER", "Number of trials, including the one with the defaults.")]
SearchedSettings = Annotated[
    str | None,
    option(
        "NAMES",
        "Any of lr, weight_decay, hidden, batch_size, epochs, numeric, likelihood. Default: all that no option sets.",
    ),
]


@command("fit", "Nothing was saved.", ends_at_once=False)
def fit(
    data: o.Tables,
    out: o.NewModel,
    *,
    settings: o.Settings,
    config: o.Config = None,
    cluster: o.Cluster = None,
    gpus_per_job: o.GpusPerJob = None,
    stream: Stream = None,
    overwrite: o.Overwrite = False,
    as_json: o.Json = False,
    started: float,
) -> None:
    """Fit a model to a table and compare it with simpler models.

    Boosted trees, a GLM and networks are mixed, with weights that minimise the CRPS of held-out rows. Up to 5,000 rows
    are cross-fitted and scored out of fold; more rows are split into 70% for training, 10% for validation and 20% for
    testing. Ctrl-C saves what was fitted so far; the same command with --overwrite continues.

    Example: ddpn fit bikes.csv --target rentals --drop casual,registered -o bikes.model
    """
    from ddpn.runtime.errors import ConfigError
    from ddpn.runtime.time_plan import make_budget_clock
    from ddpn.storage.model_files import check_destination
    from ddpn.tables.table import Table
    from ddpn.workflow.config import read_config
    from ddpn.workflow.large_tables import count_streamed_rows, open_table
    from ddpn.workflow.preparing import prepare

    fit_config = read_config(settings, config)
    check_destination(out, overwrite)
    fit_config.check_with_torch()
    with end_on_ctrl_c("Nothing was saved."):
        table, note = open_table(data, fit_config, stream, verbose=True)
        if note:
            typer.echo(note, err=as_json)
        if isinstance(table, Table) and cluster is not None:
            raise ConfigError("`cluster` cannot be combined with a streamed table. Leave out one of the two.")
        # The time budget starts with the program.
        prepared = prepare(table, fit_config, True, make_budget_clock(fit_config.seconds, started))
        del table  # frees memory: `prepared` has copies of what it needs
    name = data[0] if len(data) == 1 else f"{data[0]} and {len(data) - 1:,} more files"
    _show_data(name, prepared, as_json)
    about: JsonObject = {"data": name, "command": shlex.join([*format_program(), *sys.argv[1:]])}
    if prepared.stream is not None:
        about["stream"] = count_streamed_rows(prepared.stream, len(prepared.sample))
    # Imported late, because it imports torch, and invalid options and tables should be reported at once.
    from ddpn.workflow.fitting import fit_into

    options = {"verbose": True, "on_step": print_step, "started": started}
    n_jobs = o.connect_cluster(cluster, gpus_per_job)
    with redirect_stdout(sys.stderr), CtrlCRunner() as runner:
        fitted = fit_into(out, prepared, about, overwrite, n_jobs=n_jobs, runner=runner, **options)
    _show_result(out, fitted, as_json)


@command("tune", "Finished trials are kept: the same command continues.", ends_at_once=False)
def tune(
    data: o.Data,
    out: o.NewModel,
    *,
    budget: Budget = None,
    trials: Trials = None,
    search: SearchedSettings = None,
    settings: o.Settings,
    config: o.Config = None,
    cluster: o.Cluster = None,
    gpus_per_job: o.GpusPerJob = None,
    overwrite: o.Overwrite = False,
    as_json: o.Json = False,
    started: float,
) -> None:
    """Search for good settings, and fit a model with the best ones, as `ddpn fit` does.

    Trials are scored by the CRPS of held-out rows, never of test rows; the first one has the default settings. The
    result says whether the gain is more than noise. After Ctrl-C or a crash, the same command continues.

    Example: ddpn tune bikes.csv --target rentals --drop casual,registered -o bikes.model --budget 30m
    """
    from ddpn.storage.model_files import check_destination
    from ddpn.tables.files import read_file
    from ddpn.workflow.config import read_config
    from ddpn.workflow.preparing import prepare
    from ddpn.workflow.search_space import check_search

    fit_config = read_config(settings, config)
    # Test rows are needed, because the chosen settings look too good on the rows that chose them.
    fit_config = fit_config.with_test_rows()
    check_search(fit_config, budget, trials, search)
    check_destination(out, overwrite)
    fit_config.check_with_torch()
    with end_on_ctrl_c("Nothing was saved."):
        prepared = prepare(read_file(data, fit_config.as_text, fit_config.layout), fit_config, verbose=True)
    _show_data(data, prepared, as_json)
    # Imported late, because it imports torch, and invalid options and tables should be reported at once.
    from ddpn.workflow.tuning import tune as run

    about = {"data": data, "command": shlex.join([*format_program(), *sys.argv[1:]])}
    n_jobs = o.connect_cluster(cluster, gpus_per_job)
    with redirect_stdout(sys.stderr), CtrlCRunner() as runner:
        fitted, result = run(
            out, prepared, budget=budget, trials=trials, search=search, about=about, overwrite=overwrite,
            on_step=print_step, n_jobs=n_jobs, started=started, runner=runner,
        )  # fmt: skip
    if not as_json:
        _show_search(result)
    _show_result(out, fitted, as_json)


def _show_data(data: str, prepared: "Prepared", as_json: bool) -> None:
    """Print what a fit will use: the rows, the split, the role of each column, and warnings about the table.

    `data` is the table's name as the user typed it. If `as_json` is True, print to standard error.
    """
    total = f" of {prepared.stream.table.rows:,}" if prepared.stream is not None else ""
    typer.echo(f"{data}: {len(prepared.sample):,}{total} rows{' sampled' if total else ''}", err=as_json)
    print_table(build_column_table(prepared.roles), to_stderr=as_json)
    typer.echo(f"Rows: {prepared.row_counts_text}; split {prepared.split.description}", err=as_json)
    if prepared.split.meaning:
        typer.echo(prepared.split.meaning, err=as_json)
    show_warnings([*prepared.leaks, *prepared.warnings])


def _show_result(out: Path, fitted: "Fitted", as_json: bool) -> None:
    """Print the scores of a saved model and what to do next.

    If Ctrl-C stopped the fit, also print which steps are missing, and exit with an error status.
    """
    task = fitted.folder.task
    if as_json:
        print_json({"model": str(out), **task})
    else:
        if "scores" in task:
            show_scores(task["scores"], out, task)
        name = task.get("scores", {}).get("verdict", {}).get("prefer")
        member = "" if name is None else f" --member {shlex.quote(name)}"
        program = shlex.join(format_program())
        typer.echo(f"Saved in {out}. Next: {program} predict {out} NEW.csv{member} -o predictions.csv")
    if fitted.interrupted:
        kept = "The best epochs so far are" if "training" in fitted.missing else "The fitted model is"
        skipped = describe_skipped_steps(fitted.missing)
        outcome = "continues" if fitted.can_continue else "starts again"
        saved = f"{kept} saved in {out}{f', {skipped}' if skipped else ''}"
        typer.echo(f"Stopped. {saved}; the same command with --overwrite {outcome}.", err=True)
        raise typer.Exit(INTERRUPTED)


def _show_search(result: "TuningResult") -> None:
    from ddpn.runtime.display import value_text

    pairs = [(name, value_text(was), value_text(result.best[name])) for name, was in result.defaults.items()]
    print_table(
        build_table(("setting", "default", "used"), [(pair, pair[1] != pair[2]) for pair in pairs], title="Settings")
    )
    typer.echo(result.headline)
    for sentence in result.details:
        typer.echo(sentence)
