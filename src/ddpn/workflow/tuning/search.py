"""The search: trial after trial until the time or the number of trials is spent, the defaults first.

Optuna suggests the settings of trials and drops those that are worse than the best (`WilcoxonPruner`). A search depends
on nothing but its seed and the scores of folds, which are kept in a folder: one that was killed is run again, and what
was scored before is read.
"""

import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ddpn.runtime.deadlines import Clock, TimeLimitError
from ddpn.runtime.durations import format_duration
from ddpn.runtime.errors import DDPNError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.jobs import Job, Where, run, slots
from ddpn.storage.results import ResultStore
from ddpn.workflow.preparing import Prepared
from ddpn.workflow.tuning.space import Choices, Limit, Settings, Space
from ddpn.workflow.tuning.trials import Scored, fold_job

#: A trial is scored on further folds unless it is worse than the best with this p-value, on the same rows: half of a
#: standard error. Blocks of rows of a fold, whose mean scores are compared.
_WORSE, _BLOCKS = 0.3, 20
#: In the first trials every setting keeps its default with this probability, and so many trials are of this kind.
KEEP, FIRST = 0.5, 8
#: A fit has more networks and rows than a trial, other models for comparison, and calibration: so many times the
#: seconds of a fold with the same settings (docs/how-to/tune.md), and some seconds more.
_REFIT, _REFIT_SECONDS = 2.0, 5.0
#: The share of the budget that may be reserved for the refit, and what has to be left to begin another trial.
_MOST_RESERVED, _WORTH = 0.6, 0.25
#: Trials that there should be time for.
_FEW = 8
#: Trials with scores that importances need, and trees of the forest that they are found from.
_ENOUGH, _TREES = 6, 32


@dataclass
class Trial:
    """Settings that were tried, and how they scored.

    Attributes
    ----------
    settings : dict
        Values by name.
    number : int
        Its number, from 0, the defaults.
    scores : array
        CRPS of the rows scored, in the order of the folds; fewer than all rows, or none, where the trial was dropped.
    means : list of float
        Mean CRPS of each fold that was scored.
    fold_seconds : list of float
        How long each fold took.
    elapsed : float
        Seconds of the search until its end.
    dropped : str
        Why it ended early, else "".
    """

    settings: Settings
    number: int = 0
    scores: np.ndarray = field(default_factory=lambda: np.zeros(0))
    means: list[float] = field(default_factory=list)
    fold_seconds: list[float] = field(default_factory=list)
    elapsed: float = 0.0
    dropped: str = ""


