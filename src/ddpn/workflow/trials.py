"""Trials of `ddpn tune`: the rows that settings are fitted to and scored on, and how one of them is scored."""

import time
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from ddpn.distributions import discretize
from ddpn.metrics import crps
from ddpn.pipeline import PipelineOptions
from ddpn.rows.splits import MIN_ROWS_TO_VALIDATE, SMALL_TABLE_ROWS, split_at_random, split_by_time, split_folds
from ddpn.runtime.deadlines import Clock, TimeLimitError
from ddpn.runtime.errors import TrainingError
from ddpn.runtime.threads import single_thread
from ddpn.runtime.time_plan import Schedule
from ddpn.storage.contents import arrays_to_bytes
from ddpn.workflow.fitting import fit_prepared
from ddpn.workflow.preparing import Prepared
from ddpn.workflow.search_space import Settings, with_settings
from ddpn.workflow.splitting import SplitRows

if TYPE_CHECKING:
    import optuna

#: Folds by which trials are cross-validated where training and validation rows are few.
FOLDS = 3
#: Trials are scored on at most this many rows: more take time and change no choice.
MAX_SCORED_ROWS = 2000
#: A trial has at most this many networks: its score is compared with others of as many networks.
MAX_TRIAL_NETWORKS = 2


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
    handle : optuna.Trial or None
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
    handle: "optuna.Trial | None" = field(default=None, repr=False)


def split_for_trials(prepared: Prepared) -> list[Prepared]:
    """Return the table in the splits that trials are fitted to and scored on, which are the test rows of each.

    Small tables are cross-validated on their training and validation rows, because a few hundred validation rows
    decide by chance; by time, each fold is scored on later rows than it is fitted to. Larger tables, those whose
    validation rows the user chose, and groups that are split by time have one split: trials are scored on the
    validation rows. A share of the rows to fit is held out to choose epochs and mixture weights, so that scored rows
    have no part in the fit. Rows of one group are never divided, and test rows are never used.
    """
    rows, plan, group = prepared.split.rows, prepared.plan, prepared.sample.group
    used = np.concatenate([rows.train, rows.validation])
    is_chosen = plan.split_column is not None or (plan.time is not None and bool(plan.group))
    if len(rows.validation) and (len(used) >= SMALL_TABLE_ROWS or is_chosen):
        pairs = [(rows.train, rows.validation)]
    elif plan.time is not None and len(rows.validation):
        # Both parts are in the order of time, and rows of validation size are scored one block after the other.
        blocks = split_by_time(len(used), len(rows.validation), FOLDS)
        pairs = [(used[inner], used[outer]) for inner, outer in blocks]
    else:
        divided = split_folds(len(used), FOLDS, plan.seed, None if group is None else group[used])
        pairs = [(used[inner], used[outer]) for inner, outer in divided]
    random, folds = np.random.default_rng(plan.seed), list[Prepared]()
    for fitted, scored in pairs:
        scored = np.sort(random.permutation(scored)[: MAX_SCORED_ROWS // len(pairs)])
        share = plan.split_shares[1] / sum(plan.split_shares[:2]) if len(fitted) >= MIN_ROWS_TO_VALIDATE else 0.0
        if plan.time is not None and group is None:
            # The last rows are held out: `fitted` is in the order of time.
            inner, held_out = np.split(fitted, [len(fitted) - round(len(fitted) * share)])
        else:
            groups = None if group is None else group[fitted]
            parts = split_at_random(len(fitted), (1.0 - share, share), int(random.integers(2**32)), groups)
            inner, held_out = (fitted[part] for part in parts)
        split = prepared.split._replace(rows=SplitRows(inner, held_out, scored))
        folds.append(replace(prepared, split=split))
    return folds


def score_fold(folds: list[Prepared], number: int, settings: Settings, clock: Clock) -> dict[str, bytes]:
    """Fit the training rows of a fold, and return the CRPS of its test rows and the seconds that took, as a job does.

    Normals count as rounded. The `clock` ends the fit with a `TimeLimitError`.
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
        # A setting that is tried may converge badly: its score will tell.
        warnings.simplefilter("ignore")
        fitted = fit_prepared(
            model, replace(fold, plan=plan), PipelineOptions(), Schedule(on_step=check_time, steps=("members",))
        )
        if fitted.missing:
            raise KeyboardInterrupt
        with single_thread():
            blocks = model.predictor_.iter_recorded_blocks(fold.test)
            parts = [crps(discretize(dist), torch.from_numpy(part.y)).double().numpy() for dist, part in blocks]
    check_time()  # a training that ran out of time ends with what it has
    scores = np.concatenate(parts)
    if not np.isfinite(scores).all():
        raise TrainingError("The CRPS of some rows is not finite.")
    return {"scores": arrays_to_bytes(crps=scores, seconds=np.array(time.monotonic() - started))}
