"""Loops over rows: one distribution after the other, whatever its family is, through the addresses of their kernels.

A row is a mixture of K components, given by (a, b, c, low, high) each, and weights. Components that are tables have
address 0; their probabilities are in `tables`.
"""

from math import inf
from typing import Any

import numpy as np

from ddpn.distributions.kernels import loops
from ddpn.distributions.kernels.arrays import (
    changed,
    crps,
    described,
    entry_masses,
    moments_around,
    narrowest_run,
    place_of,
    sum_of,
    totals,
)
from ddpn.distributions.kernels.gauss import SIZE
from ddpn.distributions.kernels.panels import of_row as by_panels
from ddpn.distributions.kernels.ranges import facts_of, information, log_range, long_log_prob, sides

LOG_PROB, WALK, PREPARED, HEADER = loops.LOG_PROB, loops.WALK, loops.PREPARED, loops.HEADER
LOG_RANGE, ALL_FACTS, INFORMATION = 1, 2, 3
#: What `of_rows` finds, and from what: log p(y) and its derivatives, from y, a, b, c; log P(low <= Z <= high) and its
#: derivatives, from low, high, a, b, c; mean, variance, first and last count that matter, from a, b, c, low, high; and
#: expected curvatures of -log p, from a, b, c. The numbers of inputs follow.
OPERATIONS = {
    "log_prob": (LOG_PROB, 4),
    "log_range": (LOG_RANGE, 5),
    "facts": (ALL_FACTS, 5),
    "information": (INFORMATION, 3),
}
#: Rows of more counts than this take panels; those of tables cannot, and have more room.
SHORT, LONG, LARGEST = loops.USUAL, 1 << 17, 1 << 25
#: The most counts that are summed one by one for a cdf.
WALKED = 1 << 12
#: Arrays for all counts of a row that `summaries` needs beyond one for each component.
PARTS = 4
#: Tails of less mass than this are summed on their own: a walk leaves out 1e-18.
FAR = 1e-5


#: A family's kernel at its address: (address, operation, inputs, results, length); and the array of n numbers at an
#: address. `compiling` puts them here.
call: Any = None
reals: Any = None


def of_rows(operation, address, inputs, results):
    """What one family is asked for, from numbers per row: inputs (k, n) -> results (m, n), see `OPERATIONS`."""
    given, found = np.zeros(8), np.zeros(WALKED)
    for i in range(inputs.shape[1]):
        for j in range(inputs.shape[0]):
            given[j] = inputs[j, i]
        if operation == LOG_PROB:
            if call(address, LOG_PROB, given.ctypes.data, found.ctypes.data, WALKED) < 0:
                long_log_prob(address, given, found)
        elif operation == LOG_RANGE:
            log_range(address, given, found)
        elif operation == ALL_FACTS:
            facts(address, given, found)
        else:
            information(address, given, found)
        for j in range(results.shape[0]):
            results[j, i] = found[j]


def facts(address, given, found):
    """(a, b, c, low, high) -> mean, variance, first and last count: from all weights where these are few."""
    n = call(address, WALK, given.ctypes.data, found.ctypes.data, len(found))
    if n > 0 and 0.0 < found[2] < inf:
        first, start = found[0], int(found[1])
        mean, variance = moments_around(found[start : start + n], n, found[3] - first, found[2])
        found[0], found[1], found[2], found[3] = first + mean, variance, first, first + n - 1.0
        return
    record, sums, buffer = np.zeros(16), np.zeros(9), np.zeros(5 * SIZE)
    call(address, PREPARED, given.ctypes.data, record.ctypes.data, 1)
    facts_of(address, record, given[3], given[4], found, sums, buffer)
    found[0], found[1], found[2], found[3] = found[1], found[2], found[3], found[4]


def cdfs(addresses, components, weights, y, work, results):
    """P(Z <= y) and P(Z > y) (2, n) of mixtures without tables, both relatively accurate."""
    rows, size = weights.shape
    start, walked = components.ctypes.data, reals(work.ctypes.data, len(work))
    for i in range(rows):
        lower, upper = 0.0, 0.0
        for k in range(size):
            w = weights[i, k]
            if not w <= 0.0:
                own = component_sides(addresses[k], reals(start + 40 * (i * size + k), 5), y[i], walked)
                lower += w * own[0]
                upper += w * own[1]
        results[0, i], results[1, i] = min(lower, 1.0), min(upper, 1.0)


def component_sides(address, component, y, walked):
    """P(Z <= y) and P(Z > y) of one component: from all its weights where these are few and y is not far out."""
    n = call(address, WALK, component.ctypes.data, walked.ctypes.data, len(walked))
    at = y - walked[0]
    if n > 0 and 0.0 <= at < n:
        start, split = int(walked[1]), int(walked[1]) + int(at) + 1
        lower = sum_of(walked[start:split], split - start) / walked[2]
        upper = sum_of(walked[split:], start + n - split) / walked[2]
        if (lower > FAR or y >= component[4]) and (upper > FAR or y >= component[4]):
            return (lower, 1.0 - lower) if lower < upper else (1.0 - upper, upper)
    return sides(address, component, y)


