"""Fit a prepared table: the model, what it is compared with, calibration, scores, and the folder they are saved in."""

import glob
import json
import os
import platform
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ddpn.calibration.calibrate import Wanted, calibrate
from ddpn.deadlines import Clock, TimeLimitError, with_rows
from ddpn.errors import InputError
from ddpn.estimators import CountRegressor
from ddpn.executors import Executor
from ddpn.files import check_space, folder_lock
from ddpn.heads import Head
from ddpn.members import MEMBERS
from ddpn.members.folds import Folds
from ddpn.members.member import Member, NotApplicableError
from ddpn.members.network_options import SMALL_ROWS, NetworkOptions
from ddpn.model_files import check_destination
from ddpn.predictor import Predictor
from ddpn.sample import Sample
from ddpn.threads import single_thread
from ddpn.workflow.budget import Budget
from ddpn.workflow.kept_warnings import kept_warnings
from ddpn.workflow.leaderboard import label_of, leaderboard
from ddpn.workflow.model_folder import CHECKPOINT, FORMAT, ModelFolder
from ddpn.workflow.preparing import Prepared, checkpoint_of, fingerprint, identity
from ddpn.workflow.seen_rows import SeenRows

#: Rows that the level of all rows counts as in each group.
GROUP_ROWS = 50.0
#: Bytes that trees, encoders and text take in a model folder: some MB for the default baselines.
_FIXED_BYTES = 10_000_000


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
    started: float | None = None,
    executor: Executor | None = None,
) -> Fitted:
    """Fit the model and what it is compared with, calibrate on validation rows and score on test rows.

    `about` goes into the task as it is; `on_step` is called with a description of each step. Ctrl-C ends the training
    of the networks or of members to compare with; the other steps continue with what was fitted so far. The plan's time
    budget, if there is one, counts from `started` (as `time.monotonic` counts) until the model is saved.
    """
    budget = Budget(prepared.plan.seconds, started)
    # Before the time that is left is divided: these take seconds for many rows.
    known = {"identity": identity(prepared), "fingerprint": fingerprint(prepared.sample)}
    seen = SeenRows.of(prepared.sample, prepared.split.rows.test)
    model = prepared.plan.regressor(checkpoint=checkpoint, verbose=verbose, validation=None)
    model.set_params(time_budget=budget.for_fits, executor=executor)
    with kept_warnings() as kept:
        interrupted = train_model(model, prepared, checkpoint, on_step)
        folds = held_out_folds(model, prepared)
        interrupted |= _add_comparisons(model, prepared, folds, budget, on_step)
    on_step("Calibrating on rows that were not trained on")
    if folds.are_crossed or len(prepared.validation):
        calibrate(model.predictor_, folds, prepared.plan.seed, _wanted(prepared), budget.for_calibration)
    on_step("Scoring the test rows")
    scores, limits = _scored(model.predictor_, prepared, budget.for_scores), []
    if scores["rows"] < len(prepared.test):
        limits = [f"Scores are those of {scores['rows']:,} of {len(prepared.test):,} test rows, for want of time."]
    task = {
        "format": FORMAT,
        "plan": prepared.plan.as_dict(),
        **known,
        "roles": prepared.roles.as_dict(),
        "split": {"how": prepared.split.how, "meaning": prepared.split.meaning, "rows": prepared.counts},
        "interrupted": interrupted,
        "leaks": list(prepared.leaks),
        "warnings": [*prepared.warnings, *kept, *limits],
        "test": scores,
        "versions": _versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **about,
    }
    # As it will be read again: lists instead of tuples.
    return Fitted(ModelFolder(model, json.loads(json.dumps(task)), seen), interrupted)


def fit_into(
    path: Path, prepared: Prepared, about: Mapping[str, Any], overwrite: bool = False, **options: Any
) -> Fitted:
    """Fit and save a model folder. An interrupted fit keeps its checkpoint, from which the same fit continues.

    While it runs, no other process can write the folder. If the model cannot be saved in the end, it is kept elsewhere,
    and an `InputError` says where.

    Parameters
    ----------
    path : Path
        The folder to make.
    prepared : Prepared
        What `prepare` returned.
    about : mapping
        Further facts to save with the model, such as the command; values that JSON can hold.
    overwrite : bool
        Whether to replace a model that is there already.
    **options
        `verbose` (bool) shows progress; `on_step` is called with a description of each step; `started` is when the time
        budget began, as `time.monotonic` counts; `executor` is where members are fitted, if not in this process.

    Returns
    -------
    Fitted
        The model folder, and whether the fit was interrupted.
    """
    check_destination(path, overwrite)
    check_space(path, _estimated_bytes(prepared))
    with folder_lock(path):
        checkpoint = checkpoint_of(path, prepared)
        on_step = options.get("on_step", lambda text: None)
        if checkpoint.exists():
            on_step("Continuing the fit that was interrupted")
        elif (path / CHECKPOINT).is_file():
            on_step("Starting again: the interrupted fit had other rows or options")
        fitted = fit(prepared, about, checkpoint, **options)
        can_continue = fitted.interrupted and checkpoint.exists()
        try:
            _save(fitted, path, overwrite, checkpoint)
        finally:
            pattern = f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}.checkpoint"
            for old in path.parent.glob(pattern):
                old.unlink()
            for folder in path.parent.glob(f"{pattern}.jobs"):
                shutil.rmtree(folder)
    return replace(fitted, can_continue=can_continue)


