"""A saved model put to use on another table: predictions, scores, and what a report needs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions import discretized
from ddpn.errors import ConfigError, InputError
from ddpn.estimators import CountRegressor
from ddpn.metrics import point
from ddpn.workflow.fitting import judge
from ddpn.workflow.model_folder import ModelFolder, task_of
from ddpn.workflow.plan import plan_from
from ddpn.workflow.reading import polars
from ddpn.workflow.sample import BLOCK, Sample
from ddpn.workflow.scoring import COVERAGE, WORDS
from ddpn.workflow.splitting import divide


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which columns a prediction has besides mean, median, mode and both parts of the variance.

    `coverage` of the interval, calibrated by the validation rows where there were any; `quantiles` at these levels;
    `pmf`, probabilities of 0 to this count; `keep` the columns of the table; `ood`, a flag for rows that are stranger
    than all but this share of usual ones.
    """

    coverage: float = 0.9
    quantiles: tuple[float, ...] = ()
    pmf: int | None = None
    keep: bool = False
    ood: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.coverage < 1.0:
            raise ConfigError(f"coverage must lie between 0 and 1, got {self.coverage:g}. Use 0.9.")
        for level in self.quantiles:
            if not 0.0 < level < 1.0:
                raise ConfigError(f"quantiles must lie between 0 and 1, got {level:g}. Use for example 0.1,0.5,0.9.")
        if self.pmf is not None and not 0 <= self.pmf <= 10_000:
            raise ConfigError(f"pmf must be a count from 0 to 10000, got {self.pmf}. Use for example 10.")


def predict(folder: ModelFolder, frame: Any, wanted: Wanted, done: Callable[[int], None] = lambda rows: None) -> Any:
    """A row of predictions for every row of the table; `done` is told how many are ready."""
    roles = folder.roles
    X, exposure = roles.features(frame), roles.exposures(frame)
    if wanted.ood is not None:
        # Refuses a level that too few calibration rows can tell, before the work.
        folder.model.is_ood(X[:1], wanted.ood, None if exposure is None else exposure[:1])
    parts = []
    for start in range(0, frame.height, BLOCK):
        rows = slice(start, start + BLOCK)
        parts.append(polars().DataFrame(_block(folder, X[rows], None if exposure is None else exposure[rows], wanted)))
        done(min(start + BLOCK, frame.height))
    predictions = polars().concat(parts)
    return _beside(frame, predictions) if wanted.keep else predictions


@torch.no_grad()
def _block(folder: ModelFolder, X: Any, exposure: np.ndarray | None, wanted: Wanted) -> dict[str, np.ndarray]:
    law = folder.model.predict_distribution(X, exposure)
    aleatoric, epistemic = law.aleatoric, law.epistemic
    counts = discretized(law)
    low, high = counts.interval(folder.model.interval_level(wanted.coverage))
    columns: dict[str, Tensor] = {"mean": law.mean, "median": point(counts, "median"), "mode": counts.mode}
    columns |= {"lower": low, "upper": high, "aleatoric": aleatoric, "epistemic": epistemic}
    columns |= {"stddev": (aleatoric + epistemic).sqrt()}
    for level in wanted.quantiles:
        columns[f"q{level:g}"] = counts.icdf(torch.full_like(law.mean, level))
    for count in range(0 if wanted.pmf is None else wanted.pmf + 1):
        columns[f"p{count}"] = counts.log_prob(torch.full_like(law.mean, count)).exp()
    found = {name: _plain(name, values) for name, values in columns.items()}
    found["ood_pvalue"] = folder.model.ood_pvalue(X, exposure)
    if wanted.ood is not None:
        found["ood"] = found["ood_pvalue"] <= wanted.ood
    return found


def _plain(name: str, values: Tensor) -> np.ndarray:
    """Counts as integers, all else as numbers."""
    whole = name in ("median", "mode", "lower", "upper") or name.startswith("q")
    return values.double().numpy().astype(np.int64 if whole else np.float64)


def _beside(frame: Any, predictions: Any) -> Any:
    """The table with the predictions after it; a name that it has already gets one in front."""
    names = {name: f"predicted_{name}" for name in predictions.columns if name in frame.columns}
    return polars().concat([frame, predictions.rename(names)], how="horizontal")


class Judged(NamedTuple):
    """Rows to judge a model by; `note` says which where these are not all rows of the table."""

    sample: Sample
    note: str


def rows_to_judge(folder: ModelFolder, frame: Any) -> Judged:
    """The rows of a table that has the target. Of the table that the model was fitted to, the test rows alone."""
    roles, plan = folder.roles, plan_from(folder.task["plan"])
    y = roles.counts(frame, plan.model.get("fractional", "error"))
    sample = Sample(roles.features(frame), y, roles.exposures(frame), roles.weights(frame))
    kept = sample.counted()
    frame, sample = frame.filter(kept), sample.rows(kept.nonzero()[0])
    if not len(sample):
        raise InputError("the table must have a row with a weight above 0, got none. Give more rows.")
    if sample.fingerprint() != folder.task["fingerprint"]:
        return Judged(sample, "")
    test = sample.rows(divide(frame, plan).rows.test)
    return Judged(test, f"The model was fitted to this table: only its {len(test):,} test rows are judged.")


def evaluate(folder: ModelFolder, frame: Any) -> dict[str, Any]:
    """Scores of the model and its baselines on a table that has the target."""
    sample, note = rows_to_judge(folder, frame)
    return {"note": note, **judge(folder.model, folder.baselines, folder.levels, sample)}


def report_parts(folder: ModelFolder, frame: Any) -> dict[str, Any]:
    """What a report is written from, as keywords: the model, rows, every baseline's laws, and the task in short."""
    (sample, note), task = rows_to_judge(folder, frame), folder.task
    shown = {"target": folder.roles.target, "command": task.get("command"), "data": task.get("data")}
    shown |= {"split": task["split"], "seed": task["plan"]["seed"], "fitted": task["date"]}
    laws = {WORDS[name]: baseline.law(sample.X, sample.exposure) for name, baseline in folder.baselines.items()}
    levels = {WORDS[name]: each.at(COVERAGE) for name, each in folder.levels.items()}
    known = {"X": sample.X, "y": sample.y, "exposure": sample.exposure, "weight": sample.weight, "levels": levels}
    return {"model": folder.model, "baselines": laws, "task": shown | ({"note": note} if note else {}), **known}


def levels(text: str) -> tuple[float, ...]:
    """Numbers with commas between.

    >>> levels("0.1, 0.9")
    (0.1, 0.9)
    """
    try:
        return tuple(float(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise ConfigError(f"quantiles must be numbers with commas between, got {text!r}. Use 0.1,0.5,0.9.") from None


def description(path: Path) -> dict[str, Any]:
    """What a saved model is and how it came to be, ready for JSON."""
    task, model = task_of(path), CountRegressor.load(path)
    return {
        "likelihood": model.head_.name,
        "options": model.head_.options,
        "members": model.model_.members,
        "linear_members": 0 if model.linear_ is None else model.linear_.copies,
        "hidden": list(model.hidden_),
        "numeric": model.numeric_,
        "epochs": len(model.history_.epochs),
        "best_epochs": model.history_.best_epoch,
        "seconds": model.history_.seconds,
        "task": task,
    }
