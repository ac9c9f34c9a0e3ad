"""Split rows into folds and held-out sets, at random or by time. Rows of a group stay together."""

from collections.abc import Sequence

import numpy as np

from ddpn.rows.groups import encode_groups

#: The number of folds in cross-fitting.
FOLDS = 5
#: The most rows of a small table. Small tables are cross-fitted and get smaller networks and trees; larger tables have
#: validation rows.
SMALL_TABLE_ROWS = 5000
#: The default share of rows that are held out.
HELD_OUT_SHARE = 0.1
#: The fewest rows of a table from which validation rows are held out. With fewer, all rows are needed for fitting, and
#: scores would be too noisy.
MIN_ROWS_TO_VALIDATE = 200


def assign_folds(rows: int, folds: int, seed: int, group: np.ndarray | None = None) -> np.ndarray:
    """Assign rows to folds of about equal size at random; return the number of each row's fold.

    Rows with equal labels in `group` share a fold. Without groups, sizes differ by at most one row. With groups, the
    larger ones are assigned first, each to the fold with the fewest rows so far. There are never more folds than rows
    or groups.

    >>> np.bincount(assign_folds(7, 3, seed=0)).tolist()
    [3, 2, 2]
    >>> assign_folds(4, 2, seed=0, group=np.array(["a", "b", "b", "a"])).tolist()
    [0, 1, 1, 0]
    """
    codes, sizes = encode_groups(rows, group)
    order = np.random.default_rng(seed).permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    filled = np.zeros(max(1, min(folds, len(sizes))), dtype=np.int64)
    fold_of = np.empty(len(sizes), dtype=np.int64)
    for one in order.tolist():
        fold_of[one] = filled.argmin()
        filled[fold_of[one]] += sizes[one]
    return fold_of[codes]


def split_folds(
    rows: int, folds: int, seed: int, group: np.ndarray | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return a pair of row positions per fold of `assign_folds`: rows to fit, and the fold's rows to predict.

    >>> [outer.tolist() for _, outer in split_folds(4, 2, seed=0, group=np.array(["a", "b", "b", "a"]))]
    [[0, 3], [1, 2]]
    """
    return list_fold_pairs(assign_folds(rows, folds, seed, group))


def list_fold_pairs(numbers: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the row positions outside and inside each fold. `numbers` has the number of each row's fold.

    >>> [inner.tolist() for inner, _ in list_fold_pairs(np.array([0, 1, 1, 0]))]
    [[1, 2], [0, 3]]
    """
    folds = range(int(numbers.max(initial=-1)) + 1)
    return [(np.flatnonzero(numbers != fold), np.flatnonzero(numbers == fold)) for fold in folds]


def split_by_time(rows: int, size: int, blocks: int) -> list[tuple[slice, slice]]:
    """Return pairs of slices: earlier rows to fit, and the next `size` rows to predict. The latest pair comes first.

    Rows must be sorted by time. There are up to `blocks` pairs, and each has more than `size` rows to fit.

    >>> split_by_time(10, 3, 4)
    [(slice(0, 7, None), slice(7, 10, None)), (slice(0, 4, None), slice(4, 7, None))]
    """
    ends = [rows - block * size for block in range(blocks) if rows - (block + 1) * size > size]
    return [(slice(0, end - size), slice(end - size, end)) for end in ends]


def split_at_random(rows: int, shares: Sequence[float], seed: int, group: np.ndarray | None = None) -> list[np.ndarray]:
    """Split rows at random into parts with the given shares, which sum to 1; return the row positions of each part.

    The rows of a group stay in one part. A part with a share above 0 gets at least one group, if there are enough. A
    group with more than half of the rows goes to the first part.

    >>> [len(part) for part in split_at_random(10, (0.7, 0.1, 0.2), seed=0)]
    [7, 1, 2]
    >>> [part.tolist() for part in split_at_random(4, (0.5, 0.5), seed=0, group=np.array(["a", "b", "b", "a"]))]
    [[0, 3], [1, 2]]
    """
    codes, sizes = encode_groups(rows, group)
    order = np.random.default_rng(seed).permutation(len(sizes))
    order = order[np.argsort(sizes[order] <= rows / 2, kind="stable")]
    ends = np.concatenate([[0], np.cumsum(sizes[order])])
    cuts = [int(np.abs(ends - np.rint(rows * share)).argmin()) for share in np.cumsum(shares)[:-1]]
    for part, cut in enumerate(cuts):
        first = cuts[part - 1] if part else 0
        later = sum(share > 0 for share in shares[part + 1 :])
        cuts[part] = max(min(max(cut, first + (shares[part] > 0)), len(sizes) - later), first)
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[order] = np.arange(len(sizes))
    return np.split(np.argsort(rank[codes], kind="stable"), ends[cuts])


def draw_held_out_rows(rows: int, share: float, seed: int, group: np.ndarray | None = None) -> np.ndarray:
    """Draw about `share` of the rows at random, as whole groups; return a mask of the drawn rows.

    If there are at least two rows or groups, at least one is drawn and at least one is not.

    >>> draw_held_out_rows(10, 0.2, seed=0).sum()
    np.int64(2)
    """
    codes, sizes = encode_groups(rows, group)
    order = np.random.default_rng(seed).permutation(len(sizes))
    target_rows = max(1, round(share * rows))
    number = 1 + int(np.searchsorted(np.cumsum(sizes[order]), target_rows))
    chosen = np.zeros(len(sizes), dtype=bool)
    chosen[order[: min(number, len(sizes) - 1)]] = True
    return chosen[codes]
