"""Choose thresholds for the encoding "steps" and, in a table with very many columns, the columns that models use.

The encoding "steps" replaces a numeric column by indicators of whether the value is above each of several thresholds.
The thresholds are those at which the counts change most.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from ddpn.runtime.threads import limit_tree_threads
from ddpn.storage.contents import JsonObject
from ddpn.tables.columns import ColumnTable
from ddpn.tables.encoding.categories import CategoryEncoding
from ddpn.tables.encoding.columns import Encoded
from ddpn.tables.encoding.numbers import Distinct, find_midpoints, quantiles

#: The most thresholds tried per column: one less than the 255 bins of the trees.
MAX_THRESHOLDS = 254
#: The most bins of all columns together, and the fewest thresholds per column.
MAX_BINS, _MIN_THRESHOLDS = 65_536, 31
#: The most distinct rows for the trees; more rows do not change the best cuts.
MAX_ROWS = 100_000
#: LightGBM estimates the rows of a leaf from its curvature, so leaves of large counts may have fewer rows.
_ROUNDS, _RATE, _LEAVES, _ROWS_PER_LEAF = 60, 0.15, 16, 20


def count_thresholds_per_column(n_columns: int) -> int:
    """Return how many thresholds per column are tried by boosted trees. It is less in wide tables, to limit the time.

    >>> count_thresholds_per_column(20), count_thresholds_per_column(3000)
    (254, 31)
    """
    return int(np.clip(MAX_BINS // n_columns, _MIN_THRESHOLDS, MAX_THRESHOLDS))


def list_thresholds(column: Distinct, max_thresholds: int = MAX_THRESHOLDS) -> np.ndarray:
    """Return thresholds between neighbouring values of a column, in ascending order.

    If there are more than `max_thresholds`, only those next to equally spaced quantiles are returned.
    """
    thresholds = find_midpoints(column.values)
    if len(thresholds) <= max_thresholds:
        return thresholds
    levels = np.linspace(0.0, 1.0, max_thresholds + 2)[1:-1]
    below = np.searchsorted(column.values, quantiles(column, levels))
    return thresholds[np.unique(np.minimum(below, len(thresholds) - 1))]


def find_best_cuts(codes: np.ndarray, y: np.ndarray, weights: np.ndarray, n_cuts: int) -> list[np.ndarray]:
    """Find the thresholds of each column that have the largest total gain in boosted trees fitted to y.

    Parameters
    ----------
    codes : array of uint8, shape (rows, columns)
        The columns as small integers. Cut c separates the codes above c from the codes up to c.
    y, weights : array, shape (rows,)
        The counts and the row weights.
    n_cuts : int
        The largest number of cuts per column.

    Returns
    -------
    list of arrays of int
        The cuts of each column, in ascending order. Empty for columns that no tree has split, and for all columns if
        all counts are equal.
    """
    codes, y, weights = merge_equal_tree_rows(codes, y, weights)
    gains = np.zeros((codes.shape[1], 256))
    if y.min() < y.max():
        for node in chain.from_iterable(map(_iter_splits, _boost_trees(codes, y, weights))):
            # Thresholds lie between two codes.
            gains[node["split_feature"], int(node["threshold"])] += node["split_gain"]
    best = np.argsort(-gains, axis=1, kind="stable")[:, :n_cuts]
    return [np.sort(cuts[gain[cuts] > 0.0]) for cuts, gain in zip(best, gains, strict=True)]


def merge_equal_tree_rows(
    codes: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merge rows with equal codes and counts, and scale their summed weights to mean 1.

    `codes` has the columns as uint8 codes, shape (rows, columns), as `encode_for_trees` returns them. `y` and `weights`
    are the counts and the weights of the rows.

    Return the codes, the counts and the weights of the merged rows. These rows are sorted, because trees break ties by
    rounding errors, which depend on the order of rows. So a row of weight 3 gives the same trees as three equal rows.
    At most 100,000 merged rows are returned: if there are more, only every second, third, ... one.
    """
    y = y.astype(np.float64) + 0.0  # no -0.0: rows are compared byte by byte
    row_bytes = np.hstack([codes, np.ascontiguousarray(y)[:, None].view(np.uint8)])
    keys = np.ascontiguousarray(row_bytes).view(np.dtype((np.void, row_bytes.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    totals = np.bincount(inverse.ravel(), weights)
    kept = slice(None, None, -(-len(first) // MAX_ROWS))
    rows, totals = first[kept], totals[kept]
    totals = totals * (len(totals) / totals.sum())
    # LightGBM holds weights as float32. If all rows with counts above 0 had weights that round to 0, the mean would be
    # 0.
    counted = totals.astype(np.float32) > 0
    return codes[rows][counted], y[rows][counted], totals[counted]


def _boost_trees(codes: np.ndarray, y: np.ndarray, weights: np.ndarray) -> list[JsonObject]:
    """Fit boosted trees of a Poisson rate, and return the root node of each tree in LightGBM's JSON format.

    `codes` has the columns as uint8 codes, shape (rows, columns). `y` has the counts and `weights` the row weights,
    both of shape (rows,).
    """
    import lightgbm  # not needed by most encoders, and slow to import

    settings = {
        "objective": "poisson", "learning_rate": _RATE, "num_leaves": _LEAVES,
        "min_data_in_leaf": max(1, min(_ROWS_PER_LEAF, len(y) // 20)),
        "min_data_in_bin": 1, "bin_construct_sample_cnt": MAX_ROWS, "deterministic": True, "force_row_wise": True,
        "seed": 0, "verbosity": -1,
    }  # fmt: skip
    with limit_tree_threads(codes.size):
        rows = lightgbm.Dataset(codes, y, weight=weights, params=settings)
        trees = lightgbm.train(settings, rows, _ROUNDS).dump_model()["tree_info"]
    return [tree["tree_structure"] for tree in trees]


def _iter_splits(node: JsonObject) -> Iterator[JsonObject]:
    """Yield the internal nodes of a tree, given its root in LightGBM's JSON format."""
    if "split_feature" in node:
        yield node
        yield from _iter_splits(node["left_child"])
        yield from _iter_splits(node["right_child"])


# Columns of a very wide table -----------------------------------------------------------------------------------------

#: The columns that are kept of a wider table with few rows, so that trees and networks are fitted in seconds. In wider
#: tables with many rows, trees draw this many for each split. Large trees are not tried for any wider table.
MAX_COLUMNS = 500
#: The most rows that choose the columns, and the least share of rows on either side of a split.
_MAX_SCREENED_ROWS, _MIN_SIDE_SHARE = 10_000, 0.05
#: Columns per block, which are sorted together.
_BLOCK_COLUMNS = 64


def choose_columns(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray, min_columns: int = MAX_COLUMNS
) -> np.ndarray | None:
    """Choose the columns whose best binary split reduces the squared error of y most (`split_gains`).

    As many columns are chosen as there are rows, but at least `min_columns`. Return their positions in ascending order,
    or None if the table has no more columns than that. Pass training rows only: if held-out rows took part in the
    choice, scores on them would be too optimistic.
    """
    n_columns = max(min_columns, len(y))
    if X.shape[1] <= n_columns:
        return None
    return np.sort(np.argsort(-split_gains(X, y, weight), kind="stable")[:n_columns])


def split_gains(X: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return by how much the best binary split of each column reduces the weighted sum of squared errors of y.

    Missing values sort above all others. A column without a possible split, such as a constant one, has the gain 0. If
    there are more than 10,000 rows, only some of them, at equal distances, are used. Shape: (columns,).

    >>> X = np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 5.0], [4.0, 6.0]])
    >>> split_gains(X, np.array([0.0, 0.0, 2.0, 2.0]), np.ones(4)).tolist()
    [4.0, 0.0]
    """
    chosen = slice(None, None, -(-len(y) // _MAX_SCREENED_ROWS))
    X, y, weight = X[chosen], y[chosen], weight[chosen]
    residual = weight * (y - np.average(y, weights=weight))
    total, min_rows = weight.sum(), max(1, int(_MIN_SIDE_SHARE * len(y)))
    gains = np.zeros(X.shape[1])
    for start in range(0, X.shape[1], _BLOCK_COLUMNS):
        block = X[:, start : start + _BLOCK_COLUMNS]
        order = np.argsort(block, axis=0, kind="stable")
        values = np.take_along_axis(block, order, axis=0)
        below, above = values[:-1], values[1:]
        can_split = (below != above) & ~np.isnan(below)
        can_split[: min_rows - 1] = can_split[len(y) - min_rows :] = False
        left, left_weight = np.cumsum(residual[order], axis=0)[:-1], np.cumsum(weight[order], axis=0)[:-1]
        gain = np.square(left) * total / (left_weight * (total - left_weight))
        gains[start : start + _BLOCK_COLUMNS] = np.where(can_split, gain, 0.0).max(axis=0, initial=0.0)
    return gains


def encode_for_trees(
    columns: Sequence[Encoded], thresholds: Mapping[int, np.ndarray], table: ColumnTable
) -> np.ndarray:
    """Encode columns as uint8, for trees that search for the best thresholds.

    A number becomes the index of the interval between thresholds in which it lies. A level becomes its rank by
    frequency, and a boolean stays 0 or 1. Missing numbers and booleans are first replaced by the value that the
    encoding uses for them. Levels without an input share one code, and so do missing levels.

    Parameters
    ----------
    columns : sequence of NumberEncoding or CategoryEncoding
        The fitted encoding of each column.
    thresholds : mapping of int to array
        The possible thresholds of each column of numbers, by the position of the column.
    table : ColumnTable
        The rows.

    Returns
    -------
    array of uint8, shape (rows, columns)
        The codes.
    """
    codes = np.empty(table.shape, dtype=np.uint8)
    for j, (column, fitted) in enumerate(zip(table, columns, strict=True)):
        if isinstance(fitted, CategoryEncoding):
            rank = {level: position for position, level in enumerate(fitted.levels)}
            codes[:, j] = np.minimum(column.map_levels(rank, len(rank), len(rank) + 1), MAX_THRESHOLDS)
        else:
            x = np.where(column.is_missing, fitted.fill, column.values)
            codes[:, j] = np.searchsorted(thresholds[j], x) if j in thresholds else x
    return codes
