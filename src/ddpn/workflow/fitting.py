"""Fit a prepared table: the model, what it is compared with, calibration, scores, and the folder they are saved in.

A time budget is spent on fits first; calibration and scores use as many rows as there is time for. Ctrl-C ends the step
that runs, and never loses what was fitted before.
"""

import glob
import json
import os
import platform
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, Self

import numpy as np

from ddpn.analysis.leaderboard import leaderboard, out_of_fold_leaderboard
from ddpn.calibration.calibrate import CalibrationOptions, HeldOut, calibrate, calibrate_copies
from ddpn.calibration.ood import FeatureProfile
from ddpn.estimators import CountRegressor
from ddpn.estimators.regressor import NetworkRegressor
from ddpn.members import MEMBERS, label_of
from ddpn.members.folds import Folds
from ddpn.members.member import NotApplicableError, Task
from ddpn.predictor import Predictor
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import Clock, TimeLimitError, format_duration
from ddpn.runtime.errors import InputError
from ddpn.runtime.jobs import Where
from ddpn.runtime.progress import progress_bar
from ddpn.runtime.threads import single_thread
from ddpn.runtime.time_plan import MIN_SECONDS_TO_COMPARE, clock_of_budget, clock_of_step, with_rows
from ddpn.storage.files import folder_lock
from ddpn.storage.model_files import check_destination
from ddpn.tables.row_draw import MAX_ROWS, draw_sample
from ddpn.tables.row_hashes import SeenRows
from ddpn.workflow.model_folder import CHECKPOINT, FORMAT, ModelFolder, load, read_task
from ddpn.workflow.plan import Plan
from ddpn.workflow.preparing import Prepared, checkpoint_of, identity

#: Rows that the level of all rows counts as in each group of calibrated intervals.
_GROUP_ROWS = 50.0


class Interrupts:
    """A context in which, after `hold`, Ctrl-C ends steps only; what lies between them, such as saving, is completed.

    Before `hold`, Ctrl-C raises a `KeyboardInterrupt` as usual. Signals reach the main thread only; in others, and
    outside of the context, steps run as they are. Once it is `stopped` by Ctrl-C, no further step is begun.

    >>> with Interrupts() as interrupts:
    ...     interrupts.hold()
    ...     interrupts.step(lambda: None), interrupts.step(lambda: signal.raise_signal(signal.SIGINT))
    (True, False)
    >>> interrupts.step(lambda: None)
    False
    """

    def __init__(self) -> None:
        self.stopped, self._holds, self._is_inside = False, False, False
        self._before: Any = None

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        # A program that was started to ignore Ctrl-C goes on ignoring it.
        if is_main and callable(signal.getsignal(signal.SIGINT)):
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._is_inside or not self._holds:
            self._is_inside = False  # raised once per step: a second Ctrl-C must not hit what follows
            raise KeyboardInterrupt
        self.stopped = True

    def hold(self) -> None:
        """From now on, Ctrl-C ends steps only."""
        self._holds = True

    def step(self, work: Callable[[], object]) -> bool:
        """Run a step, unless Ctrl-C was pressed before; returns whether the step was completed."""
        if self.stopped:
            return False
        try:
            self._is_inside = True
            work()
            self._is_inside = False
        except KeyboardInterrupt:
            self.stopped = True
            return False
        return True


@dataclass(frozen=True)
class Fitted:
    """The result of a fit; `can_continue` if it was interrupted and its state was kept."""

    folder: ModelFolder
    can_continue: bool = False

    @property
    def interrupted(self) -> bool:
        """Whether it ended early."""
        return bool(self.missing)

    @property
    def missing(self) -> list[str]:
        """What Ctrl-C ended or prevented: "training", "comparisons", "calibration", "scores"."""
        found: list[str] = self.folder.task.get("missing", [])
        return found


