"""ddpn monitor: compare new rows with the training rows of a model. Arguments and printing only."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddpn.cli import options as o
from ddpn.cli.commands import command
from ddpn.cli.console import output_to_stderr, print_json, show, steps
from ddpn.cli.options import option
from ddpn.cli.tables import table_of

if TYPE_CHECKING:
    from rich.table import Table

#: The exit code if rows differ.
DRIFT = 3
_CODES = (
    "Exit codes: 0 no drift; 3 drift; 1 a problem with the data, a file or the machine; 2 a wrong option or setting; "
    "130 stopped by Ctrl-C."
)
#: Checks that are printed.
_MOST = 20
Page = Annotated[Path | None, option("HTML", "An HTML page to write.", "-o", "--out")]
Alpha = Annotated[float, option("SHARE", "Probability of one or more false alarms.")]
Effect = Annotated[
    float, option("SHARE", "The smallest difference between shares that counts as drift; half of it for coverage.")
]
Ignore = Annotated[str, option("COLUMNS", "Columns that never count as drift, such as dates, separated by commas.")]


@command("monitor", codes=_CODES)
def monitor(
    model: o.Model,
    data: o.Data,
    out: Page = None,
    alpha: Alpha = 0.01,
    effect: Effect = 0.1,
    ignore: Ignore = "",
    target: o.TargetOf = None,
    exposure: o.ExposureOf = None,
    upper_column: o.UpperOf = None,
    censored: o.CensoredOf = None,
    overwrite: o.Overwrite = False,
    as_json: o.Json = False,
) -> None:
    """Compare new rows with the training rows of a model; the exit code is 3 if they differ.

    Checks the values and missing values of every column and the share of out-of-distribution rows; if DATA has the
    target, also the coverage of the intervals and the PIT (whether counts are distributed as predicted). A difference
    counts as drift if it is more than chance, allowing for the number of checks, and large enough to matter.

    Example: ddpn monitor visits.model november.csv -o november.html
    """
    from ddpn.tables.files import check_free, read
    from ddpn.workflow.model_folder import load, roles_of_model

    if out is not None:
        check_free(out, overwrite, data)
    columns = {"target": target, "exposure": exposure, "upper": upper_column, "censored": censored}
    frame = read(data, roles_of_model(model, **columns).as_text)
    folder = load(model, mixed_only=False, **columns)
    from ddpn.workflow.examining import monitor as compared

    with output_to_stderr(), steps() as step:
        names = [name.strip() for name in ignore.split(",") if name.strip()]
        found = compared(folder, frame, alpha, effect, names, step)
    if as_json:
        print_json({"model": str(model), "data": data, **found.as_dict()})
    else:
        _print(found)
    if out is not None:
        from ddpn.analysis.report.monitoring import write_monitoring

        write_monitoring(out, found, {"model": model.name, "data": data, "fitted": folder.task.get("date")})
        typer.echo(f"Page written to {out}", err=True)
    if found.drift:
        raise typer.Exit(DRIFT)


def _print(found: Any) -> None:
    typer.echo(found.headline)
    show(_table(found))
    for sentence in found.findings:
        typer.echo(f"- {sentence}")
    for sentence in found.not_compared:
        typer.echo(f"Not compared: {sentence}")
    typer.echo(found.detectable)


def _table(found: Any) -> "Table":
    rows = [(check.cells, check.drift) for check in found.shown[:_MOST]]
    table = table_of(("check", "before", "now", "difference", "adjusted p", ""), rows, right=(3, 4))
    if len(found.shown) > _MOST:
        table.caption = f"{len(found.shown) - _MOST:,} more checks; --json has all"
    return table