class Search:
    """Run trials.

    Parameters
    ----------
    folds : list of Prepared
        What each trial is fitted to and scored on.
    space : dict
        Ranges and choices by name.
    defaults : dict
        The settings of the first trial.
    limit : Limit
        When to end.
    rows : int
        Training rows of the refit.
    seed : int
        Seed of the trials.
    folder : Path
        Where scores are kept.
    on_step : callable
        Called with a line on the progress.
    started : float, optional
        When the search began, by `time.monotonic()`. Default: now.
    n_jobs : int or RayCluster, optional
        How many trials run at once, as for `ddpn.runtime.jobs.run`. The next ones are chosen when all of these are
        over, so that they depend on scores alone, not on which machine is fast or fails.

    Attributes
    ----------
    trials : list of Trial
        Trials that are over.
    stopped : bool
        Whether a trial was stopped at the deadline.
    """

    def __init__(
        self,
        folds: list[Prepared],
        space: Space,
        defaults: Settings,
        limit: Limit,
        *,
        rows: int,
        seed: int,
        folder: Path,
        on_step: Callable[[str], object] = lambda text: None,
        started: float | None = None,
        n_jobs: Where = None,
    ) -> None:
        self.folds, self.space, self.defaults, self.limit, self.rows, self.seed = (
            folds, space, defaults, limit, rows, seed
        )  # fmt: skip
        self.on_step, self.n_jobs, self.store = on_step, n_jobs, ResultStore(folder)
        self.trials: list[Trial] = []
        self.stopped = False
        self._started, self._earlier = time.monotonic() if started is None else started, 0.0
        self._optuna = import_extra("optuna", "tune")
        self._study = self._empty_study()

    @property
    def weight(self) -> np.ndarray:
        """Weights of the rows that trials are scored on, in the order of the folds."""
        return np.concatenate([fold.test.weight_or_ones for fold in self.folds])

    @property
    def best(self) -> Trial:
        """The trial with the smallest mean CRPS among those that were scored on all rows; at first, the defaults."""
        whole = [trial for trial in self.trials if not trial.dropped]
        return min(whole, key=lambda trial: self.mean(trial.scores))

    def mean(self, scores: np.ndarray) -> float:
        """Mean CRPS of rows in the order of the folds, by their weights."""
        return float(np.average(scores, weights=self.weight[: len(scores)]))

    # Time --------------------------------------------------------------------------------------------------------

    @property
    def elapsed(self) -> float:
        """Seconds of the search, those of earlier processes included."""
        return self._earlier + time.monotonic() - self._started

    @property
    def reserved(self) -> float:
        """Seconds to keep for the refit of the best trial so far."""
        most = _MOST_RESERVED * (self.limit.seconds or 0.0)
        if not self.trials:
            return most
        larger = self.rows / len(self.folds[0].split.rows.train)
        return min(most, _REFIT_SECONDS + _REFIT * larger * float(np.mean(self.best.fold_seconds)))

    @property
    def total_left(self) -> float | None:
        """Seconds that are left of the budget; None without one."""
        return None if self.limit.seconds is None else max(0.0, self.limit.seconds - self.elapsed)

    @property
    def left(self) -> float | None:
        """Seconds that trials may still take; None for no limit."""
        return None if self.limit.seconds is None else self.limit.seconds - self.elapsed - self.reserved

    def _has_time(self) -> bool:
        usual = float(np.median([t.fold_seconds[0] for t in self.trials if t.fold_seconds] or [0.0]))
        return self.left is None or self.left > _WORTH * usual

    # Trials ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run trials until a limit is reached; Ctrl-C is raised, and the folds that are scored stay."""
        width = self._width()
        while (rest := self._trials_left()) and self._has_time():
            handles = [self._study.ask(self._distributions()) for _ in range(min(width, rest) if self.trials else 0)]
            numbers = range(len(self.trials), len(self.trials) + max(1, len(handles)))
            settings = [dict(handle.params) for handle in handles] or [dict(self.defaults)]
            trials = [Trial(own, number) for own, number in zip(settings, numbers, strict=True)]
            clock = Clock(self.left)
            try:
                with clock.limit():
                    self._score(trials, handles, clock)
            except TimeLimitError:
                self.stopped = True
                return
            for trial in trials:
                self.trials.append(trial)
                self.on_step(f"Trial {trial.number}: {trial.dropped or f'CRPS {self.mean(trial.scores):.4g}'}; "
                             f"{self._progress()}")  # fmt: skip

    def _width(self) -> int:
        """How many trials run at once: what the first process of this search decided, so that a later one continues."""
        known = self.store.read("width")
        if known is not None:
            self.on_step("Continuing: what was scored before is read")
            return int(json.loads(known["width"]))
        width = slots(self.n_jobs)
        self.store.write("width", {"width": json.dumps(width).encode()}, "the number of trials at once")
        return width

    def _trials_left(self) -> int:
        most = 10**9 if self.limit.trials is None else self.limit.trials
        return max(0, most - len(self.trials))

    def _progress(self) -> str:
        parts = [f"best {self.mean(self.best.scores):.4g} (trial {self.best.number})"]
        if self.limit.trials is not None:
            rest = self._trials_left()
            parts.append(f"{rest} {'trial' if rest == 1 else 'trials'} left")
        if self.left is not None:
            parts.append(f"{format_duration(max(0.0, self.left))} left before the refit")
        return ", ".join(parts)

    def _score(self, trials: list[Trial], handles: list[Any], clock: Clock) -> None:
        """Score trials fold by fold, as long as they are not worse than the best; the defaults have no handle."""
        for number in range(len(self.folds)):
            rest = [trial for trial in trials if not trial.dropped]
            if number >= len(self.folds) or not rest:
                break  # of the defaults, the first fold has shown that there is time for fewer
            for trial, scored in zip(rest, self._scored(rest, number, clock), strict=True):
                self._take(trial, number, scored)
                if handles and not trial.dropped:
                    self._race(trial, handles[trial.number - trials[0].number])
            if not handles and number == 0 and self.left is not None:
                # More trials on fewer rows are better than none.
                self.folds = self.folds[: max(1, int(self.left / (_FEW * rest[0].fold_seconds[0])))]
        for trial in trials:
            trial.elapsed = self.elapsed
        self._tell(trials, handles)

    def _scored(self, trials: Sequence[Trial], number: int, clock: Clock) -> list[Scored | DDPNError]:
        """How trials score on a fold."""
        began, end = time.monotonic(), time.time() + clock.left if clock.has_limit else None
        name = f"fold {number + 1} of a trial"
        jobs = [Job(name, fold_job, (number, own.settings, end), [number, own.settings]) for own in trials]
        results = {result.job: result for result in run(jobs, self.folds, self.n_jobs, self.store)}
        found = [results[job].error or Scored.from_files(results[job].get()) for job in jobs]
        for error in found:
            if isinstance(error, TimeLimitError):
                raise error
        longest = max((each.seconds for each in found if isinstance(each, Scored)), default=0.0)
        # What was scored by an earlier process took its time then.
        self._earlier += max(0.0, longest - (time.monotonic() - began))
        return found

    def _take(self, trial: Trial, number: int, scored: Scored | DDPNError) -> None:
        """Add the scores of a fold to a trial."""
        if isinstance(scored, DDPNError):
            if trial.number == 0:
                raise scored  # the defaults must be fitted in the end
            trial.dropped = f"failed: {scored}"
            return
        trial.scores = np.concatenate([trial.scores, scored.scores])
        trial.means.append(float(np.average(scored.scores, weights=self.folds[number].test.weight_or_ones)))
        trial.fold_seconds.append(scored.seconds)
        if not np.isfinite(scored.scores).all():
            trial.dropped = "dropped: an infinite CRPS"

    def _race(self, trial: Trial, handle: Any) -> None:
        """Drop a trial that is worse than the best on the rows so far, before further folds."""
        for step, value in self._steps(trial).items():
            if step >= _BLOCKS * (len(trial.means) - 1):
                handle.report(value, step)
        if len(trial.means) < len(self.folds) and handle.should_prune():
            trial.dropped = (
                f"dropped after fold {len(trial.means)} of {len(self.folds)}, CRPS {self.mean(trial.scores):.4g}"
            )

    # Optuna ------------------------------------------------------------------------------------------------------

    def _empty_study(self) -> Any:
        """A study in which the first trials keep some of the defaults."""
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            # Trials in progress count as bad ones: others are tried beside them.
            sampler = self._optuna.samplers.TPESampler(n_startup_trials=FIRST, seed=self.seed, constant_liar=True)
            pruner = self._optuna.pruners.WilcoxonPruner(p_threshold=_WORSE)
            study = self._optuna.create_study(sampler=sampler, pruner=pruner)
            random = np.random.default_rng(self.seed)
            known = [name for name, values in self.space.items() if self.defaults[name] in values]
            for _ in range(FIRST):
                kept = [name for name in known if random.random() < KEEP]
                study.enqueue_trial({n: self.defaults[n] for n in kept} if len(kept) < len(self.space) else {})
        return study

    def _distributions(self) -> dict[str, Any]:
        of = self._optuna.distributions
        found = {}
        for name, values in self.space.items():
            if isinstance(values, Choices):
                found[name] = of.CategoricalDistribution(values.values)
            elif values.integer:
                found[name] = of.IntDistribution(int(values.low), int(values.high), log=True)
            else:
                found[name] = of.FloatDistribution(values.low, values.high, log=True)
        return found

    def _steps(self, trial: Trial) -> dict[int, float]:
        """By how much a trial is worse than the defaults in each block of rows."""
        worse = trial.scores - (self.trials[0] if self.trials else trial).scores[: len(trial.scores)]
        ends = np.cumsum([len(fold.test) for fold in self.folds])[: len(trial.means) - 1]
        values = np.split(worse, ends), np.split(self.weight[: len(worse)], ends)
        return {
            _BLOCKS * fold + number: float(np.average(block, weights=weight))
            for fold, pair in enumerate(zip(*values, strict=True))
            for number, (block, weight) in enumerate(zip(*(np.array_split(v, _BLOCKS) for v in pair), strict=True))
            if len(block) and weight.any()
        }

    def _tell(self, trials: list[Trial], handles: list[Any]) -> None:
        states = self._optuna.trial.TrialState
        for trial, handle in zip(trials, handles, strict=False):
            worse = None if trial.dropped else self.mean(trial.scores) - self.mean(self.trials[0].scores)
            self._study.tell(handle, worse, states.PRUNED if trial.dropped else states.COMPLETE)
        if not handles:
            self._study.add_trial(self._finished(trials[0], 0.0, self._steps(trials[0])))

    def _finished(self, trial: Trial, value: float, steps: dict[int, float]) -> Any:
        distributions = self._distributions()
        params = {name: v for name, v in trial.settings.items() if name in distributions and v in self.space[name]}
        known = {name: distributions[name] for name in params}
        return self._optuna.trial.create_trial(
            params=params, distributions=known, value=value, intermediate_values=steps
        )

    def importances(self, relative: Sequence[float | None]) -> dict[str, float]:
        """The share of the scores' variance that each setting explains (fANOVA), largest first; {} for few trials.

        `relative` has a score per trial, comparable between trials that were scored on different rows, or None.
        """
        scored = [(t, s) for t, s in zip(self.trials, relative, strict=True) if s is not None and np.isfinite(s)]
        whole = [(t, s) for t, s in scored if all(t.settings[name] in of for name, of in self.space.items())]
        if len(whole) < _ENOUGH or np.ptp([s for _, s in whole]) == 0.0:
            return {}
        study = self._optuna.create_study()
        for trial, score in whole:
            study.add_trial(self._finished(trial, float(score), {}))
        evaluator = self._optuna.importance.FanovaImportanceEvaluator(n_trees=_TREES, seed=self.seed)
        found = self._optuna.importance.get_param_importances(study, evaluator=evaluator)
        return {name: float(share) for name, share in found.items()}
