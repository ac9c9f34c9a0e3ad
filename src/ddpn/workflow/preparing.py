"""Prepare a table for a fit: find the role of each column, and split it into training, validation and test rows.

Tables that fit into memory are read completely. Of larger tables, a sample is read, and the training rows are streamed.
Imports no torch.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddpn.rows.count_rows import CountRows
from ddpn.rows.splits import FOLDS, SMALL_TABLE_ROWS
from ddpn.runtime.deadlines import NO_LIMIT, Clock
from ddpn.runtime.display import describe_row_counts, plural
from ddpn.runtime.errors import Argument, InputError, format_argument
from ddpn.runtime.progress import progress_bar
from ddpn.runtime.validation import join_words
from ddpn.storage.files import sha256
from ddpn.tables.cells import clean_text
from ddpn.tables.checks import FindingKind, find_column_problems, find_row_problems, run_checks
from ddpn.tables.checks.order import find_time_columns, find_trend
from ddpn.tables.columns import Kind
from ddpn.tables.dates import DAY
from ddpn.tables.groups import describe_missing_groups
from ddpn.tables.numbers import OPEN_ENDED, describe_number_format, parse_numbers
from ddpn.tables.roles import Roles, report_all
from ddpn.tables.row_draw import SEED
from ddpn.tables.shuffling import draw_row_numbers
from ddpn.tables.table import Table
from ddpn.workflow.column_roles import find_roles
from ddpn.workflow.config import FitConfig
from ddpn.workflow.large_tables import TrainingRows, check_and_read_rows
from ddpn.workflow.model_folder import CHECKPOINT, SavedModel
from ddpn.workflow.splitting import RowSplit, split_rows
from ddpn.workflow.table_warnings import describe_finding, describe_trend

if TYPE_CHECKING:
    from ddpn.analysis.diagnosis.result import Diagnosis


@dataclass(frozen=True)
class Prepared:
    """A table that is ready for a fit: its checked rows, the roles of its columns, and the split.

    - `plan` has the options of the fit.
    - `sample` has the rows with a known count and a positive weight. If the table is larger than memory, it has only a
      random sample of them.
    - `leaks` are warnings about columns that may leak the target, and `warnings` are all other warnings. Both are saved
      with the model.
    - `time_columns` are inputs that change with time, such as the year. They are listed only if the split is by time.
    - `stream` reads the training rows of a table that is larger than memory; otherwise it is None.
    """

    plan: FitConfig
    roles: Roles
    sample: CountRows
    split: RowSplit
    leaks: tuple[str, ...]
    warnings: tuple[str, ...]
    time_columns: tuple[str, ...] = ()
    stream: "TrainingRows | None" = None

    @property
    def train(self) -> CountRows:
        return self.sample.rows(self.split.rows.train)

    @property
    def validation(self) -> CountRows:
        return self.sample.rows(self.split.rows.validation)

    @property
    def train_and_validation(self) -> CountRows:
        """The training and validation rows, in the order of the table."""
        return self.sample.rows(np.sort(np.concatenate(self.split.rows[:2])))

    @property
    def test(self) -> CountRows:
        return self.sample.rows(self.split.rows.test)

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows of each part of the split: "train", "validation" and "test"."""
        return {name: len(rows) for name, rows in self.split.rows._asdict().items()}

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the rows. A later fit or evaluation recognises the same table by it."""
        return compute_fingerprint(self.sample)

    @property
    def is_cross_fitted(self) -> bool:
        """True if the models of the mixture are cross-fitted, so that validation rows are used for training as well."""
        at_random = self.plan.split_column is None and self.plan.time is None
        counts = self.counts
        is_small = at_random and counts["train"] + counts["validation"] <= SMALL_TABLE_ROWS
        return self.plan.ensemble_size is None and (is_small or not counts["validation"])

    @property
    def is_scored_out_of_fold(self) -> bool:
        """True if there are no test rows. Each row is then scored by models that were fitted without it."""
        return not self.counts["test"]

    @property
    def row_counts_text(self) -> str:
        """A phrase with the numbers of rows, such as "755 rows, 5-fold cross-fitted; 189 test rows"."""
        return describe_row_counts(self.counts, FOLDS if self.is_cross_fitted else 0)


def prepare(table: Table | pl.DataFrame, plan: FitConfig, verbose: bool = False, clock: Clock = NO_LIMIT) -> Prepared:
    """Check a table, find the role of each column, and split the rows.

    Parameters
    ----------
    table : polars DataFrame or Table
        Rows in memory, or files that are larger than memory. All rows of the files are checked, but only a random
        sample is prepared. The training rows are later streamed by the fit.
    plan : FitConfig
        The options of the fit.
    verbose : bool
        Show the progress of checks.
    clock : Clock
        The time limit of the fit. Checks for leaks and groups use a small part of the time left.

    Returns
    -------
    Prepared
        The argument of `fit_into`.
    """
    if not isinstance(table, Table):
        with progress_bar("Checking the table", None, verbose):
            return _prepare_frame(table, plan.resolve_columns(table.columns), clock)
    plan = plan.with_test_rows().resolve_columns(list(table.schema))
    numbers = draw_row_numbers(table, plan.seed)
    frame, n_usable = check_and_read_rows(table, plan, numbers, verbose)
    with progress_bar("Checking the sampled rows", None, verbose):
        prepared = _prepare_frame(frame, plan, clock)
    stream = _make_training_rows(table, frame, prepared, numbers, n_usable)
    seen = (
        f"Networks were trained on about {len(stream):,} rows, but evaluate recognises only "
        f"{prepared.counts['train']:,} sampled ones as training rows. Score new rows, not these files."
    )
    notes = () if len(numbers) == table.rows else (seen,)
    return replace(prepared, stream=stream, warnings=(*prepared.warnings, *notes))


def _prepare_frame(frame: pl.DataFrame, plan: FitConfig, clock: Clock) -> Prepared:
    """Check a table in memory, find the roles of its columns, split its rows, and look for leaks and groups.

    `clock` is the time limit of the fit, of which the checks use a small part. Rows without a count or with the weight
    0 are left out. If the counts of all training rows are 0, an `InputError` is raised.
    """
    roles, sample, warnings = _read_roles_and_rows(frame, plan)
    kept = sample.has_weight
    if not kept.all():
        warnings.append(f"Left out: {plural(int((~kept).sum()), 'row')} of weight 0.")
        sample = sample.rows(kept)
    if len(sample) < frame.height:
        frame = frame[sample.row_numbers - 1]
    timed = roles.parse_times(frame, plan.time)
    split = split_rows(timed, plan, sample.labels, sample.group)
    warnings += describe_missing_groups(frame, plan.group, roles.missing)
    if plan.mix_with and plan.ensemble_size is not None and not len(split.rows.validation):
        names = join_words(plan.mix_with)
        warnings.append(f"Left out of the mixture: {names}, because there are no validation rows to choose weights.")
    if not sample.y[split.rows.train].any():
        argument = Argument("target", plan.target)
        raise InputError(argument=argument, must="be above 0 in some training row", got="zeros only")
    checked, train = sample.replace(X=sample.X.to_polars()), split.rows.train
    leaks, questions = _check_columns(checked, roles, plan, clock)
    following = () if plan.time is None else find_time_columns(checked.X[train], timed[plan.time][train])
    warnings += _describe_split_risks(checked, split, roles, plan, timed, clock)
    sentences = tuple(dict.fromkeys([*questions, *warnings]))
    return Prepared(plan, roles, sample, split, leaks, sentences, tuple(following))


def _read_roles_and_rows(frame: pl.DataFrame, plan: FitConfig) -> tuple[Roles, CountRows, list[str]]:
    """Find the role of each column, and read the rows with a known count.

    Return the roles, the rows, and sentences about cells that could not be read or have an ambiguous meaning, and about
    rows that were left out.
    """
    roles = find_roles(frame, plan)
    # `report` does nothing, because the notes of the columns already say how cells were read.
    sample = roles.read_rows(frame, plan.fractional, report=lambda sentence: None, counts=plan.count_range)
    warnings = [*roles.describe_rows_without_target(frame.height - len(sample)), *_describe_roles(frame, roles, plan)]
    report_all(
        [note for column in roles.columns if column.name not in plan.drop for note in column.notes], warnings.append
    )
    return roles, sample, warnings


def _describe_roles(frame: pl.DataFrame, roles: Roles, plan: FitConfig) -> list[str]:
    """Return sentences about how text was read as numbers, in the target and in other columns with a role.

    One sentence warns of counts such as "20+", which stand for 20 or more, unless the plan says which are censored.
    """
    sentences = [note for name, written in roles.formats.items() for note in describe_number_format(name, written)]
    if plan.target not in roles.formats:
        return sentences
    text = clean_text(frame[plan.target], roles.missing)
    cells = text.filter(text.str.contains(OPEN_ENDED).fill_null(False))
    is_declared = plan.censored_above is not None or plan.censored is not None
    if is_declared or not len(cells):
        return sentences
    limits = parse_numbers(cells, roles.formats[plan.target]).unique().drop_nulls()
    number = f"{limits[0]:g}" if len(limits) == 1 else ""
    meaning = f"{number} or more" if number else "that many or more"
    limit = format_argument("censored_above", int(limits[0])) if number else "`censored`, with a column that marks them"
    start = f"Column {plan.target}: {len(cells):,} counts such as {cells[0]!r} are read as {cells[0].rstrip(' +')}"
    return [*sentences, f"{start}, but they stand for {meaning}. Use {limit}."]


def _check_columns(
    sample: CountRows,
    roles: Roles,
    plan: FitConfig,
    clock: Clock = NO_LIMIT,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Check the columns, except those in `plan.use`, for target leaks and other problems.

    The first result has sentences about columns that may leak the target. The second has sentences about other
    problems.
    """
    check = partial(find_column_problems, sample, roles.dates.inputs, plan.use)
    findings, skipped = run_checks([check], clock)
    leaks = tuple(describe_finding(finding) for finding in findings if finding.kind == FindingKind.LEAK)
    questions = [describe_finding(finding) for finding in findings if finding.kind != FindingKind.LEAK]
    return leaks, (*questions, *([skipped] if skipped else []))


