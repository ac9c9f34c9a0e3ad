"""Commands on models: fit, predict, evaluate, show, report. Arguments and printing only."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from ddpn.cli import options as o
from ddpn.cli.console import EXIT_CODES, INTERRUPTED, print_json, show, stdout_kept_free, told
from ddpn.cli.tables import column_table, fact_table, model_facts, score_table


def fit(
    data: o.Data,
    out: o.NewModel,
    target: o.Target = None,
    exposure: o.Exposure = None,
    weight: o.Weight = None,
    drop: o.Drop = None,
    use: o.Use = None,
    category: o.Category = None,
    likelihood: o.Likelihood = None,
    beta: o.Beta = None,
    members: o.Members = None,
    epochs: o.Epochs = None,
    seed: o.Seed = None,
    split_column: o.SplitColumn = None,
    time: o.Time = None,
    config: o.Config = None,
    device: o.Device = None,
    overwrite: o.Overwrite = False,
    as_json: o.Json = False,
) -> None:
    """Fit a model to a table and compare it with three baselines.

    Rows are split into 70% for training, 10% to choose the best epochs and 20% to judge by (below 250 rows: 80% and
    20%), at random by the seed unless --split-column or --time says otherwise. Ctrl-C ends the training and saves the
    best epochs so far; the same command with --overwrite then goes on.

    Example: ddpn fit bikes.csv --target rentals --drop casual,registered -o bikes.model
    """
    given = {
        "target": target, "exposure": exposure, "weight": weight, "drop": drop, "use": use, "category": category,
        "likelihood": likelihood, "beta": beta, "members": members, "epochs": epochs, "seed": seed,
        "split_column": split_column, "time": time, "device": device,
    }  # fmt: skip
    with told("Nothing was saved."):
        _fit(data, out, given, config, overwrite, as_json)


def _fit(data: str, out: Path, given: dict[str, Any], config: Path | None, overwrite: bool, as_json: bool) -> None:
    from ddpn.workflow.fitting import fit_into, prepare
    from ddpn.workflow.model_folder import check_place
    from ddpn.workflow.plan import plan_of
    from ddpn.workflow.reading import read

    plan = plan_of(given, config)
    check_place(out, overwrite)
    prepared = prepare(read(data, plan.category), plan)
    _show_prepared(data, prepared, as_json)
    about = {"data": data, "command": shlex.join(["ddpn", *sys.argv[1:]])}
    with stdout_kept_free():
        fitted = fit_into(out, prepared, about, overwrite, verbose=True, tell=_say)
    _show_fitted(out, fitted.folder.task, as_json)
    if fitted.interrupted:
        rest = "goes on" if fitted.can_go_on else "starts anew"
        kept = f"The best epochs so far are saved in {out}; the same command with --overwrite {rest}."
        typer.echo(f"Stopped. {kept}", err=True)
        raise typer.Exit(INTERRUPTED)


def _say(step: str) -> None:
    typer.echo(f"{step} ...", err=True)


def _show_prepared(data: str, prepared: Any, as_json: bool) -> None:
    """What was made of the table, before training."""
    typer.echo(f"{data}: {len(prepared.sample):,} rows", err=as_json)
    show(column_table(prepared.roles), to_stderr=as_json)
    counts = ", ".join(f"{count:,} {part}" for part, count in prepared.counts.items())
    typer.echo(f"Rows: {counts}; {prepared.divided.how}", err=as_json)
    for sentence in prepared.warnings:
        typer.echo(f"Warning: {sentence}", err=True)


def _show_fitted(out: Path, task: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json({"model": str(out), **task})
        return
    _show_scores(task["test"])
    typer.echo(f"Saved in {out}. Next: ddpn predict {out} NEW.csv -o predictions.csv")


def _show_scores(found: dict[str, Any]) -> None:
    show(score_table(found["scores"], found["rows"]))
    typer.echo(found["verdict"])


def predict(
    model: o.Model,
    data: o.Data,
    out: o.Table,
    coverage: o.Coverage = 0.9,
    quantiles: o.Quantiles = "",
    pmf: o.Pmf = None,
    keep: o.Keep = False,
    ood: o.Ood = None,
    overwrite: o.Overwrite = False,
) -> None:
    """Predict every row of a table.

    Columns: mean, median, mode, lower, upper, aleatoric (variance that more data would not remove), epistemic (that
    which it would), stddev, and ood_pvalue (small where a row is unlike those the model knows).
    """
    with told("Nothing was written."):
        from rich.console import Console
        from rich.progress import Progress

        from ddpn.workflow.model_folder import load
        from ddpn.workflow.prediction import Wanted, levels
        from ddpn.workflow.prediction import predict as predicted
        from ddpn.workflow.reading import read
        from ddpn.workflow.writing import check_output, write

        wanted = Wanted(coverage=coverage, quantiles=levels(quantiles), pmf=pmf, keep=keep, ood=ood)
        check_output(out, overwrite)
        folder = load(model)
        frame = read(data, folder.roles.as_text)
        with Progress(console=Console(stderr=True), transient=True) as progress:
            bar = progress.add_task("Predicting", total=frame.height)
            found = predicted(folder, frame, wanted, lambda rows: progress.update(bar, completed=rows))
        write(found, out)
        typer.echo(f"{found.height:,} predictions written to {'standard output' if out == '-' else out}", err=True)


def evaluate(model: o.Model, data: o.Data, as_json: o.Json = False) -> None:
    """Score a model and its baselines on a table that has the target."""
    with told("Nothing was changed."):
        from ddpn.workflow.model_folder import load
        from ddpn.workflow.prediction import evaluate as judged
        from ddpn.workflow.reading import read

        folder = load(model)
        found = judged(folder, read(data, folder.roles.as_text))
        if as_json:
            print_json({"model": str(model), "data": data, **found})
            return
        if found["note"]:
            typer.echo(found["note"])
        _show_scores(found)


def show_(model: o.Model, as_json: o.Json = False) -> None:
    """Show what a model is, how it was trained, which columns it wants and how it did."""
    with told("Nothing was changed."):
        from ddpn.workflow.prediction import description

        about = description(model)
        if as_json:
            print_json({"model": str(model), **about})
            return
        show(fact_table(model_facts(about)))
        _show_scores(about["task"]["test"])


def report(model: o.Model, data: o.Data, out: o.Html, overwrite: o.Overwrite = False) -> None:
    """Write a report on a model as one HTML file: its errors, its calibration, what drives it, where it is unsure."""
    with told("Nothing was written."):
        from ddpn.workflow.model_folder import load
        from ddpn.workflow.prediction import report_parts
        from ddpn.workflow.reading import read
        from ddpn.workflow.writing import check_free

        check_free(out, overwrite)
        from ddpn.report import write_report

        folder = load(model)
        parts = report_parts(folder, read(data, folder.roles.as_text))
        with stdout_kept_free(), _stages() as tell:
            write_report(out, progress=tell, **parts)
        typer.echo(f"Report written to {out}", err=True)


@contextmanager
def _stages() -> Iterator[Callable[[str], None]]:
    """Tell one step after the other: on one line of a terminal that is gone in the end, else a line each."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _say
        return
    with console.status("Reading") as line:
        yield lambda step: line.update(escape(f"{step} ..."))


def add_to(app: typer.Typer) -> None:
    """Make them commands of the program."""
    for command in (fit, predict, evaluate, show_, report):
        app.command(command.__name__.strip("_"), epilog=EXIT_CODES)(command)
