"""Training, validation and test rows: at random by a seed, by a column, or by time."""

from typing import Any, NamedTuple

import numpy as np

from ddpn.errors import InputError
from ddpn.sample import labels_at
from ddpn.validation import check_column, listed
from ddpn.workflow.cells import polars
from ddpn.workflow.plan import Plan

#: With fewer rows a test says nothing.
MIN_ROWS = 20
#: As in CountRegressor: with fewer rows none are kept for validation.
MIN_VALIDATED = 200
#: Words of a split column, by part.
PARTS = {
    "train": ("train", "training", "fit"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "holdout"),
}


class Parts(NamedTuple):
    """Positions of the training, validation and test rows."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


class Split(NamedTuple):
    """The rows of each part, and in words how they were chosen."""

    rows: Parts
    how: str


def split_rows(frame: Any, plan: Plan, labels: np.ndarray | None = None) -> Split:
    """The parts that the plan asks for. With few rows none are kept for validation.

    `labels` are what messages call the rows, by default their numbers from 1.
    """
    labels = np.arange(1, frame.height + 1) if labels is None else labels
    if frame.height < MIN_ROWS:
        raise InputError(f"The table must have at least {MIN_ROWS} rows, got {frame.height}.")
    if plan.split_column is not None:
        return _by_column(frame, plan, labels)
    if plan.time is not None:
        return _by_time(frame, plan, labels)
    parts = _without_few(_shuffled(frame.height, plan.seed, plan.shares))
    return Split(parts, f"at random by seed {plan.seed}")


def _shuffled(rows: int, seed: int, shares: tuple[float, ...]) -> Parts:
    cuts = np.rint(rows * np.cumsum(shares)[:2]).astype(int)
    return Parts(*np.split(np.random.default_rng(seed).permutation(rows), cuts))


def _without_few(parts: Parts) -> Parts:
    if len(parts.train) + len(parts.validation) >= MIN_VALIDATED:
        return parts
    rows = np.sort(np.concatenate([parts.train, parts.validation]))
    return Parts(rows, rows[:0], parts.test)


def _by_column(frame: Any, plan: Plan, labels: np.ndarray) -> Split:
    name = check_column(str(plan.split_column), frame.columns, "split_column", InputError)
    words = [str(word).strip().lower() for word in frame[name].to_list()]
    part_of = {word: part for part, spellings in PARTS.items() for word in spellings}
    unknown = np.array([word not in part_of for word in words])
    if unknown.any():
        first = frame[name].filter(unknown)[0]
        what = "an empty cell" if first is None or not str(first).strip() else repr(first)
        got = f"got {what} {labels_at(unknown, labels)}"
        raise InputError(f"split_column {name!r} must hold train, validation or test in every row, {got}.")
    found = np.array([part_of[word] for word in words])
    parts = Parts(*(np.flatnonzero(found == part) for part in PARTS))
    if not (len(parts.train) and len(parts.test)):
        got = listed(sorted(set(found.tolist())))
        raise InputError(f"split_column {name!r} must mark both train and test rows, got {got} only.")
    if not len(parts.validation) and len(parts.train) >= MIN_VALIDATED:
        shares = np.array([*plan.shares[:2], 0.0]) / sum(plan.shares[:2])
        rows = _shuffled(len(parts.train), plan.seed, tuple(shares))
        parts = Parts(parts.train[rows.train], parts.train[rows.validation], parts.test)
    return Split(parts, f"by column {name}")


def _by_time(frame: Any, plan: Plan, labels: np.ndarray) -> Split:
    """The last rows are the test rows, those before them validation rows; rows of one time stay together."""
    series = _times(frame, str(plan.time), labels)
    order = series.arg_sort().to_numpy()
    times = series.gather(order)
    starts = np.flatnonzero(np.r_[True, (times != times.shift(1)).fill_null(True).to_numpy()[1:]])
    cuts = [_cut(starts, frame.height * share) for share in np.cumsum(plan.shares)[:2]]
    if cuts[0] in (0, frame.height) or cuts[1] == frame.height:
        got = f"got {len(starts)} different times in {frame.height} rows"
        raise InputError(f"time {plan.time!r} must have enough distinct values for three parts, {got}.")
    parts = _without_few(Parts(*np.split(order.astype(np.int64), cuts)))
    return Split(parts, f"by time: the test rows are those from {plan.time} = {times[cuts[1]]} on")


def _cut(starts: np.ndarray, wanted: float) -> int:
    """The start of a time that is nearest to the wanted row."""
    return int(starts[np.abs(starts - wanted).argmin()])


def _times(frame: Any, name: str, labels: np.ndarray) -> Any:
    series = frame[check_column(name, frame.columns, "time", InputError)]
    if not (series.dtype.is_temporal() or series.dtype.is_numeric()):
        known = series.drop_nulls()
        kind = {polars().Boolean: "booleans", polars().String: "text"}.get(series.dtype, "values")
        got = f"got {kind} such as {known[0]!r}" if known.len() else "got no value"
        raise InputError(f"time {name!r} must hold numbers or dates such as 2024-12-31, {got}.")
    missing = (series.fill_nan(None) if series.dtype.is_float() else series).is_null()
    if missing.any():
        where = labels_at(missing.to_numpy(), labels)
        raise InputError(f"time {name!r} is missing {where}. Fill or drop these rows.")
    return series
