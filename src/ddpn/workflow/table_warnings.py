"""Write warnings about problems of a table, with the options that solve them."""

from ddpn.rows.groups import EQUAL_INPUTS
from ddpn.runtime.errors import format_argument
from ddpn.tables.checks.findings import FindingKind, TableFinding


def describe_finding(finding: TableFinding) -> str:
    """Return a warning about a problem that a check of the table found, with the options that solve it.

    >>> describe_finding(TableFinding(FindingKind.IDENTIFIER, "Column a b has row numbers.", ("a b",)))
    'Column a b has row numbers. Leave it out with `drop=["a b"]`.'
    """
    return f"{finding.statement} {_REMEDIES[finding.kind](finding)}"


def _advise_on_leak(finding: TableFinding) -> str:
    it, is_known = ("it", "it is") if len(finding.columns) == 1 else ("them", "they are")
    drop, use = (format_argument(name, finding.columns) for name in ("drop", "use"))
    return f"Leave {it} out with {drop}; if {is_known} known before the count, keep {it} with {use}."


def _advise_on_question(finding: TableFinding) -> str:
    drop, use = (format_argument(name, finding.columns) for name in ("drop", "use"))
    which, it = ("Is it", "it") if len(finding.columns) == 1 else ("Are they", "them")
    return f"{which} known before the count? If not, leave {it} out with {drop}; if so, confirm with {use}."


def _advise_on_groups(finding: TableFinding) -> str:
    what = f"values of {' and '.join(finding.columns)}" if finding.columns else "inputs"
    return (
        f"Rows are split at random, so the scores hold for {what} that occur in this table. For new {what} they are "
        f"too good. If you want to predict these, use {format_argument('group', finding.columns or (EQUAL_INPUTS,))}."
    )


def _advise_on_order(finding: TableFinding) -> str:
    return (
        "Rows are split at random. If they are in order of time and you want to predict later rows, the scores are too "
        "good. Then add a column with the time, or with row numbers, and name it with `time`."
    )


def _advise_on_date(finding: TableFinding) -> str:
    return (
        "Rows are split at random. If you want to predict later dates, the scores are too good. Then split by time "
        f"with {format_argument('time', finding.columns[0])}."
    )


def _advise_on_marker(finding: TableFinding) -> str:
    columns = finding.columns
    end = f"; if it is an ordinary number, confirm with {format_argument('use', columns)}" if columns else ""
    missing = format_argument("missing", [finding.value])
    return f"Does {finding.value} stand for an unknown value? Then use {missing}{end}."


def _advise_on_identifier(finding: TableFinding) -> str:
    return f"Leave it out with {format_argument('drop', finding.columns)}."


_REMEDIES = {
    FindingKind.LEAK: _advise_on_leak,
    FindingKind.QUESTION: _advise_on_question,
    FindingKind.GROUPS: _advise_on_groups,
    FindingKind.ORDER: _advise_on_order,
    FindingKind.DATE: _advise_on_date,
    FindingKind.MARKER: _advise_on_marker,
    FindingKind.IDENTIFIER: _advise_on_identifier,
}


def describe_trend(change: float, time: str, is_input: bool) -> str:
    """Return the warning that counts change with time.

    `change` is the relative difference between later counts and the predictions of a model fitted to earlier rows, such
    as 0.2 for 20% higher. `time` is the column of times, and `is_input` is True if the model has it as an input.
    """
    side = "higher" if change > 0 else "lower"
    remedy = "" if is_input else f" {format_argument('use', [time])} makes the time an input as well."
    return (
        f"Counts change with {time}: in the latest training and validation rows they are {abs(change):.0%} {side} than "
        f"a quick model of the earlier rows predicts. Predictions of test rows and new rows may be as far off, because "
        f"trees and networks do not extrapolate a trend. Fit again when new rows come in.{remedy}"
    )