def diagnose_table(
    table: Table | pl.DataFrame,
    plan: FitConfig,
    mean_model: str,
    max_rows: int | None,
    progress: Callable[[str], object] | None = None,
) -> "Diagnosis":
    """Diagnose the counts of a table, for example their dispersion.

    `mean_model` is the model that predicts the means: "constant", "glm", "boosting", or "auto" for the one with the
    smallest out-of-fold deviance. `max_rows` is the maximum number of rows to diagnose; None means all. `progress` is
    called with a line of text for each step.

    All rows are checked. Then a random sample of at most 300,000 rows is read, unless `max_rows` is None. Warnings
    about the table become notes of the result, beginning with those about target leaks.
    """
    table = Table.from_rows(table)
    plan = plan.resolve_columns(list(table.schema))
    numbers = np.arange(table.rows) if max_rows is None else draw_row_numbers(table, SEED)
    frame, total = (table.read(), None) if len(numbers) == table.rows else check_and_read_rows(table, plan, numbers)
    roles, sample, notes = _read_roles_and_rows(frame, plan)
    leaks, questions = _check_columns(sample.replace(X=sample.X.to_polars()), roles, plan)
    columns = {"upper_column": plan.upper_column, "censored": plan.censored}
    options = {name: column for name, column in columns.items() if column is not None}
    notes += describe_missing_groups(frame, plan.group, roles.missing)
    from ddpn.analysis.diagnosis import diagnose_sample  # imports torch: wrong tables are reported at once

    arguments = plan.count_range.options | options
    diagnosis = diagnose_sample(sample, plan.target, mean_model, max_rows, plan.seed, progress, arguments, total)
    return replace(diagnosis, notes=(*diagnosis.notes, *leaks, *questions, *notes))


