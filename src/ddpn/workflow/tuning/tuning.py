"""`tune`: search settings, refit the best by the ordinary fit, and save the model with what was found."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from ddpn.runtime.jobs import Where
from ddpn.storage.files import folder_lock
from ddpn.storage.model_files import check_destination
from ddpn.workflow.fitting import Fitted, fit_into
from ddpn.workflow.plan import MIN_SECONDS, Plan
from ddpn.workflow.preparing import Prepared, identity
from ddpn.workflow.tuning.folds import folds_of, folds_text
from ddpn.workflow.tuning.result import TuningResult, summarize
from ddpn.workflow.tuning.search import Search
from ddpn.workflow.tuning.space import check_limits, default_settings, make_space, with_settings

#: How the folder of trials ends.
_FOLDER = ".tuning"


@dataclass(frozen=True)
class Tuned:
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
) -> Tuned:
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
        What to search: names in `SETTINGS`, a TOML file, or ranges and choices by name. Default: all
        settings that the plan does not fix.
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
    Tuned
        The refitted model (`fitted`) and what the search found (`result`).

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, polars as pl
    >>> from ddpn.workflow.plan import MIN_SECONDS, Plan
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
    limit, wanted = check_limits(prepared.plan, budget, trials, search)
    check_destination(place, overwrite)
    with folder_lock(place):
        rows, defaults = len(prepared.train), default_settings(prepared.plan, wanted)
        space = make_space(wanted, defaults, rows)
        folder = storage_of(place, prepared, {name: str(values) for name, values in space.items()})
        options: dict[str, Any] = {"on_step": on_step, "n_jobs": n_jobs}
        seed = prepared.plan.seed
        run = Search(
            folds_of(prepared), space, defaults, limit, rows=rows, seed=seed, folder=folder, started=started, **options
        )
        run.run()
        result = _result(run, folds_text(prepared, len(run.folds)))
        plan = with_settings(prepared.plan, result.best) if result.is_tuned else prepared.plan
        chosen = replace(prepared, plan=_in_time(plan, run.total_left))
        on_step(f"Refitting {'trial ' + str(result.best_number) if result.is_tuned else 'the default settings'}")
        known = {**(about or {}), "tuning": result.as_dict()}
        fitted = fit_into(place, chosen, known, overwrite, verbose=verbose, **options)
        if not fitted.interrupted:
            for old in place.parent.glob(f".{place.name}.{'[0-9a-f]' * 16}{_FOLDER}"):
                shutil.rmtree(old)
    return Tuned(fitted, result)


def _in_time(plan: Plan, left: float | None) -> Plan:
    """The plan with what is left as the time limit of a portfolio, which fits what there is time for."""
    if left is None or plan.members != "auto":
        return plan
    seconds = max(float(MIN_SECONDS), min(left, plan.seconds or left))
    return replace(plan, model={**plan.model, "time_budget": round(seconds, 1)})


def storage_of(path: Path, prepared: Prepared, space: Mapping[str, str]) -> Path:
    """Where the trials of this search are kept while it runs; another table, plan or space has another folder."""
    known = json.dumps([identity(prepared), space], sort_keys=True)
    return path.parent / f".{path.name}.{hashlib.sha256(known.encode()).hexdigest()[:16]}{_FOLDER}"


def _result(run: Search, scored_on: str) -> TuningResult:
    found = summarize(run.trials, run.defaults, run.weight, run.space, scored_on, run.stopped)
    relative = [None if trial.gain is None else -trial.gain for trial in found.trials]
    return replace(found, importances=run.importances(relative))
