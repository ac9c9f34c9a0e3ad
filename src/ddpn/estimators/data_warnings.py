"""Checks of the training table in `fit`, with warnings that suggest remedies in Python."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import Clock
from ddpn.runtime.errors import DataWarning, warn_user
from ddpn.tables.checks import (
    FindingKind,
    TableFinding,
    find_column_problems,
    find_identifiers,
    find_row_problems,
    run_checks,
)
from ddpn.tables.date_columns import DateColumns


def warn_about_table(sample: CountRows, dates: DateColumns, is_split: bool, clock: Clock) -> tuple[str, ...]:
    """Check the training rows, and show a `DataWarning` for each problem that is found.

    Return the warnings about columns that seem to contain the target (leaks).

    Parameters
    ----------
    sample : CountRows
        The training rows. If the user gave their groups, they are not checked for other groups.
    dates : DateColumns
        The date columns of the table.
    is_split : bool
        True if the user passed validation rows, so that no rows are held out at random.
    clock : Clock
        The time limit of the fit. The checks take only a small part of it.
    """
    used = sample.rows(sample.has_weight)
    names = _ColumnNames(tuple(used.X.names), used.X.is_named)
    used = used.replace(X=used.X.to_polars())
    checks = [partial(find_identifiers, used.X, dates.inputs), partial(find_column_problems, used, dates.inputs)]
    checks += [] if is_split else [partial(find_row_problems, used, dates.inputs)]
    findings, skipped = run_checks(checks, clock)
    # Dates matter to scores, which `fit` does not report.
    findings = [finding for finding in findings if finding.kind != FindingKind.DATE]
    sentences = [f"{finding.statement} {_describe_remedy(finding, names)}" for finding in findings]
    for sentence in [*sentences, *filter(None, [skipped])]:
        warn_user(sentence, DataWarning)
    return tuple(
        sentence for finding, sentence in zip(findings, sentences, strict=True) if finding.kind == FindingKind.LEAK
    )


@dataclass(frozen=True)
class _ColumnNames:
    """The names of the columns of X. `is_named` is True if X is a data frame, and False if names are x0, x1, ..."""

    columns: tuple[str, ...]
    is_named: bool

    def select(self, names: Sequence[str]) -> str:
        """Return Python code that selects columns of X, such as X["a"] or X[:, [0, 2]]."""
        if not names:
            return "X"
        if self.is_named:
            quoted = ", ".join(f'"{name}"' for name in names)
            return f"X[{quoted}]" if len(names) == 1 else f"X[[{quoted}]]"
        places = ", ".join(str(self.columns.index(name)) for name in names)
        return f"X[:, {places}]" if len(names) == 1 else f"X[:, [{places}]]"


def _describe_remedy(finding: TableFinding, names: _ColumnNames) -> str:
    it, is_known = ("it", "it is") if len(finding.columns) == 1 else ("them", "they are")
    match finding.kind:
        case FindingKind.LEAK:
            return f"Leave {it} out of X, unless {is_known} known before the count."
        case FindingKind.QUESTION:
            which = "Is it" if len(finding.columns) == 1 else "Are they"
            return f"{which} known before the count? If not, leave {it} out of X."
        case FindingKind.IDENTIFIER:
            return "Leave it out of X."
        case FindingKind.MARKER:
            how = "replace it by NaN" if finding.columns else "leave these rows out"
            return f"Does {finding.value} stand for an unknown value? Then {how}."
        case FindingKind.ORDER:
            return (
                "Rows are held out at random: if they are in order of time and the model is to predict later rows, its "
                "intervals are too narrow. Then keep neighbouring rows together, with groups=np.arange(len(X)) * 30 // "
                "len(X), or pass the last rows as validation=CountRows(X, y)."
            )
        case _:
            return _describe_groups(finding, names)


def _describe_groups(finding: TableFinding, names: _ColumnNames) -> str:
    selected = names.select(finding.columns)
    is_named = bool(finding.columns) and not finding.are_near
    groups = selected if is_named else f"ddpn.group_similar_rows({selected})"
    apart = f", and leave {selected} out of X" if is_named else ""
    what = f"values of {' and '.join(finding.columns)}" if finding.columns else "inputs"
    return (
        f"Rows are held out at random, so intervals are right only for {what} that occur in this table, and too narrow "
        f"for new ones. To predict new ones, pass groups={groups}{apart}."
    )
