"""Choose a sample of rows for the checks of a large table.

Checks of columns use any rows. Checks of groups need several rows per group, so groups are kept whole unless they are
large.
"""

import numpy as np
import polars as pl

#: The most rows and cells that are checked.
MAX_ROWS, MAX_CELLS = 20_000, 500_000
#: The number of rows that are checked even in wide tables.
MIN_ROWS = 1_000
#: The number of rows that represent a large group.
_ROWS_PER_GROUP = 20


def count_checked_rows(columns: int) -> int:
    """Return how many rows of a table are checked at most, given the number of columns.

    >>> count_checked_rows(12), count_checked_rows(100), count_checked_rows(2_000)
    (20000, 5000, 1000)
    """
    return max(MIN_ROWS, min(MAX_ROWS, MAX_CELLS // max(1, columns)))


def choose_rows(rows: int, columns: int, seed: int) -> np.ndarray:
    """Choose the rows to check, all of them in a small table; return their positions in random order."""
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
        About how many rows to choose; tables with fewer rows are used whole.
    seed : int
        Seed of the choice of rows within large groups.
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
    """Hash the cells of a polars series: equal values have equal hashes. Floats are compared to about seven digits."""
    is_float = series.dtype.is_float()
    hashes: np.ndarray = (series.cast(pl.Float32) if is_float else series).hash(0).to_numpy()
    return hashes
