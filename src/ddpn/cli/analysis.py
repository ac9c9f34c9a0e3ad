"""Commands that analyse: diagnose, likelihoods, explain, monitor. Arguments and printing only."""

import math
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddpn.cli import options as o
from ddpn.cli.console import print_json, print_step, show, show_warnings
from ddpn.cli.options import option
from ddpn.cli.program import command
from ddpn.cli.tables import terminal_table
from ddpn.cli.wording import FIT_OPTIONS, format_option, in_fit_options
from ddpn.tables.row_draw import parse_max_rows

if TYPE_CHECKING:
    from ddpn.analysis.diagnosis.procedure import Diagnosis
    from ddpn.analysis.explanations import Explanation
    from ddpn.analysis.explanations.column_effects import Curve, Effect
    from ddpn.analysis.explanations.shapley import Contributions
    from ddpn.analysis.monitoring import Monitoring

MeanModel = Annotated[
    str,
    option(
        "NAME",
        "Model of the mean given the features: auto (the best out of fold), glm (fastest), boosting or constant.",
    ),
]


@command("diagnose")
def diagnose(
    data: o.Data,
    *,
    given: o.Given,
    mean_model: MeanModel = "auto",
    max_rows: o.MaxRows = "20000",
    as_json: o.Json = False,
) -> None:
    """Diagnose a count target and recommend a likelihood for `ddpn fit`.

    Checks whether the target, given the features, is over- or under-dispersed, zero-inflated, piled up at its maximum,
    heaped or heavy-tailed. Means are predicted out of fold, for new groups with --group, and p-values are adjusted for
    the number of checks. Counts with known bounds or censoring, such as --upper, are not tested: fit handles them.

    Example: ddpn diagnose bikes.csv --target rentals --drop casual,registered
    """
    from ddpn.runtime.validation import check_choice
    from ddpn.tables.table import Table
    from ddpn.workflow.config import read_config
    from ddpn.workflow.preparing import diagnose_table

    check_choice("mean_model", mean_model, ("auto", "constant", "glm", "boosting"))
    most = parse_max_rows(max_rows)
    plan = read_config(given)
    table = Table([data], plan.as_text)
    with redirect_stdout(sys.stderr):
        found = diagnose_table(table, plan, mean_model, most, print_step)
    if as_json:
        print_json({"data": data, **found.to_dict()})
    else:
        _show_diagnosis(found)


def _show_diagnosis(found: "Diagnosis") -> None:
    known = found.summary
    typer.echo(found.headline)
    typer.echo(
        f"{known['used']:,} rows, mean {known['mean']:.4g}, from {known['minimum']:,.0f} to {known['maximum']:,.0f}. "
        f"Without the features the variance is {known['variance_over_mean']:.3g} times the mean."
    )
    if found.findings:
        explained = f"{found.explained:.0%} of the deviance explained out of fold"
        typer.echo(f"Mean model: {found.mean_model}, {explained}.")
        rows = []
        for each in found.findings:
            numbers = (f"{value:.2g}" if value >= 0.001 else "<0.001" for value in (each.p_value, each.adjusted))
            rows.append(((each.name, each.outcome, each.effect, *numbers), each.found))
        show(terminal_table(("check", "result", "effect", "p", "adjusted p"), rows, right=(3, 4)))
        for each in found.findings:
            if each.found:
                typer.echo(f"- {each.sentence}")
    arguments = " ".join(format_option(FIT_OPTIONS[name], [value]) for name, value in found.arguments.items())
    reason = in_fit_options(found.reason)
    typer.echo(f"Recommendation: {arguments}. {reason}" if arguments else f"Recommendation: {reason}")
    show_warnings(found.notes[found.dispersion is None :])


