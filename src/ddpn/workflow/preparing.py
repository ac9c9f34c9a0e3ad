"""From a table and a plan to training, validation and test samples. Imports no torch."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddpn.members.network_options import SMALL_ROWS
from ddpn.runtime.errors import Argument, InputError
from ddpn.runtime.validation import listed
from ddpn.sample import Sample
from ddpn.tables.dates import DAY
from ddpn.tables.leaks import Leaks, find_leaks
from ddpn.tables.roles import Roles, TableColumn, report_all
from ddpn.tables.row_groups import missing_sentences
from ddpn.tables.splits import FOLDS, rows_words
from ddpn.workflow.model_folder import CHECKPOINT, read_task
from ddpn.workflow.plan import Plan
from ddpn.workflow.profiling import roles_of
from ddpn.workflow.splitting import RowSplit, split_rows
from ddpn.workflow.table_warnings import find_trend, repeated_rows, time_columns


@dataclass(frozen=True)
class Prepared:
    """A table ready for fitting; `leaks` and `warnings` are sentences about it that stay with the model.

    `time_columns` are inputs that follow time, where rows are split by time. `stream` has the training rows of a table
    that is larger than memory, of which `sample` then has some.
    """

    plan: Plan
    roles: Roles
    sample: Sample
    split: RowSplit
    leaks: tuple[str, ...]
    warnings: tuple[str, ...]
    time_columns: tuple[str, ...] = ()
    stream: Any = None

    @property
    def train(self) -> Sample:
        return self.sample.rows(self.split.rows.train)

    @property
    def validation(self) -> Sample:
        return self.sample.rows(self.split.rows.validation)

    @property
    def known(self) -> Sample:
        """Training and validation rows."""
        return self.sample.rows(np.sort(np.concatenate([self.split.rows.train, self.split.rows.validation])))

    @property
    def test(self) -> Sample:
        return self.sample.rows(self.split.rows.test)

    @property
    def counts(self) -> dict[str, int]:
        """Number of rows of each part."""
        return {name: len(rows) for name, rows in self.split.rows._asdict().items()}

    @property
    def is_cross_fitted(self) -> bool:
        """Whether validation rows are training rows too: few rows of a portfolio, which leaves out folds of them."""
        at_random = self.plan.split_column is None and self.plan.time is None
        counts = self.counts
        is_small = at_random and counts["train"] + counts["validation"] <= SMALL_ROWS
        return self.plan.members == "auto" and (is_small or not counts["validation"])

    @property
    def rows_words(self) -> str:
        """The number of rows of each part in words."""
        return rows_words(self.counts, FOLDS if self.is_cross_fitted else 0)


def prepare(frame: Any, plan: Plan) -> Prepared:
    """Validate the table, and decide on every column and row.

    Parameters
    ----------
    frame : polars DataFrame
        The table.
    plan : Plan
        What to fit.

    Returns
    -------
    Prepared
        What `fit_into` takes.
    """
    roles = roles_of(frame, plan)
    # What cells were read as is said by the notes of the columns, so that sentences about later tables are not needed.
    fractional = str(plan.model.get("fractional", "error"))
    sample = roles.sample(frame, fractional, report=lambda sentence: None, counts=plan.count_range)
    warnings = roles.without_target(frame.height - len(sample))
    report_all(
        [note for column in roles.columns if column.name not in plan.drop for note in column.notes], warnings.append
    )
    kept = sample.is_used
    if not kept.all():
        warnings.append(f"{int((~kept).sum()):,} rows of weight 0 are left out.")
        sample = sample.rows(kept)
    if len(sample) < frame.height:
        frame = frame[sample.labels - 1]
    timed = roles.times(frame, plan.time)
    split = split_rows(timed, plan, sample.labels, sample.group)
    warnings += missing_sentences(frame, plan.group, roles.missing)
    if plan.model.get("mix_with") and not len(split.rows.validation):
        names = listed(plan.model["mix_with"])
        warnings.append(
            f"Left out of the mixture, because there are no validation rows to choose its weights: {names}."
        )
    if not sample.y[split.rows.train].any():
        argument = Argument("target", plan.target)
        raise InputError(argument=argument, must="be above 0 in some training row", got="zeros only")
    leaks = suspected_leaks(sample, [column for column in roles.used if column.name not in plan.use])
    train = split.rows.train
    following = () if plan.time is None else time_columns(sample.X[train], timed[plan.time][train])
    warnings += _split_warnings(sample, split, roles, plan, timed)
    sentences = (*leaks.questions, *warnings)
    return Prepared(plan, roles, sample, split, leaks.certain, sentences, tuple(following))


def suspected_leaks(sample: Sample, columns: list[TableColumn]) -> Leaks:
    """Target leaks, and questions about possible ones, in some of the columns."""
    dates = {name: column.name for column in columns if column.kind == "date" for name in column.inputs}
    inputs = sample.X.select([name for column in columns for name in column.inputs])
    return find_leaks(inputs, sample.y, dates, sample.exposure)


def _split_warnings(sample: Sample, split: RowSplit, roles: Roles, plan: Plan, timed: Any) -> list[str]:
    """Sentences about rows for which the scores may be too good: those of known groups, and later ones."""
    if plan.time is not None:
        known = np.concatenate([split.rows.train, split.rows.validation])
        column = next(each for each in roles.columns if each.name == plan.time)
        is_input = not column.left_out and (column.kind != "date" or DAY in column.parts)
        trend = find_trend(sample.rows(known), timed[plan.time][known], plan.time, is_input)
        return [] if trend is None else [trend.sentence]
    if plan.split_column is not None:
        return []
    found = [] if plan.group else [repeated_rows(sample, roles.used, plan.seed)]
    dates = [column.name for column in roles.used if column.kind == "date"]
    return [each.sentence for each in found if each is not None] + [
        f"Column {date} is a date, and rows are split at random: if the model is to predict later dates, the "
        f"scores are too good. Then split by time, with --time {date}."
        for date in dates[:1]
    ]


def fingerprint(sample: Sample) -> str:
    """A digest of names and values: the same table has the same again."""
    group = b"" if sample.group is None else sample.group.tobytes()
    return hashlib.sha256(sample.digest().encode() + group).hexdigest()


def identity(prepared: Prepared) -> str:
    """A digest of all that a fit depends on: the same fit continues from its checkpoint, another does not."""
    plan = json.dumps(prepared.plan.as_dict(), sort_keys=True, default=str)
    stream = "" if prepared.stream is None else prepared.stream.identity
    return hashlib.sha256((plan + fingerprint(prepared.sample) + stream).encode()).hexdigest()[:16]


def checkpoint_of(path: Path, prepared: Prepared) -> Path:
    """Where the state of this fit is kept while it runs; that of an interrupted one is continued."""
    known = identity(prepared)
    here = path.parent / f".{path.name}.{known}.checkpoint"
    if not here.exists() and (path / CHECKPOINT).is_file() and read_task(path).get("identity") == known:
        here.write_bytes((path / CHECKPOINT).read_bytes())
    return here
