"""Loops over the counts of one distribution, which are compiled for each family.

The first names in capitals and the functions `prepared`, `log_mass`, `score`, `shape`, `ratio` and `quick` are those of
a family, see `ddpn.distributions.components`; `compiling` puts them in their place. Inputs and results are arrays of
float64.
"""

from math import inf, log
from typing import Any, cast

import numpy as np

from ddpn.distributions.kernels.arrays import running_products, sum_of
from ddpn.distributions.kernels.scalar import LOG, LOG_H, TABLE, exponential

#: Whether `log_mass` is a log probability, and whether `ratio` and `quick` are known. A family says so.
NORMALISED, HAS_RATIO, HAS_QUICK = False, False, False
#: A sum ends where a term is below this share of it.
NEGLIGIBLE = 1e-18
#: Distance of the centre from both ends in standard deviations from which on a sum may take strides, their length in
#: standard deviations (error 1e-13), and the deviation from which on they are worth while.
CLEAR, STRIDE, WIDE = 9.5, 1.5, 4.0
#: The usual length of the results of a walk, and the longest for families without a ratio.
USUAL, LONGEST_EXP = 1 << 15, 1 << 12
#: Counts of the shortest block, and standard deviations below and above the centre of the first.
BLOCK, BELOW, ABOVE = 8.0, 6.0, 10.0
#: Numbers before the weights of a walk.
HEADER = 4
#: What a family can be asked for.
LOG_PROB, WALK, PREPARED, TERMS, SCORED_TERMS = range(5)
#: Numbers that `prepared` may return; centre, width and end of the support follow them in a record.
FACTS = 8
#: Functions of a family, and numba's array at an address. `compiling` puts them here, also in what these loops call.
prepared = log_mass = score = shape = ratio = quick = carray = cast(Any, None)


def start_of(low, high, centre, p):
    """The count of a range to start from, next to the centre, and its log weight."""
    first = min(max(np.floor(centre), low), high)
    here = log_mass(first, p)
    if first < high:
        there = log_mass(first + 1.0, p)
        if there > here:
            return first + 1.0, there
    return first, here


def log_prob(inputs, results, length):
    """(y, a, b, c) -> log p(y) and its derivatives in a, b, c; -1 where the sum is too long for this loop."""
    y, p = inputs[0], prepared(inputs[1], inputs[2], inputs[3])
    centre, width, end = shape(p)
    if y > end:
        results[0], results[1], results[2], results[3] = -inf, 0.0, 0.0, 0.0
        return 4
    a, b, c = score(y, p)
    if NORMALISED:
        results[0], results[1], results[2], results[3] = log_mass(y, p), a, b, c
        return 4
    is_clear = width >= WIDE and centre > CLEAR * width and centre + CLEAR * width < end
    n = -1 if is_clear else walk(p, 0.0, end, results, length)
    if n < 0:
        return -1
    first, total, start = results[0], results[2], results[3]
    weights = results[int(results[1]) : int(results[1]) + n]
    g0, g1, g2 = 0.0, 0.0, 0.0
    r0, r1, r2 = score(start, p)  # differences to these are exact where nearly all mass is at the start
    for j in range(n):
        s0, s1, s2 = score(first + j, p)
        g0 += weights[j] * (s0 - r0)
        g1 += weights[j] * (s1 - r1)
        g2 += weights[j] * (s2 - r2)
    value = log_mass(y, p) - log_mass(start, p) + log(weights[int(start - first)] / total)
    results[0], results[1] = min(value, 0.0), a - r0 - g0 / total
    results[2], results[3] = b - r1 - g1 / total, c - r2 - g2 / total
    return 4


