"""The commands diagnose, likelihoods, explain and monitor: their arguments and their output."""

import math
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddpn.cli import options as o
from ddpn.cli.console import print_json, print_step, print_table, show_warnings
from ddpn.cli.options import option
from ddpn.cli.program import command
from ddpn.cli.tables import build_table
from ddpn.cli.wording import FIT_OPTIONS, format_option, render_fit_options
from ddpn.tables.layout import Layout
from ddpn.tables.row_draw import parse_max_rows

if TYPE_CHECKING:
    from ddpn.analysis.diagnosis.result import Diagnosis
    from ddpn.analysis.explanations import Explanation
    from ddpn.analysis.explanations.effect import Curve, Effect
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
    settings: o.Settings,
    mean_model: MeanModel = "auto",
    max_rows: o.MaxRows = "20000",
    as_json: o.Json = False,
) -> None:
    """Diagnose a count target and recommend a likelihood for `ddpn fit`.

    Checks whether the target, given the features, is over- or under-dispersed, zero-inflated, heaped, heavy-tailed, or
    too often equal to its maximum. The counts are compared with means that are predicted out of fold; with --group,
    these are predictions for new groups. p-values are adjusted for the number of checks. Bounds and censoring that you
    give, for example with --upper, are not tested, because `ddpn fit` takes them into account.

    Example: ddpn diagnose bikes.csv --target rentals --drop casual,registered
    """
    from ddpn.runtime.validation import check_choice
    from ddpn.tables.table import Table
    from ddpn.workflow.config import read_config
    from ddpn.workflow.preparing import diagnose_table

    check_choice("mean_model", mean_model, ("auto", "constant", "glm", "boosting"))
    row_limit = parse_max_rows(max_rows)
    fit_config = read_config(settings)
    table = Table([data], fit_config.as_text, fit_config.layout)
    with redirect_stdout(sys.stderr):
        diagnosis = diagnose_table(table, fit_config, mean_model, row_limit, print_step)
    if as_json:
        print_json({"data": data, **diagnosis.to_dict()})
    else:
        _show_diagnosis(diagnosis)


def _show_diagnosis(diagnosis: "Diagnosis") -> None:
    """Print a diagnosis: the checks of the target, the recommended likelihood, and notes."""
    summary = diagnosis.summary
    typer.echo(diagnosis.headline)
    typer.echo(
        f"{summary['used']:,} rows, mean {summary['mean']:.4g}, from {summary['minimum']:,.0f} to "
        f"{summary['maximum']:,.0f}. "
        f"Without the features the variance is {summary['variance_over_mean']:.3g} times the mean."
    )
    if diagnosis.findings:
        explained = f"{diagnosis.explained:.0%} of the deviance explained out of fold"
        typer.echo(f"Mean model: {diagnosis.mean_model}, {explained}.")
        rows = []
        for finding in diagnosis.findings:
            numbers = (f"{value:.2g}" if value >= 0.001 else "<0.001" for value in (finding.p_value, finding.adjusted))
            rows.append(((finding.name, finding.outcome, finding.effect, *numbers), finding.found))
        print_table(build_table(("check", "result", "effect", "p", "adjusted p"), rows, right=(3, 4)))
        for finding in diagnosis.findings:
            if finding.found:
                typer.echo(f"- {finding.sentence}")
    arguments = " ".join(format_option(FIT_OPTIONS[name], [value]) for name, value in diagnosis.arguments.items())
    reason = render_fit_options(diagnosis.reason)
    typer.echo(f"Recommendation: {arguments}. {reason}" if arguments else f"Recommendation: {reason}")
    show_warnings(diagnosis.notes[diagnosis.dispersion is None :])


@command("likelihoods", "Nothing was changed.")
def likelihoods(as_json: o.Json = False) -> None:
    """List the distributions that --likelihood of `ddpn fit` accepts, and the counts that each one suits.

    `ddpn diagnose` recommends one for a table.
    """
    from ddpn.networks.heads import DEFAULT_LIKELIHOOD, HEADS

    purposes = {name: str(HEADS[name].__doc__).splitlines()[0] for name in dict.fromkeys([DEFAULT_LIKELIHOOD, *HEADS])}
    if as_json:
        print_json(purposes)
        return
    names = {name: f"{name} (default)" if name == DEFAULT_LIKELIHOOD else name for name in purposes}
    print_table(build_table(("name", "suits"), [((names[name], purpose), False) for name, purpose in purposes.items()]))