def _describe_split_risks(
    sample: CountRows, split: RowSplit, roles: Roles, plan: FitConfig, timed: pl.DataFrame, clock: Clock
) -> list[str]:
    """Return warnings that test scores may be too good, because rows form groups or because counts change with time.

    The list is empty if there is no such sign, or if a column of the user says how rows are split. `timed` is the table
    with the same rows, from which the column of times is read. The checks use a part of the time of `clock`; if there
    is not enough, a sentence says that they were skipped.
    """
    if plan.time is not None:
        earlier = np.concatenate([split.rows.train, split.rows.validation])
        column = next(candidate for candidate in roles.columns if candidate.name == plan.time)
        is_input = not column.left_out and (column.kind != Kind.DATE or DAY in column.parts)
        change = find_trend(sample.rows(earlier), timed[plan.time][earlier])
        return [describe_trend(change, plan.time, is_input)] if change else []
    if plan.split_column is not None:
        return []
    findings, skipped = run_checks([partial(find_row_problems, sample, roles.dates.inputs, plan.use, plan.seed)], clock)
    return [*(describe_finding(finding) for finding in findings), *([skipped] if skipped else [])]


def compute_fingerprint(sample: CountRows) -> str:
    """Compute a digest of the rows, from their values, column names and groups."""
    group = b"" if sample.group is None else sample.group.tobytes()
    return sha256(sample.compute_digest().encode() + group)


