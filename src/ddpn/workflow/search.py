"""The search of `ddpn tune`: Optuna suggests settings, and prunes trials that are worse than the best one.

Optuna's ask-and-tell interface is used instead of `Study.optimize`, so that a search depends only on its seed and on
the scores of folds. The scores are stored in a folder. So a search that was killed continues with the same trials on
any machine, even if it ran several trials at once, and no fold is scored twice.
"""

import math
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ddpn.analysis.gains import MIN_GROUPS, mean_gain
from ddpn.rows.groups import encode_groups
from ddpn.runtime.deadlines import Clock, TimeLimitError, format_duration
from ddpn.runtime.display import plural
from ddpn.runtime.extras import import_extra
from ddpn.runtime.jobs import Job, Result, Workers, count_slots, run
from ddpn.storage.contents import arrays_from_bytes
from ddpn.storage.results import ResultStore
from ddpn.workflow.preparing import Prepared
from ddpn.workflow.search_space import RANGES, SETTINGS, default_settings
from ddpn.workflow.trials import Trial, score_fold, split_for_trials

#: A trial is pruned if it is worse than the best trial on the same rows with this p-value (half a standard error). The
#: test compares the mean scores of this many blocks of rows per fold.
_PRUNING_P_VALUE, _BLOCKS_PER_FOLD = 0.3, 20
#: In the first trials after the defaults, each setting keeps its default with this probability; others are random. The
#: second number is the number of these trials.
_KEEP_PROBABILITY, _N_RANDOM_TRIALS = 0.5, 8
#: The time that is reserved for the refit: this multiple of the seconds of a fold with the same settings
#: (docs/how-to/tune.md), because a fit has more networks and rows, comparisons and calibration; plus some seconds; and
#: at most a share of the budget.
_REFIT_FOLDS, _REFIT_SECONDS, _MAX_RESERVED_SHARE = 2.0, 5.0, 0.6


class ScoredRows:
    """The rows on which every trial is scored: the test rows of all folds, ordered by fold.

    The attributes `weight`, `group` and `block` are arrays with one value per row. `group` is None if there are no
    groups or too few groups (fewer than 5). `block` has the number of the block to which each row belongs: the rows of
    each fold are divided into at most 20 blocks of about equal size. All rows of a group are in the same block. A
    statistical test on the mean scores of the blocks decides whether a trial is pruned (ended early).
    """

    def __init__(self, folds: Sequence[Prepared]) -> None:
        tests = [fold.test for fold in folds]
        self.weight = np.concatenate([test.weight_or_ones for test in tests])
        groups = None if folds[0].sample.group is None else np.concatenate([test.group for test in tests])
        n_groups = 0 if groups is None else len(np.unique(groups))
        #: The number of groups, if there are too few to estimate the variation between groups; else 0.
        self.n_few_groups = n_groups if n_groups < MIN_GROUPS else 0
        self.group = None if self.n_few_groups else groups
        # In each fold, blocks of rows or groups have about the same size.
        codes = [encode_groups(len(test), test.group)[0] for test in tests]
        blocks = [
            _BLOCKS_PER_FOLD * fold + code * _BLOCKS_PER_FOLD // (code.max() + 1) for fold, code in enumerate(codes)
        ]
        self.block = np.concatenate(blocks)

    def __len__(self) -> int:
        return len(self.weight)

    def compute_block_means(self, losses: np.ndarray) -> dict[int, float]:
        """Return the weighted mean loss of each block of rows, as a dict by block number (`block`).

        `losses` has one loss per row, in the order of the folds. It may have only the rows of the first folds. Blocks
        without rows of positive weight are left out.
        """
        weight, block = self.weight[: len(losses)], self.block[: len(losses)]
        sums, totals = np.bincount(block, weight * losses), np.bincount(block, weight)
        return {step: float(sums[step] / totals[step]) for step in np.flatnonzero(totals).tolist()}


