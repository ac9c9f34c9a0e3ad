"""Compute the unnormalised probabilities (weights) of consecutive counts of one distribution: a "walk" over counts.

A walk leaves out the counts in both tails whose weights are negligible.
"""

from math import inf, log

import numpy as np

from ddpn.distributions.kernels.arrays import sum_values, write_cumulative_product
from ddpn.distributions.kernels.family import has_fast_log_weight, has_ratio
from ddpn.distributions.kernels.scalar import LOG, LOG_H, TABLE_COUNTS, exponential

#: A sum ends at a term that is below this share of the sum.
NEGLIGIBLE_SHARE = 1e-18
#: Depth in nats below the centre at which a walk starts, so that the terms left out are negligible.
START_DEPTH = 44.0
#: Largest depth in nats of a start for which the ratio of any weight to the first weight fits into float64.
MAX_START_DEPTH = 500.0
#: The most counts of a row that are added one by one; for more counts, panels are faster. Families without a ratio need
#: an exponential per count, and above `TABLE_COUNTS` also logarithms, so their limits are lower. All limits were found
#: by timing.
MAX_COUNTS, MAX_EXPONENTIALS, MAX_LOGARITHMS = 1 << 15, 1 << 12, 1 << 10
#: Largest count of a walk: close to 2^53, float64 cannot represent the next count, and a walk would not end.
MAX_COUNT = 2.0**52
#: Blocks have a multiple of `BLOCK_COUNTS` counts. The first block reaches this many standard deviations below and
#: above the centre.
BLOCK_COUNTS, DEVIATIONS_BELOW, DEVIATIONS_ABOVE = 8.0, 6.0, 10.0


def find_start(p, low, high):
    """Find the count at which to start a sum over a distribution; smaller counts have negligible probabilities.

    A weight is an unnormalised probability. The peak is the most probable count, and its log weight is found along the
    way. Both are estimates if the family has a formula for the ratio of consecutive weights and the start is `low`, or
    if counts are above `MAX_COUNT`. In these cases no weight is computed, and 0 stands for the log weight.

    Parameters
    ----------
    p : Family
        The distribution.
    low, high : float
        The first and the last count to which the distribution is restricted.

    Returns
    -------
    start : float
        The count at which to start.
    peak : float
        A count with a large weight, near the most probable one.
    log_weight : float
        The log weight of `peak`.
    end : float
        The last possible count.
    width : float
        A rough standard deviation.
    """
    centre, width, end = p.estimate_shape()
    high = min(high, end)
    low = min(low, high)
    middle, top = min(max(np.floor(centre), low), high), 0.0
    first = max(low, middle - BLOCK_COUNTS * np.ceil(DEVIATIONS_BELOW * width / BLOCK_COUNTS))
    if not middle < MAX_COUNT:
        return first, middle, top, high, width
    if first > low or not has_ratio(p):
        middle, top = find_peak(p, middle, high)
        while first < middle and p.log_weight(first) < top - MAX_START_DEPTH:
            first = np.ceil(0.5 * (first + middle))
        gap = BLOCK_COUNTS * np.ceil(2.0 * width / BLOCK_COUNTS)
        while first > low and p.log_weight(first) > top - START_DEPTH:
            first = max(low, first - gap)
    return first, middle, top, high, width


def find_peak(p, y, high):
    """Return the more probable of the counts y and y + 1 under the distribution `p`, and its log weight.

    The weight is its unnormalised probability. If y equals `high`, the last possible count, return y.
    """
    top = p.log_weight(y)
    if y < high:
        following = p.log_weight(y + 1.0)
        if following > top:
            return y + 1.0, following
    return y, top


def walk(p, low, high, weights, start, room):
    """Write the weights of consecutive counts of a distribution to `weights[start:start + room]`.

    The first count is `low`, or the one below which weights are negligible. The last count is `high`, or the one above
    which they are negligible. Weights are unnormalised probabilities.

    Parameters
    ----------
    p : Family
        The distribution.
    low, high : float
        The first and the last count to which the distribution is restricted.
    weights : array, (size,)
        The array to write to.
    start, room : int
        The index of the first weight to write, and the most weights that may be written.

    Returns
    -------
    first : float
        The count of the first weight.
    n : int
        The number of weights, or -1 if they are more than `room` or counts are above `MAX_COUNT`.
    total : float
        The sum of the weights; 0 if n is -1.
    peak : float
        A count with a large weight.
    """
    first, middle, reference, high, width = find_start(p, low, high)
    size = BLOCK_COUNTS * np.ceil(min(middle - first + DEVIATIONS_ABOVE * width, high - first + 1.0) / BLOCK_COUNTS)
    if not (size <= room and middle < MAX_COUNT):
        return first, -1, 0.0, middle
    y, used, total, last = first, 0, 0.0, 0.0
    while y <= high:
        n = int(min(size, high - y + 1.0, float(room - used)))
        if n == 0:
            return first, -1, 0.0, middle
        block = weights[start + used : start + used + n]
        write_weights(p, block, n, y, last, used == 0, reference)
        total += sum_values(block, n)
        before = block[n - 2] if n > 1 else last
        last = block[n - 1]
        used += n
        y += n
        if y > middle and last <= before and not is_significant(last, (y - middle) / width, total):
            break
        size = BLOCK_COUNTS * np.ceil(width / BLOCK_COUNTS)
    return first, used, total, middle