def _estimated_bytes(prepared: Prepared) -> int:
    """About what the model and its checkpoint take on the disk: few bytes more than they need at least."""
    known = {name: v for name, v in prepared.plan.model.items() if name in ("members", "hidden") and v != "auto"}
    options = NetworkOptions(**known)
    widths = [len(prepared.roles.used), *options.with_widths(len(prepared.train)).widths, 2]
    weights = options.members * sum((a + 1) * b for a, b in pairwise(widths))
    # Float32: the model itself, and in the checkpoint current, averaged and best weights and two moments.
    return _FIXED_BYTES + 4 * 6 * weights


def _save(fitted: Fitted, path: Path, overwrite: bool, checkpoint: Path) -> None:
    """Save the model; where that fails, keep it in the user's cache folder, or else among temporary files."""
    state = checkpoint if fitted.interrupted else None
    try:
        fitted.folder.save(path, overwrite, state)
        return
    except (OSError, InputError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error).rstrip(".")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    name = f"{path.name}-{datetime.now():%Y%m%d-%H%M%S}"
    for folder in (Path(cache, "ddpn", "unsaved"), Path(tempfile.gettempdir(), "ddpn-unsaved")):
        try:
            fitted.folder.save(folder / name, checkpoint=state)
        except OSError:
            continue
        kept = f"The fitted model is kept in {folder / name}. Use it there, or move that folder to a better place."
        raise InputError(f"The model cannot be saved in {path}: {reason}. {kept}")
    raise InputError(f"The model cannot be saved in {path}: {reason}. Nor can it be kept in {cache}: it is lost.")


def train_model(
    model: CountRegressor, prepared: Prepared, checkpoint: Path | None, on_step: Callable[[str], None]
) -> bool:
    """Fit the model; returns whether it was interrupted, with something to keep."""
    train, validation = prepared.train, prepared.validation
    counts = prepared.plan.count_range
    held_out = {"X_val": validation.X, "y_val": validation.y, "sample_weight_val": validation.weight}
    held_out |= {f"{name}_val": value for name, value in counts.arguments(validation).items()}
    if is_cross_fitted(prepared):
        train, held_out = prepared.known, {}
    on_step("Training")
    model.on_step, model.calibrates, model.stream = on_step, False, prepared.stream
    try:
        given = counts.arguments(train) | (held_out if len(validation) else {})
        if train.group is not None:
            given["groups"] = train.group
        model.fit(train.X, train.y, train.weight, **given)
    except KeyboardInterrupt:
        if not hasattr(model, "predictor_"):
            if checkpoint is not None:
                checkpoint.unlink(missing_ok=True)
            raise
        on_step("Stopping: the best so far is kept")
    # A saved model has no use for these.
    model.stream = None
    model.set_params(checkpoint=None, verbose=False, time_budget=None, executor=None)
    return model.interrupted_


def is_cross_fitted(prepared: Prepared) -> bool:
    """Whether validation rows are training rows too: few rows of a portfolio, which leaves out folds of them."""
    plan = prepared.plan
    at_random = plan.split_column is None and plan.time is None
    is_small = at_random and len(prepared.known) <= SMALL_ROWS
    return plan.members == "auto" and (is_small or not len(prepared.validation))


def held_out_folds(model: CountRegressor, prepared: Prepared) -> Folds:
    """The rows that members were fitted to, and those that choose weights and calibrate."""
    folds, model.folds = model.folds, None
    validation = prepared.validation if len(prepared.validation) else None
    return Folds(prepared.train, validation) if folds is None else folds


def _add_comparisons(
    model: CountRegressor,
    prepared: Prepared,
    folds: Folds,
    budget: Budget,
    on_step: Callable[[str], None],
) -> bool:
    """Fit the members of `compare_with` that are not part of the mixture; returns whether that was interrupted."""
    wanted = [name for name in prepared.plan.compare_with if name not in model.predictor_.members]
    for name in wanted:
        kind = MEMBERS.find(name)
        label = label_of(name, kind)
        if not budget.has_time:
            warnings.warn(f"Not compared with {label}, for want of time.", UserWarning, stacklevel=2)
            continue
        on_step(f"Fitting for comparison: {label}")
        started = time.perf_counter()
        try:
            with single_thread(), warnings.catch_warnings():
                # A fit that is not quite at its maximum is good enough for a comparison.
                warnings.simplefilter("ignore")
                with budget.for_comparison.limit():
                    member = folds.fit(lambda kind=kind: kind.like(model.head_), prepared.plan.seed)  # type: ignore[misc]
        except (NotApplicableError, TimeLimitError) as error:
            warnings.warn(f"Not compared with {label}: {error}.", UserWarning, stacklevel=2)
            continue
        except KeyboardInterrupt:
            on_step(f"Stopping: not compared with {label}")
            return True
        model.predictor_.add(name, member, time.perf_counter() - started)
    return False


def _wanted(prepared: Prepared) -> Wanted:
    """What the plan asks to calibrate."""
    plan = prepared.plan
    return Wanted(plan.recalibrate != "off", plan.interval_groups, GROUP_ROWS, prepared.time_columns)


def _scored(predictor: Predictor, prepared: Prepared, clock: Clock) -> dict[str, Any]:
    """The leaderboard of as many test rows as there is time for."""
    test = prepared.test
    order = np.random.default_rng(0).permutation(len(test))

    def work(number: int) -> dict[str, Any]:
        some = test if number == len(test) else test.rows(np.sort(order[:number]))
        return leaderboard(predictor, some, prepared.leaks, prepared.split.meaning)

    return with_rows(clock, len(test), work)


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("ddpn", "torch", "scikit-learn", "numpy", "polars")}
    return {"python": platform.python_version(), **packages}
