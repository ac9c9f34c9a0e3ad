"""Commands on fitted models: predict, evaluate, show, report. Arguments and printing only."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ddpn.cli import options as o
from ddpn.cli.commands import command
from ddpn.cli.console import output_to_stderr, print_json, show, show_warnings, steps
from ddpn.cli.options import option
from ddpn.cli.tables import fact_table, model_facts, show_scores
from ddpn.storage.model_files import refuses_strange_files

PredictionTable = Annotated[
    str,
    option(
        "OUT",
        "The file to write: CSV, TSV, Parquet or Feather, depending on its ending; - writes CSV to standard output.",
        "-o",
        "--out",
    ),
]
Quantiles = Annotated[str, option("LEVELS", "Quantiles to add: 0.1,0.5,0.9 adds q0.1, q0.5, q0.9.")]
Pmf = Annotated[int | None, option("COUNT", "Add the probabilities p0, p1, ... up to this count.")]
Keep = Annotated[bool, option(None, "Also write the columns of DATA, before the predictions.", "--keep")]
Ood = Annotated[
    float | None,
    option(
        "ALPHA",
        "Flag rows whose ood_pvalue is at most this, such as 0.01, as unlike the training data, with the reason.",
    ),
]
MemberOf = Annotated[
    str | None,
    option(
        "NAME",
        "Predict with this member alone, such as trees: a name from the leaderboard. Default: the mixture of members.",
    ),
]


@command(
    "predict", "Nothing was written. For a long table, the same command continues after the parts that are finished."
)
def predict(
    model: o.Model,
    data: o.Tables,
    out: PredictionTable,
    coverage: o.Coverage = 0.9,
    quantiles: Quantiles = "",
    pmf: Pmf = None,
    keep: Keep = False,
    ood: Ood = None,
    member: MemberOf = None,
    exposure: o.ExposureOf = None,
    upper_column: o.UpperOf = None,
    cluster: o.PredictionCluster = None,
    overwrite: o.Overwrite = False,
) -> None:
    """Predict every row of one or several tables.

    Columns: mean, median, mode, lower and upper (an interval that contains the count with probability --coverage),
    aleatoric (variance that more data would not remove), epistemic (variance that more data would remove), stddev, and
    ood_pvalue (small if a row is unlike the training data). With --member, these are the predictions of one member of
    the mixture, with its own calibrated intervals. Notes about unusual values in the table, such as unseen levels, go
    to standard error.

    Memory does not grow with the length of a table. The predictions of a long table are kept in the folder OUT.parts
    until all are done: if the program is stopped or killed, the same command continues. On a cluster, every core
    predicts blocks of rows, and the result is the same.

    Example: ddpn predict bikes.model new.csv -o predictions.csv --quantiles 0.1,0.9
    """
    from ddpn.workflow.prediction_request import Request, parse_levels
    from ddpn.workflow.streaming import predict_files

    levels, findings = parse_levels(quantiles), list[str]()
    request = Request(coverage=coverage, quantiles=levels, pmf=pmf, keep=keep, ood=ood, member=member)
    roles: dict[str, Any] = {"exposure": exposure, "upper": upper_column}
    options: dict[str, Any] = {"overwrite": overwrite, "verbose": True, "n_jobs": o.cluster_of(cluster)}
    rows = predict_files(model, data, out, request=request, **roles, **options, on_finding=findings.append)
    for sentence in findings:
        typer.echo(sentence, err=True)
    typer.echo(f"{rows:,} predictions written to {'standard output' if out == '-' else out}", err=True)


@command("evaluate", "Nothing was changed.")
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
    columns = {"target": target, "exposure": exposure, "weight": weight, "upper": upper_column, "censored": censored}
    folder, frame = _model_and_table(model, data, columns)
    from ddpn.workflow.examining import evaluate as scored

    found = scored(folder, frame)
    if as_json:
        print_json({"model": str(model), "data": data, **found})
        return
    if found["note"]:
        typer.echo(found["note"])
    show_warnings(found["warnings"])
    show_scores(found, model, folder.task)


@command("show", "Nothing was changed.")
def show_(model: o.Model, as_json: o.Json = False) -> None:
    """Show what a model is, how it was fitted, which columns it needs and how it scored. Also reads ONNX files.

    Example: ddpn show bikes.model
    """
    if model.suffix == ".onnx":
        from ddpn.cli.export import show_onnx

        show_onnx(model, as_json)
    else:
        _show_folder(model, as_json)


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
        show_scores(about["task"]["test"], model, about["task"])


@command("report")
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
    from ddpn.tables.files import check_free

    check_free(out, overwrite, data)
    columns = {"target": target, "exposure": exposure, "weight": weight, "upper": upper_column, "censored": censored}
    folder, frame = _model_and_table(model, data, columns)
    from ddpn.analysis.report import write_report
    from ddpn.workflow.examining import report_parts

    with output_to_stderr(), steps() as step:
        write_report(out, progress=step, **report_parts(folder, frame))
    typer.echo(f"Report written to {out}", err=True)


def _model_and_table(model: Path, data: str, columns: dict[str, str | None]) -> tuple[Any, Any]:
    """A loaded model, and a table that has its columns; errors in either are found before torch is imported."""
    from ddpn.tables.files import read
    from ddpn.workflow.model_folder import load, roles_of_model

    roles = roles_of_model(model, **columns)
    frame = read(data, roles.as_text)
    roles.sample(frame, "round")
    return load(model, mixed_only=False, **columns), frame
