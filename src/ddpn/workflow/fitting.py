"""From a table and a plan to a model that is fitted, judged beside its baselines, and described."""

import glob
import hashlib
import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ddpn.calibration.intervals import Levels
from ddpn.errors import InputError
from ddpn.estimators import CountRegressor
from ddpn.workflow.baselines import Baseline, fit_baselines
from ddpn.workflow.intervals import LAW_ROWS, levels_of
from ddpn.workflow.model_folder import CHECKPOINT, ModelFolder, check_place, save, task_of
from ddpn.workflow.plan import Plan
from ddpn.workflow.profiling import roles_of, suspicions
from ddpn.workflow.roles import Roles, target_counts
from ddpn.workflow.sample import Sample
from ddpn.workflow.scoring import COVERAGE, MODEL, comparison, score_rows
from ddpn.workflow.splitting import Divided, divide

FORMAT = 1
#: The share of usual rows that is flagged as strange where nothing else is said.
_ALPHA = 0.05


@dataclass(frozen=True)
class Prepared:
    """A table ready for fitting, and what is told of it before."""

    plan: Plan
    roles: Roles
    sample: Sample
    divided: Divided
    warnings: tuple[str, ...]

    @property
    def train(self) -> Sample:
        return self.sample.rows(self.divided.rows.train)

    @property
    def validation(self) -> Sample:
        return self.sample.rows(self.divided.rows.validation)

    @property
    def test(self) -> Sample:
        return self.sample.rows(self.divided.rows.test)

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each part."""
        return {name: len(getattr(self.divided.rows, name)) for name in ("train", "validation", "test")}


def prepare(frame: Any, plan: Plan) -> Prepared:
    """Check the table, and decide on every column and row."""
    roles = roles_of(frame, plan)
    y = target_counts(frame, plan.target, str(plan.model.get("fractional", "error")))
    sample = Sample(roles.features(frame), y, roles.exposures(frame), roles.weights(frame))
    told = []
    kept = sample.counted()
    if not kept.all():
        told.append(f"{int((~kept).sum()):,} rows of weight 0 are left out.")
        frame, sample = frame.filter(kept), sample.rows(kept.nonzero()[0])
    if not len(sample):
        raise InputError(f"weight {plan.weight!r} must be positive in some row, got zeros only. Use another.")
    divided = divide(frame, plan)
    told += suspicions(sample.X, sample.y)
    told += _on_dates(roles, plan)
    if not sample.y[divided.rows.train].any():
        raise InputError(
            f"target {plan.target!r} must be above 0 in some training row, got zeros only. Give more rows."
        )
    return Prepared(plan, roles, sample, divided, tuple(told))


def _on_dates(roles: Roles, plan: Plan) -> list[str]:
    dates = [column.name for column in roles.used if column.kind == "date"]
    if not dates or plan.time is not None or plan.split_column is not None:
        return []
    return [
        f"column {dates[0]} is a date, and rows are split at random: where later dates are to be predicted, the scores "
        f"below are too good. Then split by time, with --time {dates[0]}."
    ]


def identity(prepared: Prepared) -> str:
    """A digest of all that a fit depends on: the same fit goes on from its checkpoint, another does not."""
    plan = json.dumps(prepared.plan.as_dict(), sort_keys=True, default=str)
    return hashlib.sha256((plan + prepared.sample.fingerprint()).encode()).hexdigest()[:16]


def checkpoint_of(path: Path, prepared: Prepared) -> Path:
    """Where the state of this fit is kept while it runs; that of an interrupted one is taken up."""
    known = identity(prepared)
    here = path.parent / f".{path.name}.{known}.checkpoint"
    if not here.exists() and (path / CHECKPOINT).is_file() and task_of(path).get("identity") == known:
        here.write_bytes((path / CHECKPOINT).read_bytes())
    return here


@dataclass(frozen=True)
class Fitted:
    """What a fit gives; `interrupted` where it ended before its time, `can_go_on` where its state was kept."""

    folder: ModelFolder
    interrupted: bool
    can_go_on: bool = False


def fit(
    prepared: Prepared,
    about: Mapping[str, Any],
    checkpoint: Path | None = None,
    verbose: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> Fitted:
    """Fit the baselines and the model, and judge them by the test rows. Ctrl-C ends the training, not the work.

    `about` goes into the task as it is; `tell` is called with each step, in words.
    """
    train, validation, plan = prepared.train, prepared.validation, prepared.plan
    model = plan.regressor(checkpoint=checkpoint, verbose=verbose, validation=None)
    tell("Fitting three baselines")
    baselines = fit_baselines(train, plan.seed)
    tell("Training")
    judged = {"X_val": validation.X, "y_val": validation.y, "exposure_val": validation.exposure}
    try:
        model.fit(train.X, train.y, train.weight, train.exposure, **(judged if len(validation) else {}))
    except KeyboardInterrupt:  # before there was anything to keep
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
        raise
    if model.interrupted_:
        tell("Stopping: the best epochs so far are kept")
    tell("Scoring the test rows")
    _calibrate(model, prepared)
    levels = levels_of(baselines, validation)
    model.set_params(checkpoint=None, verbose=False)
    task = {
        "format": FORMAT,
        "plan": plan.as_dict(),
        "identity": identity(prepared),
        "fingerprint": prepared.sample.fingerprint(),
        "roles": prepared.roles.as_dict(),
        "split": {"how": prepared.divided.how, "rows": prepared.counts},
        "interrupted": model.interrupted_,
        "warnings": list(prepared.warnings),
        "test": judge(model, baselines, levels, prepared.test),
        "versions": _versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **about,
    }
    # As it will be read again: lists for tuples.
    return Fitted(ModelFolder(model, baselines, json.loads(json.dumps(task)), levels), model.interrupted_)


def fit_into(
    path: Path, prepared: Prepared, about: Mapping[str, Any], overwrite: bool = False, **options: Any
) -> Fitted:
    """Fit and save a model folder. One that was interrupted keeps its checkpoint, for the same fit to go on from."""
    check_place(path, overwrite)
    checkpoint = checkpoint_of(path, prepared)
    fitted = fit(prepared, about, checkpoint, **options)
    save(fitted.folder, path, overwrite, checkpoint if fitted.interrupted else None)
    can_go_on = fitted.interrupted and checkpoint.exists()
    for old in path.parent.glob(f".{glob.escape(path.name)}.*.checkpoint"):
        old.unlink()
    return replace(fitted, can_go_on=can_go_on)


def _calibrate(model: CountRegressor, prepared: Prepared) -> None:
    """Learn from validation rows what intervals need, and from all rows that training did not see which are usual."""
    if len(prepared.validation):
        known = prepared.validation
        model.fit_intervals(known.X, known.y, known.weight, known.exposure, LAW_ROWS)
    rows = np.concatenate([prepared.divided.rows.validation, prepared.divided.rows.test])
    seen = prepared.sample.rows(rows)
    # Members that cannot disagree leave the variance.
    kind = "mutual_information" if model.model_.members > 1 or model.linear_ is not None else "variance"
    model.fit_ood(seen.X, seen.exposure, kind=kind, alpha=max(_ALPHA, 1.0 / (len(rows) + 1)))


def judge(
    model: CountRegressor, baselines: Mapping[str, Baseline], levels: Mapping[str, Levels], sample: Sample
) -> dict[str, Any]:
    """Scores of the model and of every baseline on the same rows, each by the level that its intervals need."""
    rows = {MODEL: score_rows(model.predict_distribution, sample, model.interval_level(COVERAGE))}
    for name, baseline in baselines.items():
        rows[name] = score_rows(baseline.law, sample, levels[name].at(COVERAGE) if name in levels else COVERAGE)
    return comparison(rows, sample.weight)


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("ddpn", "torch", "scikit-learn", "numpy", "polars")}
    return {"python": platform.python_version(), **packages}
