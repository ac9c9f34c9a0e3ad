"""The columns of requests: the types of their cells, and their conversion to columns of a table.

A request has rows, and a row has one cell per column. A level is a value of a categorical column.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
from pydantic import BeforeValidator, Field, create_model

from ddpn.calibration.columns import ColumnProfile
from ddpn.members.folds import collect_levels
from ddpn.predictor import Predictor
from ddpn.serving.schemas import Row, make_integer_type
from ddpn.storage.contents import JsonObject
from ddpn.tables.columns import Kind
from ddpn.tables.conversion import TableColumn
from ddpn.tables.dates import DAY
from ddpn.tables.levels import canonical_level, canonical_number
from ddpn.tables.roles import Roles
from ddpn.workflow.model_folder import ModelFolder

#: ISO 8601 as in JSON Schema's formats "date" and "date-time"; seconds and the time zone are optional.
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[Tt ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:[Zz]|[+-]\d{2}:\d{2})?)?")
_MAX_FLOAT = 1.7976931348623157e308
_Number = Annotated[float, Field(ge=-_MAX_FLOAT, le=_MAX_FLOAT, allow_inf_nan=False)]
_Whole = Annotated[int, Field(ge=-int(_MAX_FLOAT), le=int(_MAX_FLOAT))]
_Level = str | bool | _Whole | _Number | None
_MISSING = ", or null if it is missing"
_LEVEL = f"text (or a number, true or false){_MISSING}"
#: The most levels of a column that the description of a model lists, most frequent first.
_MAX_OFFERED_LEVELS = 200


@dataclass(frozen=True)
class ServedColumn:
    """A column of requests: the type of its cells, and a summary of the training rows.

    - `kind` is "number", "boolean", "date" or "category" for a feature. It is "exposure", "upper" (bound) or "group"
      (of intervals) for a column with this role, and "ignored" for a column that the model does not need.
    - `annotation` is the type by which pydantic validates cells, and `description` describes it in error messages.
    - `levels` are the levels of a category in the training rows.
    - `range` has the smallest and the largest number in the training rows, and `days` the first and the last date.
    - `example` is a typical cell.
    - `integers` is True if a column of numbers has only whole numbers.
    - `has_numbers` is True if the levels of a category are numbers, so that 7 and 7.0 are the same level.
    """

    name: str
    kind: str
    annotation: Any
    description: str
    levels: tuple[str, ...] = ()
    example: Any = None
    range: tuple[float, float] | None = None
    integers: bool = False
    days: tuple[str, str] | None = None
    has_numbers: bool = False

    @property
    def is_required(self) -> bool:
        return self.kind != "ignored"

    def as_dict(self) -> JsonObject:
        """Return the description of the column for clients and the web page, ready for JSON."""
        facts = {name: getattr(self, name) for name in ("levels", "range", "days", "integers")}
        about = {"name": self.name, "kind": self.kind, "typical": self.example}
        return about | {name: value for name, value in facts.items() if value}

    def to_series(self, cells: Sequence[object]) -> pl.Series:
        """Convert validated cells to a polars column, as if they had been read from a file."""
        if self.kind in ("category", "group"):
            # Group names and numeric levels represent booleans as 1 and 0.
            format_name = canonical_number if self.kind == "group" or self.has_numbers else canonical_level
            names = [None if cell is None else format_name(cell) for cell in cells]
            # JSON can hold characters that UTF-8 cannot encode.
            readable = [None if name is None else name.encode(errors="replace").decode() for name in names]
            return pl.Series(self.name, readable, pl.String)
        kinds: dict[str, pl.DataType | type[pl.DataType]] = {"boolean": pl.Boolean, "date": pl.Datetime("us")}
        return pl.Series(self.name, cells, kinds.get(self.kind, pl.Float64), strict=False)


def list_columns(folder: ModelFolder) -> list[ServedColumn]:
    """List the columns that requests to a model may have.

    The columns that the model needs come first. Other columns of the training table may be sent, but are ignored.
    """
    roles, predictor = folder.roles, folder.model.predictor_
    levels = collect_levels(predictor.active_members.values())
    profile = predictor.calibration.profile
    profiles = {} if profile is None else dict(zip(profile.names, profile.columns, strict=True))
    columns = [_make_feature_column(column, levels, profiles) for column in roles.features]
    columns += _list_role_columns(roles, predictor)
    names = {column.name for column in columns}
    unused = [column.name for column in roles.columns] + [roles.target, roles.weight, roles.censored]
    ignored = dict.fromkeys(name for name in unused if name is not None and name not in names)
    return columns + [ServedColumn(name, "ignored", Any, "anything (it is ignored)") for name in ignored]


def _make_feature_column(
    column: TableColumn, levels: Mapping[str, tuple[str, ...]], profiles: Mapping[str, ColumnProfile]
) -> ServedColumn:
    name, about = column.name, JsonObject()
    if column.kind == Kind.NUMBER:
        about = _describe_numbers(profiles.get(name), column.number.integers)
        return ServedColumn(name, "number", _Number | None, f"a finite number{_MISSING}", **about)
    if column.kind == Kind.DATE:
        words = f"a date such as 2024-12-31 or 2024-12-31T18:30:00{_MISSING}"
        about = _describe_days(next((profiles.get(part) for part in column.inputs if part.endswith(f" {DAY}")), None))
        return ServedColumn(name, "date", _make_date_type(column.date.zone), words, **about)
    if column.kind in (Kind.BOOLEAN, Kind.BOOLEAN_CATEGORY):  # with the levels true and false
        return ServedColumn(name, "boolean", bool | None, f"true or false{_MISSING}", example=False)
    about = _describe_levels(levels.get(name, ())) | {"has_numbers": column.kind == Kind.NUMBER_CATEGORY}
    return ServedColumn(name, "category", _Level, _LEVEL, **about)


def _describe_levels(levels: Sequence[str]) -> JsonObject:
    return {"levels": tuple(levels[:_MAX_OFFERED_LEVELS]), "example": next(iter(levels), None)}


def _list_role_columns(roles: Roles, predictor: Predictor) -> list[ServedColumn]:
    """Return the columns of the exposure, the upper bound and the interval group, if the model has them."""
    columns, about = [], JsonObject()
    if roles.exposure is not None:
        kind = Annotated[float, Field(gt=0.0, le=_MAX_FLOAT, allow_inf_nan=False)]
        about = {"example": 1.0}
        if "exposure" in predictor.scales:
            low, median, high = predictor.scales["exposure"]
            about = {"example": median, "range": (low, high)}
        columns.append(ServedColumn(roles.exposure, "exposure", kind, "a number above 0", **about))
    if roles.upper is not None:
        lowest = max(predictor.counts.lower, int(predictor.counts.upper_is_total))
        kind, description = make_integer_type(lowest, int(_MAX_FLOAT)), f"an integer of at least {lowest}"
        about = {"example": max(lowest, 1)}
        if "upper" in predictor.scales:
            low, median, high = map(int, predictor.scales["upper"])
            about = {"example": median, "range": (low, high), "integers": True}
        columns.append(ServedColumn(roles.upper, "upper", kind, description, **about))
    if roles.interval_groups is not None:
        names = _describe_levels(() if predictor.calibration.groups is None else predictor.calibration.groups.names)
        columns.append(ServedColumn(roles.interval_groups, "group", _Level, _LEVEL, **names))
    return columns


def make_row_model(name: str, columns: Iterable[ServedColumn]) -> type[Row]:
    """Create the pydantic model of a row, for requests to the served model `name`.

    Its fields are called c0, c1, ..., with the column names as aliases. A column that is both a feature and the
    exposure or upper bound is validated as the exposure or upper bound. A column that is both a feature and the
    interval group is validated as a feature.
    """
    by_name: dict[str, ServedColumn] = {}
    for column in columns:
        if column.kind != "group" or column.name not in by_name:
            by_name[column.name] = column
    fields: JsonObject = {}
    for number, column in enumerate(by_name.values()):
        default = ... if column.is_required else None
        field = Field(default, alias=column.name, description=column.description)
        fields[f"c{number}"] = (column.annotation, field)
    return create_model(f"Row_{name}", __base__=Row, **fields)


def _make_date_type(zone_name: str) -> Any:
    """Return a pydantic type for dates and times. If `zone_name` is not "", times are converted to this time zone."""
    zone = ZoneInfo(zone_name) if zone_name else None

    def read(cell: object) -> datetime | None:
        if cell is None:
            return None
        if not isinstance(cell, str) or _ISO.fullmatch(cell) is None:
            raise ValueError("no date")
        moment = datetime.fromisoformat(cell.upper())
        try:
            return (moment if zone is None or moment.tzinfo is None else moment.astimezone(zone)).replace(tzinfo=None)
        except OverflowError:
            raise ValueError("no date of the calendar") from None

    return Annotated[datetime | date | None, BeforeValidator(read)]


# Descriptions of the training rows --------------------------------------------------------------------------------


def _describe_numbers(profile: ColumnProfile | None, integers: bool) -> JsonObject:
    """Return the range and a typical value of a column of numbers, as keyword arguments of `ServedColumn`.

    The typical value is the median of the training rows, or the nearest value that occurs in them. If there is no
    `profile` of the training rows, the typical value is 1, and there is no range.
    """
    if profile is None or not len(profile.edges):
        return {"example": 1.0}
    typical = float(np.interp(0.0, profile.normal, profile.edges))
    example = float(round(typical) if integers else f"{typical:.4g}")
    if len(profile.keys):
        values = profile.keys.view(np.float64)
        example = float(values[np.abs(values - typical).argmin()])
    return {"example": example, "range": (float(profile.edges[0]), float(profile.edges[-1])), "integers": integers}


def _describe_days(profile: ColumnProfile | None) -> JsonObject:
    """Return the first, the last and a typical day of a column of dates, as keyword arguments of `ServedColumn`.

    If there is no `profile` of the training rows, only a fixed typical day is returned.
    """
    if profile is None or not len(profile.edges):
        return {"example": "2024-12-31"}
    numbers = profile.edges[0], profile.edges[-1], np.interp(0.0, profile.normal, profile.edges)
    first, last, example = ((date(1970, 1, 1) + timedelta(days=int(day))).isoformat() for day in numbers)
    return {"days": (first, last), "example": example}