class Search:
    """A search that runs trials until the time or the number of trials is used up.

    The first trial has the default settings. New trials are suggested only when all running trials are completed. So
    suggestions depend on scores and not on the speed of machines.

    After `run`, the attribute `trials` has the completed trials. `stopped` is True if a trial was stopped at the
    deadline.

    Parameters
    ----------
    prepared : Prepared
        The table, and the options of the fit.
    names : sequence of str
        The settings to search, keys of `ddpn.workflow.search_space.SETTINGS`.
    folder : Path
        The folder in which scores are stored.
    clock : Clock
        The time limit of the search and of the final fit together.
    max_trials : int, optional
        The maximum number of trials, including the first one. Default: no limit.
    on_step : callable
        Called with a line of text about each completed trial.
    n_jobs : int or RayCluster, optional
        How many trials run at the same time, each in a process of its own; -1 means one per core. Trials may also run
        on a `RayCluster`. Default: one trial at a time, in this process.
    """

    def __init__(
        self,
        prepared: Prepared,
        names: Sequence[str],
        folder: Path,
        clock: Clock,
        max_trials: int | None = None,
        on_step: Callable[[str], object] = lambda text: None,
        n_jobs: Workers = None,
    ) -> None:
        self.folds = split_for_trials(prepared)
        self.rows = ScoredRows(self.folds)
        self.trials: list[Trial] = []
        self.stopped = False
        self.defaults = default_settings(names)
        self.store = ResultStore(folder)
        self._prepared, self._clock = prepared, clock
        self._max_trials = math.inf if max_trials is None else max_trials
        self._on_step, self._n_jobs = on_step, n_jobs
        optuna = import_extra("optuna", "tune")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._pruned = optuna.trial.TrialState.PRUNED
        in_range, one_of = optuna.distributions.FloatDistribution, optuna.distributions.CategoricalDistribution
        self._distributions = {
            name: in_range(*SETTINGS[name], log=True) if name in RANGES else one_of(SETTINGS[name]) for name in names
        }
        seed = prepared.plan.seed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # With `constant_liar`, running trials count as bad, so that different settings are suggested next.
            sampler = optuna.samplers.TPESampler(n_startup_trials=_N_RANDOM_TRIALS, seed=seed, constant_liar=True)
            pruner = optuna.pruners.WilcoxonPruner(p_threshold=_PRUNING_P_VALUE)
            self._study = optuna.create_study(sampler=sampler, pruner=pruner)
        self._study.enqueue_trial(self.defaults)
        # The first trials keep some of the defaults.
        random = np.random.default_rng(seed)
        for _ in range(_N_RANDOM_TRIALS):
            kept = {name: value for name, value in self.defaults.items() if random.random() < _KEEP_PROBABILITY}
            self._study.enqueue_trial(kept if len(kept) < len(names) else {})

    @property
    def best(self) -> Trial:
        """The trial with the smallest mean CRPS among those that were not dropped."""
        return min((trial for trial in self.trials if not trial.dropped), key=lambda trial: trial.crps or 0.0)

    @property
    def reserved(self) -> float:
        """The time in seconds that is reserved for fitting the final model with the best settings so far.

        It is estimated from the time that the best trial took, and is at most 60% of the time limit. Before the first
        trial, it is 60% of the time limit.
        """
        max_seconds = _MAX_RESERVED_SHARE * (self._clock.end - self._clock.started)
        if not self.trials:
            return max_seconds
        ratio = self._prepared.counts["train"] / self.folds[0].counts["train"]
        return min(max_seconds, _REFIT_SECONDS + _REFIT_FOLDS * ratio * float(np.mean(self.best.seconds)))

    def run(self) -> None:
        """Run trials until a limit is reached.

        Ctrl-C raises a `KeyboardInterrupt`. The scores of completed folds stay stored, so that the search can continue.
        """
        if self.store.folder.exists():
            self._on_step("Continuing with the scores of the interrupted search")
        width = self._count_simultaneous_trials()
        while len(self.trials) < self._max_trials:
            clock = self._clock.part(self._clock.left - self.reserved)
            if not clock.left:
                return
            number = int(min(width, self._max_trials - len(self.trials))) if self.trials else 1
            handles = [self._study.ask(self._distributions) for _ in range(number)]
            trials = [Trial(handle.number, dict(handle.params), handle=handle) for handle in handles]
            try:
                with clock.limit():
                    self._score_trials(trials, clock)
            except TimeLimitError:
                self.stopped = True
                return
            for trial in trials:
                self.trials.append(trial)
                self._on_step(self._describe_trial(trial))

    def _count_simultaneous_trials(self) -> int:
        """Return the number of trials to run at the same time: as many as `n_jobs` allows.

        A new search stores this number. An interrupted search that continues returns the stored number, so that it
        repeats the same trials.
        """
        if (stored := self.store.read("width")) is not None:
            return int(stored["width"])
        width = count_slots(self._n_jobs)
        self.store.write("width", {"width": str(width).encode()}, "the number of trials at once")
        return width

    def _describe_trial(self, trial: Trial) -> str:
        """Return a line about a completed trial, the best trial so far, and the time or the number of trials left."""
        outcome = trial.dropped or f"CRPS {trial.crps:.4g}"
        parts = [f"Trial {trial.number}: {outcome}; best {self.best.crps:.4g} (trial {self.best.number})"]
        if self._max_trials < math.inf:
            parts.append(f"{plural(int(self._max_trials) - len(self.trials), 'trial')} left")
        if self._clock.has_limit:
            seconds = max(0.0, self._clock.left - self.reserved)
            parts.append(f"{format_duration(seconds)} left before the refit")
        return ", ".join(parts)

    def _score_trials(self, trials: list[Trial], clock: Clock) -> None:
        """Score new trials fold by fold, and tell Optuna the result of each trial.

        After each fold, trials that failed or that Optuna prunes are dropped, and the next fold is scored without them.
        If the time of `clock` runs out, raise a `TimeLimitError`.
        """
        default_trial = self.trials[0] if self.trials else trials[0]
        for number in range(len(self.folds)):
            remaining = [trial for trial in trials if not trial.dropped]
            jobs = [
                Job(f"fold {number + 1} of a trial", score_fold, (number, one.settings, clock), [number, one.settings])
                for one in remaining
            ]
            results = {result.job: result for result in run(jobs, self.folds, self._n_jobs, self.store)}
            for trial, job in zip(remaining, jobs, strict=True):
                self._add_fold_scores(trial, default_trial, number, results[job])
        for trial in trials:
            trial.elapsed = time.monotonic() - self._clock.started
            if n_rows := len(trial.scores):
                group = None if self.rows.group is None else self.rows.group[:n_rows]
                gain = mean_gain(default_trial.scores[:n_rows] - trial.scores, self.rows.weight[:n_rows], group=group)
                trial.gain, trial.error = gain.mean, gain.error
            value = None if trial.dropped else -(trial.gain or 0.0)
            self._study.tell(trial.handle, value, state=self._pruned if trial.dropped else None)

    def _add_fold_scores(self, trial: Trial, default_trial: Trial, number: int, result: Result) -> None:
        """Add the scores of fold `number` to a trial; drop the trial if it failed or if Optuna prunes it.

        Optuna receives one number for each block of rows of this fold: the mean CRPS of `trial` in the block minus that
        of `default_trial`. A block is one of the at most 20 parts of about equal size into which the fold is
        divided (`ScoredRows`).

        `result` is what the job `score_fold` returned for this fold. `default_trial` is the trial with the default
        settings, and may be `trial` itself; the numbers are then 0. If the default trial failed, or if the time ran
        out, raise the error.
        """
        if result.error is not None:
            if trial is default_trial or isinstance(result.error, TimeLimitError):
                raise result.error  # without the defaults there is nothing to compare with
            trial.dropped = f"failed: {result.error}"
            return
        scored = arrays_from_bytes(result.get()["scores"])
        trial.scores = np.concatenate([trial.scores, scored["crps"]])
        trial.seconds.append(scored["seconds"].item())
        n_rows = len(trial.scores)
        trial.crps = float(np.average(trial.scores, weights=self.rows.weight[:n_rows]))
        assert trial.handle is not None
        for step, loss in self.rows.compute_block_means(trial.scores - default_trial.scores[:n_rows]).items():
            if step >= _BLOCKS_PER_FOLD * number:
                trial.handle.report(loss, step)
        if number + 1 < len(self.folds) and trial.handle.should_prune():
            trial.dropped = f"dropped after fold {number + 1} of {len(self.folds)}, CRPS {trial.crps:.4g}"
