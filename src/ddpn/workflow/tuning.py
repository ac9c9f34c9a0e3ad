"""`tune`: search for better settings of a model within a budget of time, and fit it with the best ones (`ddpn tune`).

A trial is the pipeline of `ddpn fit` with some settings, scored on rows that it was not fitted to. Optuna suggests the
settings and drops trials that are worse than the best (`WilcoxonPruner`). A search depends on nothing but its seed and
the scores of folds, which are kept in a folder: one that was killed is run again, and what was scored before is read.
"""

import hashlib
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
from ddpn.members.member import arrays_from_bytes, arrays_to_bytes
from ddpn.metrics import crps
from ddpn.runtime.deadlines import Clock, TimeLimitError, format_duration
from ddpn.runtime.display import plural
from ddpn.runtime.errors import DDPNError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.jobs import Job, Where, run, slots
from ddpn.runtime.threads import single_thread
from ddpn.storage.files import folder_lock
from ddpn.storage.model_files import check_destination
from ddpn.storage.results import ResultStore
from ddpn.tables.splits import fold_pairs, group_codes, random_parts
from ddpn.workflow.fitting import Fitted, fit_into, train_model
from ddpn.workflow.plan import MIN_SECONDS
from ddpn.workflow.preparing import Prepared, identity
from ddpn.workflow.search_space import Settings, Space, check_limits, default_settings, make_space, with_settings
from ddpn.workflow.splitting import MIN_VALIDATED, SplitRows

#: How the folder of trials ends.
_FOLDER = ".tuning"
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
    handle : optuna.Trial, optional
        What Optuna knows it by; None for the defaults, which it did not suggest.
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

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {name: value for name, value in vars(self).items() if name not in ("scores", "handle")}


