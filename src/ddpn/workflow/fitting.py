"""Fit a model and the models it is compared with to a prepared table, calibrate, score, and save them in a folder.

With a time budget, the models are fitted first. Calibration and scoring then use as many rows as the time left allows.
Ctrl-C ends the current step, and everything that was fitted before is kept.

The task of a fit is the information about it that is saved with the model: the options (`FitConfig`, here called the
plan), columns, split, warnings and scores. A member is a model in the mixture. In a cross-fitted model, each member has
several copies, and each copy is fitted without one fold of the rows.
"""

import glob
import json
import os
import platform
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ddpn.analysis.leaderboard import Leaderboard, leaderboard, out_of_fold_leaderboard
from ddpn.calibration.calibrate import CalibrationOptions, calibrate
from ddpn.estimators.network_regressor import NetworkRegressor
from ddpn.members.folds import Folds
from ddpn.pipeline import CALIBRATION, FittedPipeline, PipelineOptions, calibrate_pipeline, describe_fewer_rows
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import format_duration
from ddpn.runtime.errors import InputError
from ddpn.runtime.jobs import Workers
from ddpn.runtime.progress import progress_bar
from ddpn.runtime.time_plan import Schedule, StepRunner, make_budget_clock, run_with_rows
from ddpn.storage.contents import JsonObject
from ddpn.storage.files import folder_lock
from ddpn.storage.model_files import check_destination
from ddpn.tables.row_draw import MAX_ROWS, draw_sample
from ddpn.tables.seen_rows import SeenRows
from ddpn.workflow.config import FitConfig
from ddpn.workflow.model_folder import CHECKPOINT, ModelFolder, SavedModel
from ddpn.workflow.preparing import Prepared, compute_identity, restore_checkpoint

#: In each group of calibrated intervals, the scores of all rows together count as much as this number of its own rows.
_GROUP_ROWS = 50.0


