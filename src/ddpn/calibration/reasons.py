"""Why rows are unusual, in words: per row, and counted over a table."""

from collections.abc import Container
from datetime import date, timedelta
from typing import Any

import numpy as np

from ddpn.calibration.columns import ABOVE, BELOW, NEVER_MISSING, STATES, UNSEEN, USUAL, Cells, ColumnProfile
from ddpn.calibration.profile import FeatureProfile
from ddpn.runtime.validation import listed
from ddpn.tables.encoding.table import Column

#: The reason of a flagged row that no single column explains.
COMBINATION = "unusual combination of values"
#: A usual cell is a reason where so small a share of ordinary rows has one as unusual in any column.
_RARE = 0.05
#: Columns that are named per row, and sentences per table.
_MOST, _MOST_SENTENCES = 3, 10
#: A count is worth a sentence if it lies so many standard deviations above what is expected.
_DEVIATIONS = 4.0
#: The probability of a sentence about numbers outside the training range where all rows are alike.
_CHANCE = 1e-3


def row_reasons(profile: FeatureProfile, X: Any, days: Container[str] = ()) -> list[list[str]]:
    """What is unusual about the cells of each row, the most unusual first; empty where nothing is.

    `days` are columns of days since 1970, which are shown as dates.
    """
    found: list[list[str]] = []
    scored = profile.scored
    columns = [profile.columns[j] for j in scored]
    for table, cells in profile.chunks(profile.reader.read(X)):
        found += _reasons(columns, [table[j] for j in scored], [cells[j] for j in scored], days)
    return found


def _reasons(
    columns: list[ColumnProfile], table: list[Column], cells: list[Cells], days: Container[str]
) -> list[list[str]]:
    surprise = np.stack([each.surprise for each in cells])
    is_reason = surprise >= np.log(len(cells) / _RARE)
    is_reason |= np.stack([np.isin(each.state, (NEVER_MISSING, ABOVE, BELOW)) for each in cells])
    order = np.argsort(-np.where(is_reason, surprise, -1.0), axis=0, kind="stable")[:_MOST]
    return [
        [_words(table[j], cells[j], row, columns[j].edges, table[j].name in days) for j in first if is_reason[j, row]]
        for row, first in enumerate(order.T.tolist())
    ]


def _words(column: Column, cells: Cells, row: int, edges: np.ndarray, is_day: bool) -> str:
    name, state, value = column.name, cells.state[row], column.values[row]
    shown_as = shown_day if is_day else "{:.6g}".format
    is_category = column.kind == "category"
    if value < 0 if is_category else np.isnan(value):
        return f"missing {name!r}"
    if state == ABOVE:
        return f"{name!r} above the training range: {shown_as(value)} > {shown_as(edges[-1])}"
    if state == BELOW:
        return f"{name!r} below the training range: {shown_as(value)} < {shown_as(edges[0])}"
    shown, what = (repr(column.levels[value]), "level") if is_category else (shown_as(value), "value")
    return f"{'unseen' if state == UNSEEN else 'unusual'} {what} {shown} of {name!r}"


def shown_day(days: float) -> str:
    """A day since 1970 as a date, as a number where no calendar has it."""
    try:
        return (date(1970, 1, 1) + timedelta(days=int(days))).isoformat()
    except OverflowError:
        return f"{days:.6g}"


class TableSummary:
    """Counts over a table, which may come in blocks, and sentences about what is unusual in it."""

    def __init__(self, profile: FeatureProfile) -> None:
        self.profile, self.rows = profile, 0
        self.states = np.zeros((len(profile.columns), len(STATES)), dtype=np.int64)

    def add(self, states: np.ndarray) -> None:
        """The states of a block of rows, from `FeatureProfile.measure`."""
        self.states += states
        self.rows += int(states[0].sum())

    def sentences(self) -> list[str]:
        """One per column and kind of finding, those about most rows first; ignored columns share one sentence."""
        found: list[tuple[int, str]] = []
        for j in self.profile.scored:
            found += self._about(j, self.profile.names[j])
        ignored = self.profile.ignored
        if ignored:
            verb, pronoun = ("does", "it follows") if len(ignored) == 1 else ("do", "they follow")
            words = f"{listed([*map(repr, ignored)])} {verb} not count in the out-of-distribution score: {pronoun} time"
            found.append((0, f"{words}, and later rows are expected to have other values."))
        found.sort(key=lambda each: -each[0])
        shown = [sentence for _, sentence in found[:_MOST_SENTENCES]]
        left = len(found) - len(shown)
        return [*shown, f"{left:,} more such findings are not shown."] if left else shown

    def _about(self, j: int, name: str) -> list[tuple[int, str]]:
        column, counts = self.profile.columns[j], self.states[j]
        found = []
        absent = self.rows - int(counts[USUAL] + counts[UNSEEN] + counts[ABOVE] + counts[BELOW])
        if absent and not column.rows[1]:
            found.append((absent, f"{_have(absent)} a missing {name!r}, which was never missing in training."))
        elif absent and self._is_many(absent, column.missing_share):
            shares = f"{absent / self.rows:.1%} of rows, against {column.missing_share:.1%} in training"
            found.append((absent, f"{name!r} is missing in {shares}."))
        unseen = int(counts[UNSEEN])
        expected = column.unseen[1] * self.rows if unseen else 0.0
        if unseen and (expected < 1.0 or self._is_many(unseen, column.unseen[1])):
            usual = f" (about {expected:,.0f} expected)" if expected >= 1.0 else ""
            what = "level" if column.kind == "category" else "value"
            found.append((unseen, f"{_have(unseen)} an unseen {what} of {name!r}{usual}."))
        for state, where, limit in ((ABOVE, "above", -1), (BELOW, "below", 0)):
            count = int(counts[state])
            if count and self._are_beyond(count):
                edge = f"{column.edges[limit]:.6g}"
                found.append((count, f"{_have(count)} {name!r} {where} the training range, which ends at {edge}."))
        return found

    def _is_many(self, count: int, share: float) -> bool:
        expected = share * self.rows
        return count > expected + _DEVIATIONS * np.sqrt(max(expected, 0.1) * (1.0 - share))

    def _are_beyond(self, count: int) -> bool:
        """Whether so many rows beyond the largest training value are more than chance, over all columns.

        In any order of n training rows and N others, alike, the first `count` all come from the others with a
        probability of at most (N / (N + n)) ** count.
        """
        chance = count * np.log(self.rows / (self.rows + self.profile.rows))
        return bool(chance < np.log(_CHANCE / len(self.profile.columns)))


def _have(count: int) -> str:
    return "1 row has" if count == 1 else f"{count:,} rows have"
