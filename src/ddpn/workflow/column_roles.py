"""Decide what each column of a table is used for, and which columns are useless. Imports no torch."""

from dataclasses import replace

import polars as pl

from ddpn.runtime.errors import InputError, format_argument
from ddpn.tables.cells import MISSING, clean_text, is_text
from ddpn.tables.checks import describe_identifier
from ddpn.tables.checks.findings import are_whole_numbers
from ddpn.tables.columns import Kind
from ddpn.tables.conversion import TableColumn
from ddpn.tables.dates import DAY, HOUR, MONTH, WEEKDAY
from ddpn.tables.kinds import detect_column
from ddpn.tables.numbers import PLAIN, find_number_format
from ddpn.tables.roles import Roles
from ddpn.workflow.config import FitConfig


def find_roles(frame: pl.DataFrame, plan: FitConfig) -> Roles:
    """Decide what each column is used for: as a feature, or in a role that the plan names, such as the target.

    Columns that look useless are left out. The plan's `use` keeps such columns, and `drop` leaves out others. If no
    column is left as a feature, an `InputError` is raised.
    """
    plan = plan.resolve_columns(frame.columns)
    missing = (*MISSING, *(word for word in plan.missing if word not in MISSING))
    special = {plan.target, plan.exposure, plan.weight, plan.censored, plan.split_column}
    columns = tuple(_profile_column(frame[name], plan, missing) for name in frame.columns if name not in special)
    formats = {
        name: find_number_format(clean_text(frame[name], missing)) or PLAIN
        for name in (plan.target, plan.exposure, plan.weight, plan.upper_column)
        if name is not None and is_text(frame[name])
    }
    options = plan.interval_groups, plan.upper_column, plan.censored, plan.group
    roles = Roles(plan.target, plan.exposure, plan.weight, columns, missing, formats, *options)
    if not roles.features:
        why = "; ".join(f"{c.name}: {c.left_out}" for c in columns[:5]) or "there are no others"
        raise InputError(f"No column is left to predict from ({why}). Keep some columns with `use`.")
    return roles


def _profile_column(series: pl.Series, plan: FitConfig, missing: tuple[str, ...]) -> TableColumn:
    column = detect_column(series, missing, series.name in plan.category and series.name not in plan.drop)
    if series.name in plan.drop or series.null_count() == len(series):
        why = "dropped as requested" if series.name in plan.drop else "no values"
        return TableColumn(series.name, column.kind, series.null_count(), left_out=why)
    if column.kind == Kind.UNSUPPORTED:
        return replace(column, missing=series.null_count(), left_out=f"unsupported type {series.dtype}")
    values, unreadable, _ = column.convert(series, missing)
    notes = column.notes
    if len(unreadable) and not is_text(series):
        notes = (f"Column {series.name}: {len(unreadable):,} infinite values are treated as missing.",)
    present = values.drop_nulls() if values.null_count() else values
    distinct = present.n_unique()
    why = _find_reason_to_leave_out(values, column, distinct, plan)
    if series.name in plan.use and distinct:
        why = ""
    parts: tuple[str, ...] = ()
    if column.kind == Kind.DATE:
        # Later days would have to be extrapolated; months and weekdays recur.
        is_time = series.name == plan.time and series.name not in plan.use
        has_hours = present.dt.hour().n_unique() > 1
        parts = (*(() if is_time else (DAY,)), MONTH, WEEKDAY, *([HOUR] if has_hours else []))
    return replace(
        column,
        number=replace(column.number, integers=column.kind == Kind.NUMBER and are_whole_numbers(present.to_numpy())),
        notes=notes,
        missing=len(values) - len(present),
        distinct=distinct,
        left_out=why,
        parts=parts,
    )


def _find_reason_to_leave_out(values: pl.Series, column: TableColumn, n_distinct: int, plan: FitConfig) -> str:
    """Return the reason to leave out a column that looks useless, such as "no values"; return "" if it looks useful.

    `values` are the converted cells, with null for missing ones. `n_distinct` is the number of distinct values without
    null.
    """
    present = len(values) - values.null_count()
    if n_distinct == 0:
        return "no values"
    if n_distinct == 1 and present == len(values):
        return "the same value in every row"
    if column.name in plan.group:
        option = format_argument("use", [column.name])
        return f"it defines groups of rows, and a model would memorise it; {option} keeps it as an input"
    if column.name == plan.time and column.kind != Kind.DATE:
        return "used for the split by time"
    if column.kind.is_category or column.kind == Kind.NUMBER:
        return describe_identifier(values, column.kind.is_category)
    return ""
