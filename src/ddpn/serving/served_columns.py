"""What requests to a model look like: its columns with their types, levels and ranges, from the model itself."""

from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any

import numpy as np

from ddpn.calibration.columns import ColumnProfile
from ddpn.features.categorical import CategoricalColumn
from ddpn.predictor import Predictor
from ddpn.serving.columns import ServedColumn, bound, number, positive, reader_of, scalar
from ddpn.serving.inputs import group_label
from ddpn.workflow.dates import DAY
from ddpn.workflow.model_folder import ModelFolder
from ddpn.workflow.roles import Column, Roles

_LARGEST = 1.7976931348623157e308
#: What JSON Schema says about the cells of each kind.
_NUMBER = {"type": ["number", "null"], "minimum": -_LARGEST, "maximum": _LARGEST}
_BOOLEAN = {"type": ["boolean", "null"]}
_LEVEL = {"type": ["string", "number", "boolean", "null"]}
_DATE = {
    "anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}, {"type": "null"}],
    "examples": ["2024-12-31"],
}
#: Levels of a column that a model offers, most frequent first.
_MOST_LEVELS = 200


def served_columns(folder: ModelFolder) -> list[ServedColumn]:
    """The columns of requests to a model: those that it needs, and those of the fit that are ignored.

    Parameters
    ----------
    folder : ModelFolder
        The model.
    """
    roles, predictor = folder.roles, folder.model.predictor_
    inputs = [name for column in roles.used for name in column.inputs]
    levels = dict(zip(inputs, levels_of(predictor, len(inputs)), strict=True))
    known = [None] * len(inputs) if predictor.profile is None else predictor.profile.columns
    profiles = dict(zip(inputs, known, strict=True))
    found = [_feature(column, roles, levels, profiles) for column in roles.used]
    found += _roles(roles, predictor)
    names = {column.name for column in found}
    unused = [column.name for column in roles.columns] + [roles.target, roles.weight, roles.censored]
    ignored = dict.fromkeys(name for name in unused if name is not None and name not in names)
    return found + [ServedColumn(name, "ignored", {}, lambda cell: ()) for name in ignored]


def _feature(
    column: Column, roles: Roles, levels: dict[str, tuple[str, ...]], profiles: dict[str, ColumnProfile | None]
) -> ServedColumn:
    read, parts = reader_of(column, roles.missing), tuple(column.inputs)
    if column.kind == "number":
        own = profiles[column.name]
        return ServedColumn(column.name, "number", _NUMBER, read, parts, range=_range(own), notes=_steps(own, column))
    if column.kind == "boolean" or column.level_kind == "boolean":
        # As a category its levels are true and false, which are its values.
        return ServedColumn(column.name, "boolean", _BOOLEAN, read, parts)
    if column.kind == "date":
        day = next((profiles[name] for name in parts if name.endswith(f" {DAY}")), None)
        return ServedColumn(column.name, "date", _DATE, read, parts, notes=_days(day))
    own_levels = levels[column.name]
    schema = {**_LEVEL, **({"examples": list(own_levels[:5])} if own_levels else {})}
    return ServedColumn(column.name, "category", schema, read, parts, own_levels)


def _roles(roles: Roles, predictor: Predictor) -> list[ServedColumn]:
    """The columns that are no features: exposure, upper bound, group."""
    found = []
    if roles.exposure is not None:
        schema = {"type": "number", "exclusiveMinimum": 0, "maximum": _LARGEST}
        found.append(ServedColumn(roles.exposure, "exposure", schema, lambda cell: (positive(cell),)))
    if roles.upper is not None:
        least = max(predictor.counts.lower, int(predictor.counts.upper_is_total))
        schema, read = {"type": "integer", "minimum": least, "maximum": _LARGEST}, bound(least)
        found.append(ServedColumn(roles.upper, "upper", schema, lambda cell: (read(cell),)))
    if roles.groups is not None:
        groups = () if predictor.groups is None else predictor.groups.names
        found.append(
            ServedColumn(roles.groups, "group", _LEVEL, lambda cell: (group_label(scalar(cell)),), levels=groups)
        )
    return found


def levels_of(predictor: Predictor, width: int) -> list[tuple[str, ...]]:
    """The levels of each column that some member knows by name; empty for numbers and booleans."""
    found: list[dict[str, None]] = [{} for _ in range(width)]
    for member in predictor.mixed.values():
        for own, levels in zip(found, _member_levels(member), strict=False):
            own.update(dict.fromkeys(levels))
    return [tuple(own)[:_MOST_LEVELS] for own in found]


def _member_levels(member: Any) -> Iterable[Iterable[str]]:
    encoder, design, table = (getattr(member, name, None) for name in ("encoder", "design", "table"))
    if encoder is not None:
        return [each.known_levels if isinstance(each, CategoricalColumn) else () for each in encoder.columns_]
    known = design if design is not None else table
    return [] if known is None else [levels or () for levels in known.levels]


def _range(profile: ColumnProfile | None) -> tuple[float, float] | None:
    """The smallest and the largest training value."""
    return None if profile is None or not len(profile.edges) else (float(profile.edges[0]), float(profile.edges[-1]))


def _steps(profile: ColumnProfile | None, column: Column) -> dict[str, Any]:
    """A typical value, and whether all values of the training were integers."""
    typical = None
    if profile is not None and len(profile.edges):
        typical = float(np.interp(0.0, profile.normal, profile.edges))
        if len(profile.keys):  # few values: the nearest of them
            known = profile.keys.view(np.float64)
            typical = float(known[np.abs(known - typical).argmin()])
        typical = round(typical) if column.number.integers else float(f"{typical:.4g}")
    return {"typical": typical, "integers": column.number.integers}


def _days(profile: ColumnProfile | None) -> dict[str, Any]:
    """The first and the last day of the training, and a typical one."""
    ends = _range(profile)
    if profile is None or ends is None:
        return {}
    typical = float(np.interp(0.0, profile.normal, profile.edges))
    first, last, middle = ((date(1970, 1, 1) + timedelta(days=int(day))).isoformat() for day in (*ends, typical))
    return {"days": (first, last), "typical": middle}


def row_schema(columns: Iterable[ServedColumn]) -> dict[str, Any]:
    """JSON Schema of one row."""
    known = list(columns)
    # A column that is a feature and has a role, too, must satisfy the stricter reading, that of the role, named later.
    return {
        "type": "object",
        "properties": {column.name: column.schema for column in known},
        "required": list(dict.fromkeys(column.name for column in known if column.is_required)),
        "additionalProperties": False,
    }


def example_row(columns: Iterable[ServedColumn]) -> dict[str, Any]:
    """A row that a model accepts: typical values, the most frequent levels, exposure 1."""
    row: dict[str, Any] = {}
    for column in columns:
        if column.kind == "number":
            row[column.name] = column.notes.get("typical") or 0.0
        elif column.kind == "boolean":
            row[column.name] = False
        elif column.kind == "date":
            row[column.name] = column.notes.get("typical", "2024-12-31")
        elif column.kind in ("category", "group"):
            row[column.name] = next(iter(column.levels), None)
        elif column.kind in ("exposure", "upper"):
            # A bound may be a feature, too.
            row[column.name] = max(row.get(column.name, 1.0), number(column.schema.get("minimum", 1)))
    return row