def fit(
    prepared: Prepared,
    about: Mapping[str, Any],
    checkpoint: Path | None = None,
    verbose: bool = False,
    on_step: Callable[[str], None] = lambda text: None,
    started: float | None = None,
    n_jobs: Where = None,
    interrupts: Interrupts | None = None,
    unfinished: ModelFolder | None = None,
) -> Fitted:
    """Fit the model and what it is compared with, calibrate on held-out rows, and score on test rows.

    Without test rows, every row is scored by the copies of the members that were fitted without it.

    `about` goes into the task as it is; `on_step` is called with a description of each step. Ctrl-C ends the training
    of the networks or of members to compare with; the other steps continue with what was fitted so far. Ctrl-C in one
    of these other steps ends all of them. The task names what is `missing` then. The plan's time budget, if there is
    one, counts from `started` (as `time.monotonic` counts) until the model is saved. With `interrupts`, nothing but a
    step is ended by Ctrl-C after the training. Of an `unfinished` model, only what is missing is done.
    """
    budget, interrupts = prepared.plan.seconds, interrupts or Interrupts()
    clock = clock_of_budget(budget, started)
    # Before the time that is left is divided: these take seconds for many rows.
    known = {"identity": identity(prepared), "fingerprint": prepared.fingerprint}
    seen = SeenRows.of(prepared.sample, prepared.split.rows.test)

    def step(text: str) -> None:
        on_step(f"{text}, {format_duration(round(clock.left))} left of the budget" if clock.has_limit else text)

    with _kept_warnings() as kept:
        if unfinished is None:
            model = prepared.plan.regressor(checkpoint=checkpoint, verbose=verbose, n_jobs=n_jobs)
            with progress_bar("Fitting", None, verbose):
                fitted = train_model(model, prepared, checkpoint, step, clock_of_step(clock, "members"))
                missing = ["training"] if model.interrupted_ else []
                missing += ["comparisons"] if _add_comparisons(model, prepared, fitted, clock, step) else []
                folds, is_calibrated = fitted, False
        else:
            step("Continuing with the members that were fitted")
            model, missing = unfinished.model, []
            is_calibrated = "calibration" not in unfinished.task["missing"]
            folds = Folds(prepared.train, prepared.validation)
            if unfinished.folds is not None:
                folds = folds_to_score(model.predictor_, prepared.sample, unfinished.folds)
        more, scores = _finish(model.predictor_, prepared, folds, is_calibrated, clock, interrupts, step)
    missing += more
    packages = {name: version(name) for name in ("ddpn", "torch", "scikit-learn", "numpy", "polars")}
    task = {
        "format": FORMAT,
        "plan": prepared.plan.as_dict(),
        **known,
        "roles": prepared.roles.as_dict(),
        "split": {"how": prepared.split.how, "meaning": prepared.split.meaning, "rows": prepared.counts},
        "interrupted": bool(missing),
        "missing": missing,
        "leaks": list(prepared.leaks),
        "warnings": [*prepared.warnings, *kept],
        **({} if scores is None else {"scores": scores}),
        "versions": {"python": platform.python_version(), **packages},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **about,
    }
    # As it will be read again: lists instead of tuples.
    numbers = folds.number if prepared.is_scored_out_of_fold else None
    return Fitted(ModelFolder(model, json.loads(json.dumps(task)), seen, numbers))


