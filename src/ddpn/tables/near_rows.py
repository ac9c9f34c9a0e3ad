"""Find rows whose numbers are nearly equal: copies with tiny noise, or repeated measurements of one place.

Two rows are near if they are far closer to each other than the density of the table explains. Rows that are linked by
such pairs are called a clump.

The distance to the k-th neighbour measures the density around a row. How the distance grows from the k-th to the 2k-th
neighbour measures the dimension m of the points. In a cloud of points without clumps, a row has a neighbour at less
than s times the distance to its k-th neighbour with a probability of about (k - 1) s^m.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from scipy.spatial import KDTree

#: The probability that a row has a near neighbour by chance.
_MAX_CHANCE = 0.05
#: A neighbour is near if its distance is at most this share of the distance to the k-th neighbour.
_MAX_SHARE = 0.2
#: The grid of shares in which the gap around clumps is searched: its largest value, and the ratio of its steps.
_MAX_GAP, _GAP_STEP = 0.5, 1.25
#: The share of the points that must have a near neighbour.
_MIN_NEAR = 0.5
#: The number of points in a first, quick test, and the share of them that must have a near neighbour. With 500 points,
#: that is four standard errors below `_MIN_NEAR`.
_FIRST_POINTS, _MIN_FIRST_NEAR = 500, 0.4
#: The number of neighbours that measure the density: first a fixed number, then a share of the points, for larger
#: clumps.
_NEIGHBOURS, _NEIGHBOUR_SHARE = 15, 1 / 15
#: Clumps are not searched among fewer points.
_MIN_POINTS = 60
#: A column is continuous if it has at least this many distinct values, and at least this many per row (the last number
#: if all values are integers).
_MIN_VALUES, _VALUES_PER_ROW, _INTEGERS_PER_ROW = 30, 0.1, 0.5
#: The scaled position of missing numbers: far from all other numbers.
_MISSING_POSITION = 1e6


def find_continuous_columns(X: pl.DataFrame) -> list[str]:
    """Return the names of the columns of a polars frame that hold numbers with many distinct values.

    Columns of integers need more distinct values than other columns. The list is empty if there are no such columns.
    """
    names = []
    for series in X.iter_columns():
        if not series.dtype.is_numeric():
            continue
        distinct = series.n_unique()
        if distinct < max(_MIN_VALUES, _VALUES_PER_ROW * X.height):
            continue
        values = series.cast(float).to_numpy()
        is_whole = bool((np.floor(values) == values)[~np.isnan(values)].all())
        if not is_whole or distinct >= _INTEGERS_PER_ROW * X.height:
            names.append(series.name)
    return names


def scale_points(X: pl.DataFrame, names: Sequence[str]) -> np.ndarray:
    """Return columns of numbers as a matrix of points, in which each column is divided by its interquartile range.

    Missing values get a value far from all others. Shape: (rows, columns).
    """
    points = np.empty((X.height, len(names)))
    for column, name in enumerate(names):
        values = X[name].cast(float).to_numpy().astype(np.float64)
        is_missing = np.isnan(values)
        numbers = values[~is_missing] if not is_missing.all() else np.zeros(1)
        low, high = np.quantile(numbers, [0.25, 0.75])
        spread = high - low or float(np.ptp(numbers)) or 1.0
        points[:, column] = np.where(is_missing, _MISSING_POSITION, values / spread)
    return points


def find_clumps(points: np.ndarray) -> np.ndarray | None:
    """Find clumps of points that are far closer to each other than chance explains.

    `points` has shape (rows, columns). Return the number of each row's clump, where a single point is also a clump.
    Return None if fewer than half of the points are near another one, so that chance may explain them.
    """
    unique, inverse = np.unique(points, axis=0, return_inverse=True)
    if len(unique) < _MIN_POINTS:
        return None
    for neighbours in sorted({_NEIGHBOURS, max(_NEIGHBOURS, int(_NEIGHBOUR_SHARE * len(unique)))}):
        clumps = _link_near_points(unique, neighbours)
        if clumps is not None:
            numbers: np.ndarray = clumps[inverse.ravel()]
            return numbers
    return None


def _link_near_points(points: np.ndarray, k: int) -> np.ndarray | None:
    """Link near points to clumps, where the distance to the k-th neighbour measures the density around a point.

    Return the clump number of each point. Return None if too few points are near another one.
    """
    from scipy.sparse import coo_matrix  # slow to import
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import KDTree

    tree = KDTree(points)
    # Most tables have no clumps. A sample of the points shows that in much less time.
    sample = points[:: max(1, len(points) // _FIRST_POINTS)]
    ratios, share, _ = _measure_neighbours(tree, sample, k)
    if (ratios[:, 0] <= share).mean() < _MIN_FIRST_NEAR:
        return None
    ratios, share, positions = _measure_neighbours(tree, points, k)
    if (ratios[:, 0] <= share).mean() < _MIN_NEAR:
        return None
    first, column = np.nonzero(ratios <= _widen_to_gap(ratios, share))
    links = coo_matrix((np.ones(len(first), dtype=bool), (first, positions[first, column])), shape=(len(points),) * 2)
    clumps: np.ndarray = connected_components(links, directed=False)[1]
    return clumps


def _measure_neighbours(tree: "KDTree", points: np.ndarray, k: int) -> tuple[np.ndarray, float, np.ndarray]:
    """Measure the distances from points to their nearest neighbours, relative to the distance to the `k`-th neighbour.

    Parameters
    ----------
    tree : KDTree
        A tree of all points, in which neighbours are searched.
    points : array, shape (points, columns)
        Points of the tree.
    k : int
        The neighbour whose distance measures the density.

    Returns
    -------
    ratios : array, shape (points, neighbours)
        The relative distance to each of the nearest neighbours.
    share : float
        The largest relative distance at which a neighbour is near rather than close by chance.
    positions : array of int, shape (points, neighbours)
        The positions of these neighbours in the tree.
    """
    linked = min(k, _NEIGHBOURS)
    numbers = [*range(2, linked + 2), k + 1, min(2 * k + 1, tree.n)]  # the first is the point
    distances, positions = tree.query(points, k=numbers)
    around, wide = distances[:, -2], distances[:, -1]
    growth = float(np.median(np.log(np.maximum(wide, 1e-300) / np.maximum(around, 1e-300))))
    dimension = np.clip(np.log(2.0) / max(growth, 1e-9), 1.0, points.shape[1])
    share = min(_MAX_SHARE, float((_MAX_CHANCE / (k - 1)) ** (1.0 / dimension)))
    return distances[:, :linked] / np.maximum(around, 1e-300)[:, None], share, positions


def _widen_to_gap(ratios: np.ndarray, share: float) -> float:
    """Increase the relative distance up to which neighbours count as near, so that it lies in the gap around clumps.

    In this gap, a further increase adds the fewest neighbours. `ratios` has the relative distances of all points to
    their neighbours, and `share` is the relative distance to begin with.
    """
    shares = share * _GAP_STEP ** np.arange(max(3, 1 + int(np.log(_MAX_GAP / share) / np.log(_GAP_STEP))))
    numbers = np.array([(ratios <= candidate).mean() for candidate in shares])
    return float(shares[1 + (numbers[2:] - numbers[:-2]).argmin()])


# Columns that nearly repeat together, among others that do not --------------------------------------------------------

#: The largest numbers of columns and rows that are compared.
_MAX_COLUMNS, _MAX_ROWS = 50, 4_000
#: Two columns repeat together if at least this share of rows that are adjacent in one column are near in the other.
#: Near is a difference of at most so many ranks, or this share of all rows; chance explains twice that share.
_MIN_TOGETHER, _NEAR_RANKS, _NEAR_SHARE = 0.15, 5, 0.005


def find_columns_with_near_rows(X: pl.DataFrame) -> list[tuple[str, ...]]:
    """Return sets of columns in which the rows of a group may be near each other.

    Only columns of numbers with many distinct values are considered; with fewer than two of them, there are no sets.
    The columns of a set repeat together, such as longitude and latitude: rows that are adjacent when sorted by one
    column are often near in the others as well. The last set has all continuous columns, for noisy copies of rows: such
    copies have other neighbours in every single column, but are near in all columns together.
    """
    names = find_continuous_columns(X)[:_MAX_COLUMNS]
    if len(names) < 2:
        return []
    from scipy.sparse.csgraph import connected_components  # slow to import

    points = scale_points(X[choose_near_rows(X, names[0])], names)
    ranks = np.argsort(np.argsort(points, axis=0), axis=0)
    reach = max(_NEAR_RANKS, _NEAR_SHARE * len(points))
    are_together = np.zeros((len(names), len(names)), dtype=bool)
    for column in range(len(names)):
        steps = np.abs(np.diff(ranks[np.argsort(points[:, column])], axis=0))
        are_together[column] = (steps <= reach).mean(axis=0) >= _MIN_TOGETHER
    number, blocks = connected_components(are_together, directed=False)
    sets = [
        tuple(name for name, block in zip(names, blocks, strict=True) if block == block_number)
        for block_number in range(number)
    ]
    return list(dict.fromkeys([*(columns for columns in sets if len(columns) > 1), tuple(names)]))


def choose_near_rows(X: pl.DataFrame, column: str, rows: int = _MAX_ROWS) -> np.ndarray:
    """Choose at most `rows` rows that are adjacent when sorted by a column, from the middle of the order.

    Unlike a random sample, they keep near rows together. Return their positions.
    """
    if X.height <= rows:
        return np.arange(X.height)
    first = (X.height - rows) // 2
    chosen: np.ndarray = X[column].arg_sort().to_numpy()[first : first + rows].astype(np.int64)
    return chosen
