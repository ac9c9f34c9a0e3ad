"""`tune`: search for better settings of a model within a budget of time, and fit it with the best ones (`ddpn tune`).

A trial is the pipeline of `ddpn fit` with some settings, scored on rows that it was not fitted to. Optuna suggests the
settings and drops trials that are worse than the best (`WilcoxonPruner`). A search depends on nothing but its seed and
the scores of folds, which are kept in a folder: one that was killed is run again, and what was scored before is read.
"""

import json
import math
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch

from ddpn.analysis.gains import MIN_GROUPS, Gain, gain_of
from ddpn.distributions import discretized
from ddpn.metrics import crps
from ddpn.pipeline import PipelineOptions
from ddpn.rows.splits import fold_pairs, group_codes, random_parts
from ddpn.runtime.deadlines import Clock, TimeLimitError, format_duration
from ddpn.runtime.display import plural, value_text
from ddpn.runtime.errors import ConfigError, TrainingError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.jobs import Job, Where, run, slots
from ddpn.runtime.steps import StepRunner
from ddpn.runtime.threads import single_thread
from ddpn.storage.contents import arrays_from_bytes, arrays_to_bytes
from ddpn.storage.files import folder_lock, sha256
from ddpn.storage.model_files import check_destination
from ddpn.storage.results import ResultStore
from ddpn.workflow.config import MIN_SECONDS
from ddpn.workflow.fitting import Fitted, fit_into, fit_prepared
from ddpn.workflow.preparing import Prepared, identity
from ddpn.workflow.search_space import RANGES, SETTINGS, Settings, check_search, default_settings, with_settings
from ddpn.workflow.splitting import MIN_VALIDATED, SplitRows

#: Below so many training and validation rows, trials are scored on every one of them, in several folds.
CROSSED_ROWS, FOLDS = 5000, 3
#: Rows that trials are scored on at most: more take time and change no choice.
SCORED_ROWS = 2000
#: Networks of a trial at most: its score is compared with others of as many networks.
TRIAL_NETWORKS = 2
#: A trial is scored on further folds unless it is worse than the best with this p-value, on the same rows: half of a
#: standard error. Blocks of rows of a fold, whose mean scores are compared.
_WORSE, _BLOCKS = 0.3, 20
#: In the first trials every setting keeps its default with this probability, and so many trials are of this kind.
KEEP, FIRST = 0.5, 8
#: A fit has more networks and rows than a trial, other models for comparison, and calibration: so many times the
#: seconds of a fold with the same settings (docs/how-to/tune.md), some seconds more, and at most a share of the budget.
_REFIT, _REFIT_SECONDS, _MOST_RESERVED = 2.0, 5.0, 0.6
#: Standard errors that one other trial must be better by than the defaults, which are kept otherwise: as for the
#: weights of a mixture, what is not clearly worse and simpler is preferred.
_TOLERANCE = 0.5


