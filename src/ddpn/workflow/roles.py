"""What every column of a table is for, and how its values reach the model: decided once, kept with the model."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ddpn.errors import InputError
from ddpn.sample import Sample, check_counts, check_vector, labels_at
from ddpn.validation import check_column, listed
from ddpn.workflow.reading import polars

#: What a date becomes; the day itself only where later dates are not asked for.
DAY, MONTH, WEEKDAY, HOUR = "day", "month", "weekday", "hour"


@dataclass(frozen=True)
class Column:
    """A column of the table: its kind as the model sees it, and what was found about it.

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
    """Which column is what; a model that was saved in Python does not know its target."""

    target: str | None
    exposure: str | None
    weight: str | None
    columns: tuple[Column, ...]

    @property
    def used(self) -> list[Column]:
        return [column for column in self.columns if not column.left_out]

    @property
    def as_text(self) -> list[str]:
        """Categorical columns, whose digits are kept as they are written: 007 is not 7."""
        return [column.name for column in self.used if column.kind == "category"]

    @property
    def identifier(self) -> str | None:
        """A column that identifies rows, for reports: one that is left out as ids or row numbers, or is named so."""
        found = [column.name for column in self.columns if column.left_out.endswith(("ids", "row numbers"))]
        named = [column.name for column in self.columns if column.name.lower() == "id"]
        return next(iter([*named, *found]), None)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "Roles":
        columns = (Column(**{**column, "parts": tuple(column["parts"])}) for column in plain["columns"])
        return cls(plain["target"], plain["exposure"], plain["weight"], tuple(columns))

    # Reading a table by them -------------------------------------------------------------------------------------

    def features(self, frame: Any) -> Any:
        """The columns that the model sees, each of the kind it had in fit; others are ignored."""
        for column in self.used:
            check_column(column.name, frame.columns, "needed by the model", InputError)
        return polars().DataFrame([series for column in self.used for series in _series(frame, column)])

    def sample(self, frame: Any, fractional: str = "error") -> Sample:
        """Features, counts, weights and exposures of a table that has the target; labels are the file's rows from 1.

        A table without the weight column counts every row once.
        """
        if self.target is None:
            raise InputError("The model was saved in Python and does not know its target. Name it with --target.")
        labels = np.arange(1, frame.height + 1)
        check_column(self.target, frame.columns, "target", InputError)
        y = _numbers(frame, self.target, "target")
        missing = np.isnan(y)
        if missing.any():
            raise InputError(
                f"target {self.target!r} is missing {labels_at(missing, labels)}. Fill or drop these rows."
            )
        return Sample(
            self.features(frame),
            check_counts(y, frame.height, fractional, f"target {self.target!r}", labels),
            self._vector(frame, "weight", labels) if self.weight in frame.columns else None,
            self.exposures(frame),
            labels,
        )

    def exposures(self, frame: Any) -> np.ndarray | None:
        """The column of exposures; None where the model has none."""
        return None if self.exposure is None else self._vector(frame, "exposure", np.arange(1, frame.height + 1))

    def _vector(self, frame: Any, role: str, labels: np.ndarray) -> np.ndarray | None:
        name = check_column(getattr(self, role), frame.columns, role, InputError)
        values = _numbers(frame, name, role)
        return check_vector(f"{role} {name!r}", values, frame.height, zero=role == "weight", labels=labels)


def _numbers(frame: Any, name: str, role: str) -> np.ndarray:
    library, series = polars(), frame[name]
    if not (series.dtype.is_numeric() or series.dtype == library.Boolean):
        cast = series.cast(library.Float64, strict=False) if series.dtype == library.String else None
        if cast is None:
            raise InputError(f"{role} {name!r} must hold numbers, got {series.dtype}.")
        if cast.null_count() > series.null_count():
            bad = (cast.is_null() & series.is_not_null()).to_numpy()
            where = labels_at(bad, np.arange(1, frame.height + 1))
            raise InputError(f"{role} {name!r} must hold numbers, got {series.filter(bad)[0]!r} {where}.")
        series = cast
    return series.cast(library.Float64).to_numpy().astype(np.float64)


def _series(frame: Any, column: Column) -> Sequence[Any]:
    library, series = polars(), frame[column.name]
    if column.kind == "category":
        return [series.cast(library.String)]
    if column.kind == "date":
        return date_parts(series, column)
    if column.kind == "number":
        series = library.Series(column.name, _numbers(frame, column.name, "column"))
        _check_rows(series, series.is_infinite(), "finite numbers or missing values")
    elif series.dtype.is_numeric():
        _check_rows(series, ~series.cast(library.Float64).fill_nan(None).is_in([0.0, 1.0]), "booleans as in fit")
    return [series]


def _check_rows(series: Any, bad: Any, what: str) -> None:
    """Raise an `InputError` where values of a column are bad, by the file's rows from 1."""
    wrong = bad.fill_null(False).to_numpy()
    if wrong.any():
        where = labels_at(wrong, np.arange(1, len(series) + 1))
        raise InputError(f"column {series.name!r} must hold {what}, got {series.filter(wrong)[0]:g} {where}.")


def date_parts(series: Any, column: Column) -> list[Any]:
    """Numbers from a date: the day (since 1970), the month, the weekday (1 is Monday), the hour."""
    library = polars()
    if series.dtype == library.String:
        try:
            series = series.str.to_datetime()
        except library.exceptions.PolarsError:
            bad = listed([repr(value) for value in series.drop_nulls()[:1]])
            raise InputError(f"column {column.name!r} must hold dates such as 2024-12-31, got {bad}.") from None
    if series.null_count() == len(series):
        return [library.Series(name, [None] * len(series), dtype=library.Float64) for name in column.inputs]
    if not series.dtype.is_temporal():
        raise InputError(f"column {column.name!r} must hold dates such as 2024-12-31, got {series.dtype}.")
    times = series.cast(library.Datetime("us"))
    found = {
        DAY: lambda: times.dt.epoch("us") / 86_400e6,
        MONTH: times.dt.month,
        WEEKDAY: times.dt.weekday,
        HOUR: lambda: times.dt.hour() + times.dt.minute() / 60,
    }
    names = zip(column.parts, column.inputs, strict=True)
    return [found[part]().cast(library.Float64).alias(name) for part, name in names]
