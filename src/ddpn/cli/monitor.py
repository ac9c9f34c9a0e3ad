"""ddpn monitor: compare new rows with the training rows of a model. Arguments and printing only."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddpn.cli import options as o
from ddpn.cli.console import friendly_errors, output_to_stderr, print_json, prompt_ctrl_c, show
from ddpn.cli.flags import Command
from ddpn.cli.model import steps

if TYPE_CHECKING:
    from rich.table import Table

#: The exit code where rows differ.
DRIFT = 3
_CODES = (
    "Exit codes: 0 no drift; 3 drift; 1 a problem with the data, a file or the machine; 2 a wrong option or setting; "
    "130 stopped by Ctrl-C."
)
#: Checks that are printed.
_MOST = 20
Page = Annotated[Path | None, typer.Option("-o", "--out", metavar="HTML", help="An HTML page to write.")]
Alpha = Annotated[float, typer.Option(metavar="SHARE", help="Probability of any false alarm.")]
Effect = Annotated[
    float,
    typer.Option(
        metavar="SHARE", help="The smallest difference of shares that counts as drift; half of it for coverage."
    ),
]
Ignore = Annotated[
    str, typer.Option(metavar="COLUMNS", help="Columns that never count as drift, such as dates, separated by commas.")
]


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

    Checks the values and missing values of every column and the share of out-of-distribution rows; where DATA has the
    target, also the coverage of the intervals and the PIT (whether counts are distributed as predicted). A difference
    is drift if it is both more than chance, over all checks together, and large enough to matter.

    Example: ddpn monitor visits.model november.csv -o november.html
    """
    with friendly_errors("Nothing was written."):
        from ddpn.tables.reading import read
        from ddpn.tables.writing import check_free
        from ddpn.workflow.model_folder import load, roles_of_model

        if out is not None:
            check_free(out, overwrite, data)
        columns = {"target": target, "exposure": exposure, "upper": upper_column, "censored": censored}
        with prompt_ctrl_c("Nothing was written."):
            frame = read(data, roles_of_model(model, **columns).as_text)
            folder = load(model, mixed_only=False, **columns)
        from ddpn.workflow.monitoring import monitor as compared

        with output_to_stderr(), steps() as step:
            names = [name.strip() for name in ignore.split(",") if name.strip()]
            found = compared(folder, frame, alpha, effect, names, step)
        if as_json:
            print_json({"model": str(model), "data": data, **found.as_dict()})
        else:
            _print(found)
        if out is not None:
            from ddpn.analysis.monitoring.page import write_monitoring

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
    from rich.table import Table

    table = Table("check", "before", "now", "difference", "adjusted p", "")
    for column in table.columns[3:5]:
        column.justify = "right"
    for check in found.shown[:_MOST]:
        p_value = "-" if check.is_ignored else f"{check.adjusted:.2g}" if check.adjusted >= 0.001 else "<0.001"
        decision = "ignored" if check.is_ignored else "drift" if check.drift else ""
        words = check.title, check.before, check.now
        table.add_row(*words, f"{check.effect:.3f}", p_value, decision, style="bold" if check.drift else None)
    if len(found.shown) > _MOST:
        table.caption = f"{len(found.shown) - _MOST:,} more checks; --json has all"
    return table


def add_to(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(epilog=_CODES, cls=Command)(monitor)
