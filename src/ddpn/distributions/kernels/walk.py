"""Weights of the consecutive counts of one distribution, from the first to the last that matters."""

from math import inf, log

import numpy as np

from ddpn.distributions.kernels.arrays import cumulate_product, sum_values
from ddpn.distributions.kernels.family import has_quick, has_ratio
from ddpn.distributions.kernels.scalar import LOG, LOG_H, TABLE, exponential

#: A sum ends where a term is below this share of it.
NEGLIGIBLE = 1e-18
#: Log weights below the centre's at which a walk may start. With steps from there its first terms are negligible.
DEPTH = 44.0
#: The deepest start, from which weights rise by a factor that float64 can hold.
MAX_DEPTH = 500.0
#: The most counts of a row that are added one by one. Beyond, panels take less time: for families without a ratio, with
#: an exponential per count, from fewer counts on, and sooner still without tables. The last two were found by timing.
MAX_COUNTS, MAX_EXPONENTIALS, MAX_LOGARITHMS = 1 << 15, 1 << 12, 1 << 10
#: From here on float64 soon cannot tell a count from the next one: sums that go from count to count would not end.
MAX_COUNT = 2.0**52
#: Counts of the shortest block, and standard deviations below and above the centre of the first.
BLOCK, BELOW, ABOVE = 8.0, 6.0, 10.0


def find_start(p, low, high):
    """Return the first count that matters, a probable count and its log weight, the last count and the deviation.

    The log weight is 0 where a family has ratios and nothing needs it. There is no search for counts above MAX_COUNT.
    """
    centre, width, end = p.shape()
    high = min(high, end)
    low = min(low, high)
    middle, top = min(max(np.floor(centre), low), high), 0.0
    first = max(low, middle - BLOCK * np.ceil(BELOW * width / BLOCK))
    if not middle < MAX_COUNT:
        return first, middle, top, high, width
    if first > low or not has_ratio(p):
        top = p.log_mass(middle)
        following = p.log_mass(middle + 1.0) if middle < high else top
        if following > top:
            middle, top = middle + 1.0, following
        while first < middle and p.log_mass(first) < top - MAX_DEPTH:
            first = np.ceil(0.5 * (first + middle))
        gap = BLOCK * np.ceil(2.0 * width / BLOCK)
        while first > low and p.log_mass(first) > top - DEPTH:
            first = max(low, first - gap)
    return first, middle, top, high, width


def walk(p, low, high, weights, start, room):
    """Write the weights of consecutive counts between `low` and `high` into an array, from `start` on.

    Weights are computed in blocks, in loops that do several counts at once.

    Returns
    -------
    tuple of float
        The first count, the number of weights, their sum and a probable count. The number is -1 if the counts that
        matter are more than there is room for, or above MAX_COUNT.
    """
    first, middle, reference, high, width = find_start(p, low, high)
    size = BLOCK * np.ceil(min(middle - first + ABOVE * width, high - first + 1.0) / BLOCK)
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
        size = BLOCK * np.ceil(width / BLOCK)
    return first, used, total, middle


def limit_walk(p, limit):
    """Return how many counts of a distribution to add one by one at most, if a row may have `limit`."""
    if has_ratio(p) or limit > MAX_COUNTS:
        return limit
    centre, _, _ = p.shape()
    return min(limit, MAX_EXPONENTIALS if centre < TABLE else MAX_LOGARITHMS)


def matters(weight, distance, total):
    """Return whether a weight, some standard deviations from the centre, changes the sum or the variance."""
    return weight * (1.0 + distance * distance) > NEGLIGIBLE * total


def write_weights(p, block, n, y, last, is_first, reference):
    """Write the weights of n counts from y on, divided by e^reference, or in families with ratios by the first weight.

    `last` is the weight of y - 1, unless y is the first count.
    """
    if has_ratio(p):
        for j in range(n):
            above, under = p.ratio(y - 1.0 + j)
            block[j] = above / under
        if is_first:
            block[0], last = 1.0, 1.0
        cumulate_product(block, n, last)
    elif has_quick(p) and y + n < TABLE and p.quick(1.0, 0.0, 0.0) < inf:
        logs, log_hs = LOG[int(y) : int(y) + n], LOG_H[int(y) : int(y) + n]
        for j in range(n):
            block[j] = exponential(p.quick(y + j, logs[j], log_hs[j]) - reference)
    else:
        for j in range(n):
            block[j] = p.log_mass(y + j) - reference
        for j in range(n):
            block[j] = exponential(block[j])


def walk_log_prob(p, y, weights, results, i):
    """Put log p(y) and its derivatives into column i of the results; return False if there are too many counts."""
    first, n, total, middle = walk(p, 0.0, inf, weights, 0, limit_walk(p, len(weights)))
    if n < 0 or not 0.0 < total < inf:
        return False
    a, b, c = p.score(y)
    r0, r1, r2 = p.score(middle)  # differences to these are exact where nearly all mass is on this count
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
