"""Explanations of rows: what each column adds to a prediction, and how the prediction changes with each column."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from ddpn.analysis.explanations.inputs import Inputs, joined
from ddpn.analysis.explanations.shapley import shapley_values
from ddpn.calibration.columns import ColumnProfile, hashed, key_shares
from ddpn.runtime.errors import InputError
from ddpn.serving.columns import ServedColumn, levels_of
from ddpn.serving.model import PredictorInputs, ServedModel
from ddpn.serving.schemas import Problem, RequestError, Row, Wanted
from ddpn.tables.encoding.table import Column, PreparedTable

#: Predictions per explained row, about; typical rows that it is compared with, at least and at most.
_PREDICTIONS, _LEAST, _MOST = 4000, 4, 32
#: Columns that have a curve.
_CURVES = 30


def explain(model: ServedModel, rows: Sequence[Row], of: str, curves: bool) -> dict[str, Any]:
    """Contributions of the columns to each row, and curves of the first row if asked; ready for JSON.

    `of` is "mean" or "spread"; with `curves` the first row is predicted with other values of each column, too.
    """
    (known,) = model.predict([(rows, Wanted(outputs=("mean", "stddev")))])
    if isinstance(known, Exception):
        raise known
    inputs = model.inputs(rows)
    with np.errstate(all="ignore"):
        found = [_contributions(model, inputs, row, of) for row in range(len(rows))]
    answer: dict[str, Any] = {"quantity": "mean" if of == "mean" else "variance / mean", "rows": found}
    if curves:
        order = [each["column"] for each in found[0]["contributions"]]
        answer["curves"] = _curves(model, rows[0].model_dump(mode="json", by_alias=True), order)
    return answer


def _contributions(model: ServedModel, inputs: PredictorInputs, row: int, of: str) -> dict[str, Any]:
    """What each column adds to the logarithm of the prediction of one row, compared with typical rows."""
    profile, width = model.predictor.profile, inputs.X.width
    if profile is None:
        raise InputError("The model has no summary of its training rows to compare with, so that it explains no rows.")
    starts = int(np.clip(_PREDICTIONS // max(1, 2 * (width - 1)), _LEAST, _MOST))
    rng, columns = np.random.default_rng(0), []
    known = zip(
        PreparedTable.like(profile.reader, inputs.X[row : row + 1]).columns,
        profile.columns,
        levels_of(model.predictor, width),
        strict=True,
    )
    for own, distribution, levels in known:
        columns.append(joined(own, typical_cells(own.name, distribution, levels, starts, rng)))
    # Typical rows have the exposure and the bound of the explained row, which then add nothing.
    exposure, upper = (
        None if values is None else np.full(1 + starts, values[row]) for values in (inputs.exposure, inputs.upper)
    )
    hybrid, background = Inputs(model.predictor, PreparedTable(columns), exposure, upper), np.arange(1, 1 + starts)
    quantity = int(of == "spread")
    values, error = shapley_values(hybrid, np.zeros(1, dtype=np.int64), background, quantity, np.random.default_rng(0))
    moments = hybrid.moments(np.arange(1 + starts), variance=quantity == 1, recalibrated=True)
    now = moments.quantities[quantity, :, 0]
    if not np.isfinite([*values[0], *now]).all():
        words = f"rows[{row}] cannot be explained: predictions of rows between it and typical rows are too large."
        raise RequestError([Problem(words, row=row)])
    place, contributions = {own.name: j for j, own in enumerate(columns)}, []
    for column in model.columns:
        if parts := [place[name] for name in column.parts]:  # a date adds up its parts
            added, off = float(values[0, parts].sum()), float(np.hypot.reduce(error[0, parts]))
            contributions.append({"column": column.name, "contribution": added, "error": off})
    return {
        "scale": "log" if moments.log else "linear",
        "base": float(now[1:].mean()),
        "prediction": float(now[0]),
        "contributions": sorted(contributions, key=lambda each: -abs(each["contribution"])),
    }


def _curves(model: ServedModel, row: Mapping[str, Any], order: Sequence[str]) -> list[dict[str, Any]]:
    """Predictions of a row with other values of one column at a time."""
    by_name = {column.name: column for column in model.columns if column.is_required}
    chosen = [by_name[name] for name in [*order, *(name for name in by_name if name not in order)]][:_CURVES]
    points = {column.name: _points(column, row[column.name]) for column in chosen}
    changed = [{**row, name: value} for name, values in points.items() for value in values]
    wanted = Wanted(outputs=("mean", "lower", "upper"))
    (answer,) = model.predict([([model.Row.model_validate(each) for each in changed], wanted)])
    if isinstance(answer, Exception):
        return []  # some of the values lead to predictions that are too large
    found, start = [], 0
    for name, values in points.items():
        part = answer[start : start + len(values)]
        start += len(values)
        found.append({"column": name, "values": values, **{key: [own[key] for own in part] for key in wanted.outputs}})
    return found


def _points(column: ServedColumn, now: Any) -> list[Any]:
    """Values of a column to try, in their order, with the present one among them."""
    if column.kind == "exposure":
        shares = 2.0 ** np.linspace(-1.0, 1.0, 9) * min(float(now), 1e300)
        return sorted({*(float(f"{value:.4g}") for value in shares), float(now)})
    if column.kind in ("number", "date"):
        present = now[:10] if isinstance(now, str) else now
        return sorted({*column.points, present} - {None}) or [now]
    return list(dict.fromkeys([*column.points, *([] if now is None else [now])])) or [now]


# Typical rows to compare with are drawn from the summary of the training rows: a model folder keeps no row itself -----


def typical_cells(
    name: str, profile: ColumnProfile, levels: tuple[str, ...], size: int, rng: np.random.Generator
) -> Column:
    """A column whose values are distributed as in the training; `levels` are those that are known by name."""
    # Evenly spread ranks, in a random order: as many values from every part of the distribution.
    ranks = rng.permutation((np.arange(size) + 0.5) / size)
    missing = rng.permutation((np.arange(size) + 0.5) / size) < profile.missing_share
    if profile.kind == "category":
        place = profile.place(hashed(levels)) if levels else np.empty(0, dtype=np.int64)
        levels = tuple(level for level, at in zip(levels, place.tolist(), strict=True) if at >= 0)
        if not levels:
            return Column(name, "category", np.full(size, -1), ())
        shares = key_shares(profile)[place[place >= 0]]
        codes = np.searchsorted(np.cumsum(shares / shares.sum())[:-1], ranks)
        return Column(name, "category", np.where(missing, -1, codes), levels)
    if not len(profile.edges):
        return Column(name, profile.kind, np.full(size, np.nan))
    if len(profile.keys):
        known, shares = profile.keys.view(np.float64), key_shares(profile)
        values = known[np.searchsorted(np.cumsum(shares)[:-1], ranks)]
    else:
        values = np.interp(ndtri(ranks), profile.normal, profile.edges)
    return Column(name, profile.kind, np.where(missing, np.nan, values))