@dataclass(frozen=True)
class TuningResult:
    """The outcome of a search.

    Attributes
    ----------
    defaults, best : dict
        Settings of the first trial, and those that the model was refitted with: the same where no trial was better.
    best_number : int
        The number of that trial.
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
    def is_tuned(self) -> bool:
        """Whether other settings than the defaults are used."""
        return self.best_number != 0

    @property
    def headline(self) -> str:
        """The outcome in one sentence."""
        number = len(self.trials)
        if number <= 1:
            return "There was time for the default settings only: they are used. Give a larger budget to search."
        if not self.is_tuned:
            return (
                f"None of {number} trials was better than the default settings by more than chance: the defaults are "
                "used."
            )
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

    @property
    def changes(self) -> list[tuple[str, str, str]]:
        """Name, default and best value of every setting that was searched."""
        return [(name, _text(self.defaults[name]), _text(self.best[name])) for name in self.space]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        known = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "trials"}
        gain = [self.gain.mean, self.gain.low, self.gain.high]
        return {**known, "gain": gain, "headline": self.headline, "trials": [each.as_dict() for each in self.trials]}


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class TunedModel:
    """The result of `tune`.

    Attributes
    ----------
    fitted : Fitted
        The refitted model: its folder, and whether the fit was interrupted.
    result : TuningResult
        What the search found.
    """

    fitted: Fitted
    result: TuningResult


def tune(
    path: str | PathLike[str],
    prepared: Prepared,
    *,
    budget: str | float | None = None,
    trials: int | None = None,
    search: Any = None,
    about: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    verbose: bool = False,
    on_step: Callable[[str], object] = lambda text: None,
    n_jobs: Where = None,
) -> TunedModel:
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
        What `ddpn.workflow.preparing.prepare` made of a table and a plan. Settings that the plan fixes are not
        searched.
    budget : str or float, optional
        Time for everything, such as "10m", "90s" or seconds; time for the refit is reserved. Default: "10m", or none
        where `trials` is given.
    trials : int, optional
        The number of trials, the defaults included.
    search : str, path, list or dict, optional
        What to search: names in `ddpn.workflow.search_space.SETTINGS`, a TOML file, or ranges and choices by name.
        Default: all settings that the plan does not fix.
    about : mapping, optional
        Further facts to save with the model, values that JSON can hold.
    overwrite : bool
        Whether to replace a model that is there already.
    verbose : bool
        Show the progress of the refit.
    on_step : callable, optional
        Called with a line on the progress: the trial, its score, the best score so far and the time left.
    n_jobs : int or RayCluster, optional
        How many trials run at once, in processes of one thread each; -1 is one per core. A
        `ddpn.runtime.cluster.RayCluster` runs as many as it has room for. They are others than those of a search one by
        one, which knows the scores of all earlier trials. Default: one trial after the other, in this process.

    Returns
    -------
    TunedModel
        The refitted model (`fitted`) and what the search found (`result`).

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, polars as pl
    >>> from ddpn.workflow.plan import Plan
    >>> from ddpn.workflow.preparing import prepare
    >>> x = np.random.default_rng(0).normal(size=120)
    >>> table = pl.DataFrame({"x": x, "visits": np.random.default_rng(1).poisson(np.exp(1 + x))})
    >>> model = {"hidden": (8,), "numeric": "standard", "epochs": 4, "likelihood": "poisson", "members": 1}
    >>> prepared = prepare(table, Plan(target="visits", compare_with=(), model=model))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = tune(f"{folder}/visits.model", prepared, trials=2, search={"lr": [0.01, 0.1]})
    >>> len(found.result.trials), sorted(found.result.best)
    (2, ['lr'])
    """
    started, place = time.monotonic(), Path(path)
    seconds, most, wanted = check_limits(prepared.plan, budget, trials, search)
    check_destination(place, overwrite)
    with folder_lock(place):
        defaults = default_settings(prepared.plan, wanted)
        space = make_space(wanted, defaults, len(prepared.train))
        folder = storage_of(place, prepared, space)
        options: dict[str, Any] = {"on_step": on_step, "n_jobs": n_jobs}
        study = Search(prepared, space, defaults, folder, seconds, most, started=started, **options)
        study.run()
        result = study.result()
        plan = with_settings(prepared.plan, result.best) if result.is_tuned else prepared.plan
        if study.left is not None and plan.members == "auto":
            # A portfolio fits what there is time for.
            rest = max(float(MIN_SECONDS), min(study.left, plan.seconds or study.left))
            plan = replace(plan, model={**plan.model, "time_budget": round(rest, 1)})
        refitted = replace(prepared, plan=plan)
        on_step(f"Refitting {'trial ' + str(result.best_number) if result.is_tuned else 'the default settings'}")
        known = {**(about or {}), "tuning": result.as_dict()}
        fitted = fit_into(place, refitted, known, overwrite, verbose=verbose, **options)
        if not fitted.interrupted:
            for old in place.parent.glob(f".{place.name}.{'[0-9a-f]' * 16}{_FOLDER}"):
                shutil.rmtree(old)
    return TunedModel(fitted, result)


def storage_of(path: Path, prepared: Prepared, space: Space) -> Path:
    """Where the trials of this search are kept while it runs; another table, plan or space has another folder."""
    words = {name: str(values) for name, values in space.items()}
    known = json.dumps([identity(prepared), words], sort_keys=True)
    return path.parent / f".{path.name}.{hashlib.sha256(known.encode()).hexdigest()[:16]}{_FOLDER}"


