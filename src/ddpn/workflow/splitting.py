"""Split rows into training, validation and test rows: at random, by a column, or by time.

Groups of rows stay together.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from ddpn.rows.checks import select_labels
from ddpn.rows.groups import describe_groups, describe_scores, encode_groups
from ddpn.rows.splits import MIN_ROWS_TO_VALIDATE, SMALL_TABLE_ROWS, split_at_random
from ddpn.runtime.display import plural
from ddpn.runtime.errors import Argument, InputError
from ddpn.runtime.validation import check_column, join_words
from ddpn.workflow.config import FitConfig

#: The fewest rows of a table. With fewer, a test would be meaningless.
MIN_ROWS = 20
#: The fewest groups. With fewer, each part would have only one or two groups.
MIN_GROUPS = 5
#: The words for each part in a split column.
PARTS = {
    "train": ("train", "training", "fit"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "holdout"),
}


class SplitRows(NamedTuple):
    """Positions of the training, validation and test rows."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


class RowSplit(NamedTuple):
    """The rows of each part, a description of the split and, for groups of rows, the meaning of test scores."""

    rows: SplitRows
    how: str
    meaning: str = ""


def split_rows(
    frame: pl.DataFrame, plan: FitConfig, labels: np.ndarray | None = None, group: np.ndarray | None = None
) -> RowSplit:
    """Split rows as the plan requires.

    Unless the plan asks for test rows, up to 5,000 rows are all training rows, which are cross-fitted. If there are few
    rows, none are kept for validation. `labels` are the names of the rows in messages (default: numbers from 1). Rows
    with equal labels in `group` stay in one part.
    """
    labels = np.arange(1, frame.height + 1) if labels is None else labels
    if frame.height < MIN_ROWS:
        raise InputError(f"The table must have at least {MIN_ROWS} rows, got {frame.height}.")
    if group is not None and (number := len(np.unique(group))) < MIN_GROUPS:
        argument, must = Argument("group", ",".join(plan.group)), f"have at least {MIN_GROUPS} different values"
        remedy = "Choose a column with more values, or leave out `group`."
        raise InputError(argument=argument, must=must, got=str(number), remedy=remedy)
    if plan.split_column is not None:
        return _split_by_column(frame, plan, labels, group)
    if plan.time is not None:
        return _split_by_time(frame, plan, labels, group)
    has_test = plan.asks_for_test_rows or frame.height > SMALL_TABLE_ROWS
    if has_test:
        parts = _without_few(SplitRows(*split_at_random(frame.height, plan.split_shares, plan.seed, group)))
    else:
        every = np.arange(frame.height)
        parts = SplitRows(every, every[:0], every[:0])
    if group is None:
        return RowSplit(parts, f"at random by seed {plan.seed}")
    how = f"at random by seed {plan.seed}; rows with {describe_groups(plan.group)} stay together"
    return RowSplit(parts, how, describe_scores(plan.group, is_out_of_fold=not has_test))


def _without_few(parts: SplitRows) -> SplitRows:
    if len(parts.train) + len(parts.validation) >= MIN_ROWS_TO_VALIDATE:
        return parts
    rows = np.sort(np.concatenate([parts.train, parts.validation]))
    return SplitRows(rows, rows[:0], parts.test)


def _split_by_column(frame: pl.DataFrame, plan: FitConfig, labels: np.ndarray, group: np.ndarray | None) -> RowSplit:
    name = check_column(str(plan.split_column), frame.columns, "split_column", InputError)
    row_parts = read_parts(frame, name, labels)
    parts = SplitRows(*(np.flatnonzero(row_parts == part) for part in PARTS))
    if not (len(parts.train) and len(parts.test)):
        got = f"{join_words(sorted(set(row_parts.tolist())))} only"
        raise InputError(argument=Argument("split_column", name), must="mark both train and test rows", got=got)
    if group is not None:
        codes, sizes = encode_groups(len(group), group)
        # The number of rows of each group in the part that has most of them.
        in_one_part = np.max([np.bincount(codes[rows], minlength=len(sizes)) for rows in parts], axis=0)
        if len(divided := np.flatnonzero(in_one_part < sizes)):
            got = f"{len(divided):,} groups in several parts, such as the rows with {describe_groups(plan.group)}"
            where, remedy = select_labels(codes == divided[0], labels), "Correct that column, or leave out `group`."
            argument = Argument("split_column", name)
            raise InputError(argument=argument, must="not divide groups", got=got, rows=where, remedy=remedy)
    if not len(parts.validation) and len(parts.train) >= MIN_ROWS_TO_VALIDATE:
        shares = np.array(plan.split_shares[:2]) / sum(plan.split_shares[:2])
        of_train = None if group is None else group[parts.train]
        train, validation = split_at_random(len(parts.train), shares.tolist(), plan.seed, of_train)
        parts = SplitRows(parts.train[train], parts.train[validation], parts.test)
    return RowSplit(parts, f"by column {name}", "" if group is None else describe_scores(plan.group))


