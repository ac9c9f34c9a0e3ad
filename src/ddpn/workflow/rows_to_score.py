"""Choose the rows of a table on which a saved model is scored: rows to which it was not fitted.

The table is read block by block, so that memory is limited. The first pass reads the counts, weights and hashes of all
rows. The hashes show which rows the model was fitted to. The second pass reads a random sample of the other rows
(`ddpn.tables.row_draw`).

The training table itself is read completely. Its test rows are scored; if it has none, all its rows are scored out of
fold.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl

from ddpn.calibration.calibrate import CalibratedRows, calibrate
from ddpn.members.folds import Folds
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import Argument, InputError
from ddpn.tables.roles import report_all
from ddpn.tables.row_draw import MAX_ROWS, RowDraw, draw_rows, draw_sample
from ddpn.tables.seen_rows import hash_sample_rows, sum_hashes
from ddpn.tables.table import Table
from ddpn.workflow.config import FitConfig
from ddpn.workflow.fitting import make_calibration_options, restore_folds
from ddpn.workflow.model_folder import ModelFolder
from ddpn.workflow.preparing import compute_fingerprint
from ddpn.workflow.splitting import split_rows


@dataclass(frozen=True)
class RowsToScore:
    """The rows on which a model is scored.

    - `sample` has the rows as features and counts, and `frame` the same rows with all columns of the table.
    - `total` is the number of rows that could be scored. `sample` may be a random sample of them.
    - `note` is a sentence about how the rows were chosen, or "" if all rows are scored.
    - `meaning` is a sentence about the new rows for which the scores hold, such as rows of new groups, or "".
    - `folds` is None if the rows are new to the model. If the model was fitted to them, `folds` are the folds of its
      cross-fitting, and the rows are scored out of fold.
    """

    sample: CountRows
    frame: pl.DataFrame
    total: int
    note: str = ""
    meaning: str = ""
    folds: Folds | None = None

    def predict_out_of_fold(self, folder: ModelFolder) -> CalibratedRows | None:
        """Predict each row by the copies of the model's members that were fitted without it.

        Return None if the model was not fitted to these rows. The model itself can then predict them.
        """
        if self.folds is None:
            return None
        plan = FitConfig(**folder.task["plan"])
        held_out = folder.model.predictor_.predict_held_out(self.folds, plan.seed)
        return calibrate(held_out, make_calibration_options(plan), plan.seed)


class ScannedRows(NamedTuple):
    """The counts, weights and hashes of all rows of a table that have a count and a positive weight.

    `positions` are the positions of these rows in the table, from 0. `y` has the counts, and `weight` the weights (None
    if the table has none). A row is a training row if its hash is one of those saved with the model. The arrays have
    shape (rows,). `n_without_target` is the number of rows of the table that have no count.
    """

    positions: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None
    hashes: np.ndarray
    n_without_target: int

    def draw(self, mask: np.ndarray, max_rows: int | None) -> RowDraw:
        """Draw at most `max_rows` of the rows where `mask` is True.

        The `positions` of the result are positions in the table.
        """
        rows = np.flatnonzero(mask)
        weight = None if self.weight is None else self.weight[rows]
        draw = draw_rows(len(rows), max_rows, y=self.y[rows], weight=weight)
        return replace(draw, positions=self.positions[rows[draw.positions]])


def count_targets(folder: ModelFolder, table: Table) -> int:
    """Return the number of rows of a table that have a value of the model's target."""
    blocks = ((block, table.read_block(block)) for block in table.list_blocks())
    return sum(
        int(folder.roles.find_rows_with_target(frame, block.rows_before_in_file).sum()) for block, frame in blocks
    )


