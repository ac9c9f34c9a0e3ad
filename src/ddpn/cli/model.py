"""Commands on models: fit, predict, evaluate, show, report. Arguments and printing only."""

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from ddpn.cli import options as o
from ddpn.cli.cluster import Cluster, GpusPerJob, PredictionCluster, cluster_of
from ddpn.cli.console import EXIT_CODES, INTERRUPTED, friendly_errors, output_to_stderr, print_json, prompt_ctrl_c, show
from ddpn.cli.context import command_start
from ddpn.cli.export import show_onnx
from ddpn.cli.flags import Command
from ddpn.cli.tables import column_table, fact_table, leaderboard_table, missing_words, model_facts, only_command
from ddpn.runtime.errors import ConfigError
from ddpn.storage.model_files import refuses_strange_files

#: What Ctrl-C leaves of predictions.
_KEPT = "Nothing was written. For a long table, the same command continues after the parts that are finished."


def fit(
    data: o.OneTable,
    out: o.NewModel,
    target: o.Target = None,
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
    fractional: o.Fractional = None,
    likelihood: o.Likelihood = None,
    components: o.Components = None,
    beta: o.Beta = None,
    members: o.Members = None,
    epochs: o.Epochs = None,
    mix_with: o.MixWith = None,
    only: o.Only = None,
    budget: o.Budget = None,
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
    stream: o.Stream = None,
    overwrite: o.Overwrite = False,
    as_json: o.Json = False,
) -> None:
    """Fit a model to a table and compare it with simpler models.

    Boosted trees, a GLM and networks are fitted one after the other and mixed, with weights that minimise the CRPS of
    held-out rows, each only if it improves the mixture. --budget limits the time, --only fits one member alone.

    Rows are split into 70% for training, 10% for validation (best epochs, mixture weights, calibration) and 20% for
    testing; with up to 5,000 rows, training and validation rows are cross-fitted instead. The split is random unless
    --split-column or --time is given; --group keeps rows of one person or shop together. Ctrl-C ends the current step
    and saves what was fitted so far; the same command with --overwrite then continues.

    Example: ddpn fit bikes.csv --target rentals --drop casual,registered -o bikes.model
    """
    given = {
        "target": target, "exposure": exposure, "weight": weight, "drop": drop, "use": use, "category": category,
        "lower": lower, "upper": upper, "upper_column": upper_column, "censored": censored,
        "censored_above": censored_above, "fractional": fractional,
        "missing": missing, "likelihood": likelihood, "components": components, "beta": beta, "members": members,
        "epochs": epochs, "mix_with": mix_with, "compare_with": compare_with, "seed": seed,
        "only": only, "time_budget": budget, "recalibrate": recalibrate, "interval_groups": interval_groups,
        "group": group, "split_column": split_column, "time": time,
        "device": device,
    }  # fmt: skip
    with friendly_errors("Nothing was saved."):
        _fit(data, out, given, config, stream, (cluster, gpus_per_job), overwrite, as_json)


def _fit(
    sources: list[str],
    out: Path,
    given: dict[str, Any],
    config: Path | None,
    stream: bool | None,
    where: tuple[str | None, float | None],
    overwrite: bool,
    as_json: bool,
) -> None:
    from ddpn.storage.model_files import check_destination
    from ddpn.workflow.large_tables import open_table, prepare_stream, stream_facts
    from ddpn.workflow.plan import plan_of
    from ddpn.workflow.preparing import prepare

    started = command_start()  # a time budget includes the imports
    plan = plan_of(given, config)
    check_destination(out, overwrite)
    plan.check_with_torch()
    with prompt_ctrl_c("Nothing was saved."):
        frame, table, note = open_table(sources, plan, stream, verbose=True)
        if note:
            typer.echo(note, err=as_json)
        if table is not None and where[0] is not None:
            raise ConfigError("--cluster needs a table in memory, got one that is streamed. Leave out one of the two.")
        prepared = prepare(frame, plan) if table is None else prepare_stream(table, plan, verbose=True)
        del frame  # prepared has copies of what it needs
    data = sources[0] if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1:,} more files"
    show_prepared(data, prepared, as_json)
    about: dict[str, Any] = {"data": data, "command": shlex.join(["ddpn", *sys.argv[1:]])}
    if table is not None:
        about["stream"] = stream_facts(prepared)
    # Only now, as it imports torch: wrong options and tables are reported at once.
    from ddpn.workflow.fitting import fit_into

    options = {"verbose": True, "on_step": _print_step, "started": started}
    with output_to_stderr():
        fitted = fit_into(out, prepared, about, overwrite, n_jobs=cluster_of(*where), **options)
    show_fitted(out, fitted.folder.task, as_json)
    if fitted.interrupted:
        show_stopped(out, fitted)
        raise typer.Exit(INTERRUPTED)


