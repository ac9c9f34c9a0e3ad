"""`tune`: search for better settings of a model within a budget of time, and fit it with the best ones (`ddpn tune`).

A trial is the pipeline of `ddpn fit` with some settings, scored on rows that it was not fitted to. The defaults are
kept unless another trial is better by more than chance.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from statistics import NormalDist

import numpy as np

from ddpn.analysis.gains import Gain, mean_gain
from ddpn.runtime.deadlines import Clock, format_duration
from ddpn.runtime.display import plural, value_text
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.jobs import Where
from ddpn.runtime.time_plan import StepRunner
from ddpn.storage.files import folder_lock, sha256
from ddpn.storage.model_files import check_destination
from ddpn.workflow.config import MIN_SECONDS
from ddpn.workflow.fitting import Fitted, fit_into
from ddpn.workflow.preparing import Prepared, identity
from ddpn.workflow.search import Search
from ddpn.workflow.search_space import RANGES, SETTINGS, Settings, check_search, with_settings
from ddpn.workflow.trials import Trial

#: The best trial must be better than the defaults by this many standard errors (the one-standard-error rule, as for the
#: weights of a mixture).
_MIN_STANDARD_ERRORS = 0.5


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
        sentences = []
        if dropped < len(self.trials) - 1:
            side = "lower" if self.gain.mean > 0 else "higher"
            interval = f"95% interval of the gain {self.gain.low:.2g} to {self.gain.high:.2g}"
            sentences.append(
                f"Best trial: CRPS {side} by {abs(self.gain.mean):.2g} than with the defaults ({interval}, which "
                f"allows for the number of trials) on {self.rows:,} rows, {self.scored_on}. No test row was used."
            )
        last = "; the last one was stopped at the deadline" if self.stopped else ""
        duration = format_duration(self.trials[-1].elapsed)
        return [*sentences, f"Search: {len(self.trials)} trials in {duration}, {dropped} of them dropped early{last}."]

    def as_dict(self) -> dict[str, object]:
        """Return what JSON can hold."""
        kept = [field.name for field in fields(Trial) if field.name not in ("scores", "handle")]
        trials = [{name: getattr(trial, name) for name in kept} for trial in self.trials]
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
    beats them by more than selecting the best of that many equally good trials would by chance. A search that was
    interrupted or killed continues if `tune` is called again with the same table and settings; `budget` and `trials`
    may differ.

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
        `ddpn.runtime.cluster.RayCluster` runs as many as it has room for. Parallel trials differ from sequential ones,
        as each knows fewer earlier scores. Default: one trial after the other, in this process.
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
    >>> model = {"hidden": (8,), "numeric": "standard", "epochs": 4, "likelihood": "poisson", "n_networks": 1}
    >>> prepared = prepare(table, FitConfig(target="visits", compare_with=(), **model))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fitted, result = tune(f"{folder}/visits.model", prepared, trials=2, search=["lr"])
    >>> len(result.trials), sorted(result.best)
    (2, ['lr'])
    """
    started, target_path = time.monotonic() if started is None else started, Path(path)
    seconds, most, names = check_search(prepared.plan, budget, trials, search)
    if prepared.is_scored_out_of_fold:
        raise ConfigError("A search needs test rows, got a table prepared without. Give the plan a `test_size`.")
    clock = Clock(seconds, started)
    check_destination(target_path, overwrite)
    with folder_lock(target_path):
        # Where the trials of this search are kept while it runs; another table, plan or search has another folder.
        search_facts = json.dumps([identity(prepared), {name: SETTINGS[name] for name in names}], sort_keys=True)
        folder = target_path.parent / f".{target_path.name}.{sha256(search_facts.encode())[:16]}.tuning"
        trial_search = Search(prepared, names, folder, clock, most, on_step, n_jobs)
        trial_search.run()
        result = summarize_search(trial_search)
        plan = with_settings(prepared.plan, result.best) if result.best_number else prepared.plan
        if clock.has_limit and plan.ensemble_size is None:
            # A portfolio fits what there is time for.
            seconds_left = max(float(MIN_SECONDS), min(clock.left, plan.seconds or clock.left))
            plan = plan.replace(time_budget=round(seconds_left, 1))
        refitted = replace(prepared, plan=plan)
        on_step(f"Refitting {'trial ' + str(result.best_number) if result.best_number else 'the default settings'}")
        facts = {**(about or {}), "tuning": result.as_dict()}
        fitted = fit_into(target_path, refitted, facts, overwrite, on_step=on_step, n_jobs=n_jobs, runner=runner)
        if not fitted.interrupted:
            for old in target_path.parent.glob(f".{target_path.name}.{'[0-9a-f]' * 16}.tuning"):
                shutil.rmtree(old)
    return fitted, result


def summarize_search(search: Search) -> TuningResult:
    """Return the outcome of the trials so far."""
    best, gain = choose_trial(search.trials, search.rows.weight, search.rows.group)
    folds = len(search.folds)
    scored_on = "the validation rows" if folds == 1 else f"{folds} folds of the training and validation rows"
    if search.rows.n_few_groups:
        scored_on += f" (of {plural(search.rows.n_few_groups, 'group')} only: the gain in others may differ)"
    return TuningResult(
        defaults=search.defaults,
        best=search.defaults if best is None else best.settings,
        best_number=0 if best is None else best.number,
        gain=gain,
        trials=search.trials,
        space={
            name: (" to " if name in RANGES else ", ").join(map(value_text, SETTINGS[name])) for name in search.defaults
        },
        rows=len(search.rows),
        scored_on=scored_on,
        stopped=search.stopped,
    )


def required_standard_errors(trials: int) -> float:
    """Return how many standard errors the best of some trials seems better than the defaults if all are equally good.

    The more trials, the better the best of them looks on the rows that it was chosen by; at least 0.5.

    >>> [round(required_standard_errors(n), 2) for n in (1, 5, 20, 100)]
    [0.5, 0.97, 1.67, 2.33]
    """
    return max(_MIN_STANDARD_ERRORS, NormalDist().inv_cdf(1.0 - 1.0 / (max(1, trials) + 1)))


def choose_trial(
    trials: Sequence[Trial], weight: np.ndarray, group: np.ndarray | None = None
) -> tuple[Trial | None, Gain]:
    """Return the trial to refit, None for the defaults, and the gain of the best trial that is not the defaults.

    The first of the `trials`, which are over, has the defaults; `weight` and `group` are those of the scored rows.
    """
    whole = [trial for trial in trials[1:] if not trial.dropped]
    if not whole:
        return None, Gain(0.0, 0.0, 0.0)
    other = min(whole, key=lambda trial: trial.crps or 0.0)
    is_better = (other.gain or 0.0) > required_standard_errors(len(trials) - 1) * (other.error or 0.0)
    # The trial was chosen on the same rows, among all: the end that allows for it is the one towards no gain.
    gain = -mean_gain(other.scores - trials[0].scores, weight, len(trials) - 1, group)
    return other if is_better else None, gain
