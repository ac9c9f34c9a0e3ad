"""Choose rows for the checks of a table: enough to find what they look for, however large the table is.

Checks of columns need any rows. Checks of groups need several rows of a group, so groups are kept whole as far as there
is room.
"""

import numpy as np
import polars as pl

#: Rows, and cells, that are looked at, at most.
MAX_ROWS, MAX_CELLS = 20_000, 500_000
#: Rows that are looked at however many columns there are.
MIN_ROWS = 1_000
#: Rows of a large group that are enough to know what its rows have in common.
_ROWS_PER_GROUP = 20


def count_checked_rows(columns: int) -> int:
    """Return how many rows of a table are checked at most, given the number of columns.

    >>> count_checked_rows(12), count_checked_rows(100), count_checked_rows(2_000)
    (20000, 5000, 1000)
    """
    return max(MIN_ROWS, min(MAX_ROWS, MAX_CELLS // max(1, columns)))


def choose_rows(rows: int, columns: int, seed: int) -> np.ndarray:
    """Choose the positions of the rows to check, in random order: all rows of a small table."""
    random, most = np.random.default_rng(seed), count_checked_rows(columns)
    chosen: np.ndarray = random.permutation(rows) if rows <= 2 * most else random.choice(rows, most, replace=False)
    return chosen[:most]


def choose_groups(labels: np.ndarray, share: float) -> np.ndarray:
    """Choose a share of all groups, and return a mask of their rows; `labels` are hashes (uint64) of the groups."""
    return (labels >> np.uint64(11)) < np.uint64(min(1.0, share) * 2.0**53)


def choose_rows_of_groups(labels: np.ndarray, groups: int, most: int, seed: int) -> np.ndarray:
    """Choose about `most` rows: whole groups, or many rows of each group if groups are large.

    Returns sorted positions.

    Parameters
    ----------
    labels : array of uint64
        The group of each row, as hashes.
    groups : int
        About how many groups there are.
    most : int
        How many rows to choose; all are, if there are not more.
    seed : int
        Seed of the rows that are left out of large groups.
    """
    rows = len(labels)
    if rows <= most:
        return np.arange(rows)
    share_of_rows = min(1.0, max(most, _ROWS_PER_GROUP * groups) / rows)
    is_chosen = choose_groups(labels, most / (share_of_rows * rows))
    if share_of_rows < 1.0:
        is_chosen &= np.random.default_rng(seed).random(rows) < share_of_rows
    return np.flatnonzero(is_chosen)


def hash_values(series: pl.Series) -> np.ndarray:
    """Hash the cells of a polars series; equal values have equal hashes, floats up to about seven digits."""
    is_float = series.dtype.is_float()
    hashes: np.ndarray = (series.cast(pl.Float32) if is_float else series).hash(0).to_numpy()
    return hashes
