"""ddpn fit and ddpn tune: models from tables. Arguments and printing only."""

import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ddpn.cli import options as o
from ddpn.cli.console import INTERRUPTED, CtrlCRunner, print_json, print_step, prompt_ctrl_c, show, show_warnings
from ddpn.cli.options import option
from ddpn.cli.program import command
from ddpn.cli.tables import column_table, missing_words, show_scores, terminal_table
from ddpn.storage.contents import JsonObject

if TYPE_CHECKING:
    from ddpn.workflow.fitting import Fitted
    from ddpn.workflow.preparing import Prepared
    from ddpn.workflow.tuning import TuningResult

Stream = Annotated[
    bool | None,
    option(
        None,
        "Read files as a stream instead of into memory. Default: stream them if they would take more than half of the "
        "free memory.",
        "--stream/--no-stream",
    ),
]
Budget = Annotated[
    str | None,
    option(
        "DURATION",
        "Total time, such as 90s, 10m or 1h, including the final fit. Default: 10m, or none with --trials.",
    ),
]
Trials = Annotated[int | None, option("NUMBER", "Number of trials, including the one with the defaults.")]
SearchOf = Annotated[
    str | None,
    option(
        "NAMES",
        "Settings to search, separated by commas: lr, weight_decay, hidden, batch_size, epochs, numeric, likelihood. "
        "Default: all that are not fixed by an option.",
    ),
]


@command("fit", "Nothing was saved.", ends_at_once=False)
def fit(
    data: o.Tables,
    out: o.NewModel,
    *,
    given: o.Given,
    config: o.Config = None,
    cluster: o.Cluster = None,
    gpus_per_job: o.GpusPerJob = None,
    stream: Stream = None,
    overwrite: o.Overwrite = False,
    as_json: o.Json = False,
    started: float,
) -> None:
    """Fit a model to a table and compare it with simpler models.

    Boosted trees, a GLM and networks are fitted one after the other and mixed, with weights that minimise the CRPS of
    held-out rows, each only if it improves the mixture. --budget limits the time, --only fits one member alone.

    Up to 5,000 rows are all fitted, by cross-fitting, and scored out of fold: every row by copies that were fitted
    without it. More rows are split into 70% for training, 10% for validation (best epochs, mixture weights,
    calibration) and 20% for testing. --test-size, --split-column and --time ask for test rows; --group keeps rows of
    one person or shop together. Ctrl-C ends the current step and saves what was fitted so far; the same command with
    --overwrite then continues.

    Example: ddpn fit bikes.csv --target rentals --drop casual,registered -o bikes.model
    """
    from ddpn.runtime.errors import ConfigError
    from ddpn.runtime.time_plan import clock_of_budget
    from ddpn.storage.model_files import check_destination
    from ddpn.tables.table import Table
    from ddpn.workflow.config import read_config
    from ddpn.workflow.preparing import open_table, prepare, stream_facts

    plan = read_config(given, config)
    check_destination(out, overwrite)
    plan.check_with_torch()
    with prompt_ctrl_c("Nothing was saved."):
        table, note = open_table(data, plan, stream, verbose=True)
        if note:
            typer.echo(note, err=as_json)
        if isinstance(table, Table) and cluster is not None:
            raise ConfigError("`cluster` needs a table in memory, got one that is streamed. Leave out one of the two.")
        # A time budget includes all that was done since the start of the program.
        prepared = prepare(table, plan, True, clock_of_budget(plan.seconds, started))
        del table  # prepared has copies of what it needs
    name = data[0] if len(data) == 1 else f"{data[0]} and {len(data) - 1:,} more files"
    _show_prepared(name, prepared, as_json)
    about: JsonObject = {"data": name, "command": shlex.join(["ddpn", *sys.argv[1:]])}
    if prepared.stream is not None:
        about["stream"] = stream_facts(prepared.stream, len(prepared.sample))
    # Only now, as it imports torch: wrong options and tables are reported at once.
    from ddpn.workflow.fitting import fit_into

    options = {"verbose": True, "on_step": print_step, "started": started}
    n_jobs = o.cluster_of(cluster, gpus_per_job)
    with redirect_stdout(sys.stderr), CtrlCRunner() as runner:
        fitted = fit_into(out, prepared, about, overwrite, n_jobs=n_jobs, runner=runner, **options)
    _show_fitted(out, fitted, as_json)


