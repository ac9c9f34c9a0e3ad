"""ddpn diagnose: how counts are distributed, and which likelihood suits them. Arguments and printing only."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddpn.cli import options as o
from ddpn.cli.commands import command
from ddpn.cli.console import output_to_stderr, print_json, show, show_warnings, steps
from ddpn.cli.options import option
from ddpn.cli.tables import table_of

if TYPE_CHECKING:
    from rich.table import Table

MeanModel = Annotated[
    str,
    option(
        "NAME",
        "Model of the mean given the features: auto (the best out of fold), glm (fastest), boosting or constant.",
    ),
]
MaxRows = Annotated[int, option("NUMBER", "If the table has more rows, this many are drawn at random.")]


@command("diagnose")
def diagnose(
    data: o.Data,
    *,
    given: o.Given,
    mean_model: MeanModel = "auto",
    max_rows: MaxRows = 20_000,
    as_json: o.Json = False,
) -> None:
    """Diagnose a count target and recommend a likelihood for `ddpn fit`.

    Checks whether the target, given the features, is over- or under-dispersed, zero-inflated, piled up at its maximum,
    heaped or heavy-tailed. Means are predicted out of fold, for new groups with --group, and p-values are adjusted for
    the number of checks. Counts with known bounds or censoring, such as --upper, are not tested: fit handles them.

    Example: ddpn diagnose bikes.csv --target rentals --drop casual,registered
    """
    from ddpn.runtime.validation import check_choice, check_integer
    from ddpn.tables.files import read
    from ddpn.workflow.plan import plan_of
    from ddpn.workflow.preparing import diagnose_table

    check_choice("mean_model", mean_model, ("auto", "constant", "glm", "boosting"))
    check_integer("max_rows", max_rows, 50)
    plan = plan_of(given)
    table = read(data, plan.category)
    with output_to_stderr(), steps() as step:
        found = diagnose_table(table, plan, mean_model, max_rows, step)
    if as_json:
        print_json({"data": data, **found.to_dict()})
    else:
        _show(found)


def _show(found: Any) -> None:
    summary = found.summary
    typer.echo(found.headline)
    typer.echo(
        f"{summary.used:,} rows, mean {summary.mean:.4g}, from {summary.minimum:,.0f} to {summary.maximum:,.0f}. "
        f"Without the features the variance is {summary.ratio:.3g} times the mean."
    )
    if found.findings:
        explained = f"{found.explained:.0%} of the deviance explained out of fold"
        typer.echo(f"Mean model: {found.mean_model}, {explained}.")
        show(_table(found))
        for each in found.findings:
            if each.found:
                typer.echo(f"- {each.sentence}")
    typer.echo(f"Recommendation: {found.advice}")
    show_warnings(found.notes[found.dispersion is None :])


def _table(found: Any) -> "Table":
    rows = []
    for each in found.findings:
        numbers = (f"{value:.2g}" if value >= 0.001 else "<0.001" for value in (each.p_value, each.adjusted))
        rows.append(((each.name, each.outcome, each.effect, *numbers), each.found))
    return table_of(("check", "result", "effect", "p", "adjusted p"), rows, right=(3, 4))