@dataclass(frozen=True)
class Fitted:
    """The result of a fit: the model, with information about the fit, in `folder`.

    `can_continue` is True if the fit was interrupted and its state was saved. Calling the same fit again then continues
    it.
    """

    folder: ModelFolder
    can_continue: bool = False

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C interrupted the fit."""
        return bool(self.missing)

    @property
    def missing(self) -> list[str]:
        """The steps that Ctrl-C interrupted or skipped: "training", "comparisons", "calibration", "scores"."""
        missing: list[str] = self.folder.task.get("missing", [])
        return missing


def fit(
    prepared: Prepared,
    about: Mapping[str, object],
    checkpoint: Path | None = None,
    verbose: bool = False,
    on_step: Callable[[str], None] = lambda text: None,
    started: float | None = None,
    n_jobs: Workers = None,
    runner: StepRunner | None = None,
    unfinished: ModelFolder | None = None,
) -> Fitted:
    """Fit the model and the models it is compared with, calibrate them on held-out rows, and score them.

    The test rows are scored. If there are none, every row is scored out of fold.

    Ctrl-C during the training ends it; the members and networks that were fitted so far are calibrated and scored.
    Ctrl-C during a later step skips all remaining steps. `Fitted.missing` lists the steps that were not completed.

    Parameters
    ----------
    prepared : Prepared
        The result of `prepare`.
    about : mapping
        Further information to save with the model. Its values must be valid in JSON.
    checkpoint : Path, optional
        The file in which the state of the training is saved, and from which an interrupted training continues.
    verbose : bool
        Whether to show progress.
    on_step : callable
        Called with a description of each step.
    started : float, optional
        The start of the time budget, on the scale of `time.monotonic`. Default: now.
    n_jobs : int or RayCluster, optional
        The number of processes, or the cluster, that fits members.
    runner : StepRunner, optional
        Runs the steps after the training.
    unfinished : ModelFolder, optional
        The saved model of an interrupted fit. If given, only its missing steps are done.
    """
    clock = make_budget_clock(prepared.plan.seconds, started)
    # Computed before the time left is divided, because it takes seconds for many rows.
    hashes = {"identity": compute_identity(prepared), "fingerprint": prepared.fingerprint}
    seen = SeenRows.from_sample(prepared.sample, prepared.split.rows.test)

    def step(text: str) -> None:
        on_step(f"{text}, {format_duration(round(clock.left))} left of the budget" if clock.has_limit else text)

    schedule = Schedule(clock, step, runner or StepRunner())
    with _collect_warnings() as kept:
        if unfinished is None:
            model = prepared.plan.regressor(checkpoint=checkpoint, verbose=verbose, n_jobs=n_jobs)
            with progress_bar("Fitting", None, verbose):
                fitted = fit_prepared_table(model, prepared, make_pipeline_options(prepared), schedule)
        else:
            step("Continuing with the fitted members")
            model = unfinished.model
            fitted = _restore_pipeline(unfinished, prepared, schedule)
        scores = _score(fitted, prepared, schedule)
        for note in fitted.notes:
            warnings.warn(note, UserWarning, stacklevel=2)
    missing, folds, model.leaks_ = fitted.missing, fitted.folds, prepared.leaks
    packages = {name: version(name) for name in ("ddpn", "torch", "scikit-learn", "numpy", "polars")}
    task = {
        "plan": prepared.plan.as_dict(),
        **hashes,
        "roles": prepared.roles.as_dict(),
        "split": {"how": prepared.split.description, "meaning": prepared.split.meaning, "rows": prepared.counts},
        "interrupted": bool(missing),
        "missing": missing,
        "leaks": list(prepared.leaks),
        "warnings": [*prepared.warnings, *kept],
        **({} if scores is None else {"scores": scores}),
        "versions": {"python": platform.python_version(), **packages},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **about,
    }
    # Through JSON, as it will be read from the file: tuples become lists.
    numbers = folds.fold_numbers if prepared.is_scored_out_of_fold else None
    return Fitted(ModelFolder(model, json.loads(json.dumps(task)), seen, numbers))


@contextmanager
def _collect_warnings() -> Iterator[list[str]]:
    """Return a context manager that collects the texts of warnings issued in its block; they are still shown.

    It yields the list of texts, which grows during the block and has no duplicates. Only warnings of the categories
    `UserWarning` and `RuntimeWarning` are collected.
    """
    texts: list[str] = []
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *location: Any, **more: Any) -> None:
            usual(message, category, *location, **more)
            if issubclass(category, UserWarning | RuntimeWarning) and str(message) not in texts:
                texts.append(str(message))

        warnings.showwarning = show
        yield texts


def fit_into(
    path: Path, prepared: Prepared, about: Mapping[str, object], overwrite: bool = False, **options: Any
) -> Fitted:
    """Fit a model and save it in a folder. An interrupted fit saves a checkpoint; the same call then continues it.

    The folder is locked during the fit. If the model cannot be saved there, it is saved elsewhere, and an `InputError`
    says where.

    Parameters
    ----------
    path : Path
        The folder to create.
    prepared : Prepared
        The result of `prepare`.
    about : mapping
        Further information to save with the model, such as the command. Its values must be valid in JSON.
    overwrite : bool
        Whether to replace an existing model.
    **options
        `verbose` (bool) shows progress. `on_step` is called with a description of each step. `started` is the start of
        the time budget, on the scale of `time.monotonic`. `n_jobs` is the number of processes, or the RayCluster, that
        fits members. `runner` runs the steps after the training; Ctrl-C ends the current step and skips the later ones.

    Returns
    -------
    Fitted
        The model folder, and whether the fit was interrupted.
    """
    check_destination(path, overwrite)
    with folder_lock(path):
        checkpoint = restore_checkpoint(path, prepared)
        on_step = options.get("on_step", lambda text: None)
        if checkpoint.exists():
            on_step("Continuing the fit that was interrupted")
        elif (path / CHECKPOINT).is_file():
            on_step("Starting again, because the interrupted fit had other rows or options")
        fitted = fit(prepared, about, checkpoint, unfinished=_load_incomplete(path, prepared), **options)
        can_continue = fitted.interrupted and (checkpoint.exists() or _can_finish(fitted.missing, prepared))
        try:
            _save(fitted, path, overwrite, checkpoint)
        finally:
            # Remove the checkpoints of interrupted fits of this folder.
            pattern = f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}.checkpoint"
            for old in path.parent.glob(pattern):
                old.unlink()
            for folder in path.parent.glob(f"{pattern}.jobs"):
                shutil.rmtree(folder)
    return replace(fitted, can_continue=can_continue)


def _can_finish(missing: Sequence[str], prepared: Prepared) -> bool:
    """Return True if the `missing` steps of a fit can be done with the saved model, without fitting it again.

    Scoring requires only the model. Calibrating a cross-fitted model also requires, for each copy of a member, the rows
    to which the copy was not fitted.
    """
    return missing == ["scores"] or (missing == ["calibration", "scores"] and not prepared.is_cross_fitted)


def _load_incomplete(path: Path, prepared: Prepared) -> ModelFolder | None:
    """Load the model that was saved when the same fit was interrupted.

    Return None if there is no such model, or if its missing steps require fitting it again.
    """
    try:
        saved = SavedModel(path)
        task = saved.task
    except InputError:
        return None
    is_same = task.get("identity") == compute_identity(prepared)
    return saved.load() if is_same and _can_finish(task.get("missing", []), prepared) else None


def fit_prepared_table(
    model: NetworkRegressor,
    prepared: Prepared,
    options: PipelineOptions,
    schedule: Schedule,
) -> FittedPipeline:
    """Fit the estimator `model` to a prepared table; return the fitted models and their held-out predictions.

    `options` lists the models to compare with and says how to calibrate. `schedule` has the steps of the fit and their
    time limit.

    If Ctrl-C ends the fit before any model is fitted, delete the checkpoint file of `model`, if it has one, and raise
    the `KeyboardInterrupt`.
    """
    train, validation = prepared.train, prepared.validation
    if prepared.is_cross_fitted:
        train, validation = prepared.train_and_validation, validation.rows(slice(0, 0))
    schedule.on_step("Training")
    counts, held_out = prepared.plan.count_range, validation if len(validation) else None
    try:
        return model.fit_rows(train, held_out, counts, options, schedule, prepared.stream)
    except KeyboardInterrupt:
        if model.checkpoint is not None:
            Path(model.checkpoint).unlink(missing_ok=True)
        raise


def _restore_pipeline(unfinished: ModelFolder, prepared: Prepared, schedule: Schedule) -> FittedPipeline:
    """Restore the fitted models and held-out rows of an interrupted fit from its saved model, `unfinished`.

    If the calibration is among the missing steps of that fit, calibrate the model within the time limit of `schedule`.
    """
    predictor = unfinished.model.predictor_
    folds = Folds(prepared.train, prepared.validation if len(prepared.validation) else None)
    if unfinished.folds is not None:
        folds = restore_folds(prepared.sample, unfinished.folds)
    seed = prepared.plan.seed
    fitted = FittedPipeline(predictor, folds, seed, {}, predictor.predict_held_out(folds, seed))
    if CALIBRATION in unfinished.task["missing"]:
        calibrate_pipeline(fitted, make_pipeline_options(prepared), schedule)
    return fitted


def _score(fitted: FittedPipeline, prepared: Prepared, schedule: Schedule) -> JsonObject | None:
    """Score the test rows or, if there are none, every row out of fold; return the leaderboard.

    The leaderboard is ready for JSON. `schedule` has the time limit; if time is short, fewer rows are scored, and a
    sentence about this is added to `fitted.notes`. If Ctrl-C interrupts this step or an earlier one, the result is
    None, and "scores" is added to `fitted.missing`.
    """
    predictor, seed, boards = fitted.predictor, prepared.plan.seed, list[Leaderboard]()
    about, is_out_of_fold = (prepared.leaks, prepared.split.meaning), prepared.is_scored_out_of_fold

    def work() -> None:
        score_clock = schedule.start_clock("scores")
        if is_out_of_fold:
            held_out = fitted.held_out or calibrate(
                predictor.predict_held_out(fitted.folds, seed),
                make_calibration_options(prepared.plan, prepared.time_columns),
                seed,
            )
            total, rows = len(fitted.folds.train), "rows"
            board = run_with_rows(
                score_clock, len(held_out), lambda n: out_of_fold_leaderboard(predictor, held_out.draw(n), *about)
            )
        else:
            test, rows = prepared.test, "test rows"
            total = min(len(test), MAX_ROWS)
            board = run_with_rows(
                score_clock,
                total,
                lambda n: leaderboard(predictor, draw_sample(test, n).take(test), *about, total=len(test)),
            )
        boards.append(board)
        fitted.notes += describe_fewer_rows("scored on", board.rows, total, rows)

    schedule.on_step("Scoring every row out of fold" if is_out_of_fold else "Scoring the test rows")
    if not schedule.runner.run(work):
        fitted.missing.append("scores")
        fitted.notes.append("The model is not scored, because the fit was stopped.")
        return None
    return boards[0].to_dict()


def make_pipeline_options(prepared: Prepared) -> PipelineOptions:
    """Make the `PipelineOptions` of `ddpn fit`: the models to compare with, how to calibrate, and the random seed."""
    plan = prepared.plan
    calibration = make_calibration_options(plan, prepared.time_columns)
    return PipelineOptions(plan.compare_with, calibration, plan.seed)


def make_calibration_options(plan: FitConfig, time_columns: Sequence[str] = ()) -> CalibrationOptions:
    """Make the calibration options for a configuration.

    `time_columns` are inputs that change with time, such as the year.
    """
    return CalibrationOptions(True, plan.interval_groups, _GROUP_ROWS, time_columns)


def restore_folds(sample: CountRows, fold_numbers: np.ndarray) -> Folds:
    """Make the folds of a saved cross-fitted model.

    `sample` has the training rows of the model, and `fold_numbers` the fold of each row, from 0. Shape: (rows,).
    """
    return Folds(sample, None, fold_numbers)


def _save(fitted: Fitted, path: Path, overwrite: bool, checkpoint: Path) -> None:
    """Save the model in `path`. If that fails, save it in the user's cache folder, or else in a temporary folder.

    If the model is not in `path`, raise an `InputError` that says where it is. The state in `checkpoint` is saved with
    the model if the fit was interrupted.
    """
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
        kept = f"It was saved in {folder / name} instead. Use it there, or move that folder."
        raise InputError(f"The model cannot be saved in {path}: {reason}. {kept}")
    raise InputError(
        f"The model cannot be saved in {path}: {reason}. Saving it in {cache} and in the temporary folder failed as "
        "well, so the model is lost. Free disk space and fit again."
    )
