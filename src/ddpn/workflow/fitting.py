"""Fit a prepared table: the model, what it is compared with, calibration, scores, and the folder they are saved in."""

import glob
import json
import platform
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ddpn.estimators import CountRegressor
from ddpn.members import MEMBERS
from ddpn.members.member import NotApplicableError
from ddpn.model_files import check_destination
from ddpn.threads import single_thread
from ddpn.workflow.kept_warnings import kept_warnings
from ddpn.workflow.leaderboard import label_of, leaderboard
from ddpn.workflow.model_folder import ModelFolder
from ddpn.workflow.preparing import Prepared, checkpoint_of, fingerprint, identity
from ddpn.workflow.seen_rows import SeenRows

FORMAT = 2
#: The share of ordinary rows that is flagged as out-of-distribution by default.
_ALPHA = 0.05
#: A few hundred validation rows determine the level of intervals to some points only: what the predictions themselves
#: expect counts as so many rows more.
PRIOR_ROWS = 100.0


@dataclass(frozen=True)
class Fitted:
    """The result of a fit; `interrupted` if it ended early, `can_continue` if its state was kept."""

    folder: ModelFolder
    interrupted: bool
    can_continue: bool = False


def fit(
    prepared: Prepared,
    about: Mapping[str, Any],
    checkpoint: Path | None = None,
    verbose: bool = False,
    on_step: Callable[[str], None] = lambda text: None,
) -> Fitted:
    """Fit the model and what it is compared with, calibrate on validation rows and score on test rows.

    `about` goes into the task as it is; `on_step` is called with a description of each step. Ctrl-C ends the training
    of the networks or of members to compare with; the other steps continue with what was fitted so far.
    """
    model = prepared.plan.regressor(checkpoint=checkpoint, verbose=verbose, validation=None)
    with kept_warnings() as kept:
        interrupted = _train(model, prepared, checkpoint, on_step)
        interrupted |= _add_comparisons(model, prepared, on_step)
    on_step("Scoring the test rows")
    _calibrate(model, prepared)
    task = {
        "format": FORMAT,
        "plan": prepared.plan.as_dict(),
        "identity": identity(prepared),
        "fingerprint": fingerprint(prepared.sample),
        "roles": prepared.roles.as_dict(),
        "split": {"how": prepared.split.how, "rows": prepared.counts},
        "interrupted": interrupted,
        "leaks": list(prepared.leaks),
        "warnings": [*prepared.warnings, *kept],
        "test": leaderboard(model.predictor_, prepared.test, prepared.leaks),
        "versions": _versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **about,
    }
    # As it will be read again: lists instead of tuples.
    seen = SeenRows.of(prepared.sample, prepared.split.rows.test)
    return Fitted(ModelFolder(model, json.loads(json.dumps(task)), seen), interrupted)


def fit_into(
    path: Path, prepared: Prepared, about: Mapping[str, Any], overwrite: bool = False, **options: Any
) -> Fitted:
    """Fit and save a model folder. An interrupted fit keeps its checkpoint, from which the same fit continues."""
    check_destination(path, overwrite)
    checkpoint = checkpoint_of(path, prepared)
    fitted = fit(prepared, about, checkpoint, **options)
    fitted.folder.save(path, overwrite, checkpoint if fitted.interrupted else None)
    can_continue = fitted.interrupted and checkpoint.exists()
    for old in path.parent.glob(f".{glob.escape(path.name)}.*.checkpoint"):
        old.unlink()
    return replace(fitted, can_continue=can_continue)


def _train(model: CountRegressor, prepared: Prepared, checkpoint: Path | None, on_step: Callable[[str], None]) -> bool:
    """Fit the model; returns whether it was interrupted, with something to keep."""
    train, validation = prepared.train, prepared.validation
    held_out = {
        "X_val": validation.X,
        "y_val": validation.y,
        "exposure_val": validation.exposure,
        "sample_weight_val": validation.weight,
    }
    on_step("Training")
    try:
        model.fit(train.X, train.y, train.weight, train.exposure, **(held_out if len(validation) else {}))
    except KeyboardInterrupt:
        if not hasattr(model, "predictor_"):
            if checkpoint is not None:
                checkpoint.unlink(missing_ok=True)
            raise
        on_step("Stopping: the best epochs so far are kept")
    # A saved model has no use for these.
    model.set_params(checkpoint=None, verbose=False)
    return model.interrupted_


def _add_comparisons(model: CountRegressor, prepared: Prepared, on_step: Callable[[str], None]) -> bool:
    """Fit the members of `compare_with` that are not part of the mixture; returns whether that was interrupted."""
    validation = prepared.validation if len(prepared.validation) else None
    wanted = [name for name in prepared.plan.compare_with if name not in model.predictor_.members]
    for name in wanted:
        kind = MEMBERS.find(name)
        label = label_of(name, kind)
        on_step(f"Fitting for comparison: {label}")
        started = time.perf_counter()
        try:
            with single_thread(), warnings.catch_warnings():
                # A fit that is not quite at its maximum is good enough for a comparison.
                warnings.simplefilter("ignore")
                member = kind.like(model.head_).fit(prepared.train, validation, prepared.plan.seed)
        except NotApplicableError as error:
            warnings.warn(f"Not compared with {label}: {error}.", UserWarning, stacklevel=2)
            continue
        except KeyboardInterrupt:
            on_step(f"Stopping: not compared with {label}")
            return True
        model.predictor_.add(name, member, time.perf_counter() - started)
    return False


def _calibrate(model: CountRegressor, prepared: Prepared) -> None:
    """Calibrate intervals and out-of-distribution scores on validation rows; never on test rows."""
    rows = prepared.validation
    if not len(rows):
        return
    with single_thread():
        model.predictor_.calibrate_intervals(rows, PRIOR_ROWS)
        model.predictor_.calibrate_ood(rows.X, rows.exposure, alpha=max(_ALPHA, 1.0 / (len(rows) + 1)))


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("ddpn", "torch", "scikit-learn", "numpy", "polars")}
    return {"python": platform.python_version(), **packages}