class Search:
    """Trials until the seconds or the number of trials are spent, the defaults first.

    `trials` are those that are over, and `stopped` is whether one was stopped at the deadline. With `n_jobs`, as for
    `ddpn.runtime.jobs.run`, several trials run at once. The next ones are chosen when all of these are over, so that
    they depend on scores alone, not on which machine is fast or fails.
    """

    def __init__(
        self,
        prepared: Prepared,
        space: Space,
        defaults: Settings,
        folder: Path,
        seconds: float | None = None,
        most: int | None = None,
        *,
        on_step: Callable[[str], object] = lambda text: None,
        started: float | None = None,
        n_jobs: Where = None,
    ) -> None:
        self.folds = folds_of(prepared)
        self.trials: list[Trial] = []
        self.stopped = False
        self._prepared, self._space, self._defaults = prepared, space, defaults
        self._seconds, self._most = seconds, math.inf if most is None else most
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
        self._started, self._earlier = time.monotonic() if started is None else started, 0.0
        self._optuna = import_extra("optuna", "tune")
        self._distributions = {name: values.distribution(self._optuna) for name, values in space.items()}
        self._study = self._empty_study()

    def _empty_study(self) -> Any:
        """A study in which the first trials keep some of the defaults."""
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        random, seed = np.random.default_rng(self._prepared.plan.seed), self._prepared.plan.seed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            # Trials in progress count as bad ones: others are tried beside them.
            sampler = self._optuna.samplers.TPESampler(n_startup_trials=FIRST, seed=seed, constant_liar=True)
            pruner = self._optuna.pruners.WilcoxonPruner(p_threshold=_WORSE)
            study = self._optuna.create_study(sampler=sampler, pruner=pruner)
            known = [name for name, values in self._space.items() if self._defaults[name] in values]
            for _ in range(FIRST):
                kept = [name for name in known if random.random() < KEEP]
                study.enqueue_trial({n: self._defaults[n] for n in kept} if len(kept) < len(self._space) else {})
        return study

    @property
    def best(self) -> Trial:
        """The trial with the smallest mean CRPS among those that were scored on all rows; at first, the defaults."""
        return min((trial for trial in self.trials if not trial.dropped), key=lambda trial: trial.crps or 0.0)

    @property
    def elapsed(self) -> float:
        """Seconds of the search, those of earlier processes included."""
        return self._earlier + time.monotonic() - self._started

    @property
    def reserved(self) -> float:
        """Seconds to keep for the refit of the best trial so far."""
        most = _MOST_RESERVED * (self._seconds or 0.0)
        if not self.trials:
            return most
        larger = self._prepared.counts["train"] / self.folds[0].counts["train"]
        return min(most, _REFIT_SECONDS + _REFIT * larger * float(np.mean(self.best.seconds)))

    @property
    def left(self) -> float | None:
        """Seconds that are left of the budget; None without one."""
        return None if self._seconds is None else max(0.0, self._seconds - self.elapsed)

    def run(self) -> None:
        """Run trials until a limit is reached; Ctrl-C is raised, and the folds that are scored stay."""
        # What the first process of this search decided, so that a later one continues.
        if (known := self._store.read("width")) is None:
            width = slots(self._n_jobs)
            self._store.write("width", {"width": str(width).encode()}, "the number of trials at once")
        else:
            self._on_step("Continuing: what was scored before is read")
            width = int(known["width"])
        while (rest := self._most - len(self.trials)) > 0 and not self.stopped:
            clock = Clock(None if self.left is None else self.left - self.reserved)
            if not self.trials:
                trials = [Trial(0, self._defaults)]
            else:
                handles = [self._study.ask(self._distributions) for _ in range(int(min(width, rest)))]
                numbered = enumerate(handles, start=len(self.trials))
                trials = [Trial(number, dict(handle.params), handle=handle) for number, handle in numbered]
            if not clock.left:
                return
            try:
                with clock.limit():
                    self._score(trials, clock)
            except TimeLimitError:
                self.stopped = True
                return
            for trial in trials:
                self.trials.append(trial)
                self._on_step(f"Trial {trial.number}: {trial.dropped or f'CRPS {trial.crps:.4g}'}; {self._progress()}")

    def _progress(self) -> str:
        parts = [f"best {self.best.crps:.4g} (trial {self.best.number})"]
        if self._most < math.inf:
            rest = self._most - len(self.trials)
            parts.append(f"{max(0, rest)} {'trial' if rest == 1 else 'trials'} left")
        if self.left is not None:
            parts.append(f"{format_duration(max(0.0, self.left - self.reserved))} left before the refit")
        return ", ".join(parts)

    def _score(self, trials: list[Trial], clock: Clock) -> None:
        """Score trials fold by fold, as long as they are not worse than the best."""
        for number in range(len(self.folds)):
            rest = [trial for trial in trials if not trial.dropped]
            for trial, scored in zip(rest, self._scored(rest, number, clock), strict=True):
                if isinstance(scored, DDPNError):
                    if trial.number == 0:
                        raise scored  # the defaults must be fitted in the end
                    trial.dropped = f"failed: {scored}"
                    continue
                trial.scores = np.concatenate([trial.scores, scored["crps"]])
                trial.seconds.append(scored["seconds"].item())
                if not np.isfinite(scored["crps"]).all():
                    trial.dropped = "dropped: an infinite CRPS"
                elif trial.handle is not None:
                    self._race(trial)
        for trial in trials:
            self._close(trial)

    def _scored(self, trials: Sequence[Trial], number: int, clock: Clock) -> list["Scores | DDPNError"]:
        """How trials score on a fold."""
        began, end = time.monotonic(), time.time() + clock.left if clock.has_limit else None
        name = f"fold {number + 1} of a trial"
        jobs = [Job(name, fold_job, (number, own.settings, end), [number, own.settings]) for own in trials]
        results = {result.job: result for result in run(jobs, self.folds, self._n_jobs, self._store)}
        found = [results[job].error or arrays_from_bytes(results[job].get()["scores"]) for job in jobs]
        for error in found:
            if isinstance(error, TimeLimitError):
                raise error
        longest = max((each["seconds"].item() for each in found if not isinstance(each, DDPNError)), default=0.0)
        # What was scored by an earlier process took its time then.
        self._earlier += max(0.0, longest - (time.monotonic() - began))
        return found

    def _race(self, trial: Trial) -> None:
        """Drop a trial that is worse than the best on the rows so far, before further folds."""
        folds = len(trial.seconds)
        for step, value in self._steps(trial).items():
            if step >= _BLOCKS * (folds - 1):
                trial.handle.report(value, step)
        if folds < len(self.folds) and trial.handle.should_prune():
            mean = np.average(trial.scores, weights=self._weight[: len(trial.scores)])
            trial.dropped = f"dropped after fold {folds} of {len(self.folds)}, CRPS {mean:.4g}"

    def _steps(self, trial: Trial) -> dict[int, float]:
        """By how much a trial is worse than the defaults in each block of rows."""
        worse = trial.scores - (self.trials[0] if self.trials else trial).scores[: len(trial.scores)]
        block, weight = self._block[: len(worse)], self._weight[: len(worse)]
        total, sums = np.bincount(block, weight), np.bincount(block, weight * worse)
        return {step: float(sums[step] / total[step]) for step in np.flatnonzero(total).tolist()}

    def _close(self, trial: Trial) -> None:
        """Compare a trial that is over with the defaults on its rows, and tell Optuna."""
        trial.elapsed = self.elapsed
        rows = len(trial.scores)
        if rows and np.isfinite(trial.scores).all():
            weight, first = self._weight[:rows], self.trials[0] if self.trials else trial
            trial.crps = float(np.average(trial.scores, weights=weight))
            group = None if self._group is None else self._group[:rows]
            found = gain_of(first.scores[:rows] - trial.scores, weight, group=group)
            trial.gain, trial.error = found.mean, found.error
        if trial.handle is None:
            # Settings that are not in the space, as defaults may be, are left out.
            known = {name: value for name, value in trial.settings.items() if value in self._space[name]}
            distributions = {name: self._distributions[name] for name in known}
            values = {"value": 0.0, "intermediate_values": self._steps(trial)}
            self._study.add_trial(self._optuna.trial.create_trial(params=known, distributions=distributions, **values))
        elif trial.dropped:
            self._study.tell(trial.handle, state=self._optuna.trial.TrialState.PRUNED)
        else:
            self._study.tell(trial.handle, -(trial.gain or 0.0))

    def result(self) -> TuningResult:
        """The outcome of the trials so far."""
        best, gain = chosen(self.trials, self._weight, self._group)
        by_time = self._prepared.plan.time is not None and self._prepared.counts["validation"]
        folds = len(self.folds)
        parts = f"the last {folds} blocks" if by_time else f"{folds} folds"
        scored_on = "the validation rows" if folds == 1 else f"{parts} of the training and validation rows"
        if self._few_groups:
            scored_on += f" (of {plural(self._few_groups, 'group')} only: the gain in others may differ)"
        return TuningResult(
            defaults=self._defaults,
            best=self._defaults if best is None else best.settings,
            best_number=0 if best is None else best.number,
            gain=gain,
            trials=self.trials,
            space={name: str(values) for name, values in self._space.items()},
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
    rows, plan = prepared.split.rows, prepared.plan
    known = np.concatenate([rows.train, rows.validation])
    random = np.random.default_rng(plan.seed)
    is_chosen = plan.split_column is not None or (plan.time is not None and bool(plan.group))
    if len(rows.validation) and (len(known) >= CROSSED_ROWS or is_chosen):
        pairs = [(rows.train, rows.validation)]
    elif plan.time is not None and len(rows.validation):
        # Both parts are in the order of time, and rows of validation size are scored one block after the other.
        size = len(rows.validation)
        ends = [len(known) - block * size for block in range(FOLDS) if len(known) - (block + 1) * size > size]
        pairs = [(known[: end - size], known[end - size : end]) for end in ends]
    else:
        folds = fold_pairs(len(known), FOLDS, plan.seed, _groups(prepared, known))
        pairs = [(known[inner], known[outer]) for inner, outer in folds]
    most = SCORED_ROWS // len(pairs)
    return [_fold(prepared, fitted, random.permutation(scored)[:most], random) for fitted, scored in pairs]


def _groups(prepared: Prepared, rows: np.ndarray) -> np.ndarray | None:
    return None if prepared.sample.group is None else prepared.sample.group[rows]


def _fold(prepared: Prepared, fitted: np.ndarray, scored: np.ndarray, random: np.random.Generator) -> Prepared:
    train, validation, _ = prepared.plan.shares
    share = validation / (train + validation) if len(fitted) >= MIN_VALIDATED else 0.0
    groups = _groups(prepared, fitted)
    if prepared.plan.time is not None and groups is None:
        # The last rows are held out: `fitted` is in the order of time.
        inner, held_out = np.split(fitted, [len(fitted) - round(len(fitted) * share)])
    else:
        seed = int(random.integers(2**32))
        parts = random_parts(len(fitted), (1.0 - share, share), seed, groups)
        inner, held_out = (fitted[part] for part in parts)
    return replace(prepared, split=prepared.split._replace(rows=SplitRows(inner, held_out, np.sort(scored))))


# One trial -------------------------------------------------------------------------------------------------------

#: The CRPS per row of a fold, and the seconds it took.
Scores = dict[str, np.ndarray]


def fold_job(folds: list[Prepared], number: int, settings: Settings, end: float | None) -> dict[str, bytes]:
    """Score settings on one of the folds, as a job; `end` is when the time is up, as `time.time` counts."""
    # By the clock on the wall, which machines share: a job may begin later.
    clock, started = Clock(None if end is None else max(0.0, end - time.time())), time.monotonic()
    with clock.limit():
        scores = score_fold(folds[number], settings, clock)
    return {"scores": arrays_to_bytes(crps=scores, seconds=np.array(time.monotonic() - started))}


def score_fold(fold: Prepared, settings: Settings, clock: Clock) -> np.ndarray:
    """Fit the training rows of a fold with these settings, and the CRPS of its test rows; Normals count as rounded.

    The `clock` ends the fit with a `TimeLimitError`.
    """

    def check_time(step: str = "") -> None:
        if not clock.left:
            raise TimeLimitError("the time is up")

    plan = replace(with_settings(fold.plan, settings), compare_with=())
    if plan.members != "auto":
        plan = replace(plan, model={**plan.model, "members": min(TRIAL_NETWORKS, int(plan.members))})
    model = plan.regressor()
    with warnings.catch_warnings():
        # A setting that is tried may converge badly: its score will tell.
        warnings.simplefilter("ignore")
        train_model(model, replace(fold, plan=plan), None, check_time)
        if model.interrupted_:
            raise KeyboardInterrupt
        with single_thread(), torch.no_grad():
            blocks = model.predictor_.recorded_blocks(fold.test)
            scores = [crps(discretized(dist), torch.from_numpy(part.y)).double().numpy() for dist, part in blocks]
    check_time()  # a training that ran out of time ends with what it has
    return np.concatenate(scores)