def show_stopped(out: Path, fitted: Any) -> None:
    """What Ctrl-C left of a fit."""
    kept = "The best epochs so far are" if "training" in fitted.missing else "The fitted model is"
    lacks = missing_words(fitted.missing)
    rest = "continues" if fitted.can_continue else "starts again"
    saved = f"{kept} saved in {out}{f', {lacks}' if lacks else ''}"
    typer.echo(f"Stopped. {saved}; the same command with --overwrite {rest}.", err=True)


def _print_step(step: str) -> None:
    typer.echo(f"{step} ...", err=True)


def show_prepared(data: str, prepared: Any, as_json: bool) -> None:
    """How the table is used, before training."""
    whole = f" of {prepared.stream.table.rows:,}" if prepared.stream is not None else ""
    typer.echo(f"{data}: {len(prepared.sample):,}{whole} rows{' sampled' if whole else ''}", err=as_json)
    show(column_table(prepared.roles), to_stderr=as_json)
    typer.echo(f"Rows: {prepared.rows_words}; split {prepared.split.how}", err=as_json)
    if prepared.split.meaning:
        typer.echo(prepared.split.meaning, err=as_json)
    show_warnings([*prepared.leaks, *prepared.warnings])


def show_warnings(sentences: Sequence[str]) -> None:
    """Print warnings to standard error."""
    for sentence in sentences:
        typer.echo(f"Warning: {sentence}", err=True)


def show_fitted(out: Path, task: dict[str, Any], as_json: bool) -> None:
    """The scores of a model that was saved, and what to do next."""
    if as_json:
        print_json({"model": str(out), **task})
        return
    if "test" in task:
        _show_scores(task["test"], out, task)
    typer.echo(f"Saved in {out}. Next: ddpn predict {out} NEW.csv -o predictions.csv")


def _show_scores(found: dict[str, Any], model: Path, task: dict[str, Any]) -> None:
    show(leaderboard_table(found))
    typer.echo(" ".join(found["verdict"]["sentences"]))
    name = found["verdict"].get("prefer")
    if name is None:
        return
    predict = shlex.join(["ddpn", "predict", str(model), "NEW.csv", "--member", name, "-o", "predictions.csv"])
    typer.echo(f"To predict with {name} alone: {predict}")
    command = only_command(task.get("command", ""), name)
    if command:
        typer.echo(f"To fit {name} alone: {command}")


def predict(
    model: o.Model,
    data: o.Tables,
    out: o.Table,
    coverage: o.Coverage = 0.9,
    quantiles: o.Quantiles = "",
    pmf: o.Pmf = None,
    keep: o.Keep = False,
    ood: o.Ood = None,
    member: o.MemberOf = None,
    exposure: o.ExposureOf = None,
    upper_column: o.UpperOf = None,
    cluster: PredictionCluster = None,
    overwrite: o.Overwrite = False,
) -> None:
    """Predict every row of a table, or of several.

    Columns: mean, median, mode, lower and upper (an interval that contains the count with probability --coverage),
    aleatoric (variance that more data would not remove), epistemic (variance that more data would remove), stddev, and
    ood_pvalue (small if a row is unlike the training data). With --member, these are the predictions of one member of
    the mixture, with its own calibrated intervals; ood_pvalue remains that of the mixture. Notes about unusual values
    in the table, such as unseen levels, go to standard error.

    Memory does not grow with the length of a table. The predictions of a long table are kept in the folder OUT.parts
    until all are done: if the program is stopped or killed, the same command continues. On a cluster every core
    predicts blocks of rows; the result is the same.

    Example: ddpn predict bikes.model new.csv -o predictions.csv --quantiles 0.1,0.9
    """
    with friendly_errors(_KEPT):
        from ddpn.analysis.member_names import member_named
        from ddpn.runtime.progress import progress_bar
        from ddpn.tables.table import Table
        from ddpn.tables.writing import check_output
        from ddpn.workflow.model_folder import describe, load, roles_of_model
        from ddpn.workflow.prediction_request import Request, parse_levels

        levels = parse_levels(quantiles)
        request = Request(coverage=coverage, quantiles=levels, pmf=pmf, keep=keep, ood=ood)
        for source in data:
            check_output(out, overwrite, source)
        about = describe(model)
        if member not in (None, "mixture"):
            request = replace(request, member=member_named(str(member), about["members"]))
        request.check_model(about["ood"])
        columns = {"exposure": exposure, "upper": upper_column}
        roles = roles_of_model(model, **columns)
        with prompt_ctrl_c(_KEPT):
            tables = Table(data, roles.as_text)
            tables.check(roles)
            from ddpn.workflow.streaming import predict_to

            findings, blocks = list[str](), None
            if (found := cluster_of(cluster)) is not None:
                from ddpn.workflow.cluster_blocks import ClusterBlocks

                blocks = ClusterBlocks(found, model, columns, tables, request, out)
            folder = load(model, mixed_only=request.member is None, **columns)
            with progress_bar("Predicting", tables.rows) as bar:
                rows = predict_to(folder, model, tables, request, out, bar.advance, findings.append, blocks)
        if "calibration" in about["task"].get("missing", ()):
            findings.append("Intervals are not calibrated, because the fit was stopped by Ctrl-C.")
        for sentence in findings:
            typer.echo(sentence, err=True)
        typer.echo(f"{rows:,} predictions written to {'standard output' if out == '-' else out}", err=True)


