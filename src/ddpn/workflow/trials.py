"""The trials of `ddpn tune`: the rows on which they are fitted and scored, and the scoring of one fold."""

import time
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from ddpn.distributions import discretize
from ddpn.metrics import crps
from ddpn.pipeline import PipelineOptions
from ddpn.rows.splits import (
    MIN_ROWS_TO_VALIDATE,
    SMALL_TABLE_ROWS,
    SplitRows,
    split_at_random,
    split_folds,
    split_time_blocks,
)
from ddpn.runtime.deadlines import Clock, TimeLimitError
from ddpn.runtime.errors import TrainingError
from ddpn.runtime.threads import single_thread
from ddpn.runtime.time_plan import Schedule
from ddpn.storage.contents import arrays_to_bytes
from ddpn.workflow.fitting import fit_prepared_table
from ddpn.workflow.preparing import Prepared
from ddpn.workflow.search_space import Settings, apply_settings

if TYPE_CHECKING:
    import optuna

#: The number of folds in which trials are cross-validated on small tables.
FOLDS = 3
#: The most rows on which a trial is scored. More would take time without changing the choice.
MAX_SCORED_ROWS = 2000
#: The most networks of a trial. All trials have the same number, so that they can be compared.
MAX_TRIAL_NETWORKS = 2


@dataclass
class Trial:
    """One combination of settings in a search, with its scores.

    Attributes
    ----------
    number : int
        The number of the trial. Trial 0 has the default settings.
    settings : dict
        The values of the settings by name.
    crps : float or None
        The mean CRPS over the scored rows; None if the trial was dropped before any row was scored.
    gain : float or None
        The mean CRPS of the default settings on the same rows, minus `crps`; positive if the trial is better.
    error : float or None
        The standard error of `gain`.
    seconds : list of float
        The time that each fold took.
    elapsed : float
        The time from the start of the search to the end of the trial, in seconds.
    dropped : str
        The reason why the trial was ended early, or "" if it was not.
    scores : array, shape (scored rows,)
        The CRPS of each scored row, ordered by fold. If the trial was dropped, only its first folds were scored.
    handle : optuna.Trial or None
        Optuna's object for this trial.
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
    handle: "optuna.Trial | None" = field(default=None, repr=False)


def split_for_trials(prepared: Prepared) -> list[Prepared]:
    """Split a table into folds for trials. The test rows of a fold are the rows on which trials are scored.

    - Small tables are cross-validated on their training and validation rows, because scores of a few hundred validation
      rows would be too noisy. If rows are split by time, each fold is scored on later rows than it is fitted to.
    - Larger tables have a single fold, which is scored on the validation rows. The same holds if the user chose the
      validation rows, or if a table with groups is split by time.

    In each fold, a share of the rows to fit is held out to choose epochs and mixture weights. All rows of a group stay
    together. The test rows of the table itself are never used.
    """
    rows, plan, group = prepared.split.rows, prepared.plan, prepared.sample.group
    used = np.concatenate([rows.train, rows.validation])
    is_chosen = plan.split_column is not None or (plan.time is not None and bool(plan.group))
    if len(rows.validation) and (len(used) >= SMALL_TABLE_ROWS or is_chosen):
        pairs = [(rows.train, rows.validation)]
    elif plan.time is not None and len(rows.validation):
        # Training and validation rows are sorted by time. Blocks of the size of the validation rows are scored in turn.
        blocks = split_time_blocks(len(used), len(rows.validation), FOLDS)
        pairs = [(used[inner], used[outer]) for inner, outer in blocks]
    else:
        divided = split_folds(len(used), FOLDS, plan.seed, None if group is None else group[used])
        pairs = [(used[inner], used[outer]) for inner, outer in divided]
    random, folds = np.random.default_rng(plan.seed), list[Prepared]()
    for fitted, scored in pairs:
        scored = np.sort(random.permutation(scored)[: MAX_SCORED_ROWS // len(pairs)])
        share = plan.split_shares[1] / sum(plan.split_shares[:2]) if len(fitted) >= MIN_ROWS_TO_VALIDATE else 0.0
        if plan.time is not None and group is None:
            # The last rows are held out, because `fitted` is sorted by time.
            inner, held_out = np.split(fitted, [len(fitted) - round(len(fitted) * share)])
        else:
            groups = None if group is None else group[fitted]
            parts = split_at_random(len(fitted), (1.0 - share, share), int(random.integers(2**32)), groups)
            inner, held_out = (fitted[part] for part in parts)
        split = prepared.split._replace(rows=SplitRows(inner, held_out, scored))
        folds.append(replace(prepared, split=split))
    return folds


def score_fold(folds: list[Prepared], number: int, settings: Settings, clock: Clock) -> dict[str, bytes]:
    """Fit a model with some settings to the training rows of fold `number`, and score the test rows of this fold.

    Return the files of a job (`ddpn.runtime.jobs`): a single one, "scores", which has two arrays. `crps` has the CRPS
    of each test row, and `seconds` is a number, the time that the job took. A continuous distribution is rounded to
    counts before it is scored. If the time of `clock` runs out, raise a `TimeLimitError`.
    """

    def check_time(step: str = "") -> None:
        if not clock.left:
            raise TimeLimitError("the time is up")

    started, fold = time.monotonic(), folds[number]
    plan = apply_settings(fold.plan, settings).replace(compare_with=())
    if plan.ensemble_size is not None:
        plan = plan.replace(n_networks=min(MAX_TRIAL_NETWORKS, plan.ensemble_size))
    model = plan.regressor()
    with clock.limit(), warnings.catch_warnings():
        # Warnings of bad convergence are ignored, because the score shows whether the settings are good.
        warnings.simplefilter("ignore")
        fitted = fit_prepared_table(
            model, replace(fold, plan=plan), PipelineOptions(), Schedule(on_step=check_time, steps=("members",))
        )
        if fitted.missing:
            raise KeyboardInterrupt
        with single_thread():
            blocks = model.predictor_.iter_recorded_blocks(fold.test)
            parts = [crps(discretize(dist), torch.from_numpy(part.y)).double().numpy() for dist, part in blocks]
    check_time()  # the training may have run out of time, and its result must not be used
    scores = np.concatenate(parts)
    if not np.isfinite(scores).all():
        raise TrainingError("The CRPS of some rows is not finite.")
    return {"scores": arrays_to_bytes(crps=scores, seconds=np.array(time.monotonic() - started))}
