"""Fits to many Parquet files: in memory where they fit, else a sample of rows and a stream of all of them.

Imports no torch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ddpn.members.network_options import SMALL_ROWS
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import check_column
from ddpn.sample import Sample
from ddpn.tables.reading import STDIN, read
from ddpn.tables.roles import Roles
from ddpn.tables.row_groups import group_labels_of, is_by_inputs
from ddpn.tables.streaming.checks import RoleColumns
from ddpn.tables.streaming.first_pass import Survey, survey, whole_table
from ddpn.tables.streaming.memory import fits_memory
from ddpn.tables.streaming.parts import PARQUET, Parts, find_parts, is_pattern
from ddpn.tables.streaming.shuffling import shuffled_chunks
from ddpn.workflow.plan import Plan
from ddpn.workflow.preparing import Prepared, prepare
from ddpn.workflow.splitting import PARTS

#: Up to so many rows are trained on in all, one pass at least: on more rows networks are not passed over five times.
_TRAINED_ROWS, _PASSES = 5_000_000, 5.0


class Source(NamedTuple):
    """What `ddpn fit` reads: a table, or files to stream; and a sentence on how, which may be empty."""

    frame: Any
    parts: Parts | None
    note: str


@dataclass(frozen=True)
class TrainingRows:
    """The training rows of many files, as `ddpn.networks.training.RowStream`.

    Parameters
    ----------
    parts : Parts
        The files.
    roles : Roles
        What each column is.
    plan : Plan
        What is fitted.
    held_out : array of int
        Numbers of the rows that validate and test, sorted.
    rows : int
        About how many training rows there are.
    before : optional
        The first time that is not trained on, where rows are split by time.
    held_out_groups : array of uint64, optional
        Labels of the groups that validate and test: none of their rows is trained on, sampled or not.
    """

    parts: Parts
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
        """A digest of the files."""
        return self.parts.identity

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
        groups = [name for name in plan.group if name in self.parts.columns]
        return list(dict.fromkeys([*names, *groups]))

    def chunks(self, rows: int, seed: int) -> Iterator[Any]:
        """Tables of so many rows, in random order, without an end."""
        return shuffled_chunks(self.parts, self.columns, self._keep, rows, seed)

    def sample(self, chunk: Any) -> Sample:
        """A table as inputs and counts."""
        fractional = str(self.plan.model.get("fractional", "error"))
        roles = replace(self.roles, groups=None, group=())
        return roles.sample(chunk, fractional, report=lambda sentence: None, counts=self.plan.count_range)

    def _keep(self, frame: Any, numbers: np.ndarray) -> np.ndarray:
        """Which rows are training rows: not held out, of a weight, and of the training part of the split."""
        place = np.searchsorted(self.held_out, numbers)
        known = np.append(self.held_out, -1)
        kept = known[np.minimum(place, len(self.held_out))] != numbers
        plan = self.plan
        if plan.weight is not None:
            kept &= frame[plan.weight].to_numpy() > 0
        if plan.split_column is not None:
            words = frame[plan.split_column].cast(str).str.strip_chars().str.to_lowercase()
            kept &= words.is_in(list(PARTS["train"])).to_numpy()
        if self.before is not None:
            kept &= (self.roles.times(frame, plan.time)[plan.time] < self.before).to_numpy()
        if self.held_out_groups is not None:
            by_inputs = is_by_inputs(self.roles.group, frame.columns)
            X = self.roles.features(frame, report=lambda sentence: None) if by_inputs else None
            labels = group_labels_of(frame, self.roles.group, self.roles.missing, X)
            assert labels is not None  # `columns` has the group columns
            kept &= ~np.isin(labels, self.held_out_groups)
        return kept


def open_table(sources: Sequence[str], plan: Plan, stream: bool | None = None, verbose: bool = False) -> Source:
    """The table of one file or several; it is streamed if asked for, or if it would not fit into memory.

    Parameters
    ----------
    sources : sequence of str
        Files, folders or patterns.
    plan : Plan
        What to fit.
    stream : bool, optional
        Whether to stream. Default: where the rows would take more than half of the free memory.
    verbose : bool
        Show progress.
    """
    single = len(sources) == 1 and (sources[0] == STDIN or not _is_folder_or_pattern(sources[0]))
    if single and not (sources[0].lower().endswith(PARQUET) and (stream or _is_large(sources[0]))):
        if stream:
            raise ConfigError(f"Only Parquet files can be streamed, got {sources[0]}. Convert it first.")
        return Source(read(sources[0], plan.category), None, "")
    parts = Parts(find_parts(sources))
    fits = fits_memory(parts)
    if stream is False or (stream is None and fits):
        return Source(whole_table(parts, role_columns(plan), plan.seed, verbose), None, "")
    if parts.rows * sum(plan.shares[:2]) <= SMALL_ROWS:
        whole = whole_table(parts, role_columns(plan), plan.seed, verbose)
        return Source(whole, None, f"{parts.rows:,} rows are fitted in memory, because they are few.")
    why = "as requested" if stream else "because they would take more than half of the free memory"
    size = f"{parts.rows:,} rows in {len(parts.paths):,} files, about {parts.bytes / 2**30:.2g} GiB"
    return Source(None, parts, f"{size}, are streamed, {why}.")


def _is_folder_or_pattern(source: str) -> bool:
    from os.path import isdir

    return isdir(source) or is_pattern(source)


def _is_large(source: str) -> bool:
    """Whether a single Parquet file is too large; a missing file or package is reported where it is read."""
    from importlib.util import find_spec
    from os.path import getsize, isfile

    # A file of some MB needs no look at its description.
    if not isfile(source) or getsize(source) < 2**25 or find_spec("pyarrow") is None:
        return False
    return not fits_memory(Parts(find_parts([source])))


def role_columns(plan: Plan) -> RoleColumns:
    """The columns of a plan that every row is checked for."""
    return RoleColumns(
        target=plan.target,
        exposure=plan.exposure,
        weight=plan.weight,
        upper=plan.upper_column,
        censored=plan.censored,
        split=plan.split_column,
        time=plan.time,
        split_words=[word for words in PARTS.values() for word in words],
        counts=plan.count_range,
        fractional=str(plan.model.get("fractional", "error")),
    )


def prepare_stream(parts: Parts, plan: Plan, verbose: bool = False) -> Prepared:
    """Check all rows, sample some of them, and prepare these as `prepare` does; the others are streamed.

    Parameters
    ----------
    parts : Parts
        The files.
    plan : Plan
        What to fit.
    verbose : bool
        Show progress.

    Returns
    -------
    Prepared
        With a `stream` of the training rows.
    """
    for name in () if is_by_inputs(plan.group, parts.columns) else plan.group:
        check_column(name, parts.columns, "group", InputError)
    found = survey(parts, role_columns(plan), plan.seed, verbose=verbose, label="Checking and sampling rows")
    prepared = prepare(found.frame, plan)
    kept = np.flatnonzero(found.frame[plan.weight].to_numpy() > 0) if plan.weight else np.arange(found.frame.height)
    stream = _training_rows(found, prepared, found.numbers[kept])
    seen = (
        f"Networks were trained on about {len(stream):,} rows, but evaluate recognises only the sampled ones, "
        f"{prepared.counts['train']:,}, as training rows: score new rows, not these files."
    )
    notes = () if found.is_whole else (seen,)
    return replace(prepared, stream=stream, warnings=(*prepared.warnings, *notes))


def _training_rows(found: Survey, prepared: Prepared, numbers: np.ndarray) -> TrainingRows:
    """The stream of all training rows; `numbers` are those of the prepared rows."""
    plan, rows = prepared.plan, prepared.split.rows
    if not len(rows.validation):
        raise InputError("A streamed table must have validation rows, got a split without them.")
    before = None
    if plan.time is not None:
        times = prepared.roles.times(found.frame, plan.time)[plan.time]
        kept = found.frame[plan.weight].to_numpy() > 0 if plan.weight else np.ones(len(times), dtype=bool)
        before = times.filter(kept).gather(rows.validation).min()
    held_out = np.sort(numbers[np.concatenate([rows.validation, rows.test])])
    at_random = plan.time is None and plan.split_column is None and not plan.group
    share = len(rows.train) / len(numbers)
    training = found.used - len(held_out) if at_random else round(share * found.used)
    group = prepared.sample.group
    groups = None if group is None else np.unique(group[np.concatenate([rows.validation, rows.test])])
    return TrainingRows(found.parts, prepared.roles, plan, held_out, max(1, training), before, groups)


def stream_facts(prepared: Prepared) -> dict[str, Any]:
    """What is saved about a streamed fit."""
    stream: TrainingRows = prepared.stream
    return {
        "files": len(stream.parts.paths),
        "rows": stream.parts.rows,
        "streamed": len(stream),
        "sampled": len(prepared.sample),
    }