def read_parts(frame: pl.DataFrame, name: str, labels: np.ndarray) -> np.ndarray:
    """Return the part of each row according to the words of a column; raise an `InputError` for any other word."""
    words = [str(word).strip().lower() for word in frame[name].to_list()]
    part_of = {word: part for part, spellings in PARTS.items() for word in spellings}
    unknown = np.array([word not in part_of for word in words])
    if unknown.any():
        first = frame[name].filter(unknown)[0]
        what = "an empty cell" if first is None or not str(first).strip() else repr(first)
        must, rows = "hold train, validation or test in every row", select_labels(unknown, labels)
        raise InputError(argument=Argument("split_column", name), must=must, got=what, rows=rows)
    return np.array([part_of[word] for word in words])


def _split_by_time(frame: pl.DataFrame, plan: FitConfig, labels: np.ndarray, group: np.ndarray | None) -> RowSplit:
    """Split by time: the last rows are test rows, those before them validation rows.

    With groups, the groups that begin last are the test groups. Then every training row is earlier than all rows of
    validation and test groups, and every validation row is earlier than all rows of test groups; later rows are left
    out. Groups that begin together, as in a panel, are divided at random instead (`_split_panel`).
    """
    series = read_times(frame, str(plan.time), labels)
    time = series.rank("dense").to_numpy().astype(np.int64)
    codes, sizes = encode_groups(len(time), group)
    start = np.full(len(sizes), time.max())
    np.minimum.at(start, codes, time)
    begins = start[codes]
    order = np.argsort(begins, kind="stable")
    firsts = np.flatnonzero(np.r_[True, np.diff(begins[order]) > 0])
    cuts = [int(firsts[np.abs(firsts - frame.height * share).argmin()]) for share in np.cumsum(plan.split_shares)[:2]]
    argument = Argument("time", str(plan.time))
    if cuts[0] == 0 and (group is None or time.max() == time.min()):
        got = f"{time.max() - time.min() + 1} different times in {frame.height} rows"
        raise InputError(argument=argument, must="have enough distinct values for three parts", got=got)
    if group is not None and (cuts[0] == 0 or cuts[1] == cuts[0]):
        return _split_panel(series, time, group, plan)
    parts = _without_few(SplitRows(*np.split(order, cuts)))
    begin = series[int(order[cuts[1]])]
    if group is None:
        return RowSplit(parts, f"by time: the test rows begin at {plan.time} = {begin}")
    ends = begins[order][[len(parts.train), len(parts.train) + len(parts.validation)]]
    kept = SplitRows(
        parts.train[time[parts.train] < ends[0]], parts.validation[time[parts.validation] < ends[1]], parts.test
    )
    left_out = frame.height - sum(map(len, kept))
    how = (
        f"by time: the test rows belong to groups ({describe_groups(plan.group)}) that begin at {plan.time} = {begin} "
        f"or later; {plural(left_out, 'later row')} of other groups {'is' if left_out == 1 else 'are'} left out"
    )
    return RowSplit(kept, how, describe_scores(plan.group, "new groups that begin later"))


def _split_panel(series: pl.Series, time: np.ndarray, group: np.ndarray, plan: FitConfig) -> RowSplit:
    """Split rows of groups that begin together: the test rows are the last rows of groups that are drawn at random.

    Training and validation rows are the earlier rows of other groups. Later rows of these, and earlier rows of the test
    groups, are left out. `time` has the rank of each row's time.
    """
    height, share = len(time), plan.split_shares[2]
    order = np.argsort(time, kind="stable")
    firsts = 1 + np.flatnonzero(np.diff(time[order]) > 0)
    first_test_row = order[firsts[np.abs(firsts - (1.0 - share) * height).argmin()]]
    is_later = time >= time[first_test_row]
    train, validation, test = split_at_random(height, plan.split_shares, plan.seed, group)
    parts = SplitRows(train[~is_later[train]], validation[~is_later[validation]], test[is_later[test]])
    for part, rows in zip(("training", "test"), (parts.train, parts.test), strict=True):
        if not len(rows):
            must, got = f"leave {part} rows with `group`", f"none {'before' if part == 'training' else 'from'} the cut"
            remedy = "Use `time` alone to test on later rows of known groups, or `group` alone to test on new groups."
            raise InputError(argument=Argument("time", str(plan.time)), must=must, got=got, remedy=remedy)
    parts = _without_few(parts)
    n_groups, n_test_groups = len(np.unique(group)), len(np.unique(group[parts.test]))
    how = (
        f"by time and groups: the test rows are those from {plan.time} = {series[int(first_test_row)]} on of "
        f"{n_test_groups:,} of {n_groups:,} groups, drawn at random by seed {plan.seed}; "
        f"{height - sum(map(len, parts)):,} later rows of other groups and earlier rows of these are left out"
    )
    return RowSplit(parts, how, describe_scores(plan.group, "later rows of new groups"))


def read_times(frame: pl.DataFrame, name: str, labels: np.ndarray, of_text: bool = False) -> pl.Series:
    """Return the column of times; raise an `InputError` if a time is missing or is text (allowed with `of_text`)."""
    series = frame[check_column(name, frame.columns, "time", InputError)]
    is_text = of_text and series.dtype == pl.String
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
