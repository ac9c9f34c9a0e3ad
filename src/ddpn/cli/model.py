"""The commands predict, evaluate, show, report, export and serve: their arguments and their output."""

import os
import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ddpn.cli import options as o
from ddpn.cli.console import print_json, print_step, print_table, show_warnings
from ddpn.cli.options import option
from ddpn.cli.program import command
from ddpn.cli.tables import build_fact_table, describe_member, describe_model, show_scores
from ddpn.storage.contents import JsonObject
from ddpn.storage.model_files import wrap_load_errors
from ddpn.tables.layout import Layout
from ddpn.tables.row_draw import parse_max_rows

if TYPE_CHECKING:
    from ddpn.tables.table import Table
    from ddpn.workflow.model_folder import ModelFolder

PredictionTable = Annotated[
    str,
    option(
        "OUT",
        "CSV, TSV, Parquet or Feather file to write, by its ending; - writes CSV to standard output.",
        "-o",
        "--out",
    ),
]
Quantiles = Annotated[str, option("LEVELS", "Quantiles to add: 0.1,0.5,0.9 adds q0.1, q0.5, q0.9.")]
Pmf = Annotated[int | None, option("COUNT", "Add the probabilities p0, p1, ... up to this count.")]
ProbAbove = Annotated[str, option("COUNTS", "Probabilities of more: 100,200 adds prob_above_100, ...")]
Keep = Annotated[bool, option(None, "Also write the columns of DATA, before the predictions.", "--keep")]
Ood = Annotated[
    float | None,
    option(
        "ALPHA",
        "Flag rows whose ood_pvalue is at most this, such as 0.01, and give the reason.",
    ),
]
OneMember = Annotated[
    str | None,
    option(
        "NAME",
        "Predict with this member of the leaderboard alone, such as trees, and its intervals. Default: the mixture.",
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
    interval_kind: o.IntervalKind = None,
    quantiles: Quantiles = "",
    pmf: Pmf = None,
    prob_above: ProbAbove = "",
    keep: Keep = False,
    ood: Ood = None,
    member: OneMember = None,
    *,
    columns: o.PredictionColumns,
    sheet: o.Sheet = None,
    skip_rows: o.SkipRows = None,
    cluster: o.Cluster = None,
    overwrite: o.Overwrite = False,
) -> None:
    """Predict every row of one or several tables.

    Columns: mean, median, mode, lower and upper (an interval that contains the count with at least the probability
    --coverage), interval_probability, aleatoric (variance that more data would not remove), epistemic (variance that
    more data would remove), stddev, and ood_pvalue (small if a row is unlike the training data).

    A long table is predicted in parts, which are kept in the folder OUT.parts. If the command is stopped, the same
    command continues. On a cluster, all nodes must be able to read the tables.

    Example: ddpn predict bikes.model new.csv -o predictions.csv --quantiles 0.1,0.9
    """
    from ddpn.prediction.spec import PredictionSpec, parse_counts, parse_levels
    from ddpn.workflow.streaming import predict_files

    levels, findings = parse_levels(quantiles), list[str]()
    spec = PredictionSpec(
        coverage=coverage,
        interval_kind=interval_kind,
        quantiles=levels,
        pmf=pmf,
        prob_above=parse_counts(prob_above),
        keep=keep,
        ood=ood,
        member=member,
    )
    rows = predict_files(
        model, data, out, spec=spec, **columns, layout=Layout(sheet, skip_rows), overwrite=overwrite, verbose=True,
        on_finding=findings.append, n_jobs=o.connect_cluster(cluster),
    )  # fmt: skip
    for sentence in findings:
        typer.echo(sentence, err=True)
    typer.echo(f"{rows:,} predictions written to {'standard output' if out == '-' else out}", err=True)


@command("evaluate", "Nothing was changed.")
def evaluate(
    model: o.Model,
    data: o.Data,
    *,
    columns: o.Columns,
    sheet: o.Sheet = None,
    skip_rows: o.SkipRows = None,
    max_rows: o.MaxRows = "20000",
    as_json: o.Json = False,
) -> None:
    """Score a model and the models it is compared with on a table that has the target.

    Rows that the model was fitted to are recognised and left out. The training table itself is scored on its test rows
    or, if there are none, out of fold.

    Example: ddpn evaluate bikes.model new.csv
    """
    row_limit = parse_max_rows(max_rows)
    folder, table = _open_model_and_table(model, data, columns, Layout(sheet, skip_rows))
    from ddpn.workflow.examining import evaluate as score_table

    scores = score_table(folder, table, row_limit)
    if as_json:
        print_json({"model": str(model), "data": data, **scores})
        return
    if scores["note"]:
        typer.echo(scores["note"])
    show_warnings(scores["warnings"])
    show_scores(scores, model, folder.task)


@command("show", "Nothing was changed.")
def show_(model: o.Model, as_json: o.Json = False) -> None:
    """Show what a model is, how it was fitted, which columns it needs and how it scored.

    For an ONNX file, show members, inputs and outputs.

    Example: ddpn show bikes.model
    """
    (show_onnx if model.suffix == ".onnx" else _show_saved_model)(model, as_json)


@wrap_load_errors
def show_onnx(path: Path, as_json: bool) -> None:
    """Print the members, inputs and outputs of an ONNX file."""
    from ddpn.export.description import describe_onnx

    about = describe_onnx(path)
    if as_json:
        print_json({"file": str(path), **about})
    else:
        print_table(build_fact_table(_describe_interface(about)))


@wrap_load_errors
def _show_saved_model(model: Path, as_json: bool) -> None:
    """Print information about a saved model, its fit and its scores."""
    from ddpn.workflow.model_folder import SavedModel

    about = SavedModel(model).describe()
    if as_json:
        print_json({"model": str(model), **about})
        return
    print_table(build_fact_table(describe_model(about)))
    show_warnings([*about["task"]["leaks"], *about["task"]["warnings"]])
    if "scores" in about["task"]:
        show_scores(about["task"]["scores"], model, about["task"])


@command("report")
def report(
    model: o.Model,
    data: o.Data,
    out: o.Html,
    *,
    columns: o.Columns,
    sheet: o.Sheet = None,
    skip_rows: o.SkipRows = None,
    max_rows: o.MaxRows = "20000",
    overwrite: o.Overwrite = False,
) -> None:
    """Write a report on a model as one HTML file: errors, calibration, effects of columns, and where it is uncertain.

    Example: ddpn report bikes.model bikes.csv -o report.html
    """
    from ddpn.tables.files import check_free

    check_free(out, overwrite, data)
    row_limit = parse_max_rows(max_rows)
    folder, table = _open_model_and_table(model, data, columns, Layout(sheet, skip_rows))
    from ddpn.analysis.report import write_report
    from ddpn.workflow.examining import collect_report_arguments

    with redirect_stdout(sys.stderr):
        write_report(out, progress=print_step, **collect_report_arguments(folder, table, row_limit))
    typer.echo(f"Report written to {out}", err=True)


def _open_model_and_table(
    model: Path, data: str, columns: dict[str, str | None], layout: Layout
) -> "tuple[ModelFolder, Table]":
    """Load a model folder and open the table `data`, whose position in its file is `layout`.

    `columns` has the names of columns by role (target, exposure, weight, upper), which replace those of the fit. A role
    whose name is None keeps the column of the fit.

    Loading imports torch, which is slow. So the first rows of the table are checked first, and errors in them are
    reported at once.
    """
    from ddpn.tables.table import Table
    from ddpn.workflow.model_folder import SavedModel

    saved = SavedModel(model, **columns)
    roles = saved.roles
    table = Table([data], roles.as_text, layout)
    first = table.read_block(table.list_blocks()[0])
    # The first rows of a long table may have no counts.
    if not table.is_long or roles.find_rows_with_target(first).any():
        roles.read_rows(first, "round", rows_before=0 if table.is_long else None)
    return saved.load(), table


Out = Annotated[Path, option("FILE", "The ONNX file to write, such as model.onnx.", "-o", "--out")]
LargestCount = Annotated[
    int | None,
    option(
        "COUNT",
        "The largest count whose probability is an output. Default: the 99.9% quantile of the training counts, at "
        "least 20 and at most 1,000.",
    ),
]


@command("export")
def export(
    model: o.Model,
    out: Out,
    quantiles: Quantiles = "",
    coverage: o.Coverage = 0.9,
    pmf_up_to: LargestCount = None,
    overwrite: o.Overwrite = False,
    as_json: o.Json = False,
) -> None:
    """Write a model as one ONNX file, which predicts without Python.

    The file takes the raw columns of the table. It returns mean, variance, aleatoric, epistemic, median, lower and
    upper (the calibrated interval that contains the count with a probability of at least --coverage),
    interval_probability, --quantiles, pmf (the probabilities of 0, 1, 2, ...) and pmf_mass (the sum of these
    probabilities). Needs the extra export.

    Example: ddpn export bikes.model -o bikes.onnx --quantiles 0.1,0.9
    """
    from ddpn.prediction.spec import PredictionSpec, parse_levels
    from ddpn.tables.files import check_free

    levels = parse_levels(quantiles)
    PredictionSpec(coverage=coverage, quantiles=levels)
    check_free(out, overwrite)
    # Imported late, because it imports torch, and invalid options should be reported at once.
    from ddpn.export import export_onnx

    about = export_onnx(model, out, quantiles=levels, coverage=coverage, pmf_up_to=pmf_up_to, overwrite=overwrite)
    if as_json:
        print_json({"file": str(out), **about})
        return
    print_table(build_fact_table(_describe_interface(about)))
    typer.echo(f"Written to {out} ({out.stat().st_size / 1e6:,.1f} MB).")


def _describe_interface(about: JsonObject) -> list[tuple[str, str]]:
    """Return the members, inputs and outputs of an ONNX file as pairs of a name and a value.

    `about` is the description of the file that `ddpn.export.describe_onnx` returns.
    """
    members = [(f"Member {name}", describe_member(member)) for name, member in about["members"].items()]
    inputs = [(f"Input {column['name']}", f"{column['type']}, {column['meaning']}") for column in about["inputs"]]
    outputs = ", ".join(about["outputs"].values())
    interval = f"{about['coverage']:.0%} interval from lower to upper; pmf from 0 to {about['pmf_up_to']}"
    return [*members, *inputs, ("Outputs", f"{outputs}; {interval}"), ("Exported", f"by ddpn {about['ddpn']}")]


_limit = partial(option, panel="Limits")
Models = Annotated[
    list[str], typer.Argument(metavar="MODEL...", help="Model folders; the first is the default. NAME=MODEL names one.")
]
Host = Annotated[str, option("ADDRESS", "The address to listen at; 0.0.0.0 for all networks.")]
Port = Annotated[int, option("NUMBER", "The port; 0 chooses a free one, which is printed.")]
TokenFile = Annotated[
    Path | None,
    option("FILE", "A file with the bearer token that requests must send. Default: the variable DDPN_TOKEN, if set."),
]
Reload = Annotated[float, option("SECONDS", "Seconds between checks for new versions of the models; 0 for never.")]
LogLevel = Annotated[str, option("LEVEL", "debug, info (every request), warning or error.")]
MaxRows = Annotated[int, _limit("NUMBER", "Largest number of rows per request.")]
MaxBytes = Annotated[int, _limit("NUMBER", "Largest number of bytes per request.")]
MaxQueue = Annotated[int, _limit("NUMBER", "Largest number of waiting requests; further ones get status 429.")]
Timeout = Annotated[float, _limit("SECONDS", "Longest time per request.")]


@command("serve", "All accepted requests were answered.", ends_at_once=False)
def serve(
    models: Models,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    token_file: TokenFile = None,
    reload_every: Reload = 2.0,
    *,
    columns: o.PredictionColumns,
    max_rows: MaxRows = 1000,
    max_bytes: MaxBytes = 2_000_000,
    max_queue: MaxQueue = 256,
    timeout: Timeout = 30.0,
    log_level: LogLevel = "info",
) -> None:
    """Serve models over HTTP: predictions, metrics, and a page with a what-if form.

    POST /predict takes {"rows": [{column: value, ...}, ...]}; GET /openapi.json describes everything. Requests that
    arrive together are predicted together. A new version of a model folder is loaded without a failed request. After
    SIGTERM or Ctrl-C, the server finishes accepted requests and ends.

    Example: ddpn serve visits.model --port 8000
    """
    from ddpn.runtime.validation import check_choice
    from ddpn.serving.middleware import Limits

    check_choice("log_level", log_level, ("debug", "info", "warning", "error"))
    limits = Limits(max_rows=max_rows, max_bytes=max_bytes, max_queue=max_queue, timeout=timeout)
    from ddpn.serving.middleware import read_token
    from ddpn.serving.server import name_models
    from ddpn.serving.server import serve as run

    paths, token = name_models(models), read_token(os.environ.get("DDPN_TOKEN"), token_file)

    def print_address(address: str) -> None:
        typer.echo(f"Serving {', '.join(paths)} at {address}")

    run(
        paths, host, port, limits=limits, token=token, reload_every=reload_every, log_level=log_level,
        on_start=print_address, **columns,
    )  # fmt: skip
