"""Which rows a trial is fitted to and scored on: never test rows. Imports no torch."""

from dataclasses import replace

import numpy as np

from ddpn.workflow.plan import Plan
from ddpn.workflow.preparing import Prepared
from ddpn.workflow.splitting import MIN_VALIDATED, Parts

#: Below so many training and validation rows, trials are scored on every one of them, in several folds.
CROSSED_ROWS = 5000
FOLDS = 3
#: Rows that trials are scored on at most: more take time and change no choice.
SCORED_ROWS = 2000
#: Networks of a trial at most: its score is compared with others of as many networks.
TRIAL_NETWORKS = 2


def folds_of(prepared: Prepared) -> list[Prepared]:
    """The same table in the splits that trials are fitted to and scored on: the test rows of each are its scored rows.

    Small tables are cross-validated on their training and validation rows, because a few hundred validation rows
    decide by chance; by time, each fold is scored on later rows than it is fitted to. Larger tables, and those whose
    validation rows the user chose, have one split: trials are scored on the validation rows. A share of the rows to
    fit is held out to choose epochs and mixture weights, so that scored rows have no part in the fit.
    """
    rows, plan = prepared.split.rows, prepared.plan
    random = np.random.default_rng(plan.seed)
    is_small = len(rows.train) + len(rows.validation) < CROSSED_ROWS
    if len(rows.validation) and (plan.split_column is not None or not is_small):
        pairs = [(rows.train, rows.validation)]
    elif plan.time is not None and len(rows.validation):
        # Both parts are in the order of time, and rows of validation size are scored one block after the other.
        ordered, size = np.concatenate([rows.train, rows.validation]), len(rows.validation)
        ends = [len(ordered) - block * size for block in range(FOLDS) if len(ordered) - (block + 1) * size > size]
        pairs = [(ordered[: end - size], ordered[end - size : end]) for end in ends]
    else:
        known = random.permutation(np.concatenate([rows.train, rows.validation]))
        parts = np.array_split(known, FOLDS)
        pairs = [(np.concatenate(parts[:i] + parts[i + 1 :]), parts[i]) for i in range(FOLDS)]
    most = SCORED_ROWS // len(pairs)
    return [_fold(prepared, fitted, random.permutation(scored)[:most], random) for fitted, scored in pairs]


def _fold(prepared: Prepared, fitted: np.ndarray, scored: np.ndarray, random: np.random.Generator) -> Prepared:
    held_out = 0
    if len(fitted) >= MIN_VALIDATED:
        train, validation, _ = prepared.plan.shares
        held_out = round(len(fitted) * validation / (train + validation))
    # By time, the last rows are held out: `fitted` is in the order of time.
    order = fitted if prepared.plan.time is not None else random.permutation(fitted)
    cut = len(order) - held_out
    parts = Parts(order[:cut], order[cut:], np.sort(scored))
    return replace(prepared, split=prepared.split._replace(rows=parts))


def folds_text(prepared: Prepared, used: int) -> str:
    """Which rows trials are scored on where so many of `folds_of` are used, in words."""
    rows = prepared.split.rows
    if len(rows.validation) and (
        prepared.plan.split_column is not None or len(rows.train) + len(rows.validation) >= CROSSED_ROWS
    ):
        return "the validation rows"
    if prepared.plan.time is not None and len(rows.validation):
        return f"the last {used} blocks of training and validation rows" if used > 1 else "the validation rows"
    of = f"{used} folds of" if used == FOLDS else f"{used} of {FOLDS} folds of"
    return f"{of} the training and validation rows"


def trial_plan(plan: Plan) -> Plan:
    """The plan of a trial: nothing to compare with, and fewer networks where their number is given."""
    model = dict(plan.model)
    if plan.members != "auto":
        model["members"] = min(TRIAL_NETWORKS, int(plan.members))
    return replace(plan, model=model, compare_with=())
