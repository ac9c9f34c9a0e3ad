"""What every column of a table is for, and how its values reach the model: decided once, kept with the model."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ddpn.errors import InputError
from ddpn.workflow.naming import check_column, nearest, row_numbers
from ddpn.workflow.reading import polars

#: What a date becomes, as expressions of polars; the day itself only where later dates are not asked for.
DAY, MONTH, WEEKDAY, HOUR = "day", "month", "weekday", "hour"


@dataclass(frozen=True)
class Column:
    """A column of the table: its kind as the model sees it, and what is told of it.

    `kind` is "number", "category", "boolean" or "date"; a date has `parts`. `left_out` says why a column is not used.
    """

    name: str
    kind: str
    missing: int = 0
    distinct: int = 0
    parts: tuple[str, ...] = ()
    left_out: str = ""

    @property
    def inputs(self) -> list[str]:
        """Columns that it becomes."""
        return [f"{self.name} {part}" for part in self.parts] if self.kind == "date" else [self.name]


@dataclass(frozen=True)
class Roles:
    """Which column is what."""

    target: str
    exposure: str | None
    weight: str | None
    columns: tuple[Column, ...]

    @property
    def used(self) -> list[Column]:
        return [column for column in self.columns if not column.left_out]

    @property
    def as_text(self) -> list[str]:
        """Columns whose digits are names: 007 is not 7."""
        return [column.name for column in self.used if column.kind == "category"]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "Roles":
        columns = (Column(**{**column, "parts": tuple(column["parts"])}) for column in plain["columns"])
        return cls(plain["target"], plain["exposure"], plain["weight"], tuple(columns))

    # Reading a table by them -------------------------------------------------------------------------------------

    def features(self, frame: Any) -> Any:
        """The columns that the model sees, each of the kind it had in fit; others are ignored."""
        missing = [column.name for column in self.used if column.name not in frame.columns]
        if missing:
            got = f"no {missing[0]!r}" + (f" and {len(missing) - 1} others" if len(missing) > 1 else "")
            raise InputError(f"the table must have the columns of fit, got {got}. {nearest(missing[0], frame.columns)}")
        return polars().DataFrame([series for column in self.used for series in _series(frame, column)])

    def counts(self, frame: Any, fractional: str = "error") -> np.ndarray:
        """The target, checked; `fractional="round"` takes the nearest count."""
        return target_counts(frame, self.target, fractional)

    def exposures(self, frame: Any) -> np.ndarray | None:
        return None if self.exposure is None else _positive(frame, self.exposure, "exposure", zero=False)

    def weights(self, frame: Any) -> np.ndarray | None:
        """Weights; rows of a table without that column count once."""
        if self.weight is None or self.weight not in frame.columns:
            return None
        return _positive(frame, self.weight, "weight", zero=True)


def target_counts(frame: Any, name: str, fractional: str = "error") -> np.ndarray:
    """A column of counts as float64, or a sentence that says which rows hold none."""
    check_column(name, frame.columns, "target")
    values = _numbers(frame, name, "target")
    _refuse(np.isnan(values), f"target {name!r} must have a count in every row, got none in", "Fill or drop these rows")
    _refuse(np.isinf(values), f"target {name!r} must be finite, got infinity in", "Mend or drop these rows")
    what = f"target {name!r} must hold counts 0, 1, 2, ..., got"
    _refuse(values < 0, f"{what} negative numbers in", "Recode or drop these rows")
    if fractional == "error":
        remedy = 'Recode them, or put fractional = "round" into a file for --config'
        _refuse(values != np.floor(values), f"{what} fractions in", remedy)
    return np.rint(values)


def _refuse(bad: np.ndarray, what: str, remedy: str) -> None:
    rows = np.flatnonzero(bad)
    if len(rows):
        raise InputError(f"{what} {row_numbers(rows.tolist())}. {remedy}.")


def _numbers(frame: Any, name: str, role: str) -> np.ndarray:
    library, series = polars(), frame[name]
    if not (series.dtype.is_numeric() or series.dtype == library.Boolean):
        cast = series.cast(library.Float64, strict=False) if series.dtype == library.String else None
        if cast is None or cast.null_count() > series.null_count():
            bad = [0] if cast is None else np.flatnonzero((cast.is_null() & series.is_not_null()).to_numpy()).tolist()
            got = f"{series[bad[0]]!r} in {row_numbers(bad)}"
            raise InputError(f"{role} {name!r} must hold numbers, got {got}. Mend them, or name another column.")
        series = cast
    return series.cast(library.Float64).to_numpy().astype(np.float64)


def _positive(frame: Any, name: str, role: str, zero: bool) -> np.ndarray:
    check_column(name, frame.columns, role)
    values = _numbers(frame, name, role)
    good = np.isfinite(values) & (values >= 0 if zero else values > 0)
    what = "be 0 or positive" if zero else "be positive"
    _refuse(~good, f"{role} {name!r} must {what} in every row, got other values in", "Mend or drop these rows")
    return values


def _series(frame: Any, column: Column) -> Sequence[Any]:
    library, series = polars(), frame[column.name]
    if column.kind == "category":
        return [series.cast(library.String)]
    if column.kind == "number":
        return [library.Series(column.name, _numbers(frame, column.name, "column"))]
    return date_parts(series, column) if column.kind == "date" else [series]


def date_parts(series: Any, column: Column) -> list[Any]:
    """Numbers from a date: the day (since 1970), the month, the weekday (1 is Monday), the hour."""
    library = polars()
    if series.dtype == library.String:
        try:
            series = series.str.to_datetime()
        except library.exceptions.PolarsError:
            got = "text that is none"
            raise InputError(
                f"column {column.name!r} must hold dates as in fit, got {got}. Write 2024-12-31."
            ) from None
    if series.null_count() == len(series):
        return [library.Series(name, [None] * len(series), dtype=library.Float64) for name in column.inputs]
    if not series.dtype.is_temporal():
        got = f"got {series.dtype}"
        raise InputError(f"column {column.name!r} must hold dates as in fit, {got}. Write dates such as 2024-12-31.")
    times = series.cast(library.Datetime("us"))
    found = {
        DAY: lambda: times.dt.epoch("us") / 86_400e6,
        MONTH: times.dt.month,
        WEEKDAY: times.dt.weekday,
        HOUR: lambda: times.dt.hour() + times.dt.minute() / 60,
    }
    return [
        found[part]().cast(library.Float64).alias(name) for part, name in zip(column.parts, column.inputs, strict=True)
    ]