@command("likelihoods", "Nothing was changed.")
def likelihoods(as_json: o.Json = False) -> None:
    """List the distributions that --likelihood of `ddpn fit` accepts, and what each is for.

    `ddpn diagnose` recommends one for a table.
    """
    from ddpn.networks.heads import DEFAULT_LIKELIHOOD, HEADS

    known = {name: str(HEADS[name].__doc__).splitlines()[0] for name in dict.fromkeys([DEFAULT_LIKELIHOOD, *HEADS])}
    if as_json:
        print_json(known)
        return
    names = {name: f"{name} (default)" if name == DEFAULT_LIKELIHOOD else name for name in known}
    show(terminal_table(("name", "suits"), [((names[name], suits), False) for name, suits in known.items()]))


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
        "Write effects, or contributions, as CSV, TSV, Parquet or Feather, or as an image (PNG, SVG, PDF), depending "
        "on the ending.",
        "-o",
        "--out",
    ),
]
MaxRowsPerColumn = Annotated[
    str | None,
    option(
        "NUMBER",
        "If the table has more rows, this many are drawn at random, always the same ones; all uses every row. Default: "
        "500 for effects, and up to 2,000 for importance, fewer with many columns.",
    ),
]
#: Columns that are printed.
_MOST_COLUMNS = 12


@command("explain")
def explain(
    model: o.Model,
    data: o.Data,
    rows: Rows = None,
    of: Of = "mean",
    out: Out = None,
    *,
    columns: o.Columns,
    max_rows: MaxRowsPerColumn = None,
    overwrite: o.Overwrite = False,
    as_json: o.Json = False,
) -> None:
    """Explain a model: which columns move the predicted mean and the predicted spread, and how.

    Prints importance (if DATA has the target) and effects; with --rows, how much each column adds to the predictions
    for these rows, compared with all rows of DATA.

    Example: ddpn explain bikes.model bikes.csv -o effects.png
    """
    from ddpn.runtime.validation import check_choice
    from ddpn.tables.table import Table
    from ddpn.workflow.model_folder import SavedModel

    check_choice("of", of, ("mean", "spread"))
    most: Any = "auto" if max_rows is None else parse_max_rows(max_rows)
    saved = SavedModel(model, **columns)
    roles = saved.roles
    table = Table([data], roles.as_text)
    table.check(roles)
    # Only now, as it imports torch.
    from ddpn.workflow import examining

    numbers = None if rows is None else examining.parse_rows(rows)
    if out is not None:
        examining.check_explanation_file(out, overwrite, data)
    folder, note = saved.load(), ""
    found: Any
    with redirect_stdout(sys.stderr):
        if numbers is None:
            found, note = examining.explain_table(folder, table, 0, print_step, most)
        else:
            found = examining.explain_rows(folder, table, numbers, of)
    if as_json:
        print_json({"model": str(model), "data": data, **examining.plain(found, numbers)})
    elif numbers is None:
        _show_model(found, note)
    else:
        _show_rows(found, numbers)
    if out is not None:
        examining.write_explanation(found, out, numbers)
        typer.echo(f"Explanation written to {out}", err=True)


def _show_model(found: "Explanation", note: str) -> None:
    """Print the most important columns: what shuffling them changes, if known, and the range of their effects."""
    from ddpn.runtime.display import value_text

    def reach(one: "Effect", curve: "Curve") -> str:
        low, high = int(curve.level.argmin()), int(curve.level.argmax())
        if low == high:
            return f"{curve.level[low]:.3g}"
        return " to ".join(f"{curve.level[i]:.3g} ({value_text(one.points[i])})" for i in (low, high))

    for sentence in filter(None, (note, found.draws)):
        typer.echo(sentence)
    known, typical = {one.name: one for one in found.effects}, found.effects.each[0]
    importance = {} if found.importance is None else {one.name: one for one in found.importance.by("crps")}
    shuffled = [f"{name}, shuffled" for name in ("CRPS", "mean", "spread")] if importance else []
    rows = []
    order = [name for name in importance or [one.name for one in found.effects.by()] if name in known]
    for name in order[:_MOST_COLUMNS]:
        one = known[name]
        changed = [getattr(importance[name], key) for key in ("crps", "mean", "spread")] if importance else []
        changes = [f"{each.mean():+.1%}" for each in changed]
        rows.append(((name, *changes, reach(one, one.mean), reach(one, one.spread)), False))
    headings = ("column", *shuffled, "mean, effect", f"{typical.spread.quantity}, effect")
    show(terminal_table(headings, rows, range(1, 1 + len(shuffled))))
    if importance:
        typer.echo(
            "shuffled: by how much the CRPS, the predicted mean and the predicted spread change if the values of the "
            "column are shuffled; a higher CRPS is worse."
        )
    typer.echo(
        f"effect: from the smallest to the largest level, with the value of the column in brackets, for a typical "
        f"row with mean {typical.mean.typical:.3g} and {typical.spread.quantity} {typical.spread.typical:.3g}."
    )


