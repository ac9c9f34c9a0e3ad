"""Choose the columns of a very wide table that explain the target best, each by itself."""

import numpy as np

#: Columns that are kept of a wider table with few rows: as many as trees and networks are fitted to in seconds.
MAX_COLUMNS = 500
#: Rows that the choice is made from, at most, and the least share of them on either side of a split.
_ROWS, _LEAST_SHARE = 10_000, 0.05
#: Columns that are sorted at a time.
_BLOCK = 64


def screened(X: np.ndarray, y: np.ndarray, weight: np.ndarray, least: int = MAX_COLUMNS) -> np.ndarray | None:
    """Positions of the columns with the largest `split_gains`, ascending: as many as rows, but `least` at least.

    None if there are no more columns than that. Call it with the rows of one training only: chosen with others, columns
    would look better on these than they are.
    """
    most = max(least, len(y))
    if X.shape[1] <= most:
        return None
    return np.sort(np.argsort(-split_gains(X, y, weight), kind="stable")[:most])


def split_gains(X: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """By how much the best split of each column in two reduces the weighted sum of squares of y: the gain of a tree.

    Missing values sort above all others. Shape: (columns,).

    >>> X = np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 5.0], [4.0, 6.0]])
    >>> split_gains(X, np.array([0.0, 0.0, 2.0, 2.0]), np.ones(4)).tolist()
    [4.0, 0.0]
    """
    chosen = slice(None, None, -(-len(y) // _ROWS))
    X, y, weight = X[chosen], y[chosen], weight[chosen]
    rest = weight * (y - np.average(y, weights=weight))
    total, least = weight.sum(), max(1, int(_LEAST_SHARE * len(y)))
    gains = np.zeros(X.shape[1])
    for start in range(0, X.shape[1], _BLOCK):
        block = X[:, start : start + _BLOCK]
        order = np.argsort(block, axis=0, kind="stable")
        values = np.take_along_axis(block, order, axis=0)
        below, above = values[:-1], values[1:]
        can_split = (below != above) & ~np.isnan(below)
        can_split[: least - 1] = can_split[len(y) - least :] = False
        left, left_weight = np.cumsum(rest[order], axis=0)[:-1], np.cumsum(weight[order], axis=0)[:-1]
        gain = np.square(left) * total / (left_weight * (total - left_weight))
        gains[start : start + _BLOCK] = np.where(can_split, gain, 0.0).max(axis=0, initial=0.0)
    return gains
