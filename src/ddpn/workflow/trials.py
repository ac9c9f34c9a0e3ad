"""The rows to which trials of `ddpn tune` are fitted and on which they are scored, and the scoring of a fold."""

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
from ddpn.workflow.fitting import fit_prepared
from ddpn.workflow.preparing import Prepared
from ddpn.workflow.search_space import Settings, with_settings

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
    """The settings of a trial, and its scores.

    Attributes
    ----------
    number : int
        The number of the trial. Trial 0 has the default settings.
    settings : dict
        The values of the settings by name.
    crps : float or None
        The mean CRPS over the scored rows; None if the trial was dropped before any row was scored.
    gain, error : float or None
        The mean CRPS of the defaults on the same rows minus `crps`, and the standard error of this difference.
    seconds : list of float
        The time that each fold took.
    elapsed : float
        The time from the start of the search to the end of the trial, in seconds.
    dropped : str
        The reason why the trial ended early, else "".
    scores : array
        The CRPS of each scored row, in the order of the folds. If the trial was dropped, not all rows are scored.
    handle : optuna.Trial or None
        The trial in Optuna.
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
    """Return the splits of a table in which trials are fitted and scored. The test rows of each split are scored.

    Small tables are cross-validated on their training and validation rows, because a few hundred validation rows would
    decide by chance. With a split by time, each fold is scored on later rows than those it is fitted to. There is a
    single split, with the validation rows to score, for larger tables, for validation rows that the user chose, and for
    groups that are split by time. A share of the rows to fit is held out to choose epochs and mixture weights, so that
    scored rows take no part in the fit. Groups are never divided, and the test rows of the table are never used.
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
    """Fit the training rows of fold `number` with some settings, and score its test rows.

    Return the CRPS of each test row and the seconds that this took, as the files of a job (`ddpn.runtime.jobs`). A
    Normal is scored by the probabilities of the counts to which its draws would be rounded. When the `clock` ends, a
    `TimeLimitError` is raised.
    """

    def check_time(step: str = "") -> None:
        if not clock.left:
            raise TimeLimitError("the time is up")

    started, fold = time.monotonic(), folds[number]
    plan = with_settings(fold.plan, settings).replace(compare_with=())
    if plan.ensemble_size is not None:
        plan = plan.replace(n_networks=min(MAX_TRIAL_NETWORKS, plan.ensemble_size))
    model = plan.regressor()
    with clock.limit(), warnings.catch_warnings():
        # Warnings of bad convergence are ignored, because the score shows whether the settings are good.
        warnings.simplefilter("ignore")
        fitted = fit_prepared(
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
