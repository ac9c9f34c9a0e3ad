"""The search: trial after trial until the time or the number of trials is spent, the defaults first."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddpn.analysis.gains import mean_and_error
from ddpn.networks.training.monitoring import EpochReport
from ddpn.runtime.deadlines import Clock, TimeLimitError
from ddpn.runtime.durations import format_duration
from ddpn.runtime.errors import DDPNError
from ddpn.runtime.jobs import Job, Where, is_here, run, slots
from ddpn.storage.results import ResultStore
from ddpn.workflow.preparing import Prepared
from ddpn.workflow.tuning.limits import Limit
from ddpn.workflow.tuning.space import Settings
from ddpn.workflow.tuning.study import Study, Trial, step_of
from ddpn.workflow.tuning.trials import Scored, run_fold

#: Standard errors that a trial may be worse by than the best so far, on the same rows, to be scored on further folds.
_RACE = 0.5
#: A fit has more networks and rows than a trial, other models for comparison, and calibration: so many times the
#: seconds of a fold with the same settings (docs/how-to/tune.md), and some seconds more.
_REFIT, _REFIT_SECONDS = 2.0, 5.0
#: The share of the budget that may be reserved for the refit, and what has to be left to begin another trial.
_MOST_RESERVED, _WORTH = 0.6, 0.25
#: Trials that there should be time for.
_FEW = 8


class DroppedError(Exception):
    """Ends a trial that is not worth its time."""


@dataclass
class Search:
    """Run trials and keep them in a study.

    Parameters
    ----------
    folds : list of Prepared
        What each trial is fitted to and scored on.
    study : Study
        Trials so far.
    defaults : dict
        The settings of the first trial.
    rows : int
        Training rows of the refit.
    limit : Limit
        When to end.
    on_step : callable
        Called with a line on the progress.
    started : float
        When the search began, by `time.monotonic()`.
    n_jobs : int or RayCluster, optional
        How many trials run at once, as for `ddpn.runtime.jobs.run`. The next ones are chosen when all of these are
        over, so that they depend on scores alone, not on which machine is fast or fails.
    """

    folds: list[Prepared]
    study: Study
    defaults: Settings
    rows: int
    limit: Limit
    on_step: Callable[[str], object]
    started: float
    n_jobs: Where = None

    def __post_init__(self) -> None:
        self._spent = self.study.spent
        self.stopped = False
        if self.study.trials:
            self.folds = self.folds[: len(self.study.trials[0].means)]

    @property
    def weight(self) -> np.ndarray:
        """Weights of the rows that trials are scored on, in the order of the folds."""
        return np.concatenate([fold.test.weight_or_ones for fold in self.folds])

    # Time --------------------------------------------------------------------------------------------------------

    @property
    def elapsed(self) -> float:
        """Seconds of the search, those of earlier processes included."""
        return self._spent + time.monotonic() - self.started

    @property
    def deadline(self) -> float | None:
        """When trials must end, by `time.monotonic()`: the refit needs the rest."""
        if self.limit.seconds is None:
            return None
        return self.started + self.limit.seconds - self._spent - self.reserved

    @property
    def reserved(self) -> float:
        """Seconds to keep for the refit of the best trial so far."""
        assert self.limit.seconds is not None
        most = _MOST_RESERVED * self.limit.seconds
        if not self.study.trials:
            return most
        larger = self.rows / len(self.folds[0].split.rows.train)
        return min(most, _REFIT_SECONDS + _REFIT * larger * float(np.mean(self.best.fold_seconds)))

    @property
    def total_left(self) -> float | None:
        """Seconds that are left of the budget."""
        return None if self.limit.seconds is None else max(0.0, self.limit.seconds - self.elapsed)

    @property
    def left(self) -> float | None:
        """Seconds that trials may still take."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def _has_time(self) -> bool:
        if self.left is None:
            return True
        usual = float(np.median([t.fold_seconds[0] for t in self.study.trials if t.fold_seconds] or [0.0]))
        return self.left > max(_WORTH * usual, 0.0)

    # Trials ------------------------------------------------------------------------------------------------------

    @property
    def best(self) -> Trial:
        """The trial with the smallest mean CRPS among those that were scored on all rows; at first, the defaults."""
        whole = [trial for trial in self.study.trials if not trial.dropped]
        return min(whole, key=lambda trial: self.mean(trial.scores))

    def mean(self, scores: np.ndarray) -> float:
        """Mean CRPS of rows in the order of the folds, by their weights."""
        return float(np.average(scores, weights=self.weight[: len(scores)]))

    def run(self) -> None:
        """Run trials until a limit is reached; Ctrl-C is raised, and the trials that are over stay."""
        known = len(self.study.trials)
        if known:
            self.on_step(f"Continuing after {known} {'trials' if known > 1 else 'trial'}: {self._progress()}")
        width = 1 if is_here(self.n_jobs) else self.study.width_of(slots(self.n_jobs))
        while (rest := self._trials_left()) and self._has_time():
            trials = self._next(min(width, rest))
            clock = Clock(self.left)
            try:
                with clock.limit():
                    self._run(trials, clock)
            except TimeLimitError:
                self.study.forget()
                self.stopped = True
                return
            for trial in trials:
                self.study.tell(trial)
                self.on_step(f"Trial {trial.number}: {trial.dropped or f'CRPS {self.mean(trial.scores):.4g}'}; "
                             f"{self._progress()}")  # fmt: skip

    def _trials_left(self) -> float:
        return float("inf") if self.limit.trials is None else max(0, self.limit.trials - len(self.study.trials))

    def _next(self, number: float) -> list[Trial]:
        """The trials to run now: at first, the defaults."""
        if not self.study.trials:
            return [Trial(dict(self.defaults))]
        return [Trial(self.study.ask(self.defaults)) for _ in range(int(number))]

    def _progress(self) -> str:
        parts = [f"best {self.mean(self.best.scores):.4g} (trial {self.best.number})"]
        if self.limit.trials is not None:
            rest = max(0, self.limit.trials - len(self.study.trials))
            parts.append(f"{rest} {'trial' if rest == 1 else 'trials'} left")
        if self.left is not None:
            parts.append(f"{format_duration(max(0.0, self.left))} left before the refit")
        return ", ".join(parts)

    def _run(self, trials: Sequence[Trial], clock: Clock) -> None:
        """Score the settings of trials, fold by fold."""
        is_first, began = not self.study.trials, time.monotonic()
        bars = None if is_first else self.study.bars()
        while rest := [t for t in trials if not t.dropped and len(t.means) < len(self.folds)]:
            # Of the defaults nothing is dropped: when the first fold is timed, the others need not wait for each other.
            several = range(len(rest[0].means), len(self.folds)) if is_first and rest[0].means else [None]
            jobs = [(trial, len(trial.means) if fold is None else fold) for trial in rest for fold in several]
            for (trial, number), scored in zip(jobs, self._scored(jobs, bars, clock), strict=True):
                try:
                    self._take(trial, number, scored)
                    if not is_first:
                        self._race(trial)
                except DroppedError as reason:
                    trial.dropped = str(reason)
                except DDPNError as error:
                    if is_first or isinstance(error, TimeLimitError):
                        raise  # the defaults must be fitted in the end
                    trial.dropped = f"failed: {error}"
            if is_first and len(rest[0].means) == 1:
                self._limit_folds(rest[0].fold_seconds[0])
            for trial in rest:
                trial.seconds, trial.elapsed = time.monotonic() - began, self.elapsed

    def _scored(
        self, jobs: Sequence[tuple[Trial, int]], bars: dict[int, float] | None, clock: Clock
    ) -> list[Scored | DDPNError]:
        """How trials score on folds, here or as jobs."""
        if is_here(self.n_jobs):
            found: list[Scored | DDPNError] = []
            for trial, number in jobs:
                try:
                    fold = self.folds[number]
                    found.append(score_fold(fold, number, trial.settings, trial.networks, bars, clock))
                except DDPNError as error:
                    found.append(error)
            return found
        # By the clock on the wall, which machines share: a job may begin later.
        end = time.time() + clock.left if clock.has_limit else None
        known = [(number, trial.settings, sorted(trial.networks.items()), bars) for trial, number in jobs]
        work = [Job(f"fold {each[0] + 1} of a trial", fold_job, (*each, end), _identity(*each)) for each in known]
        store = ResultStore(self.study.folder / "jobs")
        results = {result.job: result for result in run(work, self.folds, self.n_jobs, store)}
        ordered = [results[job] for job in work]
        return [result.error or Scored.from_files(result.get()) for result in ordered]

    def _limit_folds(self, seconds: float) -> None:
        """Use as many folds as leave time for a few trials: more trials on fewer rows are better than none."""
        if self.left is not None:
            self.folds = self.folds[: max(1, int(self.left / (_FEW * seconds)))]

    def _take(self, trial: Trial, number: int, scored: Scored | DDPNError) -> None:
        """Add the scores of a fold to a trial."""
        if isinstance(scored, DDPNError):
            raise scored
        trial.networks |= scored.networks
        if scored.dropped:
            raise DroppedError(scored.dropped)
        trial.scores = np.concatenate([trial.scores, scored.scores])
        trial.means.append(float(np.average(scored.scores, weights=self.folds[number].test.weight_or_ones)))
        trial.fold_seconds.append(scored.seconds)
        if not np.isfinite(scored.scores).all():
            raise DroppedError("dropped: an infinite CRPS")

    def _race(self, trial: Trial) -> None:
        """Drop a trial that is worse than the best on the rows so far, before further folds."""
        rows = len(trial.scores)
        if rows == len(self.weight):
            return
        worse = trial.scores - self.best.scores[:rows]
        mean, error = mean_and_error(worse, self.weight[:rows])
        if mean > _RACE * error:
            raise DroppedError(f"dropped after fold {len(trial.means)} of {len(self.folds)}, "
                               f"CRPS {self.mean(trial.scores):.4g}")  # fmt: skip


