"""Compute the weights of all consecutive counts of one distribution that are not negligible."""

from math import inf, log

import numpy as np

from ddpn.distributions.kernels.arrays import cumulate_product, sum_values
from ddpn.distributions.kernels.family import has_quick, has_ratio
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
    """Find the count at which a walk over the weights of the distribution `p` starts.

    A walk computes the weights of consecutive counts, from a start at which they are negligible upwards. `low` and
    `high` are the first and the last possible count.

    Returns
    -------
    tuple of float
        The start, a probable count, its log weight, the last possible count and a rough standard deviation. The start
        is searched for unless it is `low` and the family has a formula for the ratio of consecutive weights, or unless
        the centre of the distribution is above MAX_COUNT. Without a search, the start and the probable count are
        estimated from the centre and the standard deviation, and the log weight is returned as 0.
    """
    centre, width, end = p.shape()
    high = min(high, end)
    low = min(low, high)
    middle, top = min(max(np.floor(centre), low), high), 0.0
    first = max(low, middle - BLOCK_COUNTS * np.ceil(DEVIATIONS_BELOW * width / BLOCK_COUNTS))
    if not middle < MAX_COUNT:
        return first, middle, top, high, width
    if first > low or not has_ratio(p):
        middle, top = find_peak(p, middle, high)
        while first < middle and p.log_mass(first) < top - MAX_START_DEPTH:
            first = np.ceil(0.5 * (first + middle))
        gap = BLOCK_COUNTS * np.ceil(2.0 * width / BLOCK_COUNTS)
        while first > low and p.log_mass(first) > top - START_DEPTH:
            first = max(low, first - gap)
    return first, middle, top, high, width


def find_peak(p, y, high):
    """Return the more probable of y and y + 1 (if that does not exceed `high`), and its log weight."""
    top = p.log_mass(y)
    if y < high:
        following = p.log_mass(y + 1.0)
        if following > top:
            return y + 1.0, following
    return y, top


def walk(p, low, high, weights, start, room):
    """Write the weights of consecutive counts between `low` and `high` to `weights[start:start + room]`.

    Weights are computed in blocks, whose loops the compiler can vectorise, until they are negligible.

    Returns
    -------
    tuple of float
        The first count, the number of weights, their sum and a probable count. The number is -1 if there is not enough
        room, or if counts are above MAX_COUNT.
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
        if y > middle and last <= before and not matters(last, (y - middle) / width, total):
            break
        size = BLOCK_COUNTS * np.ceil(width / BLOCK_COUNTS)
    return first, used, total, middle


def limit_walk(p, limit):
    """Return the most counts of a component to add one by one, at most `limit`; see `MAX_COUNTS`."""
    if has_ratio(p) or limit > MAX_COUNTS:
        return limit
    centre, _, _ = p.shape()
    return min(limit, MAX_EXPONENTIALS if centre < TABLE_COUNTS else MAX_LOGARITHMS)


def matters(weight, distance, total):
    """Return True if a weight, `distance` standard deviations from the centre, changes the total or the variance."""
    return weight * (1.0 + distance * distance) > NEGLIGIBLE_SHARE * total


def write_weights(p, block, n, y, last, is_first, reference):
    """Write the weights of n counts from y on.

    Weights are divided by e^reference, or by the first weight of the walk if the family has ratios. If y is not the
    first count of the walk, `last` is the weight of y - 1.
    """
    if has_ratio(p):
        for j in range(n):
            above, under = p.ratio(y - 1.0 + j)
            block[j] = above / under
        if is_first:
            block[0], last = 1.0, 1.0
        cumulate_product(block, n, last)
    elif has_quick(p) and y + n < TABLE_COUNTS and p.quick(1.0, 0.0, 0.0) < inf:
        logs, log_hs = LOG[int(y) : int(y) + n], LOG_H[int(y) : int(y) + n]
        for j in range(n):
            block[j] = exponential(p.quick(y + j, logs[j], log_hs[j]) - reference)
    else:
        for j in range(n):
            block[j] = p.log_mass(y + j) - reference
        for j in range(n):
            block[j] = exponential(block[j])


def walk_log_prob(p, y, weights, results, i):
    """Write log p(y) and its derivatives to column i of the results; return False if there are too many counts."""
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
    value = p.log_mass(y) - p.log_mass(middle) + log(weights[int(middle - first)] / total)
    results[0, i], results[1, i] = min(value, 0.0), a - r0 - g0 / total
    results[2, i], results[3, i] = b - r1 - g1 / total, c - r2 - g2 / total
    return True
