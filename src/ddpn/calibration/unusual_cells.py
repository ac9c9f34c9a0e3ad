"""Sentences about unusual cells of a row or a table, compared with a `FeatureProfile` of the training rows."""

from collections.abc import Container

import numpy as np

from ddpn.calibration.columns import (
    ABOVE,
    BELOW,
    MISSING,
    NEVER_MISSING,
    UNSEEN,
    CellScores,
    ColumnProfile,
)
from ddpn.calibration.feature_profile import FeatureProfile
from ddpn.rows.checks import TableLike
from ddpn.runtime.display import format_day, plural
from ddpn.runtime.validation import join_words
from ddpn.tables.columns import Column

#: The reason that is given if no single column explains a flag.
COMBINATION = "unusual combination of values"
#: A cell is a reason if at most this share of ordinary rows has a cell as unusual in any column.
_MAX_CELL_SHARE = 0.05
#: The most columns that are named per row, and the most sentences per table.
_MAX_REASONS, _MAX_SENTENCES = 3, 10
#: A number of cells is reported if it lies this many standard deviations above the expected number.
_MIN_DEVIATIONS = 4.0
#: The probability of a false report about numbers outside the training range.
_FALSE_REPORT_PROBABILITY = 1e-3


def describe_unusual_cells(profile: FeatureProfile, X: TableLike, days: Container[str] = ()) -> list[list[str]]:
    """Describe the unusual cells of each row in a list of phrases such as "missing 'age'", the most unusual first.

    Return one list per row of X, with at most three phrases. It is empty if no cell is unusual. `days` are the names of
    columns with days since 1970, whose values are shown as dates. Columns that `profile` ignores are left out.
    """
    reasons: list[list[str]] = []
    scored = profile.scored
    for table, cells in profile.iter_blocks(profile.schema.parse(X)):
        surprise = np.stack([cells[j].surprise for j in scored])
        is_reason = surprise >= np.log(len(scored) / _MAX_CELL_SHARE)
        is_reason |= np.stack([np.isin(cells[j].state, (NEVER_MISSING, ABOVE, BELOW)) for j in scored])
        order = np.argsort(-np.where(is_reason, surprise, -1.0), axis=0, kind="stable")[:_MAX_REASONS]
        for row, first in enumerate(order.T.tolist()):
            columns = [scored[rank] for rank in first if is_reason[rank, row]]
            reasons.append(
                [_describe_cell(profile.columns[j], table[j], cells[j], row, table[j].name in days) for j in columns]
            )
    return reasons


def _describe_cell(profile: ColumnProfile, column: Column, cells: CellScores, row: int, is_day: bool) -> str:
    name, edges, state, value = column.name, profile.edges, cells.state[row], column.values[row]
    shown_as = format_day if is_day else "{:.6g}".format
    if column.rows([row]).is_missing[0]:
        return f"missing {name!r}"
    if state == ABOVE:
        return f"{name!r} above the training range: {shown_as(value)} > {shown_as(edges[-1])}"
    if state == BELOW:
        return f"{name!r} below the training range: {shown_as(value)} < {shown_as(edges[0])}"
    shown, what = (repr(column.levels[value]), "level") if column.is_category else (shown_as(value), "value")
    return f"{'unseen' if state == UNSEEN else 'unusual'} {what} {shown} of {name!r}"


def describe_states(profile: FeatureProfile, states: np.ndarray) -> list[str]:
    """Return one sentence per unusual property of a column of a table, the property of the most rows first.

    `states` has the number of cells of each column in each state, such as missing or unseen (`FeatureProfile.measure`),
    summed over all rows of the table. These numbers are compared with the training rows, of which `profile` is the
    summary.

    One more sentence names the columns that are ignored in out-of-distribution scores, if any. At most ten sentences
    are returned. If there are more, a note on how many are left out follows.
    """
    findings = [finding for j in profile.scored for finding in _list_findings(profile, j, states[j].tolist())]
    if profile.ignored:
        verb, pronoun = ("does", "it follows") if len(profile.ignored) == 1 else ("do", "they follow")
        names = join_words([*map(repr, profile.ignored)])
        words = f"{names} {verb} not count in the out-of-distribution score: {pronoun} time"
        findings.append((0, f"{words}, and later rows are expected to have other values."))
    findings.sort(key=lambda finding: -finding[0])
    shown = [sentence for _, sentence in findings[:_MAX_SENTENCES]]
    left = len(findings) - len(shown)
    return [*shown, f"Not shown: {plural(left, 'more finding')}."] if left else shown


def _list_findings(profile: FeatureProfile, position: int, counts: list[int]) -> list[tuple[int, str]]:
    """List what is unusual about the column at `position`, as pairs of a number of affected rows and a sentence.

    `counts` has the number of cells of this column in each state.
    """
    column, name = profile.columns[position], profile.names[position]
    rows, findings = sum(counts), list[tuple[int, str]]()

    def is_many(count: int, share: float) -> bool:
        return count > share * rows + _MIN_DEVIATIONS * np.sqrt(max(share * rows, 0.1) * (1.0 - share))

    never, absent, unseen = counts[NEVER_MISSING], counts[MISSING], counts[UNSEEN]
    if never:
        findings.append((never, f"{_count_rows_with(never)} a missing {name!r}, which was never missing in training."))
    if absent and is_many(absent, column.missing_share):
        shares = f"{absent / rows:.1%} of rows, against {column.missing_share:.1%} in training"
        findings.append((absent, f"{name!r} is missing in {shares}."))
    expected = column.unseen[1] * rows if unseen else 0.0
    if unseen and (expected < 1.0 or is_many(unseen, column.unseen[1])):
        usual = f" (about {expected:,.0f} expected)" if expected >= 1.0 else ""
        what = "level" if column.kind.is_category else "value"
        findings.append((unseen, f"{_count_rows_with(unseen)} an unseen {what} of {name!r}{usual}."))
    # If n training rows and N new rows are alike, the k largest values all belong to new rows with a probability of
    # at most (N / (N + n)) ** k. A smaller probability than `chance` is reported.
    chance = np.log(_FALSE_REPORT_PROBABILITY / len(profile.columns))
    for count, where, edge in ((counts[ABOVE], "above", -1), (counts[BELOW], "below", 0)):
        if count and count * np.log(rows / (rows + profile.rows)) < chance:
            words = f"{name!r} {where} the training range, which ends at {column.edges[edge]:.6g}"
            findings.append((count, f"{_count_rows_with(count)} {words}."))
    return findings


def _count_rows_with(count: int) -> str:
    return "1 row has" if count == 1 else f"{count:,} rows have"