@command("tune", "Finished trials are kept: the same command continues.", ends_at_once=False)
def tune(
    data: o.Data,
    out: o.NewModel,
    *,
    budget: Budget = None,
    trials: Trials = None,
    search: SearchOf = None,
    given: o.Given,
    config: o.Config = None,
    cluster: o.Cluster = None,
    gpus_per_job: o.GpusPerJob = None,
    overwrite: o.Overwrite = False,
    as_json: o.Json = False,
    started: float,
) -> None:
    """Search for good settings, and fit a model with the best ones, as `ddpn fit` does.

    Trials are scored by the CRPS of held-out training and validation rows, never of test rows. The first trial has the
    default settings. The command prints the best settings and whether their gain is more than noise; `ddpn show --json`
    lists every trial. After Ctrl-C or a crash, the same command continues.

    Example: ddpn tune bikes.csv --target rentals --drop casual,registered -o bikes.model --budget 30m
    """
    from ddpn.storage.model_files import check_destination
    from ddpn.tables.files import read_file
    from ddpn.workflow.config import read_config
    from ddpn.workflow.preparing import prepare
    from ddpn.workflow.search_space import check_search

    plan = read_config(given, config)
    # Settings that are chosen by held-out rows look better on these than they are.
    plan = plan.with_test_rows()
    check_search(plan, budget, trials, search)
    check_destination(out, overwrite)
    plan.check_with_torch()
    with prompt_ctrl_c("Nothing was saved."):
        prepared = prepare(read_file(data, plan.as_text), plan, verbose=True)
    _show_prepared(data, prepared, as_json)
    # Only now, as it imports torch: wrong options and tables are reported at once.
    from ddpn.workflow.tuning import tune as run

    about = {"data": data, "command": shlex.join(["ddpn", *sys.argv[1:]])}
    n_jobs = o.cluster_of(cluster, gpus_per_job)
    with redirect_stdout(sys.stderr), CtrlCRunner() as runner:
        fitted, result = run(
            out, prepared, budget=budget, trials=trials, search=search, about=about, overwrite=overwrite,
            on_step=print_step, n_jobs=n_jobs, started=started, runner=runner,
        )  # fmt: skip
    if not as_json:
        _show_search(result)
    _show_fitted(out, fitted, as_json)


def _show_prepared(data: str, prepared: "Prepared", as_json: bool) -> None:
    """Print how the table is used, before training."""
    whole = f" of {prepared.stream.table.rows:,}" if prepared.stream is not None else ""
    typer.echo(f"{data}: {len(prepared.sample):,}{whole} rows{' sampled' if whole else ''}", err=as_json)
    show(column_table(prepared.roles), to_stderr=as_json)
    typer.echo(f"Rows: {prepared.rows_words}; split {prepared.split.how}", err=as_json)
    if prepared.split.meaning:
        typer.echo(prepared.split.meaning, err=as_json)
    show_warnings([*prepared.leaks, *prepared.warnings])


def _show_fitted(out: Path, fitted: "Fitted", as_json: bool) -> None:
    """Print the scores of a saved model, what to do next, and what is missing after Ctrl-C."""
    task = fitted.folder.task
    if as_json:
        print_json({"model": str(out), **task})
    else:
        if "scores" in task:
            show_scores(task["scores"], out, task)
        typer.echo(f"Saved in {out}. Next: ddpn predict {out} NEW.csv -o predictions.csv")
    if fitted.interrupted:
        kept = "The best epochs so far are" if "training" in fitted.missing else "The fitted model is"
        lacks = missing_words(fitted.missing)
        rest = "continues" if fitted.can_continue else "starts again"
        saved = f"{kept} saved in {out}{f', {lacks}' if lacks else ''}"
        typer.echo(f"Stopped. {saved}; the same command with --overwrite {rest}.", err=True)
        raise typer.Exit(INTERRUPTED)


def _show_search(found: "TuningResult") -> None:
    from ddpn.runtime.display import value_text

    pairs = [(name, value_text(was), value_text(found.best[name])) for name, was in found.defaults.items()]
    show(
        terminal_table(("setting", "default", "used"), [(each, each[1] != each[2]) for each in pairs], title="Settings")
    )
    typer.echo(found.headline)
    for sentence in found.details:
        typer.echo(sentence)
