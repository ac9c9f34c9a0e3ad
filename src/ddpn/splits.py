"""Which rows belong together in a fold or in a held-out part: at random, with rows of one group kept together."""

import numpy as np

#: Folds of cross-fitting.
FOLDS = 5


def fold_numbers(rows: int, folds: int, seed: int, group: np.ndarray | None = None) -> np.ndarray:
    """Divide rows at random into folds of about one size, each group in one fold.

    Without groups the sizes differ by at most one row. With groups, the larger ones are placed first, each into the
    fold with the fewest rows so far.

    Parameters
    ----------
    rows : int
        The number of rows.
    folds : int
        Folds at most; there are fewer if there are fewer rows or groups.
    seed : int
        Seed of the division.
    group : array, shape (rows,), optional
        A label per row; rows with equal labels stay together.

    Returns
    -------
    array of int, shape (rows,)
        The number of each row's fold, from 0 on.

    Examples
    --------
    >>> np.bincount(fold_numbers(7, 3, seed=0)).tolist()
    [3, 2, 2]
    >>> fold_numbers(4, 2, seed=0, group=np.array(["a", "b", "b", "a"])).tolist()
    [1, 0, 0, 1]
    """
    codes, sizes = group_codes(rows, group)
    order = np.random.default_rng(seed).permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    filled = np.zeros(max(1, min(folds, len(sizes))), dtype=np.int64)
    fold_of = np.empty(len(sizes), dtype=np.int64)
    for one in order.tolist():
        fold_of[one] = filled.argmin()
        filled[fold_of[one]] += sizes[one]
    return fold_of[codes]


def held_out_rows(rows: int, share: float, seed: int, group: np.ndarray | None = None) -> np.ndarray:
    """Hold out a share of the rows at random: whole groups, until there are enough rows.

    Parameters
    ----------
    rows : int
        The number of rows.
    share : float
        The share of the rows, above 0 and below 1.
    seed : int
        Seed of the choice.
    group : array, shape (rows,), optional
        A label per row; rows with equal labels stay together.

    Returns
    -------
    array of bool, shape (rows,)
        The rows that are held out. At least one row or group is, and at least one is not, if there are two.

    Examples
    --------
    >>> held_out_rows(10, 0.2, seed=0).sum()
    np.int64(2)
    """
    codes, sizes = group_codes(rows, group)
    order = np.random.default_rng(seed).permutation(len(sizes))
    wanted = max(1, round(share * rows))
    number = 1 + int(np.searchsorted(np.cumsum(sizes[order]), wanted))
    chosen = np.zeros(len(sizes), dtype=bool)
    chosen[order[: min(number, len(sizes) - 1)]] = True
    return chosen[codes]


def group_codes(rows: int, group: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """An integer per row that is the same within a group, and the number of rows of each group.

    Parameters
    ----------
    rows : int
        The number of rows.
    group : array, shape (rows,), optional
        A label per row. Default: each row is a group of its own.
    """
    if group is None:
        return np.arange(rows), np.ones(rows, dtype=np.int64)
    _, codes, sizes = np.unique(np.asarray(group), return_inverse=True, return_counts=True)
    return codes.ravel(), sizes
