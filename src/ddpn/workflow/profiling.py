"""Profile a table before fitting: what each column is, and which are useless."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_column
from ddpn.tables.cells import MISSING, cleaned, is_text
from ddpn.tables.dates import DAY, HOUR, MONTH, WEEKDAY
from ddpn.tables.detection import detect
from ddpn.tables.numbers import PLAIN, find_number_format
from ddpn.tables.roles import Roles, TableColumn
from ddpn.tables.row_groups import is_by_inputs
from ddpn.workflow.plan import Plan

#: A categorical column with so large a share of distinct values identifies rows; in fewer rows that may be chance.
_ID_SHARE, _ID_ROWS = 0.9, 20
#: Row numbers with gaps: rows at least, the mean step at most, the first number in mean steps at most, and the least
#: correlation with the position (of a random choice of 50 rows it is about 0.98).
_GAP_ROWS, _GAP, _BEGIN, _STRAIGHT = 50, 50.0, 10.0, 0.95
_TIME_NAMES = re.compile(
    r"(^|[^a-z])(t|times?|days?|dates?|weeks?|months?|quarters?|years?|hours?|minutes?|seconds?|periods?)([^a-z]|$)"
)


def check_columns(columns: Sequence[str], plan: Plan) -> None:
    """Raise an `InputError` for a column that the plan names and a table does not have."""
    roles = ("target", "exposure", "weight", "upper_column", "censored", "split_column", "time", "interval_groups")
    given = {role: getattr(plan, role) for role in roles}
    named = [(role, name) for role, name in given.items() if isinstance(name, str)]
    named += [(role, name) for role in ("drop", "use", "category") for name in getattr(plan, role)]
    if not is_by_inputs(plan.group, columns):
        named += [("group", name) for name in plan.group]
    for role, name in named:
        check_column(name, columns, role, InputError)


def roles_of(frame: Any, plan: Plan) -> Roles:
    """What each column is for; `drop` and `use` override what is found."""
    check_columns(frame.columns, plan)
    missing = (*MISSING, *(word for word in plan.missing if word not in MISSING))
    special = {plan.target, plan.exposure, plan.weight, plan.censored, plan.split_column}
    columns = tuple(_column(frame[name], plan, missing) for name in frame.columns if name not in special)
    formats = {
        name: find_number_format(cleaned(frame[name], missing)) or PLAIN
        for name in (plan.target, plan.exposure, plan.weight, plan.upper_column)
        if name is not None and is_text(frame[name])
    }
    groups = plan.interval_groups if isinstance(plan.interval_groups, str) else None
    known = groups, plan.upper_column, plan.censored, plan.group
    roles = Roles(plan.target, plan.exposure, plan.weight, columns, missing, formats, *known)
    if not roles.used:
        why = "; ".join(f"{c.name}: {c.left_out}" for c in columns[:5]) or "there are no others"
        raise InputError(f"No column is left to predict from ({why}). Keep some with `use`.")
    return roles


def _column(series: Any, plan: Plan, missing: tuple[str, ...]) -> TableColumn:
    if series.name in plan.drop or series.null_count() == len(series):
        why = "dropped as asked" if series.name in plan.drop else "no values"
        return TableColumn(
            series.name, detect(series, missing, False).kind or "unsupported", series.null_count(), left_out=why
        )
    found = detect(series, missing, series.name in plan.category)
    if not found.kind:
        return TableColumn(
            series.name, str(series.dtype), series.null_count(), left_out=f"unsupported type {series.dtype}"
        )
    column = TableColumn(series.name, found.kind, number=found.number, date=found.date, level_kind=found.level_kind)
    values, odd, _ = column.converted(series, missing)
    notes = found.notes
    if len(odd) and not is_text(series):
        notes = (f"Column {series.name}: {len(odd):,} infinite values are treated as missing.",)
    known = values.drop_nulls() if values.null_count() else values
    distinct = known.n_unique()
    why = _why_useless(values, column, distinct, plan)
    if series.name in plan.use and distinct:
        why = ""
    return replace(
        column,
        number=replace(column.number, integers=column.kind == "number" and _are_whole(known.to_numpy())),
        notes=notes,
        missing=len(values) - len(known),
        distinct=distinct,
        left_out=why,
        parts=_parts(known, series.name == plan.time and series.name not in plan.use) if column.kind == "date" else (),
    )


def _are_whole(values: np.ndarray) -> bool:
    return bool(len(values)) and bool((values == np.floor(values)).all())


def _parts(times: Any, is_time: bool) -> tuple[str, ...]:
    """What a date becomes: later days have to be extrapolated, months and weekdays come again."""
    has_hours = times.dt.hour().n_unique() > 1
    return (*(() if is_time else (DAY,)), MONTH, WEEKDAY, *([HOUR] if has_hours else []))


def _why_useless(values: Any, column: TableColumn, distinct: int, plan: Plan) -> str:
    present = len(values) - values.null_count()
    if distinct == 0:
        return "no values"
    if distinct == 1 and present == len(values):
        return "the same value in every row"
    if column.name in plan.group:
        return f"it keeps rows together, and a model would memorise it; --use {column.name} keeps it as an input"
    if column.name == plan.time and column.kind != "date":
        return "used for the split by time"
    if column.kind == "category" and present >= _ID_ROWS and distinct > _ID_SHARE * present:
        return f"nearly every value is different ({distinct:,} of {present:,}), like names or ids"
    if column.kind == "number" and distinct == len(values) and _are_whole(values.to_numpy()):
        return _row_numbers(values.to_numpy(), column.name)
    return ""


def _row_numbers(numbers: np.ndarray, name: str) -> str:
    """Words about distinct integers that number the rows: 1, 2, 3, ... in any order, or some of these in their order.

    Rows that are left of a larger table have steps of 1 at least a quarter as often as a random choice of rows, along a
    straight line from near 0. Years, dates, doses and quantities that a table is sorted by are not like that. A period
    of time may matter, so it is recognised by its name.
    """
    rows = len(numbers)
    if rows >= _ID_ROWS and np.ptp(numbers) == rows - 1:
        return "row numbers"
    steps = np.diff(numbers)
    if rows < _GAP_ROWS or steps.min() < 1 or _TIME_NAMES.search(name.lower()):
        return ""
    step = float(steps.mean())
    is_dense = step <= _GAP and numbers[0] <= _BEGIN * step and 4.0 * (steps == 1).mean() * step >= 1.0
    is_straight = np.corrcoef(numbers, np.arange(rows))[0, 1] >= _STRAIGHT
    return "they increase from row to row, with gaps, like row numbers" if is_dense and is_straight else ""
