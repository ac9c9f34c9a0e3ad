"""Profile a table before fitting: what each column is, which are useless, and which leak the target."""

from dataclasses import replace
from typing import Any

import numpy as np

from ddpn.errors import InputError
from ddpn.validation import check_column, listed
from ddpn.workflow.cells import MISSING, cleaned, is_text, polars
from ddpn.workflow.dates import DAY, HOUR, MONTH, WEEKDAY
from ddpn.workflow.detection import detect
from ddpn.workflow.numbers import PLAIN, find_number_format
from ddpn.workflow.plan import Plan
from ddpn.workflow.roles import Column, Roles

#: A categorical column with so large a share of distinct values identifies rows; in fewer rows that may be chance.
_ID_SHARE, _ID_ROWS = 0.9, 20
#: Levels of a category that are kept with the model, to report new ones.
_LEVELS = 1000
#: A column above this correlation is suspected to leak the target; so many columns together above that R^2.
LEAK, _LEAK_TOGETHER, _LEAK_COLUMNS = 0.95, 0.999, 4


def roles_of(frame: Any, plan: Plan) -> Roles:
    """What each column is for; `drop` and `use` override what is found."""
    for role, names in (("drop", plan.drop), ("use", plan.use), ("category", plan.category)):
        for name in names:
            check_column(name, frame.columns, role, InputError)
    for role in ("target", "exposure", "weight", "split_column", "time"):
        name = getattr(plan, role)
        if name is not None:
            check_column(name, frame.columns, role, InputError)
    missing = (*MISSING, *(word for word in plan.missing if word not in MISSING))
    special = {plan.target, plan.exposure, plan.weight, plan.split_column}
    columns = tuple(_column(frame[name], plan, missing) for name in frame.columns if name not in special)
    formats = {
        name: find_number_format(cleaned(frame[name], missing)) or PLAIN
        for name in (plan.target, plan.exposure, plan.weight)
        if name is not None and is_text(frame[name])
    }
    roles = Roles(plan.target, plan.exposure, plan.weight, columns, missing, formats)
    if not roles.used:
        why = "; ".join(f"{c.name}: {c.left_out}" for c in columns[:5]) or "there are no others"
        raise InputError(f"No column is left to predict from ({why}). Keep some with --use.")
    return roles


def _column(series: Any, plan: Plan, missing: tuple[str, ...]) -> Column:
    if series.name in plan.drop or series.null_count() == len(series):
        why = "dropped as asked" if series.name in plan.drop else "no values"
        return Column(
            series.name, detect(series, missing, False).kind or "unsupported", series.null_count(), left_out=why
        )
    found = detect(series, missing, series.name in plan.category)
    if not found.kind:
        return Column(series.name, str(series.dtype), series.null_count(), left_out=f"unsupported type {series.dtype}")
    column = Column(series.name, found.kind, number=found.number, date=found.date, level_kind=found.level_kind)
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
        notes=notes,
        missing=len(values) - len(known),
        distinct=distinct,
        left_out=why,
        parts=_parts(known, series.name == plan.time) if column.kind == "date" else (),
        levels=_levels(known, distinct) if column.kind == "category" and not why else (),
    )


def _parts(times: Any, is_time: bool) -> tuple[str, ...]:
    """What a date becomes: later days have to be extrapolated, months and weekdays come again."""
    has_hours = times.dt.hour().n_unique() > 1
    return (*(() if is_time else (DAY,)), MONTH, WEEKDAY, *([HOUR] if has_hours else []))


def _levels(known: Any, distinct: int) -> tuple[str, ...]:
    return tuple(known.unique().sort().to_list()) if distinct <= _LEVELS else ()


def _why_useless(values: Any, column: Column, distinct: int, plan: Plan) -> str:
    present = len(values) - values.null_count()
    if distinct == 0:
        return "no values"
    if distinct == 1 and present == len(values):
        return "the same value in every row"
    if column.name == plan.time and column.kind != "date":
        return "used for the split by time"
    if column.kind == "category" and present >= _ID_ROWS and distinct > _ID_SHARE * present:
        return f"nearly every value is different ({distinct:,} of {present:,}), like names or ids"
    if column.kind == "number" and _counts_rows(values, distinct):
        return "row numbers"
    return ""


def _counts_rows(values: Any, distinct: int) -> bool:
    """Whether it is 1, 2, 3, ... in any order, without gaps."""
    rows = len(values)
    if rows < _ID_ROWS or distinct != rows or values.null_count():
        return False
    numbers = values.to_numpy()
    return bool(numbers.max() - numbers.min() == rows - 1 and (np.floor(numbers) == numbers).all())


def leak_warnings(X: Any, y: np.ndarray) -> list[str]:
    """Warnings about columns that determine the target: they are unknown when a prediction is needed."""
    library = polars()
    names = [name for name in X.columns if X[name].dtype.is_numeric()]
    numbers = X.select(library.col(names).cast(library.Float64)).to_numpy() if names else np.empty((len(y), 0))
    centred = _unit(np.nan_to_num(numbers, nan=0.0))
    goal = _unit(y)
    remedy = "If it is known only after the count, leave it out with --drop"
    found_leaks = [
        f"Column {name} nearly determines the target (correlation {r:.2f}). {remedy} {name}."
        for name, r in zip(names, (goal @ centred).tolist(), strict=True)
        if abs(r) > LEAK
    ]
    together = [names[j] for j in _together(centred, goal)]
    if len(together) > 1:
        joined = ",".join(together)
        found_leaks.append(
            f"Columns {listed(together)} together determine the target: a weighted sum of them equals it. "
            f"If they are known only after the count, leave them out with --drop {joined}."
        )
    return found_leaks


def _together(centred: np.ndarray, goal: np.ndarray) -> list[int]:
    """Positions of a few columns whose weighted sum is the target, found greedily; empty if there are none."""
    chosen: list[int] = []
    rest = goal
    for _ in range(min(_LEAK_COLUMNS, centred.shape[1]) if goal.any() else 0):
        fit = np.abs(rest @ centred)
        fit[chosen] = -1.0
        chosen.append(int(fit.argmax()))
        basis = centred[:, chosen]
        rest = goal - basis @ np.linalg.lstsq(basis, goal, rcond=None)[0]
        if 1.0 - rest @ rest > _LEAK_TOGETHER:
            return chosen
    return []


def _unit(values: np.ndarray) -> np.ndarray:
    """Each column centred and of length 1 (or 0)."""
    moved = values - values.mean(axis=0)
    length = np.linalg.norm(moved, axis=0)
    return moved / np.where(length > 0, length, 1.0)