Rows = Annotated[
    str | None,
    option(
        "NUMBERS",
        "Explain the predictions of these rows, numbered from 1: 3, 1,5,7 or 1-10. Default: explain the whole model.",
    ),
]
Quantity = Annotated[str, option("WHAT", "With --rows: explain the mean or the spread (variance / mean).")]
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
        "The most rows to use; from a longer table, rows are drawn at random, always the same ones. all uses every "
        "row. Default: 500 for effects; up to 2,000 for importance, fewer with many columns.",
    ),
]
#: The most columns that `ddpn explain` prints. The most important ones come first.
_MAX_PRINTED_COLUMNS = 12


@command("explain")
def explain(
    model: o.Model,
    data: o.Data,
    rows: Rows = None,
    of: Quantity = "mean",
    out: Out = None,
    *,
    columns: o.Columns,
    sheet: o.Sheet = None,
    skip_rows: o.SkipRows = None,
    max_rows: MaxRowsPerColumn = None,
    overwrite: o.Overwrite = False,
    as_json: o.Json = False,
) -> None:
    """Explain which columns change the predicted mean and the predicted spread, and how much.

    Prints the importance of columns (if DATA has the target) and their effects. With --rows, prints how much each
    column adds to the predictions for these rows, relative to the average over all rows of DATA.

    Example: ddpn explain bikes.model bikes.csv -o effects.png
    """
    from ddpn.runtime.validation import check_choice
    from ddpn.tables.table import Table
    from ddpn.workflow.model_folder import SavedModel

    check_choice("of", of, ("mean", "spread"))
    row_limit: Any = "auto" if max_rows is None else parse_max_rows(max_rows)
    saved = SavedModel(model, **columns)
    roles = saved.roles
    table = Table([data], roles.as_text, Layout(sheet, skip_rows))
    table.check_columns(roles)
    # Imported late, because it imports torch.
    from ddpn.workflow import examining

    row_numbers = None if rows is None else examining.parse_rows(rows)
    if out is not None:
        examining.check_explanation_file(out, overwrite, data)
    folder, note = saved.load(), ""
    explanation: Any
    with redirect_stdout(sys.stderr):
        if row_numbers is None:
            explanation, note = examining.explain_table(folder, table, 0, print_step, row_limit)
        else:
            explanation = examining.explain_rows(folder, table, row_numbers, of)
    if as_json:
        print_json({"model": str(model), "data": data, **explanation.to_dict()})
    elif row_numbers is None:
        _show_explanation(explanation, note)
    else:
        _show_contributions(explanation)
    if out is not None:
        examining.write_explanation(explanation, out)
        typer.echo(f"Explanation written to {out}", err=True)


def _show_explanation(explanation: "Explanation", note: str) -> None:
    """Print a table of the most important columns and their effects.

    The importance of a column is how much worse predictions become if its values are shuffled. Its effect is the range
    of predictions over its values. If the table has no target, only effects are printed. `note` is a sentence about the
    rows that were used.
    """

    def format_range(effect: "Effect", curve: "Curve") -> str:
        low, high, points = int(curve.level.argmin()), int(curve.level.argmax()), effect.format_points()
        if low == high:
            return f"{curve.level[low]:.3g}"
        return " to ".join(f"{curve.level[i]:.3g} ({points[i]})" for i in (low, high))

    for sentence in filter(None, (note, explanation.drawn_rows_note)):
        typer.echo(sentence)
    effects, typical = {effect.name: effect for effect in explanation.effects}, explanation.effects.results[0]
    importance = (
        {} if explanation.importance is None else {effect.name: effect for effect in explanation.importance.by("crps")}
    )
    shuffled = [f"{name}, shuffled" for name in ("CRPS", "mean", "spread")] if importance else []
    rows = []
    order = [name for name in importance or [effect.name for effect in explanation.effects.by()] if name in effects]
    for name in order[:_MAX_PRINTED_COLUMNS]:
        effect = effects[name]
        changed = [getattr(importance[name], key) for key in ("crps", "mean", "spread")] if importance else []
        changes = [f"{change.mean():+.1%}" for change in changed]
        rows.append(((name, *changes, format_range(effect, effect.mean), format_range(effect, effect.spread)), False))
    headings = ("column", *shuffled, "mean, effect", f"{typical.spread.quantity}, effect")
    print_table(build_table(headings, rows, range(1, 1 + len(shuffled))))
    if importance:
        typer.echo(
            "shuffled: the change of the CRPS, the predicted mean and the predicted spread if the values of the column "
            "are shuffled. An increase of the CRPS is worse."
        )
    typer.echo(
        f"effect: the lowest and the highest prediction, with the value of the column in brackets, for a typical row "
        f"with mean {typical.mean.typical:.3g} and {typical.spread.quantity} {typical.spread.typical:.3g}."
    )


