"""Profile a table before fitting: what each column is, which are useless, and which leak the target."""

from typing import Any

import numpy as np

from ddpn.errors import InputError
from ddpn.validation import check_column, listed
from ddpn.workflow.plan import Plan
from ddpn.workflow.reading import polars
from ddpn.workflow.roles import DAY, HOUR, MONTH, WEEKDAY, Column, Roles

#: A categorical column with so large a share of distinct values identifies rows; in fewer rows that may be chance.
_ID_SHARE, _ID_ROWS = 0.9, 20
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
    special = {plan.target, plan.exposure, plan.weight, plan.split_column}
    columns = tuple(_column(frame[name], plan) for name in frame.columns if name not in special)
    roles = Roles(plan.target, plan.exposure, plan.weight, columns)
    if not roles.used:
        why = "; ".join(f"{c.name}: {c.left_out}" for c in columns[:5]) or "there are no others"
        raise InputError(f"No column is left to predict from ({why}). Keep some with --use.")
    return roles


def _column(series: Any, plan: Plan) -> Column:
    kind, parts = _kind(series, plan)
    missing, distinct = _missing(series), series.drop_nulls().n_unique()
    why = _why_useless(series, kind, distinct, plan)
    if series.name in plan.use:
        why = "" if kind else why
    if series.name in plan.drop:
        why = "dropped as asked"
    return Column(series.name, kind or str(series.dtype), missing, distinct, parts, why)


def _kind(series: Any, plan: Plan) -> tuple[str, tuple[str, ...]]:
    """The kind as the model sees it ("" if unsupported), and what a date becomes."""
    library, dtype = polars(), series.dtype
    if dtype in (library.Date, library.Datetime):
        # Beyond all training rows a day has to be extrapolated; months and weekdays come again.
        day = () if series.name == plan.time else (DAY,)
        has_hours = dtype == library.Datetime and series.dt.hour().n_unique() > 1
        return "date", (*day, MONTH, WEEKDAY, *([HOUR] if has_hours else []))
    if series.name in plan.category or dtype in (library.String, library.Categorical, library.Enum):
        return "category", ()
    if dtype == library.Boolean:
        return "boolean", ()
    return ("number", ()) if dtype.is_numeric() else ("", ())


def _missing(series: Any) -> int:
    nans = int(series.is_nan().fill_null(False).sum()) if series.dtype.is_float() else 0
    return int(series.null_count()) + nans


def _why_useless(series: Any, kind: str, distinct: int, plan: Plan) -> str:
    if distinct == 0:
        return "no values"
    if distinct == 1 and series.null_count() == 0:
        return "the same value in every row"
    if not kind:
        return f"unsupported type {series.dtype}"
    if series.name == plan.time and kind != "date":
        return "used for the split by time"
    present = len(series) - series.null_count()
    if kind == "category" and present >= _ID_ROWS and distinct > _ID_SHARE * present:
        return f"nearly every value is different ({distinct:,} of {present:,}), like names or ids"
    if series.dtype.is_integer() and kind == "number" and _counts_rows(series):
        return "row numbers"
    return ""


def _counts_rows(series: Any) -> bool:
    """Whether it is 1, 2, 3, ... in any order, without gaps."""
    rows = len(series)
    if rows < _ID_ROWS or series.null_count() or series.max() - series.min() != rows - 1:
        return False
    return series.n_unique() == rows


def leak_warnings(X: Any, y: np.ndarray) -> list[str]:
    """Warnings about columns that determine the target: they are unknown when a prediction is needed."""
    library = polars()
    numbers = {
        name: np.nan_to_num(X[name].cast(library.Float64).to_numpy().astype(np.float64), nan=0.0)
        for name in X.columns
        if X[name].dtype.is_numeric()
    }
    centred = {name: _unit(values) for name, values in numbers.items()}
    goal = _unit(y)
    remedy = "If it is known only after the count, leave it out with --drop"
    found = {name: float(values @ goal) for name, values in centred.items()}
    found_leaks = [
        f"Column {name} nearly determines the target (correlation {r:.2f}). {remedy} {name}."
        for name, r in found.items()
        if abs(r) > LEAK
    ]
    together = _together(centred, goal)
    if len(together) > 1:
        names = ",".join(together)
        found_leaks.append(
            f"Columns {listed(together)} together determine the target: a weighted sum of them equals it. "
            f"If they are known only after the count, leave them out with --drop {names}."
        )
    return found_leaks


def _together(centred: dict[str, np.ndarray], goal: np.ndarray) -> list[str]:
    """A few columns whose weighted sum is the target, found greedily; empty if there are none."""
    chosen: list[str] = []
    rest = goal
    for _ in range(min(_LEAK_COLUMNS, len(centred)) if goal.any() else 0):
        chosen.append(max((name for name in centred if name not in chosen), key=lambda n: abs(centred[n] @ rest)))
        basis = np.column_stack([centred[name] for name in chosen])
        rest = goal - basis @ np.linalg.lstsq(basis, goal, rcond=None)[0]
        if 1.0 - rest @ rest > _LEAK_TOGETHER:
            return chosen
    return []


def _unit(values: np.ndarray) -> np.ndarray:
    """Centred, of length 1 (or 0)."""
    moved = values - values.mean()
    length = np.linalg.norm(moved)
    return moved / length if length > 0 else moved
