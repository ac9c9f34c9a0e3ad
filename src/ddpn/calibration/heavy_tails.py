"""Warn of heavy tails, if one training row determines the mean.

The mean of counts with a heavy tail, such as a Pareto distribution, depends on whether a very large count happens to be
among the rows. Medians and quantiles do not.
"""

from collections.abc import Callable

import numpy as np

from ddpn.rows.count_rows import CountRows

#: The share of the sum of all counts above which one row matters for the mean.
_MIN_SHARE = 0.05
#: The least ratio of a count to its predicted mean: an error of a large mean is no tail.
_MIN_RATIO = 2.0
#: The probability of a warning if the tail of the counts, relative to their means, is exponential, as that of a
#: Negative Binomial is.
_FALSE_ALARMS = 1e-3
#: The share of rows that form the tail, and the limits of their number.
_TAIL_SHARE, _MIN_TAIL_ROWS, _MAX_TAIL_ROWS = 0.1, 10, 100
#: Rows with the largest counts that are predicted, per row of the tail: enough to include the largest residuals.
_PREDICTED_PER_TAIL_ROW = 3


def describe_heavy_tail(train: CountRows, predict_means: Callable[[np.ndarray], np.ndarray]) -> str:
    """Return a warning if one training row determines the mean, else "".

    A row does if its count is more than twice as large as predicted, by 5% of the sum of all counts or more, and if it
    stands out from other large counts more than that of an exponential tail would. `predict_means` returns the means
    of rows by their positions in `train`.
    """
    counts = train.weight_or_ones * train.y
    total, tail_rows = float(counts.sum()), _count_tail_rows(len(train))
    if counts.max(initial=0.0) < _MIN_SHARE * total or not _is_heavy(train.y - train.y.mean(), tail_rows):
        return ""
    largest = np.argsort(counts, kind="stable")[-_PREDICTED_PER_TAIL_ROW * tail_rows :]
    means = predict_means(largest)
    excess = counts[largest] - train.weight_or_ones[largest] * means
    row = int(excess.argmax())
    # Relative to the mean, because counts of rows with large means vary more; means near 0 would exaggerate.
    relative = (train.y[largest] - means) / (means + total / train.weight_or_ones.sum())
    is_surprise = train.y[largest[row]] > _MIN_RATIO * means[row] and excess[row] > _MIN_SHARE * total
    if not is_surprise or not _is_heavy(relative, tail_rows, row):
        return ""
    share = counts[largest[row]] / total
    return (
        f"One of {len(train):,} training rows has a count of {train.y[largest[row]]:,.0f}, where {means[row]:,.3g} is "
        f"predicted: {share:.0%} of the sum of all counts. Such rare rows decide the mean, so that predicted means are "
        "unreliable. Use the median, quantiles and intervals instead, or correct the count if it is an error."
    )


def _count_tail_rows(rows: int) -> int:
    return int(np.clip(_TAIL_SHARE * rows, _MIN_TAIL_ROWS, _MAX_TAIL_ROWS))


def _is_heavy(values: np.ndarray, tail_rows: int, row: int | None = None) -> bool:
    """Return True if a value, by default the largest, stands out from the others of an exponential tail.

    Of k excesses over a threshold with an exponential distribution, the largest is a share above x of their sum with a
    probability of at most k (1 - x)^(k - 1) (Fisher's g).
    """
    ordered = np.sort(values)[::-1]
    if len(ordered) <= tail_rows:
        return False
    threshold = ordered[tail_rows]
    excesses = ordered[:tail_rows] - threshold
    excesses = excesses[excesses > 0.0]
    if len(excesses) < _MIN_TAIL_ROWS:
        return False  # a few counts above 0, or above a common one: no tail to compare with
    largest = excesses[0] if row is None else values[row] - threshold
    remaining = 1.0 - largest / excesses.sum()
    return bool(len(excesses) * remaining ** (len(excesses) - 1) < _FALSE_ALARMS)
