"""ddpn explain: what drives a model, or the predictions of single rows. Arguments and printing only."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddpn.cli import options as o
from ddpn.cli.console import EXIT_CODES, friendly_errors, output_to_stderr, print_json, prompt_ctrl_c, show
from ddpn.cli.flags import Command
from ddpn.cli.model import steps

if TYPE_CHECKING:
    from rich.table import Table

Rows = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBERS",
        help="Explain the predictions of these rows, numbered from 1: 3, 1,5,7 or 1-10. Default: the model as a whole.",
    ),
]
Of = Annotated[str, typer.Option(metavar="WHAT", help="With --rows: explain the mean or the spread (variance / mean).")]
Out = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--out",
        metavar="OUT",
        help="Write effects, or contributions, as CSV, TSV, Parquet, Feather or JSON, or as an image (PNG, SVG, PDF), "
        "by the ending.",
    ),
]
Most = Annotated[int, typer.Option(metavar="NUMBER", help="Number of columns to print.")]


def explain(
    model: o.Model,
    data: o.Data,
    rows: Rows = None,
    of: Of = "mean",
    out: Out = None,
    most: Most = 12,
    target: o.TargetOf = None,
    exposure: o.ExposureOf = None,
    weight: o.WeightOf = None,
    upper_column: o.UpperOf = None,
    censored: o.CensoredOf = None,
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Seed of the random draws.")] = 0,
    overwrite: o.Overwrite = False,
    as_json: o.Json = False,
) -> None:
    """Explain a model: which columns move the predicted mean and the predicted spread, and how.

    Prints importance (if DATA has the target), effects and interactions; with --rows, how much each column adds to the
    predictions for these rows, compared with all rows of DATA.

    Example: ddpn explain bikes.model bikes.csv -o effects.png
    """
    columns = {"target": target, "exposure": exposure, "weight": weight, "upper": upper_column, "censored": censored}
    with friendly_errors("Nothing was written."):
        found, numbers, note = _explained(model, data, columns, rows, of, out, overwrite, seed)
        from ddpn.workflow.explaining import plain, write_explanation

        if as_json:
            print_json({"model": str(model), "data": data, **plain(found, numbers)})
        elif numbers is None:
            _show_model(found, note, most)
        else:
            _show_rows(found, numbers, most)
        if out is not None:
            write_explanation(found, out, numbers)
            typer.echo(f"Explanation written to {out}", err=True)


def _explained(
    model: Any, data: str, columns: dict[str, str | None], rows: str | None, of: str, out: str | None,
    overwrite: bool, seed: int,
) -> tuple[Any, list[int] | None, str]:  # fmt: skip
    from ddpn.runtime.validation import check_choice
    from ddpn.tables.reading import read
    from ddpn.workflow.model_folder import load, roles_of_model

    check_choice("of", of, ("mean", "spread"))
    roles = roles_of_model(model, **columns)
    with prompt_ctrl_c("Nothing was written."):
        frame = read(data, roles.as_text)
        roles.features(frame, report=lambda sentence: None)
        from ddpn.workflow import explaining

        numbers = None if rows is None else explaining.parse_rows(rows)
        if out is not None:
            explaining.check_explanation_file(out, overwrite, data)
        folder = load(model, mixed_only=False, **columns)
        with output_to_stderr(), steps() as step:
            if numbers is None:
                found, note = explaining.explain_table(folder, frame, seed, step)
                return found, None, note
            return explaining.explain_rows(folder, frame, numbers, of, seed), numbers, ""


def _show_model(found: Any, note: str, most: int) -> None:
    if note:
        typer.echo(note)
    show(_column_table(found, most))
    for one in found.interactions:
        first, second = one.names
        typer.echo(
            f"Interaction: the effect of {first} depends on {second} (strength {one.strength:.2f}, "
            f"noise {one.noise:.2f})."
        )
    if not found.interactions:
        typer.echo("Interactions: none above noise.")


def _column_table(found: Any, most: int) -> "Table":
    from rich.table import Table

    importance = {} if found.importance is None else {one.name: one for one in found.importance.each}
    headings = ["column", *(["CRPS", "mean", "spread"] if importance else [])]
    typical = found.effects.each[0]
    headings += [
        f"mean (typical {typical.mean.typical:.3g})",
        f"{typical.spread.quantity} ({typical.spread.typical:.3g})",
    ]
    table = Table(*headings)
    order = (
        [one.name for one in found.importance.by("crps")] if importance else [one.name for one in found.effects.by()]
    )
    known = {one.name: one for one in found.effects}
    for name in [name for name in order if name in known][:most]:
        one = known[name]
        changes = (
            [f"{getattr(importance[name], key).mean():+.1%}" for key in ("crps", "mean", "spread")]
            if importance
            else []
        )
        table.add_row(name, *changes, _range(one, one.mean), _range(one, one.spread))
    return table


def _range(one: Any, curve: Any) -> str:
    from ddpn.analysis.plots import shown

    low, high = int(curve.level.argmin()), int(curve.level.argmax())
    if low == high:
        return f"{curve.level[low]:.3g}"
    return f"{curve.level[low]:.3g} ({shown(one.points[low])}) to {curve.level[high]:.3g} ({shown(one.points[high])})"


def _show_rows(found: Any, numbers: list[int], most: int) -> None:
    import math

    from rich.table import Table

    from ddpn.analysis.plots import shown

    value = math.exp if found.log else float
    for place, number in enumerate(numbers):
        typer.echo(
            f"Row {number}: {found.quantity} {value(found.prediction[place]):.4g}; {value(found.base):.4g} without "
            "its values."
        )
        table = Table("column", "value", f"added to {'log ' if found.log else ''}{found.quantity}", "factor")
        for name, cell, added in found.top(place, most):
            table.add_row(name, shown(cell), f"{added:+.3f}", f"× {math.exp(added):.3f}" if found.log else "")
        show(table)


def add_to(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("explain", epilog=EXIT_CODES, cls=Command)(explain)