def evaluate(
    model: o.Model,
    data: o.Data,
    target: o.TargetOf = None,
    exposure: o.ExposureOf = None,
    weight: o.WeightOf = None,
    upper_column: o.UpperOf = None,
    censored: o.CensoredOf = None,
    as_json: o.Json = False,
) -> None:
    """Score a model and the models it is compared with on a table that has the target.

    Rows that the model was fitted to are recognised and left out.

    Example: ddpn evaluate bikes.model new.csv
    """
    with friendly_errors("Nothing was changed."):
        with prompt_ctrl_c("Nothing was changed."):
            columns = {"target": target, "exposure": exposure, "weight": weight, "upper": upper_column}
            folder, frame = _model_and_table(model, data, **columns, censored=censored)
            from ddpn.workflow.prediction import evaluate as scored

            found = scored(folder, frame)
        if as_json:
            print_json({"model": str(model), "data": data, **found})
            return
        if found["note"]:
            typer.echo(found["note"])
        show_warnings(found["warnings"])
        _show_scores(found, model, folder.task)


def show_(model: o.Model, as_json: o.Json = False) -> None:
    """Show what a model is, how it was fitted, which columns it needs and how it scored. Also reads exported files.

    Example: ddpn show bikes.model
    """
    with friendly_errors("Nothing was changed."):
        (show_onnx if model.suffix == ".onnx" else _show_folder)(model, as_json)


@refuses_strange_files
def _show_folder(model: Path, as_json: bool) -> None:
    from ddpn.workflow.model_folder import describe

    about = describe(model)
    if as_json:
        print_json({"model": str(model), **about})
        return
    show(fact_table(model_facts(about)))
    show_warnings([*about["task"]["leaks"], *about["task"]["warnings"]])
    if "test" in about["task"]:
        _show_scores(about["task"]["test"], model, about["task"])


def report(
    model: o.Model,
    data: o.Data,
    out: o.Html,
    target: o.TargetOf = None,
    exposure: o.ExposureOf = None,
    weight: o.WeightOf = None,
    upper_column: o.UpperOf = None,
    censored: o.CensoredOf = None,
    overwrite: o.Overwrite = False,
) -> None:
    """Write a report on a model as one HTML file: errors, calibration, what drives it, where it is uncertain.

    Example: ddpn report bikes.model bikes.csv -o report.html
    """
    with friendly_errors("Nothing was written."):
        from ddpn.tables.writing import check_free

        check_free(out, overwrite, data)
        with prompt_ctrl_c("Nothing was written."):
            columns = {"target": target, "exposure": exposure, "weight": weight, "upper": upper_column}
            folder, frame = _model_and_table(model, data, **columns, censored=censored)
            from ddpn.analysis.report import write_report
            from ddpn.workflow.prediction import report_parts

            parts = report_parts(folder, frame)
        with output_to_stderr(), steps() as step:
            write_report(out, progress=step, **parts)
        typer.echo(f"Report written to {out}", err=True)


def _model_and_table(model: Path, data: str, **columns: str | None) -> tuple[Any, Any]:
    """A loaded model, and a table that has its columns; errors in either are found before torch is imported."""
    from ddpn.tables.reading import read
    from ddpn.workflow.model_folder import load, roles_of_model

    roles = roles_of_model(model, **columns)
    frame = read(data, roles.as_text)
    roles.sample(frame, "round")
    return load(model, mixed_only=False, **columns), frame


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """Print one step after the other: on one line of a terminal that disappears in the end, else a line each."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _print_step
        return
    with console.status("Reading") as line:
        yield lambda step: line.update(Text(f"{step} ..."))


def add_to(app: typer.Typer) -> None:
    """Add the commands to the program."""
    for command in (fit, predict, evaluate, show_, report):
        app.command(command.__name__.strip("_"), epilog=EXIT_CODES, cls=Command)(command)
