"""Training, validation and test rows: at random by a seed, by a column, or by time."""

from typing import Any, NamedTuple

import numpy as np

from ddpn.datasets.split import Split
from ddpn.errors import InputError
from ddpn.workflow.naming import listed, row_numbers
from ddpn.workflow.plan import Plan

#: Fewer rows have no test worth the name.
MIN_ROWS = 20
#: As CountRegressor has it: fewer rows are needed for fitting, and would judge too noisily.
MIN_VALIDATED = 200
_PARTS = {
    "train": ("train", "training", "fit"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "holdout"),
}


class Divided(NamedTuple):
    """The rows of each part, and in words how they were found."""

    rows: Split
    how: str


def divide(frame: Any, plan: Plan) -> Divided:
    """The parts that the plan asks for. With few rows to fit, none are kept for validation."""
    if frame.height < MIN_ROWS:
        raise InputError(f"the table must have at least {MIN_ROWS} rows, got {frame.height}. Give more rows.")
    if plan.split_column is not None:
        return _by_column(frame, plan)
    if plan.time is not None:
        return _by_time(frame, plan)
    parts = _without_few(_shuffled(frame.height, plan.seed, plan.shares))
    return Divided(parts, f"at random by seed {plan.seed}")


def _shuffled(rows: int, seed: int, shares: tuple[float, ...]) -> Split:
    cuts = np.rint(rows * np.cumsum(shares)[:2]).astype(int)
    return Split(*np.split(np.random.default_rng(seed).permutation(rows), cuts))


def _without_few(parts: Split) -> Split:
    if len(parts.train) + len(parts.validation) >= MIN_VALIDATED:
        return parts
    rows = np.sort(np.concatenate([parts.train, parts.validation]))
    return Split(rows, rows[:0], parts.test)


def _by_column(frame: Any, plan: Plan) -> Divided:
    name = plan.split_column
    words = [str(word).strip().lower() for word in frame[name].to_list()]
    part_of = {word: part for part, spellings in _PARTS.items() for word in spellings}
    unknown = [row for row, word in enumerate(words) if word not in part_of]
    if unknown:
        got = f"got {frame[name][unknown[0]]!r} in {row_numbers(unknown)}"
        raise InputError(f"split_column {name!r} must hold train, validation and test, {got}. Rewrite these.")
    found = np.array([part_of[word] for word in words])
    parts = Split(*(np.flatnonzero(found == part) for part in _PARTS))
    if not (len(parts.train) and len(parts.test)):
        got = listed(sorted(set(found.tolist())))
        raise InputError(f"split_column {name!r} must hold train and test, got {got} only. Mark rows for each.")
    if not len(parts.validation) and len(parts.train) >= MIN_VALIDATED:
        shares = np.array([*plan.shares[:2], 0.0]) / sum(plan.shares[:2])
        rows = _shuffled(len(parts.train), plan.seed, tuple(shares))
        parts = Split(parts.train[rows.train], parts.train[rows.validation], parts.test)
    return Divided(parts, f"by column {name}")


def _by_time(frame: Any, plan: Plan) -> Divided:
    """The last rows are the test, those before them validate; rows of one time stay together."""
    series = _times(frame, str(plan.time))
    order = series.arg_sort().to_numpy()
    times = series.gather(order)
    starts = np.flatnonzero(np.r_[True, (times != times.shift(1)).fill_null(True).to_numpy()[1:]])
    cuts = [_cut(starts, frame.height * share) for share in np.cumsum(plan.shares)[:2]]
    if cuts[0] in (0, frame.height) or cuts[1] == frame.height:
        got = f"got {len(starts)} different times in {frame.height} rows"
        raise InputError(f"time {plan.time!r} must tell enough times apart for three parts, {got}. Use another.")
    parts = _without_few(Split(*np.split(order.astype(np.int64), cuts)))
    return Divided(parts, f"by time: the test rows are those from {plan.time} = {times[cuts[1]]} on")


def _cut(starts: np.ndarray, wanted: float) -> int:
    """The begin of a time that is nearest to the wanted row."""
    return int(starts[np.abs(starts - wanted).argmin()])


def _times(frame: Any, name: str) -> Any:
    series = frame[name]
    if not (series.dtype.is_temporal() or series.dtype.is_numeric()):
        got = f"got {series.dtype} such as {series.drop_nulls()[0]!r}" if series.drop_nulls().len() else "got no value"
        raise InputError(f"time {name!r} must hold dates or numbers, {got}. Write dates such as 2024-12-31.")
    missing = (series.fill_nan(None) if series.dtype.is_float() else series).is_null()
    rows = row_numbers(np.flatnonzero(missing.to_numpy()).tolist())
    if missing.any():
        raise InputError(f"time {name!r} must have a value in every row, got none in {rows}. Fill or drop these rows.")
    return series
