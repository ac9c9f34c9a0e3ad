"""Fits to many files: in memory where they fit, else a sample of rows and a stream of all of them.

Imports no torch.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ddpn.members.network_options import SMALL_ROWS
from ddpn.runtime.errors import InputError
from ddpn.runtime.progress import progress_bar
from ddpn.sample import Sample
from ddpn.storage.files import sha256
from ddpn.tables.cells import polars
from ddpn.tables.files import is_pattern, read
from ddpn.tables.roles import Roles
from ddpn.tables.row_hashes import group_labels_of, is_by_inputs
from ddpn.tables.table import Table, fits_memory, free_memory, shuffled_chunks
from ddpn.workflow.plan import Plan
from ddpn.workflow.splitting import parts_of_column, times_of

#: Up to so many rows are trained on in all, one pass at least: on more rows networks are not passed over five times.
_TRAINED_ROWS, _PASSES = 5_000_000, 5.0
#: How many times as large as a compressed file its rows may be in memory.
_EXPANSION = 10


@dataclass(frozen=True)
class TrainingRows:
    """The training rows of many files, as `ddpn.networks.training.RowStream`; about `rows` of them.

    Not trained on are the rows with the numbers `held_out` (sorted), those from the time `before` on, where rows are
    split by time, and all rows, sampled or not, of the groups whose labels are `held_out_groups`.
    """

    table: Table
    roles: Roles
    plan: Plan
    held_out: np.ndarray
    rows: int
    before: Any = None
    held_out_groups: np.ndarray | None = None

    def __len__(self) -> int:
        return self.rows

    @property
    def identity(self) -> str:
        """What the files are recognised by."""
        return sha256(repr(self.table.identity()).encode())[:16]

    @property
    def most_passes(self) -> float:
        """Passes over the files at most; as many as the plan asks for, if it does."""
        asked = self.plan.model.get("epochs", "auto") != "auto"
        return float("inf") if asked else max(1.0, min(_PASSES, _TRAINED_ROWS / self.rows))

    @property
    def columns(self) -> list[str]:
        """The columns that training needs."""
        plan = self.plan
        special = (plan.target, plan.exposure, plan.weight, plan.upper_column, plan.censored, plan.split_column)
        names = [*(column.name for column in self.roles.used), *(name for name in (*special, plan.time) if name)]
        groups = [name for name in plan.group if name in self.table.schema]
        return list(dict.fromkeys([*names, *groups]))

    def chunks(self, rows: int, seed: int) -> Iterator[Any]:
        """Tables of so many rows, in random order, without an end."""
        return shuffled_chunks(self.table, self.columns, self._keep, rows, seed)

    def sample(self, chunk: Any) -> Sample:
        """A table as inputs and counts."""
        roles = replace(self.roles, groups=None, group=())
        return roles.sample(chunk, self.plan.fractional, report=lambda sentence: None, counts=self.plan.count_range)

    def _keep(self, frame: Any, numbers: np.ndarray) -> np.ndarray:
        """Which rows are training rows: not held out, of a known count and a weight, and of the part for training."""
        plan = self.plan
        kept = self.roles.has_target(frame) & ~np.isin(numbers, self.held_out, assume_unique=True)
        if plan.weight is not None:
            kept &= frame[plan.weight].cast(float).to_numpy() > 0
        if plan.split_column is not None:
            kept &= parts_of_column(frame, plan.split_column, numbers + 1) == "train"
        if self.before is not None:
            kept &= (self.roles.times(frame, plan.time)[plan.time] < self.before).to_numpy()
        if self.held_out_groups is not None:
            by_inputs = is_by_inputs(self.roles.group, frame.columns)
            X = self.roles.features(frame, report=lambda sentence: None) if by_inputs else None
            labels = group_labels_of(frame, self.roles.group, self.roles.missing, X)
            assert labels is not None  # `columns` has the group columns
            kept &= ~np.isin(labels, self.held_out_groups)
        return kept


def open_table(
    sources: Sequence[str], plan: Plan, stream: bool | None = None, verbose: bool = False
) -> tuple[Any, str]:
    """What `prepare` takes, of files, folders or patterns: rows in memory, or a `Table` that is streamed.

    It is streamed if asked for, by default where its rows would take more than half of the free memory. The sentence
    on how it is read may be empty.
    """
    is_alone = len(sources) == 1 and not os.path.isdir(sources[0]) and not is_pattern(sources[0])
    if is_alone and not stream and (stream is False or not _is_large(sources[0], plan)):
        return read(sources[0], plan.category), ""
    table = Table(sources, plan.category)
    is_small = table.rows * sum(plan.shares[:2]) <= SMALL_ROWS
    if is_small or not (stream or (stream is None and not fits_memory(table))):
        note = f"{table.rows:,} rows are fitted in memory, because they are few." if stream else ""
        return checked_rows(table, plan, np.arange(table.rows), verbose)[0], note
    why = "as requested" if stream else "because they would take more than half of the free memory"
    size = f"{table.rows:,} rows in {len(table.sources):,} files"
    size += f", about {table.rows * table.row_bytes() / 2**30:.2g} GiB"
    return table, f"{size}, are streamed, {why}."


def _is_large(source: str, plan: Plan) -> bool:
    """Whether a file does not fit into memory; small ones, which may be compressed, are not opened to find out."""
    free = free_memory()
    is_small = free is None or not os.path.isfile(source) or _EXPANSION * os.path.getsize(source) <= free
    return not is_small and not fits_memory(Table([source], plan.category))


def checked_rows(table: Table, plan: Plan, numbers: np.ndarray, verbose: bool = False) -> tuple[Any, int]:
    """Check all rows of a table, with errors that name the file and its row.

    Returns the rows with these numbers, which are sorted, and how many rows have a count and a weight above 0.
    """
    plan.check_columns(list(table.schema))
    roles = Roles(plan.target, plan.exposure, plan.weight, (), upper=plan.upper_column, censored=plan.censored)
    frames, used = [], 0
    with progress_bar("Checking rows", table.rows, verbose) as bar:
        for place in table.places():
            frame = table.block(place)
            with table.named(place):
                used += _used_rows(frame, plan, roles, place.start)
            begin, end = np.searchsorted(numbers, [place.first, place.first + frame.height])
            frames.append(frame[numbers[begin:end] - place.first])
            bar.advance(frame.height)
    if not used and plan.weight is not None:
        raise InputError(f"weight {plan.weight!r} must be positive in some row, got zero weights only.")
    return polars().concat(frames, rechunk=True), used


def _used_rows(frame: Any, plan: Plan, roles: Roles, start: int) -> int:
    """Check a block of rows for what `prepare` would not accept; returns how many of them count."""
    known = roles.has_target(frame, start)
    labels = start + 1 + np.arange(frame.height)
    if plan.split_column is not None:
        parts_of_column(frame, plan.split_column, labels)
    if plan.time is not None:
        times_of(frame, plan.time, labels, of_text=True)
    if not known.any():
        return 0
    return int(roles.sample(frame, plan.fractional, counts=plan.count_range, first=start).is_used.sum())


def stream_facts(stream: TrainingRows, sampled: int) -> dict[str, int]:
    """What is saved about a streamed fit."""
    files, rows = len(stream.table.sources), stream.table.rows
    return {"files": files, "rows": rows, "streamed": len(stream), "sampled": sampled}
