"""ddpn explain: what drives a model, or the predictions of single rows. Arguments and printing only."""

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddpn.cli import options as o
from ddpn.cli.commands import command
from ddpn.cli.console import output_to_stderr, print_json, show, steps
from ddpn.cli.options import option
from ddpn.cli.tables import table_of

if TYPE_CHECKING:
    from rich.table import Table

Rows = Annotated[
    str | None,
    option(
        "NUMBERS",
        "Explain the predictions of these rows, numbered from 1: 3, 1,5,7 or 1-10. Default: explain the whole model.",
    ),
]
Of = Annotated[str, option("WHAT", "With --rows: explain the mean or the spread (variance / mean).")]
Out = Annotated[
    str | None,
    option(
        "OUT",
        "Write effects, or contributions, as CSV, TSV, Parquet, Feather or JSON, or as an image (PNG, SVG, PDF), "
        "depending on the ending.",
        "-o",
        "--out",
    ),
]
Most = Annotated[int, option("NUMBER", "Number of columns to print.")]
Seed = Annotated[int, option("NUMBER", "Seed of the random draws.")]


@command("explain")
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
    seed: Seed = 0,
    overwrite: o.Overwrite = False,
    as_json: o.Json = False,
) -> None:
    """Explain a model: which columns move the predicted mean and the predicted spread, and how.

    Prints importance (if DATA has the target) and effects; with --rows, how much each column adds to the predictions
    for these rows, compared with all rows of DATA.

    Example: ddpn explain bikes.model bikes.csv -o effects.png
    """
    from ddpn.runtime.validation import check_choice
    from ddpn.tables.files import read
    from ddpn.workflow.model_folder import load, roles_of_model

    columns = {"target": target, "exposure": exposure, "weight": weight, "upper": upper_column, "censored": censored}
    check_choice("of", of, ("mean", "spread"))
    roles = roles_of_model(model, **columns)
    frame = read(data, roles.as_text)
    roles.features(frame, report=lambda sentence: None)
    # Only now, as it imports torch.
    from ddpn.workflow import examining

    numbers = None if rows is None else examining.parse_rows(rows)
    if out is not None:
        examining.check_explanation_file(out, overwrite, data)
    folder, note = load(model, mixed_only=False, **columns), ""
    found: Any
    with output_to_stderr(), steps() as step:
        if numbers is None:
            found, note = examining.explain_table(folder, frame, seed, step)
        else:
            found = examining.explain_rows(folder, frame, numbers, of, seed)
    if as_json:
        print_json({"model": str(model), "data": data, **examining.plain(found, numbers)})
    elif numbers is None:
        _show_model(found, note, most)
    else:
        _show_rows(found, numbers, most)
    if out is not None:
        examining.write_explanation(found, out, numbers)
        typer.echo(f"Explanation written to {out}", err=True)


def _show_model(found: Any, note: str, most: int) -> None:
    if note:
        typer.echo(note)
    show(_column_table(found, most))
    typical = found.effects.each[0]
    if found.importance is not None:
        typer.echo(
            "shuffled: by how much the CRPS, the predicted mean and the predicted spread change if the values of the "
            "column are shuffled; a higher CRPS is worse."
        )
    typer.echo(
        f"effect: from the smallest to the largest level, with the value of the column in brackets, for a typical "
        f"row with mean {typical.mean.typical:.3g} and {typical.spread.quantity} {typical.spread.typical:.3g}."
    )


def _column_table(found: Any, most: int) -> "Table":
    """The most important columns: what shuffling them changes, if that is known, and the range of their effects."""
    known, changed = {one.name: one for one in found.effects}, ("crps", "mean", "spread")
    importance = {} if found.importance is None else {one.name: one for one in found.importance.by("crps")}
    shuffled = [f"{name}, shuffled" for name in ("CRPS", "mean", "spread")] if importance else []
    headings = ("column", *shuffled, "mean, effect", f"{found.effects.each[0].spread.quantity}, effect")
    rows = []
    for name in [name for name in importance or [one.name for one in found.effects.by()] if name in known][:most]:
        one = known[name]
        changes = [f"{getattr(importance[name], key).mean():+.1%}" for key in changed] if importance else []
        rows.append(((name, *changes, _range(one, one.mean), _range(one, one.spread)), False))
    return table_of(headings, rows, range(1, 1 + len(shuffled)))


def _range(one: Any, curve: Any) -> str:
    from ddpn.analysis.numbers import value_text

    low, high = int(curve.level.argmin()), int(curve.level.argmax())
    if low == high:
        return f"{curve.level[low]:.3g}"
    ends = (f"{curve.level[i]:.3g} ({value_text(one.points[i])})" for i in (low, high))
    return " to ".join(ends)


def _show_rows(found: Any, numbers: list[int], most: int) -> None:
    from ddpn.analysis.numbers import value_text

    value = math.exp if found.log else float
    for place, number in enumerate(numbers):
        typer.echo(
            f"Row {number}: {found.quantity} {value(found.prediction[place]):.4g}; the baseline is "
            f"{value(found.base):.4g}."
        )
        headings = ("column", "value", f"added to {'log ' if found.log else ''}{found.quantity}", "factor")
        rows = []
        for name, cell, added in found.top(place, most):
            factor = f"× {math.exp(added):.3f}" if found.log else ""
            rows.append(((name, value_text(cell), f"{added:+.3f}", factor), False))
        show(table_of(headings, rows, right=(2, 3)))
