"""Choose a sample of rows for the checks of a large table.

Checks of columns may use any rows. Checks of groups need several rows per group. So their sample has whole groups, or
many rows of each group if groups are large.
"""

import numpy as np
import polars as pl

#: The most rows and cells that are checked.
MAX_ROWS, MAX_CELLS = 20_000, 500_000
#: The number of rows that are checked even in wide tables.
MIN_ROWS = 1_000
#: The number of rows that represent a large group.
_ROWS_PER_GROUP = 20


def count_checked_rows(n_columns: int, max_rows: int = MAX_ROWS, max_cells: int = MAX_CELLS) -> int:
    """Return the largest number of rows that are checked in a table with `n_columns` columns.

    They have at most `max_cells` cells, and there are at most `max_rows` of them. But 1,000 rows are checked in tables
    of any width.

    >>> count_checked_rows(12), count_checked_rows(100), count_checked_rows(2_000)
    (20000, 5000, 1000)
    """
    return max(MIN_ROWS, min(max_rows, max_cells // max(1, n_columns)))


def choose_rows(n_rows: int, n_columns: int, seed: int) -> np.ndarray:
    """Return the positions of the rows to check in a table with `n_rows` rows and `n_columns` columns.

    They are in random order, drawn with `seed`. A table with more than `count_checked_rows(n_columns)` rows is reduced
    to this number.
    """
    random, max_rows = np.random.default_rng(seed), count_checked_rows(n_columns)
    chosen: np.ndarray = (
        random.permutation(n_rows) if n_rows <= 2 * max_rows else random.choice(n_rows, max_rows, replace=False)
    )
    return chosen[:max_rows]


def choose_groups(labels: np.ndarray, share: float) -> np.ndarray:
    """Choose a share of all groups, and return a mask of their rows.

    `labels` has the hash (uint64) of each row's group. A group is chosen by its hash, so the choice is the same in
    every call.
    """
    return (labels >> np.uint64(11)) < np.uint64(min(1.0, share) * 2.0**53)


def choose_rows_of_groups(labels: np.ndarray, n_groups: int, max_rows: int, seed: int) -> np.ndarray:
    """Choose about `max_rows` rows: whole groups, or many rows of each group if groups are large.

    Return their positions in ascending order.

    Parameters
    ----------
    labels : array of uint64, shape (rows,)
        The group of each row, as hashes.
    n_groups : int
        The approximate number of groups.
    max_rows : int
        The approximate number of rows to choose. Tables with fewer rows are used whole.
    seed : int
        Seed of the choice of rows within large groups.
    """
    rows = len(labels)
    if rows <= max_rows:
        return np.arange(rows)
    share_of_rows = min(1.0, max(max_rows, _ROWS_PER_GROUP * n_groups) / rows)
    is_chosen = choose_groups(labels, max_rows / (share_of_rows * rows))
    if share_of_rows < 1.0:
        is_chosen &= np.random.default_rng(seed).random(rows) < share_of_rows
    return np.flatnonzero(is_chosen)


def hash_values(series: pl.Series) -> np.ndarray:
    """Return a hash of each cell of a polars series. Floats are rounded to float32 first."""
    is_float = series.dtype.is_float()
    hashes: np.ndarray = (series.cast(pl.Float32) if is_float else series).hash(0).to_numpy()
    return hashes
