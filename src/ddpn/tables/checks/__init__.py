"""Check a table before a fit for target leaks, rows that belong together, codes for unknown values, and row numbers.

Every check returns a list of `TableFinding`, which says what is wrong but not what to do. `ddpn fit` and
`CountRegressor` run the same checks. `ddpn fit` then suggests command line options, and `CountRegressor` suggests
arguments.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import polars as pl

from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import Clock, TimeLimitError
from ddpn.tables.checks.findings import FindingKind, TableFinding
from ddpn.tables.checks.groups import find_groups
from ddpn.tables.checks.identifiers import describe_identifier
from ddpn.tables.checks.leaks import find_leaks
from ddpn.tables.checks.markers import find_marker
from ddpn.tables.checks.order import find_drift

__all__ = [
    "FindingKind",
    "TableFinding",
    "describe_identifier",
    "find_column_problems",
    "find_identifiers",
    "find_row_problems",
    "run_checks",
]

#: The largest share of the remaining time that checks may take. All checks together take a few seconds.
_MAX_TIME_SHARE = 0.1


def run_checks(checks: Sequence[Callable[[], list[TableFinding]]], clock: Clock) -> tuple[list[TableFinding], str]:
    """Run functions that check a table, and collect their findings.

    The checks may take a tenth of the time that is left on `clock`. The second result is a sentence for the user if
    time ran out before the last check, else "".

    >>> run_checks([lambda: []], Clock()), run_checks([lambda: []], Clock(0.0))[1][:31]
    (([], ''), 'The checks of the table were no')
    """
    findings, limit = list[TableFinding](), clock.part(_MAX_TIME_SHARE * clock.left)
    for check in checks:
        try:
            with limit.limit():
                findings += check()
        except TimeLimitError:
            return findings, (
                "The checks of the table were not finished, because the time budget is too short: columns made of the "
                "target, or rows that belong together, may have gone unnoticed."
            )
    return findings, ""


def find_column_problems(
    sample: CountRows, dates: Mapping[str, str], confirmed: Collection[str] = ()
) -> list[TableFinding]:
    """Find target leaks, columns that may be leaks, and numbers such as 999 that stand for "unknown".

    Parameters
    ----------
    sample : CountRows
        Rows with inputs in a polars frame.
    dates : mapping of str to str
        The date from which each derived column was computed, such as "start" for the column "start month".
    confirmed : collection of str
        Columns that are not checked, because the user has declared them to be free of leaks and codes.
    """
    names = [name for name in sample.X.columns if dates.get(name, name) not in confirmed]
    X = sample.X.select(names)
    markers = _find_markers(X.select([name for name in names if name not in dates]), sample)
    # Rows with unknown counts would hide a column's dependence on the other counts.
    is_unknown = np.zeros(len(sample), dtype=bool)
    for finding in markers:
        is_unknown |= False if finding.columns else sample.y == float(finding.value)
    rows = np.flatnonzero(~is_unknown)
    exposure = None if sample.exposure is None else sample.exposure[rows]
    leaks = find_leaks(X[rows], sample.y[rows], dates, exposure) if names else []
    return [*leaks, *markers]


def _find_markers(X: pl.DataFrame, sample: CountRows) -> list[TableFinding]:
    """Find numbers such as 999 that seem to stand for "unknown", in the counts and in the columns of `X`."""
    findings = []
    # Neither the largest possible count nor a recording limit ("10 or more") stands for "unknown".
    marker = find_marker(sample.y) if sample.is_unrestricted and sample.exposure is None else None
    if marker is not None:
        findings.append(
            TableFinding(FindingKind.MARKER, _describe_marker("The target", sample.y, marker), (), f"{marker:g}")
        )
    for series in X.iter_columns():
        if series.dtype.is_numeric():
            values = series.cast(float).to_numpy()
            marker = find_marker(values)
            if marker is not None:
                statement = _describe_marker(f"Column {series.name}", values, marker)
                findings.append(TableFinding(FindingKind.MARKER, statement, (series.name,), f"{marker:g}"))
    return findings


def _describe_marker(subject: str, values: np.ndarray, marker: float) -> str:
    """Describe in a sentence how often `values` equal the marker, and the range of all other values."""
    others = values[~np.isnan(values) & (values != marker)]
    rows, low, high = int((values == marker).sum()), others.min(), others.max()
    return f"{subject} is {marker:g} in {rows:,} rows, and from {low:g} to {high:g} in all others."


def find_row_problems(
    sample: CountRows, dates: Mapping[str, str], confirmed: Collection[str] = (), seed: int = 0
) -> list[TableFinding]:
    """Find signs that a random split of the rows would be too optimistic.

    The findings are groups of rows that belong together (such as the rows of a person), rows that resemble the rows
    around them, and dates.

    Parameters
    ----------
    sample : CountRows
        Rows with inputs in a polars frame. If they have groups already, no other groups are searched.
    dates : mapping of str to str
        The date from which each derived column was computed, such as "start" for the column "start month".
    confirmed : collection of str
        Columns that the user has declared to be features rather than names of persons or units.
    seed : int
        Seed of the folds in which quick models are fitted.
    """
    together = None
    if sample.group is None:
        together = find_groups(sample, {*dates, *confirmed}, seed)
        if together is None and not dates:
            together = find_drift(sample, seed)
    return [*([] if together is None else [together]), *_find_dates(dates)]


def _find_dates(dates: Mapping[str, str]) -> list[TableFinding]:
    """Return a finding about the first date column in a list, or an empty list if there are no date columns.

    `dates` maps each column that was derived from a date to the date column, such as "start month" to "start".
    """
    names = list(dict.fromkeys(dates.values()))[:1]
    return [TableFinding(FindingKind.DATE, f"Column {name} is a date.", (name,)) for name in names]


def find_identifiers(X: pl.DataFrame, dates: Mapping[str, str]) -> list[TableFinding]:
    """Find columns of a polars frame that number or name the rows, such as an id.

    `dates` maps columns that were derived from a date to the name of the date; these columns are not checked. If all
    columns seem to identify rows, an empty list is returned, because a model needs some column.
    """
    findings = []
    for series in X.iter_columns():
        if series.name in dates:
            continue
        is_category = not series.dtype.is_numeric() and str(series.dtype) != "Boolean"
        if words := describe_identifier(series, is_category):
            statement = f"Column {series.name} seems to identify rows: {words}."
            findings.append(TableFinding(FindingKind.IDENTIFIER, statement, (series.name,)))
    return findings if len(findings) < X.width else []
