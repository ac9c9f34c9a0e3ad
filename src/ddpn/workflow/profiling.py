"""Profile a table before fitting: what each column is, and which are useless."""

from typing import Any

from ddpn.errors import InputError
from ddpn.validation import check_column
from ddpn.workflow.plan import Plan
from ddpn.workflow.reading import polars
from ddpn.workflow.roles import DAY, HOUR, MONTH, WEEKDAY, Column, Roles

#: A categorical column with so large a share of distinct values identifies rows; in fewer rows that may be chance.
_ID_SHARE, _ID_ROWS = 0.9, 20


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
