"""Split a table into three parts (training, validation and test rows): at random, by a column, or by time.

Rows of the same group go to the same part.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from ddpn.rows.checks import select_labels
from ddpn.rows.groups import describe_groups, describe_scores
from ddpn.rows.splits import SMALL_TABLE_ROWS, SplitRows, read_parts, split_at_random, split_by_parts, split_by_time
from ddpn.runtime.display import plural
from ddpn.runtime.errors import Argument, InputError
from ddpn.runtime.validation import check_column
from ddpn.workflow.config import FitConfig

#: The fewest rows of a table. With fewer, a test would be meaningless.
MIN_ROWS = 20
#: The fewest groups. With fewer, each part would have only one or two groups.
MIN_GROUPS = 5


class RowSplit(NamedTuple):
    """A split of a table into training, validation and test rows.

    - `rows` has three arrays, `train`, `validation` and `test`, with the positions of these rows in the table.
    - `description` says how the rows were split, such as "at random by seed 0".
    - `meaning` is a sentence about the new rows for which the test scores hold: rows of known groups or of new groups.
      It is "" if rows have no groups.
    """

    rows: SplitRows
    description: str
    meaning: str = ""


def split_rows(
    frame: pl.DataFrame, plan: FitConfig, labels: np.ndarray | None = None, group: np.ndarray | None = None
) -> RowSplit:
    """Split rows into training, validation and test rows, as the plan requires.

    Unless the plan asks for test rows, all rows of a table with up to 5,000 rows become training rows, which are then
    cross-fitted. If there are test rows but fewer than 200 other rows, no validation rows are drawn from these.
    Validation rows that the plan's `split_column` marks are always kept.

    `group` has one label per row; rows with the same label go to the same part. `labels` identify rows in error
    messages; by default they are numbers from 1.
    """
    labels = np.arange(1, frame.height + 1) if labels is None else labels
    if frame.height < MIN_ROWS:
        raise InputError(f"The table must have at least {MIN_ROWS} rows, got {frame.height}.")
    if group is not None and (number := len(np.unique(group))) < MIN_GROUPS:
        argument, must = Argument("group", ",".join(plan.group)), f"have at least {MIN_GROUPS} different values"
        remedy = "Choose a column with more values, or leave out `group`."
        raise InputError(argument=argument, must=must, got=str(number), remedy=remedy)
    if plan.split_column is not None:
        name = check_column(plan.split_column, frame.columns, "split_column", InputError)
        marks = read_parts(frame[name].to_list(), name, labels)
        rows = split_by_parts(marks, name, plan.split_shares, plan.seed, group, plan.group, labels)
        return RowSplit(rows, f"by column {name}", "" if group is None else describe_scores(plan.group))
    if plan.time is not None:
        return _split_by_time(frame, plan.time, plan, labels, group)
    has_test = plan.asks_for_test_rows or frame.height > SMALL_TABLE_ROWS
    if has_test:
        parts = SplitRows(*split_at_random(frame.height, plan.split_shares, plan.seed, group)).join_if_few()
    else:
        every = np.arange(frame.height)
        parts = SplitRows(every, every[:0], every[:0])
    if group is None:
        return RowSplit(parts, f"at random by seed {plan.seed}")
    description = f"at random by seed {plan.seed}; rows with {describe_groups(plan.group)} stay together"
    return RowSplit(parts, description, describe_scores(plan.group, is_out_of_fold=not has_test))


def _split_by_time(
    frame: pl.DataFrame, name: str, plan: FitConfig, labels: np.ndarray, group: np.ndarray | None
) -> RowSplit:
    """Split rows by the times in column `name`: the last become test rows, and the rows before them validation rows.

    If rows have groups (`group`, one label per row), no group has rows in several parts. Some rows are then left out,
    so that all training rows are earlier than all test rows (`ddpn.rows.splits.split_by_time`). The description of the
    result says how many.
    """
    times = read_times(frame, name, labels)
    rows = split_by_time(times.rank("dense").to_numpy().astype(np.int64), name, plan.split_shares, group, plan.seed)
    begin = str(times[rows.test].min())
    if group is None:
        return RowSplit(rows, f"by time: the test rows begin at {name} = {begin}")
    left_out = frame.height - sum(map(len, rows))
    is_tested = np.isin(group, group[rows.test])
    if is_tested.sum() > len(rows.test):  # of a panel, only the last rows of the test groups are tested
        n_groups, n_test_groups = len(np.unique(group)), len(np.unique(group[rows.test]))
        description = (
            f"by time and groups: the test rows are those from {name} = {begin} on of {n_test_groups:,} of "
            f"{n_groups:,} groups, drawn at random by seed {plan.seed}; {left_out:,} later rows of other groups and "
            "earlier rows of these are left out"
        )
        return RowSplit(rows, description, describe_scores(plan.group, "later rows of new groups"))
    description = (
        f"by time: the test rows belong to groups ({describe_groups(plan.group)}) that begin at {name} = {begin} "
        f"or later; {plural(left_out, 'later row')} of other groups {'is' if left_out == 1 else 'are'} left out"
    )
    return RowSplit(rows, description, describe_scores(plan.group, "new groups that begin later"))


def read_times(frame: pl.DataFrame, name: str, labels: np.ndarray, allow_text: bool = False) -> pl.Series:
    """Return the column `name` of times, unchanged.

    Raise an `InputError` if the column does not exist, if a time is missing, or if times are neither numbers nor dates.
    If `allow_text` is True, times may also be text. `labels` identify rows in error messages.
    """
    series = frame[check_column(name, frame.columns, "time", InputError)]
    is_text = allow_text and series.dtype == pl.String
    if not (series.dtype.is_temporal() or series.dtype.is_numeric() or is_text):
        present = series.drop_nulls()
        kind = "booleans" if series.dtype == pl.Boolean else "text" if series.dtype == pl.String else "values"
        got = f"{kind} such as {present[0]!r}" if present.len() else "no value"
        raise InputError(argument=Argument("time", name), must="hold numbers or dates such as 2024-12-31", got=got)
    missing = (series.fill_nan(None) if series.dtype.is_float() else series).is_null()
    if missing.any():
        rows, remedy = select_labels(missing.to_numpy(), labels), "Fill or drop these rows."
        raise InputError("is missing", argument=Argument("time", name), rows=rows, remedy=remedy)
    return series
