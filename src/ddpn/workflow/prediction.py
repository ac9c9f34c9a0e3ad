"""Use a saved model on another table: predictions, scores, and what a report needs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions import discretized
from ddpn.metrics import point
from ddpn.predictor import Predictor
from ddpn.sample import BLOCK, Sample
from ddpn.threads import single_thread
from ddpn.workflow.leaderboard import COVERAGE, label_of, leaderboard
from ddpn.workflow.model_folder import ModelFolder
from ddpn.workflow.plan import plan_from
from ddpn.workflow.preparing import fingerprint
from ddpn.workflow.reading import polars
from ddpn.workflow.requests import Request
from ddpn.workflow.splitting import split_rows


def predict(folder: ModelFolder, frame: Any, request: Request, done: Callable[[int], None] = lambda rows: None) -> Any:
    """A row of predictions for every row of the table; `done` is called with the number of rows of each block."""
    roles, predictor = folder.roles, folder.model.predictor_
    X, exposure = roles.features(frame), roles.exposures(frame)
    if request.ood is not None:
        request.check_model(folder.task)
        # Raises for a level that is too small for the number of calibration rows, before the work.
        predictor.calibrated_ood.is_ood(np.ones(1), request.ood)
    parts = []
    for start in range(0, frame.height, BLOCK):
        rows = slice(start, start + BLOCK)
        scale = None if exposure is None else exposure[rows]
        parts.append(polars().DataFrame(prediction_table(predictor, X[rows], scale, request)))
        done(parts[-1].height)
    predictions = polars().concat(parts)
    return _beside(frame, predictions) if request.keep else predictions


def prediction_table(
    predictor: Predictor, X: Any, exposure: np.ndarray | None, request: Request
) -> dict[str, np.ndarray]:
    """The columns of a request, by name. Shape: (rows,) each."""
    with single_thread(), torch.no_grad():
        dist = predictor.distribution(X, exposure)
        aleatoric, epistemic = dist.aleatoric, dist.epistemic
        counts: Any = discretized(dist)
        low, high = counts.interval(predictor.interval_level(request.coverage))
        columns: dict[str, Tensor] = {"mean": dist.mean, "median": point(counts, "median"), "mode": counts.mode}
        columns |= {"lower": low, "upper": high, "aleatoric": aleatoric, "epistemic": epistemic}
        columns |= {"stddev": (aleatoric + epistemic).sqrt()}
        for level in request.quantiles:
            columns[f"q{level:g}"] = counts.icdf(torch.full_like(dist.mean, level))
        for count in range(0 if request.pmf is None else request.pmf + 1):
            columns[f"p{count}"] = counts.log_prob(torch.full_like(dist.mean, count)).exp()
        found = {name: _plain(name, values) for name, values in columns.items()}
        if predictor.ood is not None:
            found["ood_pvalue"] = predictor.ood.pvalue([dist])
    if request.ood is not None:
        found["ood"] = predictor.calibrated_ood.is_ood(found["ood_pvalue"], request.ood)
    return found


def _plain(name: str, values: Tensor) -> np.ndarray:
    """Counts as integers, all else as float64."""
    is_count = name in ("median", "mode", "lower", "upper") or name.startswith("q")
    return values.double().numpy().astype(np.int64 if is_count else np.float64)


def _beside(frame: Any, predictions: Any) -> Any:
    """The table followed by the predictions, whose names get a prefix where the table has them already."""
    names = {name: f"predicted_{name}" for name in predictions.columns if name in frame.columns}
    return polars().concat([frame, predictions.rename(names)], how="horizontal")


class Scored(NamedTuple):
    """Rows to score a model on; `note` says which where these are not all rows of the table."""

    sample: Sample
    note: str


def rows_to_score(folder: ModelFolder, frame: Any) -> Scored:
    """The rows of a table that has the target. Of the table that the model was fitted to, only the test rows."""
    plan = plan_from(folder.task["plan"])
    sample = folder.roles.sample(frame, plan.model.get("fractional", "error"))
    frame, sample = frame.filter(sample.is_used), sample.rows(sample.is_used)
    if fingerprint(sample) != folder.task["fingerprint"]:
        return Scored(sample, "")
    times = folder.roles.times(frame, plan.time)
    test = sample.rows(split_rows(times, plan, sample.labels).rows.test)
    return Scored(test, f"The model was fitted to this table: only its {len(test):,} test rows are scored.")


def evaluate(folder: ModelFolder, frame: Any) -> dict[str, Any]:
    """The leaderboard on a table that has the target."""
    sample, note = rows_to_score(folder, frame)
    found = leaderboard(folder.model.predictor_, sample, tuple(folder.task["leaks"]))
    return {"note": note, **found, "warnings": folder.task["leaks"] + folder.task["warnings"]}


def report_parts(folder: ModelFolder, frame: Any) -> dict[str, Any]:
    """What a report is written from, as keyword arguments of `write_report`."""
    (sample, note), task, predictor = rows_to_score(folder, frame), folder.task, folder.model.predictor_
    shown = {"target": folder.roles.target, "command": task.get("command"), "data": task.get("data")}
    shown |= {"split": task["split"], "seed": task["plan"]["seed"], "fitted": task["date"]}
    others = {name: label_of(name, member) for name, member in predictor.members.items() if name not in predictor.mixed}
    distributions = {label: predictor.distribution(sample.X, sample.exposure, name) for name, label in others.items()}
    return {
        "model": folder.model,
        "X": sample.X,
        "y": sample.y,
        "exposure": sample.exposure,
        "weight": sample.weight,
        "baselines": distributions,
        "levels": {label: predictor.interval_level(COVERAGE, name) for name, label in others.items()},
        "leaderboard": leaderboard(predictor, sample, tuple(task["leaks"]))["entries"],
        "leak": " ".join(task["leaks"]),
        "warnings": task["warnings"],
        "task": shown | ({"note": note} if note else {}),
    }