def summaries(
    addresses,
    components,
    weights,
    tables,
    firsts,
    counts,
    groups,
    work,
    change,
    levels,
    y,
    interval_levels,
    entropy,
    moments,
    quantiles,
    scores,
    intervals,
    entries,
    is_long,
):
    """Moments (n, 6), quantiles (n, L), CRPS (n, Q), narrowest intervals (n, 3) and entries of y (n, 2).

    Intervals are first and last count and their probability, at one level per row if `interval_levels` has a column;
    entries are what `entry_masses` finds for the first y, if asked for.

    Moments are mean, variance, mode, entropy, and the variance within and between `groups` of components, if there are
    such. `change` (2, knots) is a map of the cdfs, if it has knots. Rows with more counts than there is room for in
    `work` are marked in `is_long` and left out.
    """
    rows, size = weights.shape
    place, each, grouped = np.zeros((size, 5)), np.zeros((size, 2)), np.zeros((len(groups), 3))
    capacity, memory = len(work) // (size + PARTS), work.ctypes.data
    mass, below = reals(memory, capacity), reals(memory + 8 * capacity, capacity)
    above, arena = reals(memory + 16 * capacity, capacity), reals(memory + 24 * capacity, (size + 1) * capacity)
    for i in range(rows):
        first, last = gathered(addresses, components, weights, tables, firsts, counts, i, capacity, arena, place)
        if not last - first < capacity:
            is_long[i] = True
            continue
        n = int(last - first) + 1
        for j in range(n):
            mass[j] = 0.0
        for k in range(size):
            shift, m, share = int(place[k, 0] - first), int(place[k, 1]), place[k, 3]
            into, own = mass[shift : shift + m], reals(int(place[k, 2]), m)
            for j in range(m):
                into[j] += share * own[j]
            if len(groups) > 0:
                around, total = place[k, 4] - place[k, 0], weights[i, k] / share
                each[k, 0], each[k, 1] = moments_around(own, m, around, total)
                each[k, 0] += shift
        if len(groups) > 0:
            variance_parts(groups, weights, each, grouped, moments, i)
        if change.shape[1] > 0:
            changed(mass, n, change)
        totals(mass, below, above, n)
        described(mass, n, first, entropy, moments, i)
        for j in range(levels.shape[1]):
            quantiles[i, j] = first + place_of(below, above, n, levels[i, j])
        for j in range(y.shape[1]):
            scores[i, j] = crps(below, above, n, first, y[i, j])
        if intervals.shape[1] > 0:
            start, length, probability = narrowest_run(below, n, interval_levels[i, 0])
            intervals[i, 0], intervals[i, 1], intervals[i, 2] = first + start, first + start + length - 1, probability
        if entries.shape[1] > 0:
            at = int(min(max(y[i, 0] - first, -1.0), float(n)))
            entries[i, 0], entries[i, 1] = entry_masses(below, n, at)
        if not below[n - 1] > 0.0:
            moments[i, :], quantiles[i, :], scores[i, :] = np.nan, np.nan, np.nan
            intervals[i, :], entries[i, :] = np.nan, np.nan


def long_summaries(
    addresses,
    components,
    weights,
    groups,
    change,
    levels,
    y,
    interval_levels,
    entropy,
    moments,
    quantiles,
    scores,
    intervals,
    entries,
):
    """What `summaries` finds, of rows with very many counts: by panels."""
    rows, size = weights.shape
    known, grouped = np.zeros((size, 10)), np.zeros((len(groups), 3))
    for i in range(rows):
        mixture = addresses, components[i], weights[i]
        results = moments[i], quantiles[i], scores[i], intervals[i], entries[i]
        by_panels(mixture, known, change, levels[i], y[i], interval_levels[i], entropy, results)
        if len(groups) > 0:
            variance_parts(groups, weights, known[:, 1:3], grouped, moments, i)


def gathered(addresses, components, weights, tables, firsts, counts, i, capacity, arena, place):
    """First and last count of a row, whose components get their weights in the arena, unless they are tables.

    `place` gets the first count of each, the number of them, the address of their weights, their factor and a probable
    count. The last count is infinite where a component has too many, or no finite sum.
    """
    used, first, last, size = 0, inf, -1.0, len(addresses)
    given, arena_at = components.ctypes.data + 40 * i * size, arena.ctypes.data
    for k in range(size):
        place[k, 1] = 0.0
        w, table = weights[i, k], -addresses[k] - 1
        if w <= 0.0:
            continue
        if table < 0:
            n = call(addresses[k], WALK, given + 40 * k, arena_at + 8 * used, capacity)
            if n < 0 or not 0.0 < arena[used + 2] < inf:
                return first, inf
            place[k, 0], place[k, 2] = arena[used], arena_at + 8 * (used + int(arena[used + 1]))
            place[k, 3], place[k, 4] = w / arena[used + 2], arena[used + 3]
            used += int(arena[used + 1]) + n
        else:
            n = counts[table, i]
            own = tables[table, i, :n]
            place[k, 0], place[k, 2] = firsts[table, i], own.ctypes.data
            place[k, 3], place[k, 4] = w, firsts[table, i] + np.argmax(own)
        place[k, 1] = n
        first, last = min(first, place[k, 0]), max(last, place[k, 0] + n - 1.0)
    return first, last


def variance_parts(groups, weights, each, grouped, moments, i):
    """Variance within and between groups of components, from the mean and variance of each; by Chan's formula."""
    mean, within, between = 0.0, 0.0, 0.0
    for g in range(len(groups)):
        grouped[g, 0], grouped[g, 1], grouped[g, 2] = 0.0, 0.0, 0.0
    for k in range(len(groups)):
        weight = weights[i, k]
        if weight > 0.0:
            g, own = groups[k], each[k, 0]
            before, total = grouped[g, 0], grouped[g, 0] + weight
            gap = own - grouped[g, 1]
            grouped[g, 0] = total
            grouped[g, 1] += gap * weight / total
            grouped[g, 2] += weight * each[k, 1] + gap * gap * before * weight / total
            mean += weight * own
    for g in range(len(groups)):
        if grouped[g, 0] > 0.0:
            within += grouped[g, 2]
            between += grouped[g, 0] * (grouped[g, 1] - mean) ** 2
    moments[i, 4], moments[i, 5] = within, between