def scan_rows(folder: ModelFolder, table: Table) -> ScannedRows:
    """Check all rows of a table block by block, and collect their counts, weights and hashes.

    If a column has cells that cannot be read, a warning describes those in the first block that has such cells. If no
    row has a count, or if all weights are 0, an `InputError` is raised.
    """
    roles, model = replace(folder.roles, interval_groups=None, group=()), folder.model
    parts: list[tuple[np.ndarray, ...]] = []
    sentences: dict[str, str] = {}

    def note(sentence: str) -> None:
        sentences.setdefault(sentence.partition(":")[0], sentence)

    n_known = 0
    for block in table.list_blocks():
        frame = table.read_block(block)
        with table.locate_errors(block):
            if not roles.find_rows_with_target(frame, block.rows_before_in_file).any():
                continue
            counts = model.predictor_.counts
            sample = roles.read_rows(frame, model.fractional, note, counts, block.rows_before_in_file)
        n_known += len(sample)
        sample = sample.rows(sample.has_weight)
        if not len(sample):
            continue
        positions = block.rows_before - block.rows_before_in_file + sample.row_numbers - 1
        parts.append((positions, sample.y, sample.weight_or_ones, hash_sample_rows(sample)))
    if not n_known:
        target = Argument("target", str(roles.target))
        raise InputError(argument=target, must="have values", got="missing values only")
    if not parts:
        weights = Argument("weight", str(roles.weight))
        raise InputError(argument=weights, must="be positive in some row", got="zero weights only")
    positions, y, weight, hashes = (np.concatenate(column) for column in zip(*parts, strict=True))
    report_all(list(sentences.values()), None)
    is_weighted = roles.weight in table.schema
    return ScannedRows(positions, y, weight if is_weighted else None, hashes, table.rows - n_known)


def choose_rows_to_score(
    folder: ModelFolder, table: Table | pl.DataFrame, max_rows: int | None = MAX_ROWS
) -> RowsToScore:
    """Choose the rows on which a model is scored: rows of a table that have a count and to which it was not fitted.

    If the table is the model's training table, these are its test rows. If it has no test rows, all its rows are
    chosen, and are then scored out of fold. If there are more than `max_rows` new rows or test rows, a random sample of
    this size is chosen; None sets no limit.
    """
    table = Table.from_rows(table)
    folder = folder.for_table(table)
    scanned = scan_rows(folder, table)
    missing_note = " ".join(folder.roles.describe_rows_without_target(scanned.n_without_target))
    is_fitted_table = folder.seen is None or sum_hashes(scanned.hashes) == folder.seen.hash_sum
    if "fingerprint" in folder.task and is_fitted_table:
        rows = _choose_rows_of_training_table(folder, table, missing_note, max_rows)
        if rows is not None:
            return rows
    mask, note = np.ones(len(scanned.y), dtype=bool), ""
    if folder.seen is not None:
        mask, note = folder.seen.find_unseen(scanned.hashes)
    draw = scanned.draw(mask, max_rows)
    frame = table.take_rows(draw.positions)
    sample = _read_sample(folder, frame)
    sample = sample.replace(labels=draw.positions + 1, weight=draw.weight)
    return RowsToScore(sample, frame, draw.total, f"{missing_note} {note}".strip())


def _read_sample(folder: ModelFolder, frame: pl.DataFrame) -> CountRows:
    """Convert rows that `scan_rows` has already checked to features and counts, without repeating its warnings.

    `frame` has some rows of the table. Those without a count are left out.
    """
    counts = folder.model.predictor_.counts
    return folder.roles.read_rows(frame, folder.model.fractional, lambda sentence: None, counts)


def _choose_rows_of_training_table(
    folder: ModelFolder, table: Table, missing_note: str, max_rows: int | None
) -> RowsToScore | None:
    """Choose the rows to score if `table` is the model's training table; return None if it is another table.

    `missing_note` is a sentence about rows without a count. The note of the result begins with it.
    """
    frame = table.read()
    sample = _read_sample(folder, frame)
    sample = sample.rows(sample.has_weight)
    if compute_fingerprint(sample) != folder.task.get("fingerprint"):
        return None
    plan, frame = FitConfig(**folder.task["plan"]), frame[sample.row_numbers - 1]
    for name in (plan.split_column, plan.time):
        if name is not None and name not in frame.columns:
            raise InputError(
                f"No column named {name!r}. The model was fitted to this table, and this column marks the "
                "test rows. Add the column, or use other rows."
            )
    split = split_rows(folder.roles.parse_times(frame, plan.time), plan, sample.labels, sample.group)
    if folder.folds is not None:
        reason = f"The model was fitted to all {len(sample):,} rows of this table"
        note = f"{missing_note} {reason}, so they are scored out of fold."
        folds = restore_folds(sample, folder.folds)
        return RowsToScore(sample, frame, len(sample), note.strip(), split.meaning, folds)
    test = split.rows.test
    note = f"{missing_note} The model was fitted to this table, so only its {len(test):,} test rows are scored.".strip()
    draw = draw_sample(sample.rows(test), max_rows)
    chosen = test[draw.positions]
    return RowsToScore(sample.rows(chosen).replace(weight=draw.weight), frame[chosen], draw.total, note, split.meaning)
