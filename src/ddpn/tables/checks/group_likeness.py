"""Whether counts of a group resemble each other, by the correlation of their normal scores."""

import numpy as np
import polars as pl

from ddpn.rows.count_rows import CountRows
from ddpn.rows.groups import encode_groups

#: The least correlation of the normal scores of counts within groups, absolute and in standard errors.
_MIN_CORRELATION, _MIN_STANDARD_ERRORS = 0.01, 3.0
#: The least difference between the correlation of rows with one value and of rows with neighbouring values.
_MIN_UNIT_CORRELATION = 0.02
#: The fewest rows with neighbouring values, on each side, with which a value is compared.
_MIN_NEIGHBOURS = 10


def score_counts(sample: CountRows) -> np.ndarray:
    """Return the normal scores of the counts, or of the counts per exposure: ranks mapped to a standard normal.

    Shape: (rows,). Equal counts have equal scores.
    """
    from scipy.special import ndtri  # slow to import

    ranks = pl.Series(sample.y / sample.exposure_or_ones).rank("average").to_numpy()
    scores: np.ndarray = ndtri(ranks / (len(sample) + 1.0))
    scores = (scores - scores.mean()) / scores.std()
    return scores


def have_alike_counts(scores: np.ndarray, labels: np.ndarray) -> bool:
    """Return True if rows with equal labels have clearly correlated scores. Otherwise the groups do not matter.

    `scores` are the normal scores of the counts (`score_counts`), and `labels` the group of each row; both have shape
    (rows,). The correlation must be at least a minimum, and more than chance explains. If no group has several rows,
    the result is False.
    """
    codes, sizes = encode_groups(len(labels), labels)
    pairs = float((sizes * (sizes - 1.0)).sum())
    same = float((np.bincount(codes, scores) ** 2).sum() - (scores**2).sum())
    # Of uncorrelated scores, the mean product of n pairs, each counted twice, has the standard error (2 / n)^1/2.
    return bool(pairs and same / pairs >= max(_MIN_CORRELATION, _MIN_STANDARD_ERRORS * np.sqrt(2.0 / pairs)))


def are_unit_numbers(scores: np.ndarray, series: pl.Series, max_neighbour_share: float) -> bool:
    """Return True if the integers of a column seem to number units, such as shops, rather than measure something.

    Neighbouring values of a measurement resemble each other, but the number of a shop says nothing about the shop with
    the next number. So rows with the same integer must have clearly more similar counts than rows with neighbouring
    integers.

    Parameters
    ----------
    scores : array, shape (rows,)
        The normal scores of the counts.
    series : polars.Series
        The column of integers. Rows with a missing value are ignored.
    max_neighbour_share : float
        The largest correlation of rows with neighbouring integers, relative to that of rows with the same integer.
    """
    values = series.cast(float).to_numpy()
    is_known = ~np.isnan(values)
    scores = scores[is_known]
    codes, sizes = encode_groups(len(scores), values[is_known])
    means = np.bincount(codes, scores) / sizes
    # Every pair of rows with one value counts alike, and so does the value's mean times that of its neighbours.
    pairs = sizes * (sizes - 1.0)
    if not pairs.sum():
        return False
    same = float((means**2 * sizes**2).sum() - (scores**2).sum()) / pairs.sum()
    next_to = float((pairs * means * _average_neighbours(means, sizes)).sum()) / pairs.sum()
    is_clear = same - next_to >= max(_MIN_UNIT_CORRELATION, _MIN_STANDARD_ERRORS * 2.0 / np.sqrt(pairs.sum()))
    return bool(is_clear and next_to <= max_neighbour_share * same)


def _average_neighbours(means: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return, for each value of a column, the mean score of the rows with neighbouring values.

    `means` and `sizes` have the mean score and the number of rows of each value, in ascending order of the values. Both
    have the shape (values,), and so has the result.

    Neighbouring values are added on each side, the nearest first, until they have at least as many rows as the value
    itself and at least 10. Near the ends of the column, they may have fewer. The result is the mean over all these rows
    of both sides, without the rows that have the value itself. It is 0 if the column has only one value.
    """
    ends = np.cumsum(sizes)
    sums = np.concatenate([[0.0], np.cumsum(means * sizes)])
    starts, needed = ends - sizes, np.maximum(sizes, _MIN_NEIGHBOURS)
    first = np.searchsorted(ends, starts - needed, side="right")
    last = np.searchsorted(starts, ends + needed, side="left")
    rows = np.concatenate([[0.0], ends])
    total = sums[last] - sums[first] - means * sizes
    number = rows[last] - rows[first] - sizes
    average: np.ndarray = np.divide(total, number, out=np.zeros(len(sizes)), where=number > 0)
    return average