@contextmanager
def _kept_warnings() -> Iterator[list[str]]:
    """The texts of the warnings that are shown in the block, each once; those for programmers are left out."""
    kept: list[str] = []
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            usual(message, category, *place, **more)
            if issubclass(category, UserWarning | RuntimeWarning) and str(message) not in kept:
                kept.append(str(message))

        warnings.showwarning = show
        yield kept


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
        budget began, as `time.monotonic` counts; `n_jobs` is where members are fitted, if not in this process.

    Returns
    -------
    Fitted
        The model folder, and whether the fit was interrupted.
    """
    check_destination(path, overwrite)
    with folder_lock(path):
        checkpoint = checkpoint_of(path, prepared)
        on_step = options.get("on_step", lambda text: None)
        if checkpoint.exists():
            on_step("Continuing the fit that was interrupted")
        elif (path / CHECKPOINT).is_file():
            on_step("Starting again: the interrupted fit had other rows or options")
        with Interrupts() as interrupts:
            unfinished = _unfinished(path, prepared)
            fitted = fit(prepared, about, checkpoint, interrupts=interrupts, unfinished=unfinished, **options)
            can_continue = fitted.interrupted and (checkpoint.exists() or _can_finish(fitted.missing, prepared))
            interrupts.hold()
            try:
                _save(fitted, path, overwrite, checkpoint)
            finally:
                # What interrupted fits of this folder have left beside it.
                pattern = f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}.checkpoint"
                for old in path.parent.glob(pattern):
                    old.unlink()
                for folder in path.parent.glob(f"{pattern}.jobs"):
                    shutil.rmtree(folder)
    return replace(fitted, can_continue=can_continue)


def _can_finish(missing: Sequence[str], prepared: Prepared) -> bool:
    """Whether the saved model is all that the missing steps need.

    Scores always are. Calibration is not, if it needs to know which rows each copy of a member left out.
    """
    return missing == ["scores"] or (missing == ["calibration", "scores"] and not prepared.is_cross_fitted)


def _unfinished(path: Path, prepared: Prepared) -> ModelFolder | None:
    """The model in the folder, if it is of the same fit, and if only what follows the fits is missing."""
    try:
        task = read_task(path)
    except InputError:
        return None
    is_same = task.get("identity") == identity(prepared)
    return load(path) if is_same and _can_finish(task.get("missing", []), prepared) else None


def _finish(
    predictor: Predictor,
    prepared: Prepared,
    folds: Folds,
    is_calibrated: bool,
    clock: Clock,
    interrupts: Interrupts,
    on_step: Callable[[str], None],
) -> tuple[list[str], dict[str, Any] | None]:
    """Calibrate by the held-out rows of `folds`, unless that was done, and score the test rows or, without any, these.

    Both use as many rows as there is time for. Returns the steps that Ctrl-C ended or prevented, and the leaderboard,
    None if it did.
    """
    plan, options = prepared.plan, calibration_options(prepared.plan, prepared.time_columns)
    missing, scores, held_out = list[str](), list[dict[str, Any]](), list[HeldOut]()

    def calibrate_by(clock: Clock) -> None:
        held_out.append(calibrate(predictor, folds, plan.seed, options, clock))
        _warn_of_few("calibrated with", len(held_out[0]), sum(map(len, folds.held_out)), "rows")

    def score(clock: Clock) -> None:
        about = prepared.leaks, prepared.split.meaning
        if prepared.is_scored_out_of_fold:
            rows = held_out[0] if held_out else calibrate_copies(predictor, folds, plan.seed, options)
            total, words = len(folds.train), "rows"
            board = with_rows(
                clock, len(rows), lambda n: out_of_fold_leaderboard(predictor, rows.some(n, plan.seed), *about)
            )
        else:
            test, words = prepared.test, "test rows"
            total = min(len(test), MAX_ROWS)
            board = with_rows(
                clock, total, lambda n: leaderboard(predictor, draw_sample(test, n).take(test), *about, total=len(test))
            )
        scores.append(board.to_dict())
        _warn_of_few("scored on", board.rows, total, words)

    interrupts.hold()
    if not is_calibrated and not folds.are_crossed and folds.validation is None:
        predictor.profile = FeatureProfile.fit(folds.train.X, folds.train.weight, prepared.time_columns)
    elif not is_calibrated:
        on_step("Calibrating on rows that were not trained on")
        if not interrupts.step(partial(calibrate_by, clock_of_step(clock, "calibration"))):
            missing.append("calibration")
            warnings.warn("The model is not calibrated, because the fit was stopped.", UserWarning, stacklevel=2)
            # Ctrl-C may have left some of it.
            predictor.intervals, predictor.groups, predictor.recalibrations, predictor.ood = {}, None, {}, None
    on_step("Scoring every row out of fold" if prepared.is_scored_out_of_fold else "Scoring the test rows")
    if not interrupts.step(partial(score, clock_of_step(clock, "scores"))):
        missing.append("scores")
        warnings.warn("The model is not scored, because the fit was stopped.", UserWarning, stacklevel=2)
    return missing, scores[0] if scores else None


def calibration_options(plan: Plan, time_columns: Sequence[str] = ()) -> CalibrationOptions:
    """Return what is calibrated in a model of this plan."""
    return CalibrationOptions(True, plan.interval_groups, _GROUP_ROWS, time_columns)


def folds_to_score(predictor: Predictor, sample: CountRows, number: np.ndarray) -> Folds:
    """Return the folds of a saved model: the rows that it was fitted to, and the fold of each."""
    return Folds(sample.replace(X=predictor.prepared(sample.X)), None, number)


def _warn_of_few(what: str, used: int, known: int, rows: str) -> None:
    if used < known:
        sentence = f"The model is {what} {used:,} of {known:,} {rows}, because the time budget is too short for more."
        warnings.warn(sentence, UserWarning, stacklevel=4)


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
    model: NetworkRegressor,
    prepared: Prepared,
    checkpoint: Path | None,
    on_step: Callable[[str], None],
    clock: Clock = Clock(),  # noqa: B008
) -> Folds:
    """Fit the members of the model; `interrupted_` says whether Ctrl-C ended that, with something to keep.

    Returns the rows that members were fitted to, and those that choose weights and calibrate.
    """
    train, validation = prepared.train, prepared.validation
    if prepared.is_cross_fitted:
        train, validation = prepared.known, validation.rows(slice(0, 0))
    on_step("Training")
    counts, held_out = prepared.plan.count_range, validation if len(validation) else None
    try:
        folds = model.fit_members(train, held_out, counts, clock, on_step, prepared.stream).folds
    except KeyboardInterrupt:
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
        raise
    if model.interrupted_:
        on_step("Stopping: the best so far is kept")
    # A saved model has no use for these.
    model.set_params(checkpoint=None, verbose=False, n_jobs=None)
    if isinstance(model, CountRegressor):
        model.set_params(time_budget=None)
    return folds


def _add_comparisons(
    model: NetworkRegressor,
    prepared: Prepared,
    folds: Folds,
    clock: Clock,
    on_step: Callable[[str], None],
) -> bool:
    """Fit the members of `compare_with` that are not part of the mixture; returns whether that was interrupted."""
    wanted = [name for name in prepared.plan.compare_with if name not in model.predictor_.members]
    for name in wanted:
        kind = MEMBERS.find(name)
        label = label_of(name, kind)
        if clock.has_limit and clock.left <= MIN_SECONDS_TO_COMPARE:
            sentence = f"Not compared with {label}, because the time budget ran out."
            warnings.warn(sentence, UserWarning, stacklevel=2)
            continue
        on_step(f"Fitting for comparison: {label}")
        started = time.perf_counter()
        try:
            with single_thread(), warnings.catch_warnings():
                # A fit that is not quite at its maximum is good enough for a comparison.
                warnings.simplefilter("ignore")
                with (own := clock_of_step(clock, "comparisons")).limit():
                    task = Task(model.head_, len(folds.train), own)
                    member = folds.fit(kind.like(task), prepared.plan.seed)
        except (NotApplicableError, TimeLimitError) as error:
            warnings.warn(f"Not compared with {label}: {error}.", UserWarning, stacklevel=2)
            continue
        except KeyboardInterrupt:
            on_step(f"Stopping: not compared with {label}")
            return True
        model.predictor_.add(name, member, time.perf_counter() - started)
    return False
