"""Warning of counts with a tail so heavy that a single training row determines the mean.

The mean of such counts, for example of a Pareto distribution, depends on whether a very large count happens to be among
the rows. Medians and quantiles do not.
"""

from collections.abc import Callable

import numpy as np

from ddpn.rows.count_rows import CountRows

#: The share of the sum of all counts above which a single row determines the mean.
_MIN_SHARE = 0.05
#: The smallest ratio of a count to its predicted mean: a small relative error of a large mean is no sign of a tail.
_MIN_RATIO = 2.0
#: The probability of a warning for counts whose tail, relative to their means, is exponential, like that of the
#: Negative Binomial distribution.
_FALSE_ALARM_PROBABILITY = 1e-3
#: The share of rows that form the tail, and the smallest and the largest number of such rows.
_TAIL_SHARE, _MIN_TAIL_ROWS, _MAX_TAIL_ROWS = 0.1, 10, 100
#: Rows to predict per row of the tail: those with the largest counts, enough to include the largest residuals.
_PREDICTED_PER_TAIL_ROW = 3


def describe_heavy_tail(train: CountRows, predict_means: Callable[[np.ndarray], np.ndarray]) -> str:
    """Return a warning if a single training row determines the mean of all counts, otherwise "".

    A row determines the mean if three conditions hold:

    - its count is more than twice its predicted mean;
    - the excess over this mean is more than 5% of the sum of all counts;
    - its count stands out from the other large counts more than an exponential tail allows.

    `predict_means` takes positions of rows in `train` and returns the predicted means of these rows.
    """
    counts = train.weight_or_ones * train.y
    total, tail_rows = float(counts.sum()), _count_tail_rows(len(train))
    if counts.max(initial=0.0) < _MIN_SHARE * total or not _stands_out(train.y - train.y.mean(), tail_rows):
        return ""
    largest = np.argsort(counts, kind="stable")[-_PREDICTED_PER_TAIL_ROW * tail_rows :]
    means = predict_means(largest)
    excess = counts[largest] - train.weight_or_ones[largest] * means
    row = int(excess.argmax())
    # Relative to the mean, because counts of rows with large means vary more; means near 0 would exaggerate.
    relative = (train.y[largest] - means) / (means + total / train.weight_or_ones.sum())
    is_surprise = train.y[largest[row]] > _MIN_RATIO * means[row] and excess[row] > _MIN_SHARE * total
    if not is_surprise or not _stands_out(relative, tail_rows, row):
        return ""
    share = counts[largest[row]] / total
    return (
        f"One of {len(train):,} training rows has a count of {train.y[largest[row]]:,.0f}, but its predicted mean is "
        f"{means[row]:,.3g}. It makes up {share:.0%} of the sum of all counts. Predicted means are unreliable if they "
        "depend on such rare rows: use the median, quantiles and intervals, or correct the count if it is an error."
    )


def _count_tail_rows(rows: int) -> int:
    return int(np.clip(_TAIL_SHARE * rows, _MIN_TAIL_ROWS, _MAX_TAIL_ROWS))


def _stands_out(values: np.ndarray, tail_rows: int, row: int | None = None) -> bool:
    """Return True if a value stands out from the other large values more than an exponential tail allows.

    The value is `values[row]`, by default the largest value. The tail consists of the `tail_rows` largest values, and
    their excesses are measured from the next smaller value. By Fisher's test, the probability that the largest of k
    exponential excesses is more than a share x of their sum is at most k (1 - x)^(k - 1). The value stands out if this
    bound is below 0.1%. With fewer than ten positive excesses, the result is False.
    """
    ordered = np.sort(values)[::-1]
    if len(ordered) <= tail_rows:
        return False
    threshold = ordered[tail_rows]
    excesses = ordered[:tail_rows] - threshold
    excesses = excesses[excesses > 0.0]
    if len(excesses) < _MIN_TAIL_ROWS:
        return False  # too few larger values to form a tail
    largest = excesses[0] if row is None else values[row] - threshold
    remaining = 1.0 - largest / excesses.sum()
    return bool(len(excesses) * remaining ** (len(excesses) - 1) < _FALSE_ALARM_PROBABILITY)