def limit_walk(p, limit):
    """Return how many probabilities of the distribution `p` should at most be computed one by one.

    The result is `limit`, or less for families for which quadrature is faster than so many probabilities (see
    `MAX_COUNTS`).
    """
    if has_ratio(p) or limit > MAX_COUNTS:
        return limit
    centre, _, _ = p.estimate_shape()
    return min(limit, MAX_EXPONENTIALS if centre < TABLE_COUNTS else MAX_LOGARITHMS)


def is_significant(weight, distance, total):
    """Return True if the weight of a count is large enough to change the sum of all weights or the variance.

    Weights are unnormalised probabilities. `distance` is the distance of the count from the centre in standard
    deviations, and `total` is the sum of the weights of other counts.
    """
    return weight * (1.0 + distance * distance) > NEGLIGIBLE_SHARE * total


def write_weights(p, block, n, y, last, is_first, reference):
    """Write the weights of n consecutive counts of the distribution `p`, from y on, to the array `block`.

    Weights are unnormalised probabilities: all weights of `p` share one unknown factor. If the family has a formula for
    the ratio of consecutive weights, the weight of the very first count is set to 1, and all other weights are products
    of ratios. Otherwise a weight is exp(log weight - `reference`).

    Parameters
    ----------
    p : Family
        The distribution.
    block : array, (n,)
        The array to write to.
    n : int
        The number of counts.
    y : float
        The first count.
    last : float
        The weight of the count y - 1, from the previous block. Ignored if `is_first` is True.
    is_first : bool
        True if there is no previous block.
    reference : float
        About the largest log weight. It is ignored if the family has a formula for ratios.
    """
    if has_ratio(p):
        for j in range(n):
            above, under = p.ratio(y - 1.0 + j)
            block[j] = above / under
        if is_first:
            block[0], last = 1.0, 1.0
        write_cumulative_product(block, n, last)
    elif has_fast_log_weight(p) and y + n < TABLE_COUNTS and p.fast_log_weight(1.0, 0.0, 0.0) < inf:
        logs, log_hs = LOG[int(y) : int(y) + n], LOG_H[int(y) : int(y) + n]
        for j in range(n):
            block[j] = exponential(p.fast_log_weight(y + j, logs[j], log_hs[j]) - reference)
    else:
        for j in range(n):
            block[j] = p.log_weight(y + j) - reference
        for j in range(n):
            block[j] = exponential(block[j])


def walk_log_prob(p, y, weights, results, i):
    """Write log p(y) and its derivatives in the parameters to column i of `results`, by a sum over all counts.

    The sum runs over counts one by one. It gives the normalising constant and the mean of the derivatives.

    Parameters
    ----------
    p : Family
        The distribution.
    y : float
        The count.
    weights : array, (size,)
        A work array, whose length limits the number of counts.
    results : array, (4, n)
        Receives log p(y) and three derivatives in column i.
    i : int
        The column.

    Returns
    -------
    bool
        False if there are too many counts to add them one by one. Then nothing is written.
    """
    first, n, total, middle = walk(p, 0.0, inf, weights, 0, limit_walk(p, len(weights)))
    if n < 0 or not 0.0 < total < inf:
        return False
    a, b, c = p.score(y)
    r0, r1, r2 = p.score(middle)  # differences from these scores are exact if nearly all mass is on this count
    g0, g1, g2 = 0.0, 0.0, 0.0
    for j in range(n):
        s0, s1, s2 = p.score(first + j)
        g0 += weights[j] * (s0 - r0)
        g1 += weights[j] * (s1 - r1)
        g2 += weights[j] * (s2 - r2)
    value = p.log_weight(y) - p.log_weight(middle) + log(weights[int(middle - first)] / total)
    results[0, i], results[1, i] = min(value, 0.0), a - r0 - g0 / total
    results[2, i], results[3, i] = b - r1 - g1 / total, c - r2 - g2 / total
    return True