def walk(p, low, high, results, length):
    """Weights of consecutive counts from `low` to `high`; the number of them, or -1 if they are too many.

    Weights are computed in blocks, upward from some standard deviations below the centre and then downward from there
    if that was not the end, in loops that do several counts at once.

    Results: the first count, the place of its weight in the results, the sum of the weights and a probable count; then
    the weights.
    """
    centre, width, end = shape(p)
    high = min(high, end)
    low = min(low, high)
    inner = min(max(np.floor(centre), low), high)
    # Weights that rise towards the end of a range would overflow on the way there: these are walked down from the end.
    begin = inner if centre > high else max(low, inner - np.floor(BELOW * width))
    size = BLOCK * np.ceil(min(inner - begin + ABOVE * width, high - begin + 1.0) / BLOCK)
    if length <= USUAL and not HAS_RATIO:
        # An exponential per count takes longer than panels, and several times as long without tables.
        length = min(length, LONGEST_EXP if inner < TABLE else LONGEST_EXP // 4)
    if not size <= length:
        return -1
    start, reference = inner, 0.0
    if not HAS_RATIO:
        start, reference = start_of(low, high, centre, p)
    first, per_width = HEADER + int(min(begin - low, float((length - HEADER) // 3))), 1.0 / width
    last, y, total = first - 1, begin, 0.0
    while y <= high and (
        y <= inner or results[last] > results[last - 1] or matters(results[last], (y - start) * per_width, total)
    ):
        n = int(min(size, high - y + 1.0, float(length - 1 - last)))
        if n == 0:
            return -1
        block = results[last + 1 : last + 1 + n]
        weights_above(block, n, y, results[last], last < first, reference, p)
        total += sum_of(block, n)
        last += n
        y += n
        size = BLOCK * np.ceil(width / BLOCK)
    y = begin
    while y > low and (
        first == last or results[first] > results[first + 1] or matters(results[first], (y - start) * per_width, total)
    ):
        n = int(min(size, y - low, float(first - HEADER)))
        if n == 0:
            return -1
        block = results[first - n : first]
        weights_below(block, n, y, results[first], reference, p)
        total += sum_of(block, n)
        first -= n
        y -= n
    results[0], results[1], results[2], results[3] = y, first, total, start
    return last - first + 1


def matters(w, distance, total):
    """Whether a weight, so many standard deviations from the centre, changes the sum of the weights or the variance."""
    return w * (1.0 + distance * distance) > NEGLIGIBLE * total


def weights_above(block, n, y, w, is_first, reference, p):
    """The weights of n counts from y on, after w; the first of all is 1 where they are ratios."""
    if HAS_RATIO:
        for j in range(n):
            above, under = ratio(y - 1.0 + j, p)
            block[j] = above / under
        if is_first:
            block[0], w = 1.0, 1.0
        running_products(block, n, w)
    else:
        exponentials(block, n, y, reference, p)


def weights_below(block, n, y, w, reference, p):
    """The weights of n counts before y, whose own is w."""
    if HAS_RATIO:
        for j in range(n):
            above, under = ratio(y - 1.0 - j, p)
            block[j] = under / above
        running_products(block, n, w)
        for j in range(n // 2):
            block[j], block[n - 1 - j] = block[n - 1 - j], block[j]
    else:
        exponentials(block, n, y - n, reference, p)


def exponentials(block, n, y, reference, p):
    """exp(log_mass - reference) of n counts from y on."""
    if HAS_QUICK and y + n < TABLE and quick(1.0, 0.0, 0.0, p) < inf:
        logs, log_hs = LOG[int(y) : int(y) + n], LOG_H[int(y) : int(y) + n]
        for j in range(n):
            block[j] = exponential(quick(y + j, logs[j], log_hs[j], p) - reference)
    else:
        for j in range(n):
            block[j] = log_mass(y + j, p) - reference
        for j in range(n):
            block[j] = exponential(block[j])


def record(inputs, results):
    """(a, b, c) -> what `prepared` returns, then centre, width and end of the support, and whether it is normalised."""
    p = prepared(inputs[0], inputs[1], inputs[2])
    for i in range(len(p)):
        results[i] = p[i]
    results[FACTS], results[FACTS + 1], results[FACTS + 2] = shape(p)
    results[FACTS + 3] = 1.0 if NORMALISED else 0.0
    return 1


def terms(inputs, results, length, with_score):
    """A record -> log weights, after the positions that the results start with; and the three scores of each."""
    p = (inputs[0], inputs[1], inputs[2], inputs[3], inputs[4], inputs[5], inputs[6], inputs[7])
    for i in range(length):
        y = results[i]
        results[length + i] = log_mass(y, p)
        if with_score:
            results[2 * length + i], results[3 * length + i], results[4 * length + i] = score(y, p)
    return length


def entry(operation, input_address, result_address, length):
    """The one compiled function of a family."""
    inputs, results = carray(input_address, 16), carray(result_address, 5 * length)
    if operation == LOG_PROB:
        return log_prob(inputs, results, length)
    if operation == WALK:
        return walk(prepared(inputs[0], inputs[1], inputs[2]), inputs[3], inputs[4], results, length)
    if operation == PREPARED:
        return record(inputs, results)
    return terms(inputs, results, length, operation == SCORED_TERMS)
