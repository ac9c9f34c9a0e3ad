"""Read tables larger than memory: draw a sample of the rows, and stream the training rows. Imports no torch."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from ddpn.rows.count_rows import CountRows
from ddpn.rows.splits import SMALL_TABLE_ROWS, read_parts
from ddpn.runtime.errors import InputError
from ddpn.runtime.progress import progress_bar
from ddpn.storage.files import sha256
from ddpn.tables.files import is_pattern, read_file
from ddpn.tables.roles import Roles
from ddpn.tables.shuffling import fits_in_memory, measure_free_memory, shuffle_chunks
from ddpn.tables.table import Table
from ddpn.workflow.config import FitConfig
from ddpn.workflow.splitting import read_times

#: The number of rows on which networks are trained in all passes together (at least one pass), and the most passes.
_TRAINED_ROWS, _MAX_PASSES = 5_000_000, 5.0
#: An upper estimate of the size of rows in memory, relative to a compressed file.
_MAX_EXPANSION = 10


@dataclass(frozen=True)
class TrainingRows:
    """A stream of the training rows of a table larger than memory; implements `ddpn.networks.training.RowStream`.

    `rows` is the approximate number of training rows. Rows with a count and a positive weight are training rows,
    except:

    - rows whose positions in the table, from 0, are in `held_out`, a sorted array
    - if rows are split by time: rows whose time is `before` or later
    - if rows have groups: rows whose group label is in the array `held_out_groups`
    - rows that the plan's `split_column` marks as validation or test rows
    """

    table: Table
    roles: Roles
    plan: FitConfig
    held_out: np.ndarray
    rows: int
    before: Any = None
    held_out_groups: np.ndarray | None = None

    def __len__(self) -> int:
        return self.rows

    @property
    def identity(self) -> str:
        """A digest of the files. It changes when a file changes."""
        return sha256(repr(self.table.describe_files()).encode())[:16]

    @property
    def max_passes(self) -> float:
        """The maximum number of passes over the files.

        It is chosen so that networks are trained on at most 5 million rows in all passes together. But it is at least 1
        and at most 5. If the plan sets the number of epochs, it is infinite.
        """
        asked = self.plan.epochs not in (None, "auto")
        return float("inf") if asked else max(1.0, min(_MAX_PASSES, _TRAINED_ROWS / self.rows))

    @property
    def columns(self) -> list[str]:
        """The columns to read for training: features, columns with a role, and columns that determine the split."""
        plan = self.plan
        special = (plan.target, plan.exposure, plan.weight, plan.upper_column, plan.censored, plan.split_column)
        names = [*(column.name for column in self.roles.features), *(name for name in (*special, plan.time) if name)]
        groups = [name for name in plan.group if name in self.table.schema]
        return list(dict.fromkeys([*names, *groups]))

    def chunks(self, rows: int, seed: int) -> Iterator[pl.DataFrame]:
        """Yield data frames of `rows` training rows each, in a random order that depends on `seed`.

        There is no end: after each pass over the table, the next one begins.
        """
        return shuffle_chunks(self.table, self.columns, self._find_training_rows, rows, seed)

    def sample(self, chunk: pl.DataFrame) -> CountRows:
        """Convert a data frame from `chunks` to features and counts."""
        roles = replace(self.roles, interval_groups=None, group=())
        return roles.read_rows(chunk, self.plan.fractional, report=lambda sentence: None, counts=self.plan.count_range)

    def _find_training_rows(self, frame: pl.DataFrame, numbers: np.ndarray) -> np.ndarray:
        """Return a mask of the training rows among the rows of `frame`.

        `numbers` are the positions of these rows in the table, from 0. A training row has a count and a positive
        weight, and is neither a validation row nor a test row.
        """
        plan = self.plan
        kept = self.roles.find_rows_with_target(frame) & ~np.isin(numbers, self.held_out, assume_unique=True)
        if plan.weight is not None:
            kept &= self.roles.read_weight(frame) > 0
        if plan.split_column is not None:
            kept &= read_parts(frame[plan.split_column].to_list(), plan.split_column, numbers + 1) == "train"
        if plan.time is not None:
            kept &= (self.roles.parse_times(frame, plan.time)[plan.time] < self.before).to_numpy()
        if self.held_out_groups is not None:
            labels = self.roles.label_groups(frame, join_near=False)
            assert labels is not None  # `columns` has the group columns
            kept &= ~np.isin(labels, self.held_out_groups)
        return kept


def open_table(
    sources: Sequence[str], plan: FitConfig, stream: bool | None = None, verbose: bool = False
) -> tuple[Table | pl.DataFrame, str]:
    """Open files, folders or file patterns, and decide whether the table is read into memory or streamed.

    If `stream` is True, the table is streamed. If it is False, the table is read into memory. If it is None, the table
    is streamed if its rows would take more than half of the free memory. But a table with up to 5,000 training and
    validation rows is never streamed.

    `sources` are the paths and patterns; together they are one table. If `verbose` is True, the progress of checks is
    shown.

    The first result is a data frame with all rows, or a `Table` to stream. The second result is a sentence that says
    how the table is read, or "".
    """
    first, free = sources[0], measure_free_memory()
    is_alone = len(sources) == 1 and not os.path.isdir(first) and not is_pattern(first)
    if is_alone and not stream:
        # Small files are not opened to count their rows.
        is_small = free is None or not os.path.isfile(first) or _MAX_EXPANSION * os.path.getsize(first) <= free
        if stream is False or is_small or fits_in_memory(Table(sources, plan.as_text, plan.layout)):
            return read_file(first, plan.as_text, plan.layout), ""
    table = Table(sources, plan.as_text, plan.layout)
    is_small = table.rows * sum(plan.split_shares[:2]) <= SMALL_TABLE_ROWS
    if is_small or not (stream or (stream is None and not fits_in_memory(table))):
        note = f"{table.rows:,} rows are fitted in memory, because they are few." if stream else ""
        return check_and_read_rows(table, plan, np.arange(table.rows), verbose)[0], note
    why = "as requested" if stream else "because they would take more than half of the free memory"
    size = f"{table.rows:,} rows in {len(table.sources):,} files"
    size += f", about {table.rows * table.estimate_row_bytes() / 2**30:.2g} GiB"
    return table, f"{size}, are streamed, {why}."


def check_and_read_rows(
    table: Table, plan: FitConfig, numbers: np.ndarray, verbose: bool = False
) -> tuple[pl.DataFrame, int]:
    """Check all rows of a table block by block, and read some of them. Errors name the file and the row.

    `numbers` are the positions of the rows to read, from 0 and in ascending order. The first result is a data frame
    with these rows. The second result is the number of rows in the whole table that have a count and a positive weight.
    If `verbose` is True, progress is shown.
    """
    plan = plan.resolve_columns(list(table.schema))
    roles = Roles(plan.target, plan.exposure, plan.weight, (), upper=plan.upper_column, censored=plan.censored)
    frames, used = [], 0
    with progress_bar("Checking rows", table.rows, verbose) as bar:
        for block in table.list_blocks():
            frame = table.read_block(block)
            labels = block.rows_before_in_file + 1 + np.arange(frame.height)
            with table.locate_errors(block):
                has_target = roles.find_rows_with_target(frame, block.rows_before_in_file)
                if plan.split_column is not None:
                    read_parts(frame[plan.split_column].to_list(), plan.split_column, labels)
                if plan.time is not None:
                    read_times(frame, plan.time, labels, allow_text=True)
                if has_target.any():
                    sample = roles.read_rows(
                        frame, plan.fractional, counts=plan.count_range, rows_before=block.rows_before_in_file
                    )
                    used += int(sample.has_weight.sum())
            begin, end = np.searchsorted(numbers, [block.rows_before, block.rows_before + frame.height])
            frames.append(frame[numbers[begin:end] - block.rows_before])
            bar.advance(frame.height)
    if not used and plan.weight is not None:
        raise InputError(f"weight {plan.weight!r} must be positive in some row, got zero weights only.")
    return pl.concat(frames, rechunk=True), used


def count_streamed_rows(stream: TrainingRows, n_sampled: int) -> dict[str, int]:
    """Return the numbers of files, rows, training rows and sampled rows of a streamed fit, to save with the model.

    `n_sampled` is the number of rows that were read into memory.
    """
    files, rows = len(stream.table.sources), stream.table.rows
    return {"files": files, "rows": rows, "streamed": len(stream), "sampled": n_sampled}
