"""One pass over all files: every row is checked, and a uniform sample of rows is kept."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ddpn.runtime.errors import Argument, InputError
from ddpn.runtime.progress import progress_bar
from ddpn.tables.streaming.checks import RoleColumns
from ddpn.tables.streaming.libraries import polars
from ddpn.tables.streaming.parts import Parts
from ddpn.tables.streaming.sampling import RowSample

#: Rows and bytes of the sample at most: 300,000 rows of up to 100 columns of numbers.
SAMPLE_ROWS, SAMPLE_BYTES = 300_000, 240 * 2**20


@dataclass(frozen=True)
class Survey:
    """What a pass over a table found.

    Attributes
    ----------
    parts : Parts
        The table.
    frame : polars DataFrame
        The sampled rows, in the order of the table.
    numbers : array of int
        Their numbers in the table, from 0.
    used : int
        Rows of the table with a weight above 0.
    """

    parts: Parts
    frame: Any
    numbers: np.ndarray
    used: int

    @property
    def is_whole(self) -> bool:
        """Whether all rows are in the sample."""
        return len(self.numbers) == self.parts.rows


def sample_rows(parts: Parts) -> int:
    """Rows that are sampled of a table: fewer of a wide one."""
    return max(1000, min(SAMPLE_ROWS, SAMPLE_BYTES // parts.row_bytes()))


def survey(
    parts: Parts, roles: RoleColumns, seed: int, rows: int | None = None, verbose: bool = False, label: str = "Reading"
) -> Survey:
    """Check every row of a table and sample some of them.

    Parameters
    ----------
    parts : Parts
        The table.
    roles : RoleColumns
        The columns to check.
    seed : int
        Seed of the sample.
    rows : int, optional
        Rows to sample. Default: `sample_rows`.
    verbose : bool
        Show progress.
    label : str
        The name of the progress bar.

    Raises
    ------
    InputError
        For a file that cannot be read, and for invalid values, with the file and the row.
    """
    roles.check_columns(parts.columns)
    kept, used = RowSample(sample_rows(parts) if rows is None else rows, seed), 0
    with progress_bar(label, parts.rows, verbose) as bar:
        for batch in parts.batches():
            used += roles.used_rows(batch)
            kept.add(batch.frame, batch.first_of_all)
            bar.advance(batch.frame.height)
    if not used:
        argument = Argument("weight", str(roles.weight))
        raise InputError(argument=argument, must="be positive in some row", got="zero weights only")
    frame, numbers = kept.result()
    return Survey(parts, frame, numbers, used)


def whole_table(parts: Parts, roles: RoleColumns, seed: int, verbose: bool = False) -> Any:
    """All rows as one table in memory, checked."""
    return polars().DataFrame(survey(parts, roles, seed, rows=parts.rows, verbose=verbose).frame)