@dataclass
class Trial:
    """Settings that were tried, and how they scored.

    Attributes
    ----------
    number : int
        Its number; 0 are the defaults.
    settings : dict
        Values by name.
    crps : float or None
        Mean CRPS of the rows that it was scored on, None where it was dropped before.
    gain, error : float or None
        CRPS of the defaults on the same rows minus that, and the standard error of that difference.
    seconds : list of float
        How long each fold took.
    elapsed : float
        Seconds of the search until its end.
    dropped : str
        Why it ended early, else "".
    scores : array
        CRPS of the rows scored, in the order of the folds; fewer than all rows, or none, where the trial was dropped.
    handle : optuna.Trial
        What Optuna knows it by.
    """

    number: int
    settings: Settings
    crps: float | None = None
    gain: float | None = None
    error: float | None = None
    seconds: list[float] = field(default_factory=list)
    elapsed: float = 0.0
    dropped: str = ""
    scores: np.ndarray = field(default_factory=lambda: np.zeros(0), repr=False)
    handle: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class TuningResult:
    """The outcome of a search.

    Attributes
    ----------
    defaults, best : dict
        Settings of the first trial, and those that the model was refitted with: the same where no trial was better.
    best_number : int
        The number of that trial; 0 are the defaults.
    gain : Gain
        CRPS of the defaults minus that of the best other trial, on rows that neither was fitted to; its interval
        allows for the number of trials that this one was chosen from. Positive is better.
    trials : list of Trial
        All trials in their order.
    space : dict
        What was searched, in words.
    rows : int
        Rows that trials were scored on.
    scored_on : str
        Which rows these are.
    stopped : bool
        Whether a trial was stopped at the deadline.
    """

    defaults: Settings
    best: Settings
    best_number: int
    gain: Gain
    trials: list[Trial]
    space: dict[str, str]
    rows: int
    scored_on: str
    stopped: bool

    @property
    def headline(self) -> str:
        """The outcome in one sentence."""
        number = len(self.trials)
        if number <= 1:
            return "There was time for the default settings only: they are used. Give a larger budget to search."
        if not self.best_number:
            return f"None of {number} trials was better than the defaults by more than chance: the defaults are used."
        share = f"{self.gain.mean / (self.trials[0].crps or 1.0):.1%}"
        if self.gain.low > 0:
            return (
                f"Trial {self.best_number} of {number} trials is better than the default settings: CRPS lower by "
                f"{share}."
            )
        return (
            f"Trial {self.best_number} of {number} trials is used, with a CRPS lower by {share} than that of the "
            "default settings, but this gain is within noise: on other rows the defaults may be as good."
        )

    @property
    def details(self) -> list[str]:
        """Sentences on the best trial and on the search."""
        if len(self.trials) <= 1:
            return []
        dropped = sum(bool(trial.dropped) for trial in self.trials)
        found = []
        if dropped < len(self.trials) - 1:
            side = "lower" if self.gain.mean > 0 else "higher"
            interval = f"95% interval of the gain {self.gain.low:.2g} to {self.gain.high:.2g}"
            found.append(
                f"Best trial: CRPS {side} by {abs(self.gain.mean):.2g} than with the defaults ({interval}, which "
                f"allows for the number of trials) on {self.rows:,} rows, {self.scored_on}. No test row was used."
            )
        last = "; the last one was stopped at the deadline" if self.stopped else ""
        duration = format_duration(self.trials[-1].elapsed)
        return [*found, f"Search: {len(self.trials)} trials in {duration}, {dropped} of them dropped early{last}."]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        left_out = ("scores", "handle")
        trials = [{name: own for name, own in vars(each).items() if name not in left_out} for each in self.trials]
        gain = [self.gain.mean, self.gain.low, self.gain.high]
        return {**vars(self), "gain": gain, "headline": self.headline, "trials": trials}