def score_fold(
    fold: Prepared,
    number: int,
    settings: Settings,
    networks: dict[int, float],
    bars: dict[int, float] | None,
    clock: Clock,
) -> Scored:
    """Fit a trial to a fold and score it, unless its networks score worse than `bars` in the middle of their training.

    Parameters
    ----------
    fold : Prepared
        One of `folds_of`.
    number : int
        Its number.
    settings : dict
        The settings of the trial.
    networks : dict
        Scores of its networks by step, in earlier folds.
    bars : dict or None
        The largest score by step with which a trial goes on, see `Study.bars`; None if it goes on with any.
    clock : Clock
        Ends the fit with a `TimeLimitError`.
    """
    known = dict(networks)

    def check_time() -> None:
        if not clock.left:
            raise TimeLimitError("the time is up")

    def follow(report: EpochReport) -> None:
        check_time()
        third = 3 * report.epoch // report.epochs
        if report.scores is None or third in (0, 3):
            return
        step, value = step_of(number, third, report.metric), float(np.mean(report.scores))
        if step in known:
            return  # of further networks in the same fit the first ones decide
        known[step] = value
        if bars is not None and (not np.isfinite(value) or min(known.values()) > bars.get(step, np.inf)):
            raise DroppedError(f"dropped at epoch {report.epoch} of {report.epochs}")

    try:
        found = run_fold(fold, settings, follow)
    except DroppedError as reason:
        return Scored(np.zeros(0), 0.0, known, str(reason))
    check_time()  # a training that ran out of time ends with what it has
    return Scored(found.scores, found.seconds, known, "")


def fold_job(
    folds: list[Prepared],
    number: int,
    settings: Settings,
    networks: list[tuple[int, float]],
    bars: dict[int, float] | None,
    end: float | None,
) -> dict[str, bytes]:
    """`score_fold` as a job; `end` is when the time is up, as `time.time` counts."""
    clock = Clock(None if end is None else max(0.0, end - time.time()))
    with clock.limit():
        return score_fold(folds[number], number, settings, dict(networks), bars, clock).to_files()


def _identity(number: int, settings: Settings, networks: Any, bars: dict[int, float] | None) -> Any:
    """What a score depends on beside the table, the plan and the space, which have a folder of their own."""
    return [number, settings, networks, None if bars is None else sorted(bars.items())]