def compute_identity(prepared: Prepared) -> str:
    """Compute a digest of everything on which a fit depends: the options, the rows and the streamed files.

    A fit continues only from a checkpoint with the same digest.
    """
    plan = json.dumps(prepared.plan.as_dict(), sort_keys=True, default=str)
    stream = "" if prepared.stream is None else prepared.stream.identity
    return sha256((plan + prepared.fingerprint + stream).encode())[:16]


def restore_checkpoint(path: Path, prepared: Prepared) -> Path:
    """Return the path of the checkpoint file of a fit: a hidden file beside the model folder `path`.

    If this file does not exist, but the folder `path` has a checkpoint of the same fit, which was interrupted, copy
    that checkpoint to the file. If there is neither, the file does not exist yet, and the fit begins anew.
    """
    fit_identity = compute_identity(prepared)
    checkpoint = path.parent / f".{path.name}.{fit_identity}.checkpoint"
    is_saved = not checkpoint.exists() and (path / CHECKPOINT).is_file()
    if is_saved and SavedModel(path).task.get("identity") == fit_identity:
        checkpoint.write_bytes((path / CHECKPOINT).read_bytes())
    return checkpoint


def _make_training_rows(
    table: Table, frame: pl.DataFrame, prepared: Prepared, numbers: np.ndarray, n_usable: int
) -> TrainingRows:
    """Make the stream of the training rows of a table that is larger than memory.

    `frame` has the sampled rows, from which `prepared` was made, and `numbers` are their positions in the table.
    `n_usable` is the number of rows in the whole table that have a count and a positive weight.
    """
    plan, rows, positions = prepared.plan, prepared.split.rows, prepared.sample.row_numbers - 1
    if not len(rows.validation):
        raise InputError("A streamed table must have validation rows, got a split without them.")
    before = None
    if plan.time is not None:
        times = prepared.roles.parse_times(frame, plan.time)[plan.time].gather(positions)
        # Validation rows of a panel are as early as training rows.
        is_later = bool((times.gather(rows.validation) > times.gather(rows.train).max()).all())
        before = times.gather(rows.validation if is_later else rows.test).min()
    outside = np.concatenate([rows.validation, rows.test])
    at_random = plan.time is None and plan.split_column is None and not plan.group
    training = n_usable - len(outside) if at_random else round(len(rows.train) / len(positions) * n_usable)
    groups = None
    if prepared.sample.group is not None:
        # Within a block of the table, only rows with equal inputs can be recognised, not nearly equal ones.
        X = prepared.sample.X.rows(outside)
        labels = prepared.roles.label_groups(frame[positions[outside]], X, join_near=False)
        groups = None if labels is None else np.unique(labels)
    held_out = np.sort(numbers[positions[outside]])
    return TrainingRows(table, prepared.roles, plan, held_out, max(1, training), before, groups)