def tune(
    path: str | PathLike[str],
    prepared: Prepared,
    *,
    budget: str | float | None = None,
    trials: int | None = None,
    search: str | Sequence[str] | None = None,
    about: Mapping[str, object] | None = None,
    overwrite: bool = False,
    on_step: Callable[[str], object] = lambda text: None,
    n_jobs: Where = None,
    started: float | None = None,
    runner: StepRunner | None = None,
) -> tuple[Fitted, TuningResult]:
    """Search the settings of a model, fit the best ones as `ddpn fit` does, and save the model.

    Trials are fitted to training rows and scored by the CRPS of rows that they were not fitted to; test rows are only
    used at the end, to score the model. The first trial has the default settings, which are kept unless another trial
    is better by more than the best of as many equal trials would be by chance. A search that was interrupted or killed
    continues if `tune` is called again with the same table and settings; `budget` and `trials` may differ.

    Parameters
    ----------
    path : path
        The folder to save the model in.
    prepared : Prepared
        What `ddpn.workflow.preparing.prepare` made of a table and a configuration that asks for test rows
        (`FitConfig.with_test_rows`): settings that were chosen by held-out rows look better on these than they are.
        Settings that it fixes are not searched.
    budget : str or float, optional
        Time for everything, such as "10m", "90s" or seconds; time for the refit is reserved. Default: "10m", or none
        where `trials` is given.
    trials : int, optional
        The number of trials, the defaults included.
    search : str or sequence of str, optional
        Settings to search, names in `ddpn.workflow.search_space.SETTINGS`. Default: all that the plan does not fix.
    about : mapping, optional
        Further facts to save with the model, values that JSON can hold.
    overwrite : bool
        Whether to replace a model that is there already.
    on_step : callable, optional
        Called with a line on the progress: the trial, its score, the best score so far and the time left.
    n_jobs : int or RayCluster, optional
        How many trials run at once, in processes of one thread each; -1 is one per core. A
        `ddpn.runtime.cluster.RayCluster` runs as many as it has room for. They are others than those of a search one by
        one, which knows the scores of all earlier trials. Default: one trial after the other, in this process.
    started : float, optional
        When the budget began, as `time.monotonic` counts. Default: now.
    runner : StepRunner, optional
        Runs the steps of the refit that Ctrl-C may end.

    Returns
    -------
    fitted : Fitted
        The refitted model: its folder, and whether the fit was interrupted.
    result : TuningResult
        What the search found.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, polars as pl
    >>> from ddpn.workflow.config import FitConfig
    >>> from ddpn.workflow.preparing import prepare
    >>> x = np.random.default_rng(0).normal(size=120)
    >>> table = pl.DataFrame({"x": x, "visits": np.random.default_rng(1).poisson(np.exp(1 + x))})
    >>> model = {"hidden": (8,), "numeric": "standard", "epochs": 4, "likelihood": "poisson", "members": 1}
    >>> prepared = prepare(table, FitConfig(target="visits", compare_with=(), **model))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fitted, result = tune(f"{folder}/visits.model", prepared, trials=2, search=["lr"])
    >>> len(result.trials), sorted(result.best)
    (2, ['lr'])
    """
    started, place = time.monotonic() if started is None else started, Path(path)
    seconds, most, names = check_search(prepared.plan, budget, trials, search)
    if prepared.is_scored_out_of_fold:
        raise ConfigError("A search needs test rows, got a table prepared without. Give the plan a `test_size`.")
    clock = Clock(seconds, started)
    check_destination(place, overwrite)
    with folder_lock(place):
        # Where the trials of this search are kept while it runs; another table, plan or search has another folder.
        known = json.dumps([identity(prepared), {name: SETTINGS[name] for name in names}], sort_keys=True)
        folder = place.parent / f".{place.name}.{sha256(known.encode())[:16]}.tuning"
        study = Search(prepared, names, folder, clock, most, on_step, n_jobs)
        study.run()
        result = study.result()
        plan = with_settings(prepared.plan, result.best) if result.best_number else prepared.plan
        if clock.has_limit and plan.n_networks is None:
            # A portfolio fits what there is time for.
            rest = max(float(MIN_SECONDS), min(clock.left, plan.seconds or clock.left))
            plan = plan.replace(time_budget=round(rest, 1))
        refitted = replace(prepared, plan=plan)
        on_step(f"Refitting {'trial ' + str(result.best_number) if result.best_number else 'the default settings'}")
        facts = {**(about or {}), "tuning": result.as_dict()}
        fitted = fit_into(place, refitted, facts, overwrite, on_step=on_step, n_jobs=n_jobs, runner=runner)
        if not fitted.interrupted:
            for old in place.parent.glob(f".{place.name}.{'[0-9a-f]' * 16}.tuning"):
                shutil.rmtree(old)
    return fitted, result


