"""Which rows a trial is fitted to and scored on: never test rows. Imports no torch."""

from dataclasses import replace

import numpy as np

from ddpn.tables.splits import fold_pairs, random_parts
from ddpn.workflow.plan import Plan
from ddpn.workflow.preparing import Prepared
from ddpn.workflow.splitting import MIN_VALIDATED, SplitRows

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
    decide by chance; by time, each fold is scored on later rows than it is fitted to. Larger tables, those whose
    validation rows the user chose, and groups that are split by time have one split: trials are scored on the
    validation rows. A share of the rows to fit is held out to choose epochs and mixture weights, so that scored rows
    have no part in the fit. Rows of one group are never divided.
    """
    rows, plan = prepared.split.rows, prepared.plan
    random = np.random.default_rng(plan.seed)
    if _has_one_split(prepared):
        pairs = [(rows.train, rows.validation)]
    elif plan.time is not None and len(rows.validation):
        # Both parts are in the order of time, and rows of validation size are scored one block after the other.
        ordered, size = np.concatenate([rows.train, rows.validation]), len(rows.validation)
        ends = [len(ordered) - block * size for block in range(FOLDS) if len(ordered) - (block + 1) * size > size]
        pairs = [(ordered[: end - size], ordered[end - size : end]) for end in ends]
    else:
        known = np.concatenate([rows.train, rows.validation])
        folds = fold_pairs(len(known), FOLDS, plan.seed, _groups(prepared, known))
        pairs = [(known[inner], known[outer]) for inner, outer in folds]
    most = SCORED_ROWS // len(pairs)
    return [_fold(prepared, fitted, random.permutation(scored)[:most], random) for fitted, scored in pairs]


def _has_one_split(prepared: Prepared) -> bool:
    """Whether all trials are scored on the validation rows."""
    rows, plan = prepared.split.rows, prepared.plan
    is_large = len(rows.train) + len(rows.validation) >= CROSSED_ROWS
    is_chosen = plan.split_column is not None or (plan.time is not None and bool(plan.group))
    return bool(len(rows.validation)) and (is_large or is_chosen)


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


def folds_text(prepared: Prepared, used: int) -> str:
    """Which rows trials are scored on where so many of `folds_of` are used, in words."""
    if _has_one_split(prepared):
        return "the validation rows"
    if prepared.plan.time is not None and len(prepared.split.rows.validation):
        return f"the last {used} blocks of training and validation rows" if used > 1 else "the validation rows"
    of = f"{used} folds of" if used == FOLDS else f"{used} of {FOLDS} folds of"
    return f"{of} the training and validation rows"


def trial_plan(plan: Plan) -> Plan:
    """The plan of a trial: nothing to compare with, and fewer networks where their number is given."""
    model = dict(plan.model)
    if plan.members != "auto":
        model["members"] = min(TRIAL_NETWORKS, int(plan.members))
    return replace(plan, model=model, compare_with=())