def _show_rows(found: "Contributions", numbers: list[int]) -> None:
    from ddpn.runtime.display import value_text

    value = math.exp if found.log else float
    if found.draws:
        typer.echo(found.draws)
    for place, number in enumerate(numbers):
        typer.echo(
            f"Row {number}: {found.quantity} {value(found.prediction[place]):.4g}; the baseline is "
            f"{value(found.base):.4g}."
        )
        headings = ("column", "value", f"added to {'log ' if found.log else ''}{found.quantity}", "factor")
        rows = []
        for name, cell, added in found.top(place, _MOST_COLUMNS):
            factor = f"× {math.exp(added):.3f}" if found.log else ""
            rows.append(((name, value_text(cell), f"{added:+.3f}", factor), False))
        show(terminal_table(headings, rows, right=(2, 3)))


#: The exit code if rows differ.
DRIFT = 3
#: Checks that are printed.
_MOST = 20
Alpha = Annotated[float, option("SHARE", "Probability of one or more false alarms.")]
SmallestEffect = Annotated[
    float, option("SHARE", "The smallest difference between shares that counts as drift; half of it for coverage.")
]
Ignore = Annotated[
    list[str] | None,
    option(
        "COLUMNS",
        "Columns that never count as drift, such as dates, separated by commas; may be repeated, for names that "
        "contain a comma.",
    ),
]


@command("monitor")
def monitor(
    model: o.Model,
    data: o.Data,
    alpha: Alpha = 0.01,
    effect: SmallestEffect = 0.1,
    ignore: Ignore = None,
    *,
    columns: o.MonitoredColumns,
    max_rows: o.MaxRows = "20000",
    as_json: o.Json = False,
) -> None:
    """Compare new rows with the training rows of a model; the exit code is 3 if they differ.

    Checks the values of every column, missing ones included, and the share of out-of-distribution rows; if DATA has
    the target, also the coverage of the intervals and the PIT (whether counts are distributed as predicted). A
    difference counts as drift if it is more than chance, allowing for the number of checks, and large enough to matter.

    Example: ddpn monitor visits.model november.csv
    """
    from ddpn.tables.table import Table
    from ddpn.workflow.model_folder import SavedModel

    most = parse_max_rows(max_rows)
    saved = SavedModel(model, **columns)
    table, folder = Table([data], saved.roles.as_text), saved.load()
    from ddpn.workflow.examining import monitor as compared

    with redirect_stdout(sys.stderr):
        found = compared(folder, table, alpha, effect, ignore or (), most)
    if as_json:
        print_json({"model": str(model), "data": data, **found.as_dict()})
    else:
        _show_comparison(found)
    if found.drift:
        raise typer.Exit(DRIFT)


def _show_comparison(found: "Monitoring") -> None:
    typer.echo(found.headline)
    rows = [(check.cells, check.drift) for check in found.checks[:_MOST]]
    table = terminal_table(("check", "before", "now", "difference", "adjusted p", ""), rows, right=(3, 4))
    if len(found.checks) > _MOST:
        table.caption = f"{len(found.checks) - _MOST:,} more checks; --json has all"
    show(table)
    for sentence in found.not_compared:
        typer.echo(f"Not compared: {sentence}")
    for sentence in filter(None, (found.draws, found.detectable)):
        typer.echo(sentence)