class Search:
    """Trials until the time or the number of trials is spent, the defaults first.

    `trials` are those that are over, and `stopped` is whether one was stopped at the deadline. With `n_jobs`, as for
    `ddpn.runtime.jobs.run`, several trials run at once. The next ones are chosen when all of these are over, so that
    they depend on scores alone, not on which machine is fast or fails.
    """

    def __init__(
        self,
        prepared: Prepared,
        names: Sequence[str],
        folder: Path,
        clock: Clock,
        most: int | None = None,
        on_step: Callable[[str], object] = lambda text: None,
        n_jobs: Where = None,
    ) -> None:
        self.folds = folds_of(prepared)
        self.trials: list[Trial] = []
        self.stopped = False
        self._prepared, self._defaults = prepared, default_settings(names)
        self._clock, self._most = clock, math.inf if most is None else most
        self._on_step, self._n_jobs, self._store = on_step, n_jobs, ResultStore(folder)
        tests = [fold.test for fold in self.folds]
        self._weight = np.concatenate([test.weight_or_ones for test in tests])
        groups = None if prepared.sample.group is None else np.concatenate([test.group for test in tests])
        number = 0 if groups is None else len(np.unique(groups))
        self._few_groups = number if number < MIN_GROUPS else 0
        # The means of a few groups say nothing about how far groups vary.
        self._group = None if self._few_groups else groups
        # Blocks of rows, or of groups, of about the same size in each fold.
        codes = [group_codes(len(test), test.group)[0] for test in tests]
        self._block = np.concatenate(
            [_BLOCKS * fold + own * _BLOCKS // (own.max() + 1) for fold, own in enumerate(codes)]
        )
        optuna = import_extra("optuna", "tune")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._pruned = optuna.trial.TrialState.PRUNED
        ranged, chosen_from = optuna.distributions.FloatDistribution, optuna.distributions.CategoricalDistribution
        self._distributions = {
            name: ranged(*SETTINGS[name], log=True) if name in RANGES else chosen_from(SETTINGS[name]) for name in names
        }
        random, seed = np.random.default_rng(prepared.plan.seed), prepared.plan.seed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # Trials in progress count as bad ones: others are tried beside them.
            sampler = optuna.samplers.TPESampler(n_startup_trials=FIRST, seed=seed, constant_liar=True)
            pruner = optuna.pruners.WilcoxonPruner(p_threshold=_WORSE)
            self._study = optuna.create_study(sampler=sampler, pruner=pruner)
            self._study.enqueue_trial(self._defaults)
            # The first trials keep some of the defaults.
            for _ in range(FIRST):
                kept = {name: value for name, value in self._defaults.items() if random.random() < KEEP}
                self._study.enqueue_trial(kept if len(kept) < len(names) else {})

    @property
    def best(self) -> Trial:
        """The trial with the smallest mean CRPS among those that were scored on all rows; at first, the defaults."""
        return min((trial for trial in self.trials if not trial.dropped), key=lambda trial: trial.crps or 0.0)

    @property
    def reserved(self) -> float:
        """Seconds to keep for the refit of the best trial so far."""
        most = _MOST_RESERVED * (self._clock.end - self._clock.started)
        if not self.trials:
            return most
        larger = self._prepared.counts["train"] / self.folds[0].counts["train"]
        return min(most, _REFIT_SECONDS + _REFIT * larger * float(np.mean(self.best.seconds)))

    def run(self) -> None:
        """Run trials until a limit is reached; Ctrl-C is raised, and the folds that are scored stay."""
        if self._store.folder.exists():
            self._on_step("Continuing: what was scored before is read")
        # How many trials the first process of this search asked for at once, so that a later one continues.
        if (known := self._store.read("width")) is None:
            width = slots(self._n_jobs)
            self._store.write("width", {"width": str(width).encode()}, "the number of trials at once")
        else:
            width = int(known["width"])
        while len(self.trials) < self._most:
            clock = self._clock.part(self._clock.left - self.reserved)
            if not clock.left:
                return
            number = int(min(width, self._most - len(self.trials))) if self.trials else 1
            handles = [self._study.ask(self._distributions) for _ in range(number)]
            trials = [Trial(handle.number, dict(handle.params), handle=handle) for handle in handles]
            try:
                with clock.limit():
                    self._score(trials, clock)
            except TimeLimitError:
                self.stopped = True
                return
            for trial in trials:
                self.trials.append(trial)
                found = trial.dropped or f"CRPS {trial.crps:.4g}"
                parts = [f"Trial {trial.number}: {found}; best {self.best.crps:.4g} (trial {self.best.number})"]
                if self._most < math.inf:
                    parts.append(f"{plural(int(self._most) - len(self.trials), 'trial')} left")
                if self._clock.has_limit:
                    rest = max(0.0, self._clock.left - self.reserved)
                    parts.append(f"{format_duration(rest)} left before the refit")
                self._on_step(", ".join(parts))

    def _score(self, trials: list[Trial], clock: Clock) -> None:
        """Score trials fold by fold, as long as they are not worse than the best, and tell Optuna."""
        first = self.trials[0] if self.trials else trials[0]
        for number in range(len(self.folds)):
            rest = [trial for trial in trials if not trial.dropped]
            name = f"fold {number + 1} of a trial"
            jobs = [Job(name, fold_job, (number, own.settings, clock), [number, own.settings]) for own in rest]
            results = {result.job: result for result in run(jobs, self.folds, self._n_jobs, self._store)}
            for trial, job in zip(rest, jobs, strict=True):
                if (error := results[job].error) is not None:
                    if trial is first or isinstance(error, TimeLimitError):
                        raise error  # the defaults must be fitted in the end
                    trial.dropped = f"failed: {error}"
                    continue
                scored = arrays_from_bytes(results[job].get()["scores"])
                trial.scores = np.concatenate([trial.scores, scored["crps"]])
                trial.seconds.append(scored["seconds"].item())
                rows = len(trial.scores)
                weight, block = self._weight[:rows], self._block[:rows]
                trial.crps = float(np.average(trial.scores, weights=weight))
                # By how much the trial is worse than the defaults in each block of rows.
                worse = np.bincount(block, weight * (trial.scores - first.scores[:rows]))
                total = np.bincount(block, weight)
                for step in np.flatnonzero(total).tolist():
                    if step >= _BLOCKS * number:
                        trial.handle.report(float(worse[step] / total[step]), step)
                if number + 1 < len(self.folds) and trial.handle.should_prune():
                    trial.dropped = f"dropped after fold {number + 1} of {len(self.folds)}, CRPS {trial.crps:.4g}"
        for trial in trials:
            trial.elapsed = time.monotonic() - self._clock.started
            if rows := len(trial.scores):
                group = None if self._group is None else self._group[:rows]
                found = gain_of(first.scores[:rows] - trial.scores, self._weight[:rows], group=group)
                trial.gain, trial.error = found.mean, found.error
            value = None if trial.dropped else -(trial.gain or 0.0)
            self._study.tell(trial.handle, value, state=self._pruned if trial.dropped else None)

    def result(self) -> TuningResult:
        """The outcome of the trials so far."""
        best, gain = chosen(self.trials, self._weight, self._group)
        folds = len(self.folds)
        scored_on = "the validation rows" if folds == 1 else f"{folds} folds of the training and validation rows"
        if self._few_groups:
            scored_on += f" (of {plural(self._few_groups, 'group')} only: the gain in others may differ)"
        return TuningResult(
            defaults=self._defaults,
            best=self._defaults if best is None else best.settings,
            best_number=0 if best is None else best.number,
            gain=gain,
            trials=self.trials,
            space={
                name: (" to " if name in RANGES else ", ").join(map(value_text, SETTINGS[name]))
                for name in self._defaults
            },
            rows=len(self._weight),
            scored_on=scored_on,
            stopped=self.stopped,
        )


def by_chance(trials: int) -> float:
    """Standard errors that the best of so many trials seems better by than the defaults if all are equally good.

    The more trials, the better the best of them looks on the rows that it was chosen by; at least 0.5.

    >>> [round(by_chance(n), 2) for n in (1, 5, 20, 100)]
    [0.5, 0.97, 1.67, 2.33]
    """
    return max(_TOLERANCE, NormalDist().inv_cdf(1.0 - 1.0 / (max(1, trials) + 1)))


def chosen(trials: Sequence[Trial], weight: np.ndarray, group: np.ndarray | None = None) -> tuple[Trial | None, Gain]:
    """The trial to refit, None for the defaults, and the gain of the best trial that is not the defaults.

    The first of the `trials`, which are over, has the defaults; `weight` and `group` are those of the scored rows.
    """
    whole = [trial for trial in trials[1:] if not trial.dropped]
    if not whole:
        return None, Gain(0.0, 0.0, 0.0)
    other = min(whole, key=lambda trial: trial.crps or 0.0)
    is_better = (other.gain or 0.0) > by_chance(len(trials) - 1) * (other.error or 0.0)
    # The trial was chosen on the same rows, among all: the end that allows for it is the one towards no gain.
    gain = -gain_of(other.scores - trials[0].scores, weight, len(trials) - 1, group)
    return other if is_better else None, gain


# The rows of trials ----------------------------------------------------------------------------------------------


def folds_of(prepared: Prepared) -> list[Prepared]:
    """The same table in the splits that trials are fitted to and scored on: the test rows of each are its scored rows.

    Small tables are cross-validated on their training and validation rows, because a few hundred validation rows
    decide by chance; by time, each fold is scored on later rows than it is fitted to. Larger tables, those whose
    validation rows the user chose, and groups that are split by time have one split: trials are scored on the
    validation rows. A share of the rows to fit is held out to choose epochs and mixture weights, so that scored rows
    have no part in the fit. Rows of one group are never divided, and test rows are never used.
    """
    rows, plan, group = prepared.split.rows, prepared.plan, prepared.sample.group
    known = np.concatenate([rows.train, rows.validation])
    is_chosen = plan.split_column is not None or (plan.time is not None and bool(plan.group))
    if len(rows.validation) and (len(known) >= CROSSED_ROWS or is_chosen):
        pairs = [(rows.train, rows.validation)]
    elif plan.time is not None and len(rows.validation):
        # Both parts are in the order of time, and rows of validation size are scored one block after the other.
        size = len(rows.validation)
        ends = [len(known) - block * size for block in range(FOLDS) if len(known) - (block + 1) * size > size]
        pairs = [(known[: end - size], known[end - size : end]) for end in ends]
    else:
        folds = fold_pairs(len(known), FOLDS, plan.seed, None if group is None else group[known])
        pairs = [(known[inner], known[outer]) for inner, outer in folds]
    random, found = np.random.default_rng(plan.seed), []
    for fitted, scored in pairs:
        scored = np.sort(random.permutation(scored)[: SCORED_ROWS // len(pairs)])
        share = plan.split_shares[1] / sum(plan.split_shares[:2]) if len(fitted) >= MIN_VALIDATED else 0.0
        if plan.time is not None and group is None:
            # The last rows are held out: `fitted` is in the order of time.
            inner, held_out = np.split(fitted, [len(fitted) - round(len(fitted) * share)])
        else:
            groups = None if group is None else group[fitted]
            parts = random_parts(len(fitted), (1.0 - share, share), int(random.integers(2**32)), groups)
            inner, held_out = (fitted[part] for part in parts)
        split = prepared.split._replace(rows=SplitRows(inner, held_out, scored))
        found.append(replace(prepared, split=split))
    return found


def fold_job(folds: list[Prepared], number: int, settings: Settings, clock: Clock) -> dict[str, bytes]:
    """Fit the training rows of a fold, as a job: the CRPS of its test rows, and the seconds it took.

    Normals count as rounded. The `clock` ends the fit with a `TimeLimitError`.
    """

    def check_time(step: str = "") -> None:
        if not clock.left:
            raise TimeLimitError("the time is up")

    started, fold = time.monotonic(), folds[number]
    plan = with_settings(fold.plan, settings).replace(compare_with=())
    if plan.n_networks is not None:
        plan = plan.replace(members=min(TRIAL_NETWORKS, plan.n_networks))
    model = plan.regressor()
    with clock.limit(), warnings.catch_warnings():
        # A setting that is tried may converge badly: its score will tell.
        warnings.simplefilter("ignore")
        fitted = fit_prepared(model, replace(fold, plan=plan), PipelineOptions(("members",)), Clock(), check_time)
        if fitted.missing:
            raise KeyboardInterrupt
        with single_thread(), torch.no_grad():
            blocks = model.predictor_.recorded_blocks(fold.test)
            parts = [crps(discretized(dist), torch.from_numpy(part.y)).double().numpy() for dist, part in blocks]
    check_time()  # a training that ran out of time ends with what it has
    scores = np.concatenate(parts)
    if not np.isfinite(scores).all():
        raise TrainingError("The CRPS of some rows is not finite.")
    return {"scores": arrays_to_bytes(crps=scores, seconds=np.array(time.monotonic() - started))}
