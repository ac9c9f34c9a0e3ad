"""The search: trial after trial until the time or the number of trials is spent, the defaults first."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ddpn.deadlines import Clock, TimeLimitError
from ddpn.durations import format_duration
from ddpn.errors import DDPNError
from ddpn.training.monitoring import EpochReport
from ddpn.tuning.limits import Limit
from ddpn.tuning.space import Settings
from ddpn.tuning.study import Study, Trial, step_of
from ddpn.tuning.trials import run_fold
from ddpn.workflow.gains import mean_and_error
from ddpn.workflow.preparing import Prepared

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
    """

    folds: list[Prepared]
    study: Study
    defaults: Settings
    rows: int
    limit: Limit
    on_step: Callable[[str], object]
    started: float

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
        while self.limit.trials is None or len(self.study.trials) < self.limit.trials:
            if not self._has_time():
                return
            trial = Trial(self.study.ask(self.defaults) if self.study.trials else dict(self.defaults))
            clock = Clock(self.left)
            try:
                with clock.limit():
                    self._run(trial, clock)
            except TimeLimitError:
                self.study.forget()
                self.stopped = True
                return
            self.study.tell(trial)
            self.on_step(f"Trial {trial.number}: {trial.dropped or f'CRPS {self.mean(trial.scores):.4g}'}; "
                         f"{self._progress()}")  # fmt: skip

    def _progress(self) -> str:
        parts = [f"best {self.mean(self.best.scores):.4g} (trial {self.best.number})"]
        if self.limit.trials is not None:
            rest = max(0, self.limit.trials - len(self.study.trials))
            parts.append(f"{rest} {'trial' if rest == 1 else 'trials'} left")
        if self.left is not None:
            parts.append(f"{format_duration(max(0.0, self.left))} left before the refit")
        return ", ".join(parts)

    def _run(self, trial: Trial, clock: Clock) -> None:
        """Score the settings of a trial, fold by fold."""
        is_first, began = not self.study.trials, time.monotonic()
        try:
            while len(trial.means) < len(self.folds):
                self._score(trial, len(trial.means), clock)
                if is_first and len(trial.means) == 1:
                    self._limit_folds(trial.fold_seconds[0])
                elif not is_first:
                    self._race(trial)
        except DroppedError as reason:
            trial.dropped = str(reason)
        except DDPNError as error:
            if is_first or isinstance(error, TimeLimitError):
                raise  # the defaults must be fitted in the end
            trial.dropped = f"failed: {error}"
        trial.seconds, trial.elapsed = time.monotonic() - began, self.elapsed

    def _limit_folds(self, seconds: float) -> None:
        """Use as many folds as leave time for a few trials: more trials on fewer rows are better than none."""
        if self.left is not None:
            self.folds = self.folds[: max(1, int(self.left / (_FEW * seconds)))]

    def _score(self, trial: Trial, number: int, clock: Clock) -> None:
        def check_time() -> None:
            if not clock.left:
                raise TimeLimitError("the time is up")

        def follow(report: EpochReport) -> None:
            check_time()
            third = 3 * report.epoch // report.epochs
            if report.scores is None or third in (0, 3):
                return
            step, value = step_of(number, third, report.metric), float(np.mean(report.scores))
            if step in trial.networks:
                return  # of further networks in the same fit the first ones decide
            trial.networks[step] = value
            if self.study.is_hopeless(step, value):
                raise DroppedError(f"dropped at epoch {report.epoch} of {report.epochs}")

        fold = self.folds[number]
        found = run_fold(fold, trial.settings, follow)
        check_time()  # a training that ran out of time ends with what it has
        trial.scores = np.concatenate([trial.scores, found.scores])
        trial.means.append(float(np.average(found.scores, weights=fold.test.weight_or_ones)))
        trial.fold_seconds.append(found.seconds)
        if not np.isfinite(found.scores).all():
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
