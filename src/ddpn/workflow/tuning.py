"""`tune`: search for better settings within a time budget, then fit a model with the best ones (`ddpn tune`).

A trial runs `ddpn fit` with some settings and is scored on held-out rows. The default settings are kept unless another
trial is better by more than chance.
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
from ddpn.runtime.jobs import Workers
from ddpn.runtime.time_plan import StepRunner
from ddpn.storage.files import folder_lock, sha256
from ddpn.storage.model_files import check_destination
from ddpn.workflow.config import MIN_SECONDS
from ddpn.workflow.fitting import Fitted, fit_into
from ddpn.workflow.preparing import Prepared, compute_identity
from ddpn.workflow.search import Search
from ddpn.workflow.search_space import RANGES, SETTINGS, Settings, apply_settings, check_search
from ddpn.workflow.trials import Trial

#: The best trial must be better than the defaults by at least this many standard errors (a variant of the
#: one-standard-error rule, as for the weights of a mixture).
_MIN_STANDARD_ERRORS = 0.5


@dataclass(frozen=True)
class TuningResult:
    """The result of a search.

    Attributes
    ----------
    defaults, best : dict
        The default settings, and the settings of the refitted model. They are equal if no trial was better.
    best_number : int
        The number of the trial with the settings `best`; 0 means the defaults.
    gain : Gain
        The held-out CRPS of the defaults minus that of the best other trial, so that positive values favour the trial.
        Its 95% interval takes into account that the best of several trials was chosen.
    trials : list of Trial
        All completed trials in order.
    space : dict
        The range or the choices of each searched setting, as text.
    rows : int
        The number of rows on which trials were scored.
    scored_on : str
        A description of the rows on which trials were scored.
    stopped : bool
        True if a trial was stopped at the deadline.
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
        """The result in one sentence."""
        number = len(self.trials)
        if number <= 1:
            return "There was time for the default settings only, so they are used. Give a larger budget to search."
        if not self.best_number:
            return f"None of {number} trials was better than the defaults by more than chance, so these are used."
        share = f"{self.gain.mean / (self.trials[0].crps or 1.0):.1%}"
        if self.gain.low > 0:
            return (
                f"Trial {self.best_number} of {number} is better than the default settings: its CRPS is {share} lower."
            )
        return (
            f"Trial {self.best_number} of {number} is used. Its CRPS is {share} lower than that of the default "
            "settings, but this may be chance: on other rows the defaults may be as good."
        )

    @property
    def details(self) -> list[str]:
        """Sentences about the best trial and about the search."""
        if len(self.trials) <= 1:
            return []
        dropped = sum(bool(trial.dropped) for trial in self.trials)
        sentences = []
        if dropped < len(self.trials) - 1:
            side = "lower" if self.gain.mean > 0 else "higher"
            interval = f"95% interval of the gain {self.gain.low:.2g} to {self.gain.high:.2g}"
            sentences.append(
                f"Best trial: its CRPS is {abs(self.gain.mean):.2g} {side} than that of the defaults ({interval}, "
                f"which allows for the number of trials) on {self.rows:,} rows, {self.scored_on}. No test row was used."
            )
        last = "; the last one was stopped at the deadline" if self.stopped else ""
        duration = format_duration(self.trials[-1].elapsed)
        return [*sentences, f"Search: {len(self.trials)} trials in {duration}, {dropped} of them dropped early{last}."]

    def as_dict(self) -> dict[str, object]:
        """Return the result, ready for JSON."""
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
    n_jobs: Workers = None,
    started: float | None = None,
    runner: StepRunner | None = None,
) -> tuple[Fitted, TuningResult]:
    """Search for the best settings of a model, fit it with these as `ddpn fit` does, and save it.

    Trials are fitted to training rows and scored by their CRPS on held-out rows. Test rows are used only at the end, to
    score the model.

    The first trial has the default settings. Even if no settings are really better, the best of several trials has a
    better score than the defaults by chance. So the defaults are kept unless the gain is larger than can be expected by
    chance.

    An interrupted search continues if `tune` is called again with the same table and settings; `budget` and `trials`
    may differ.

    Parameters
    ----------
    path : path
        The folder in which to save the model.
    prepared : Prepared
        The result of `ddpn.workflow.preparing.prepare` for a configuration with test rows (`FitConfig.with_test_rows`).
        Test rows are required, because the chosen settings look too good on the rows on which they were chosen.
        Settings that have a value in the configuration are not searched.
    budget : str or float, optional
        The time for the search and the refit, such as "10m", "90s" or seconds. Default: "10m", or no limit if `trials`
        is given.
    trials : int, optional
        The number of trials, including the first one with the defaults.
    search : str or sequence of str, optional
        The settings to search, keys of `ddpn.workflow.search_space.SETTINGS`. Default: all that have no value in the
        configuration.
    about : mapping, optional
        Further information to save with the model. Its values must be valid in JSON.
    overwrite : bool
        Whether to replace an existing model.
    on_step : callable, optional
        Called with a line about each trial: its score, the best score so far and the time left.
    n_jobs : int or RayCluster, optional
        The number of simultaneous trials, each in a process with one thread; -1 means one per core. A
        `ddpn.runtime.cluster.RayCluster` runs as many as it has room for. Simultaneous trials have other settings than
        sequential ones, because fewer scores are known when they begin. Default: one after the other, in this process.
    started : float, optional
        The start of the budget, on the scale of `time.monotonic`. Default: now.
    runner : StepRunner, optional
        Runs the steps of the refit after the training. Ctrl-C ends the current step and skips the later ones.

    Returns
    -------
    fitted : Fitted
        The refitted model: its folder, and whether the fit was interrupted.
    result : TuningResult
        The outcome of the search.

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
    seconds, max_trials, names = check_search(prepared.plan, budget, trials, search)
    if prepared.is_scored_out_of_fold:
        raise ConfigError("A search needs test rows, but the table has none. Set `test_size`.")
    clock = Clock(seconds, started)
    check_destination(target_path, overwrite)
    with folder_lock(target_path):
        # Scores are stored in a folder while the search runs. Its name depends on the table, the plan and the search.
        search_facts = json.dumps(
            [compute_identity(prepared), {name: SETTINGS[name] for name in names}], sort_keys=True
        )
        folder = target_path.parent / f".{target_path.name}.{sha256(search_facts.encode())[:16]}.tuning"
        trial_search = Search(prepared, names, folder, clock, max_trials, on_step, n_jobs)
        trial_search.run()
        result = summarize_search(trial_search)
        plan = apply_settings(prepared.plan, result.best) if result.best_number else prepared.plan
        if clock.has_limit and plan.ensemble_size is None:
            # A mixture adapts to the time left.
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
    """Choose the best settings among the completed trials, and summarise the search."""
    best, gain = choose_trial(search.trials, search.rows.weight, search.rows.group)
    folds = len(search.folds)
    scored_on = "the validation rows" if folds == 1 else f"{folds} folds of the training and validation rows"
    if search.rows.n_few_groups:
        scored_on += f" (of only {plural(search.rows.n_few_groups, 'group')}: the gain in others may differ)"
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


def compute_chance_gain(trials: int) -> float:
    """Return the gain over the defaults that the best trial has by chance if no trial is really better.

    The gain is in standard errors. It grows with the number of trials, because the best of more noisy scores is better.
    It is at least 0.5.

    >>> [round(compute_chance_gain(n), 2) for n in (1, 5, 20, 100)]
    [0.5, 0.97, 1.67, 2.33]
    """
    return max(_MIN_STANDARD_ERRORS, NormalDist().inv_cdf(1.0 - 1.0 / (max(1, trials) + 1)))


def choose_trial(
    trials: Sequence[Trial], weight: np.ndarray, group: np.ndarray | None = None
) -> tuple[Trial | None, Gain]:
    """Choose the best trial, if it is better than the default settings by more than chance.

    The first of the completed `trials` has the default settings. `weight` and `group` have the weight and group of each
    row on which trials were scored. If `group` is None, rows are independent.

    Return the chosen trial, or None to keep the defaults. Also return the gain of the best other trial: the CRPS of the
    defaults minus that of this trial. The gain is 0 if there is no other trial or if all others were dropped.
    """
    whole = [trial for trial in trials[1:] if not trial.dropped]
    if not whole:
        return None, Gain(0.0, 0.0, 0.0)
    other = min(whole, key=lambda trial: trial.crps or 0.0)
    is_better = (other.gain or 0.0) > compute_chance_gain(len(trials) - 1) * (other.error or 0.0)
    # The trial was chosen among all on the same rows. Negated twice, so that the corrected end is the one towards 0.
    gain = -mean_gain(other.scores - trials[0].scores, weight, len(trials) - 1, group)
    return other if is_better else None, gain