def _show_contributions(contributions: "Contributions") -> None:
    """Print how much each column adds to the prediction for each row."""
    from ddpn.runtime.display import value_text

    inverse_link = math.exp if contributions.log else float
    if contributions.drawn_rows_note:
        typer.echo(contributions.drawn_rows_note)
    for position, number in enumerate(contributions.labels):
        typer.echo(
            f"Row {number}: {contributions.quantity} {inverse_link(contributions.prediction[position]):.4g}; "
            f"the baseline is {inverse_link(contributions.base):.4g}."
        )
        headings = (
            "column",
            "value",
            f"added to {'log ' if contributions.log else ''}{contributions.quantity}",
            "factor",
        )
        rows = []
        for name, cell, added in contributions.top(position, _MAX_PRINTED_COLUMNS):
            factor = f"× {math.exp(added):.3f}" if contributions.log else ""
            rows.append(((name, value_text(cell), f"{added:+.3f}", factor), False))
        print_table(build_table(headings, rows, right=(2, 3)))


#: The exit code if there is drift.
DRIFT = 3
#: The most checks that `ddpn monitor` prints; --json prints all.
_MAX_PRINTED_CHECKS = 20
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
    sheet: o.Sheet = None,
    skip_rows: o.SkipRows = None,
    max_rows: o.MaxRows = "20000",
    as_json: o.Json = False,
) -> None:
    """Compare new rows with the training rows of a model; the exit code is 3 if they differ.

    Checks the values of every column, including missing values, and the share of out-of-distribution rows. If DATA has
    the target, also checks the coverage of the intervals and the PIT (whether counts are distributed as predicted). A
    difference counts as drift if it is large enough to matter and larger than expected by chance, given the number of
    checks.

    Example: ddpn monitor visits.model november.csv
    """
    from ddpn.tables.table import Table
    from ddpn.workflow.model_folder import SavedModel

    row_limit = parse_max_rows(max_rows)
    saved = SavedModel(model, **columns)
    table, folder = Table([data], saved.roles.as_text, Layout(sheet, skip_rows)), saved.load()
    from ddpn.workflow.examining import monitor as compare_rows

    with redirect_stdout(sys.stderr):
        monitoring = compare_rows(folder, table, alpha, effect, ignore or (), row_limit)
    if as_json:
        print_json({"model": str(model), "data": data, **monitoring.as_dict()})
    else:
        _show_comparison(monitoring)
    if monitoring.drift:
        raise typer.Exit(DRIFT)


def _show_comparison(monitoring: "Monitoring") -> None:
    """Print the results of all checks of new rows, beginning with drift, and the columns that were not compared."""
    typer.echo(monitoring.headline)
    rows = [(check.cells, check.drift) for check in monitoring.checks[:_MAX_PRINTED_CHECKS]]
    headings = "check", "before", "now", "difference", "threshold", "adjusted p", "result"
    table = build_table(headings, rows, right=(3, 4, 5))
    if len(monitoring.checks) > _MAX_PRINTED_CHECKS:
        table.caption = f"{len(monitoring.checks) - _MAX_PRINTED_CHECKS:,} more checks; --json has all"
    print_table(table)
    for sentence in monitoring.not_compared:
        typer.echo(f"Not compared: {sentence}")
    for sentence in filter(None, (monitoring.drift_rule, monitoring.drawn_rows_note, monitoring.detectable)):
        typer.echo(sentence)
