"""The columns of requests to a model: types that cells must have, and cells as the column of a table."""

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
from ddpn.serving.schemas import Row, integer
from ddpn.storage.contents import JsonObject
from ddpn.tables.cells import DAY
from ddpn.tables.columns import Kind
from ddpn.tables.kinds import TableColumn
from ddpn.tables.levels import canonical_level, canonical_number
from ddpn.tables.roles import Roles
from ddpn.workflow.model_folder import ModelFolder

#: ISO 8601, as JSON Schema's formats "date" and "date-time" have it; seconds and the zone may be left out.
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[Tt ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:[Zz]|[+-]\d{2}:\d{2})?)?")
_LARGEST = 1.7976931348623157e308
_Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]
_Whole = Annotated[int, Field(ge=-int(_LARGEST), le=int(_LARGEST))]
_Level = str | bool | _Whole | _Number | None
_MISSING = ", or null where it is missing"
_LEVEL = f"text (or a number, true or false){_MISSING}"
#: Levels of a column that a model offers, most frequent first.
_MOST_LEVELS = 200


@dataclass(frozen=True)
class ServedColumn:
    """A column of the requests.

    `kind` is "number", "boolean", "date", "category", "exposure", "upper", "group" or "ignored"; a cell has the type
    `annotation`, which `description` puts into words. `example` is a typical cell; `levels`, `range`, `integers` and
    `days` are those of the training rows.
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
        """For JSON."""
        known = {name: getattr(self, name) for name in ("levels", "range", "days", "integers")}
        about = {"name": self.name, "kind": self.kind, "typical": self.example}
        return about | {name: value for name, value in known.items() if value}

    def series(self, cells: Sequence[object]) -> pl.Series:
        """Validated cells as a column of a table, which is read as that of a file."""
        if self.kind in ("category", "group"):
            # A boolean is 1 or 0 where names of groups and levels that are numbers are made of a table's booleans.
            name_of = canonical_number if self.kind == "group" or self.has_numbers else canonical_level
            names = [None if cell is None else name_of(cell) for cell in cells]
            # Text of JSON may have characters that UTF-8 has not.
            readable = [None if name is None else name.encode(errors="replace").decode() for name in names]
            return pl.Series(self.name, readable, pl.String)
        kinds: dict[str, pl.DataType | type[pl.DataType]] = {"boolean": pl.Boolean, "date": pl.Datetime("us")}
        return pl.Series(self.name, cells, kinds.get(self.kind, pl.Float64), strict=False)


def served_columns(folder: ModelFolder) -> list[ServedColumn]:
    """The columns of requests to a model: those that it needs, and those of the fit that are ignored."""
    roles, predictor = folder.roles, folder.model.predictor_
    levels = collect_levels(predictor.active_members.values())
    profile = predictor.calibration.profile
    profiles = {} if profile is None else dict(zip(profile.names, profile.columns, strict=True))
    found = [_feature(column, levels, profiles) for column in roles.features]
    found += _roles(roles, predictor)
    names = {column.name for column in found}
    unused = [column.name for column in roles.columns] + [roles.target, roles.weight, roles.censored]
    ignored = dict.fromkeys(name for name in unused if name is not None and name not in names)
    return found + [ServedColumn(name, "ignored", Any, "anything: it is ignored") for name in ignored]


def _feature(
    column: TableColumn, levels: Mapping[str, tuple[str, ...]], profiles: Mapping[str, ColumnProfile]
) -> ServedColumn:
    name, about = column.name, JsonObject()
    if column.kind == Kind.NUMBER:
        about = _number(profiles.get(name), column.number.integers)
        return ServedColumn(name, "number", _Number | None, f"a finite number{_MISSING}", **about)
    if column.kind == Kind.DATE:
        words = f"a date such as 2024-12-31 or 2024-12-31T18:30:00{_MISSING}"
        about = _days(next((profiles.get(part) for part in column.inputs if part.endswith(f" {DAY}")), None))
        return ServedColumn(name, "date", _date(column.date.zone), words, **about)
    if column.kind in (Kind.BOOLEAN, Kind.BOOLEAN_CATEGORY):  # with the levels true and false
        return ServedColumn(name, "boolean", bool | None, f"true or false{_MISSING}", example=False)
    about = _names(levels.get(name, ())) | {"has_numbers": column.kind == Kind.NUMBER_CATEGORY}
    return ServedColumn(name, "category", _Level, _LEVEL, **about)


def _names(levels: Sequence[str]) -> JsonObject:
    return {"levels": tuple(levels[:_MOST_LEVELS]), "example": next(iter(levels), None)}


def _roles(roles: Roles, predictor: Predictor) -> list[ServedColumn]:
    """The columns that are no features: exposure, upper bound, group."""
    found, about = [], JsonObject()
    if roles.exposure is not None:
        kind = Annotated[float, Field(gt=0.0, le=_LARGEST, allow_inf_nan=False)]
        about = {"example": 1.0}
        if "exposure" in predictor.scales:
            low, median, high = predictor.scales["exposure"]
            about = {"example": median, "range": (low, high)}
        found.append(ServedColumn(roles.exposure, "exposure", kind, "a number above 0", **about))
    if roles.upper is not None:
        least = max(predictor.counts.lower, int(predictor.counts.upper_is_total))
        kind, words = integer(least, int(_LARGEST)), f"an integer of at least {least}"
        about = {"example": max(least, 1)}
        if "upper" in predictor.scales:
            low, median, high = map(int, predictor.scales["upper"])
            about = {"example": median, "range": (low, high), "integers": True}
        found.append(ServedColumn(roles.upper, "upper", kind, words, **about))
    if roles.groups is not None:
        names = _names(() if predictor.calibration.groups is None else predictor.calibration.groups.names)
        found.append(ServedColumn(roles.groups, "group", _Level, _LEVEL, **names))
    return found


def row_model(name: str, columns: Iterable[ServedColumn]) -> type[Row]:
    """The pydantic model of a row: fields c0, c1, ..., whose aliases are the names of the columns.

    A column that is a feature and has a role, too, must satisfy the role, which is named later; the name of a group may
    be anything, so that the feature decides.
    """
    known: dict[str, ServedColumn] = {}
    for column in columns:
        if column.kind != "group" or column.name not in known:
            known[column.name] = column
    fields: JsonObject = {}
    for number, column in enumerate(known.values()):
        default = ... if column.is_required else None
        about = Field(default, alias=column.name, description=column.description)
        fields[f"c{number}"] = (column.annotation, about)
    return create_model(f"Row_{name}", __base__=Row, **fields)


def _date(zone_name: str) -> Any:
    """The type of dates and times, which are read by the clock of a zone, or as they are written without one."""
    zone = ZoneInfo(zone_name) if zone_name else None

    def read(cell: object) -> datetime | None:
        if cell is None:
            return None
        if not isinstance(cell, str) or _ISO.fullmatch(cell) is None:
            raise ValueError("no date")
        found = datetime.fromisoformat(cell.upper())
        try:
            return (found if zone is None or found.tzinfo is None else found.astimezone(zone)).replace(tzinfo=None)
        except OverflowError:
            raise ValueError("no date of the calendar") from None

    return Annotated[datetime | date | None, BeforeValidator(read)]


# What the model knows about its columns --------------------------------------------------------------------------


def _number(profile: ColumnProfile | None, integers: bool) -> JsonObject:
    """The smallest and the largest training value, and a typical one: the median, or the value nearest to it."""
    if profile is None or not len(profile.edges):
        return {"example": 1.0}
    typical = float(np.interp(0.0, profile.normal, profile.edges))
    example = float(round(typical) if integers else f"{typical:.4g}")
    if len(profile.keys):
        known = profile.keys.view(np.float64)
        example = float(known[np.abs(known - typical).argmin()])
    return {"example": example, "range": (float(profile.edges[0]), float(profile.edges[-1])), "integers": integers}


def _days(profile: ColumnProfile | None) -> JsonObject:
    """The first and the last day of the training, and a typical one."""
    if profile is None or not len(profile.edges):
        return {"example": "2024-12-31"}
    numbers = profile.edges[0], profile.edges[-1], np.interp(0.0, profile.normal, profile.edges)
    first, last, example = ((date(1970, 1, 1) + timedelta(days=int(day))).isoformat() for day in numbers)
    return {"days": (first, last), "example": example}
