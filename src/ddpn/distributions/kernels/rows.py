"""Loops over rows: one distribution after the other, whatever its family is, through the addresses of their kernels.

A row is a mixture of K components, given by (a, b, c, low, high) each, and weights. Components that are tables have
address 0; their probabilities are in `tables`.
"""

from math import inf
from typing import Any

import numpy as np

from ddpn.distributions.kernels import loops
from ddpn.distributions.kernels.arrays import changed, crps, described, place_of, sum_of, totals
from ddpn.distributions.kernels.gauss import SIZE
from ddpn.distributions.kernels.panels import of_row as by_panels
from ddpn.distributions.kernels.ranges import facts, information, log_range, log_total, long_log_prob, sides

LOG_PROB, WALK, PREPARED, HEADER = loops.LOG_PROB, loops.WALK, loops.PREPARED, loops.HEADER
LOG_RANGE, ALL_FACTS, INFORMATION = 1, 2, 3
#: What `of_rows` finds, and from what: log p(y) and its derivatives, from y, a, b, c; log P(low <= Z <= high) and its
#: derivatives, from low, high, a, b, c; log total, mean, variance, first and last count, from a, b, c, low, high; and
#: expected curvatures of -log p, from a, b, c. The numbers of inputs follow.
OPERATIONS = {
    "log_prob": (LOG_PROB, 4),
    "log_range": (LOG_RANGE, 5),
    "facts": (ALL_FACTS, 5),
    "information": (INFORMATION, 3),
}
#: Rows of more counts than this take panels, unless their cdf is changed: these take all counts.
SHORT, LONGEST = loops.USUAL // 2, 1 << 16
#: The most counts of a row that cannot take panels.
LARGEST = 1 << 25
#: The most counts that are summed one by one for a cdf.
WALKED = 1 << 12
#: Tails of less mass than this are summed on their own: a walk leaves out 1e-18.
FAR = 1e-5


#: A family's kernel at its address: (address, operation, inputs, results, length). `compiling` puts it here.
call: Any = None


def of_rows(operation, address, inputs, results):
    """What one family is asked for, from numbers per row: inputs (k, n) -> results (m, n), see `OPERATIONS`."""
    given, found = np.zeros(8), np.zeros(loops.SCRATCH + loops.SUMMED)
    for i in range(inputs.shape[1]):
        for j in range(inputs.shape[0]):
            given[j] = inputs[j, i]
        if operation == LOG_PROB:
            if call(address, LOG_PROB, given.ctypes.data, found.ctypes.data, 8) < 0:
                long_log_prob(address, given, found)
        elif operation == LOG_RANGE:
            log_range(address, given, found)
        elif operation == ALL_FACTS:
            facts(address, given, found)
        else:
            information(address, given, found)
        for j in range(results.shape[0]):
            results[j, i] = found[j]


def cdfs(addresses, components, weights, y, results):
    """P(Z <= y) and P(Z > y) (2, n) of mixtures without tables, both relatively accurate."""
    rows, size = weights.shape
    scratch, record, found = np.empty(WALKED), np.zeros(16), np.zeros(4)
    sums, buffer = np.zeros(9), np.zeros(5 * SIZE)
    for i in range(rows):
        lower, upper = 0.0, 0.0
        for k in range(size):
            w = weights[i, k]
            if not w <= 0.0:
                component_sides(addresses[k], components[i, k], y[i], scratch, record, found, sums, buffer)
                lower += w * found[0]
                upper += w * found[1]
        results[0, i], results[1, i] = min(lower, 1.0), min(upper, 1.0)


def component_sides(address, component, y, scratch, record, found, sums, buffer):
    """P(Z <= y) and P(Z > y) of one component: from all its weights where these are few and y is not far out."""
    n = call(address, WALK, component.ctypes.data, scratch.ctypes.data, len(scratch))
    at = y - scratch[0]
    if n > 0 and 0.0 <= at < n:
        start, split = int(scratch[1]), int(scratch[1]) + int(at) + 1
        lower = sum_of(scratch[start:split], split - start) / scratch[2]
        upper = sum_of(scratch[split:], start + n - split) / scratch[2]
        if (lower > FAR or y >= component[4]) and (upper > FAR or y >= component[4]):
            found[0], found[1] = (lower, 1.0 - lower) if lower < upper else (1.0 - upper, upper)
            return
    call(address, PREPARED, component.ctypes.data, record.ctypes.data, 1)
    whole = log_total(address, record, component[3], component[4], sums, buffer)
    sides(address, record, y, component[3], component[4], whole, found, sums, buffer)


def summaries(
    addresses,
    components,
    weights,
    tables,
    firsts,
    counts,
    groups,
    capacity,
    change,
    is_changed,
    levels,
    y,
    entropy,
    moments,
    quantiles,
    scores,
    is_long,
):
    """Moments (n, 6), quantiles (n, L) and CRPS (n, Q).

    Moments are mean, variance, mode, entropy, and the variance within and between `groups` of components, if there are
    such. `change` (2, knots) is a map of the cdfs of some rows. Rows whose components have more counts than `capacity`
    are left to `long_summaries`, unless there are tables.
    """
    rows, size = weights.shape
    is_counted = len(tables) > 0
    place, grouped = np.zeros((size, 6)), np.zeros((len(groups), 3))
    arena, mass, below, above = np.empty(2 * capacity), np.empty(1 << 10), np.empty(1 << 10), np.empty(1 << 10)
    for i in range(rows):
        arena, first, last = gathered(addresses, components, weights, tables, firsts, counts, i, capacity, arena, place)
        if last == inf and is_counted:
            arena, first, last = gathered(
                addresses, components, weights, tables, firsts, counts, i, LARGEST, arena, place
            )
        if not is_counted and (last == inf or last - first > max(capacity, LONGEST)):
            is_long[i] = True
            continue
        if not last - first < LARGEST:
            moments[i, :], quantiles[i, :], scores[i, :] = np.nan, np.nan, np.nan
            continue
        n = int(last - first) + 1
        if n > len(mass):
            mass, below, above = np.empty(2 * n), np.empty(2 * n), np.empty(2 * n)
        for j in range(n):
            mass[j] = 0.0
        for k in range(size):
            shift, at, m, share = int(place[k, 0] - first), int(place[k, 2]), int(place[k, 1]), place[k, 3]
            into, own = mass[shift : shift + m], arena[at : at + m]
            for j in range(m):
                into[j] += share * own[j]
        if len(groups) > 0:
            variance_parts(groups, weights, place[:, 4:6], first, grouped, moments, i)
        if is_changed[i]:
            changed(mass, n, change)
        totals(mass, below, above, n)
        described(mass, n, first, entropy, moments, i)
        for j in range(levels.shape[1]):
            quantiles[i, j] = first + place_of(below, above, n, levels[i, j])
        for j in range(y.shape[1]):
            scores[i, j] = crps(below, above, n, first, y[i, j])
        if not below[n - 1] > 0.0:
            moments[i, :], quantiles[i, :], scores[i, :] = np.nan, np.nan, np.nan


def long_summaries(addresses, components, weights, groups, levels, y, entropy, moments, quantiles, scores):
    """What `summaries` finds, of rows with very many counts: by panels."""
    rows, size = weights.shape
    known, grouped = np.zeros((size, 8)), np.zeros((len(groups), 3))
    for i in range(rows):
        by_panels(
            addresses, components[i], weights[i], known, levels[i], y[i], entropy, moments[i], quantiles[i], scores[i]
        )
        if len(groups) > 0:
            variance_parts(groups, weights, known[:, 1:3], 0.0, grouped, moments, i)


def gathered(addresses, components, weights, tables, firsts, counts, i, capacity, arena, place):
    """Weights of all components of a row: the arena they are in, and first and last count.

    `place` gets the first count of each, the number of them, where they are, their factor, mean and variance. The last
    count is infinite where a component has too many, or no finite sum.
    """
    used, first, last = 0, inf, -1.0
    for k in range(len(addresses)):
        place[k, 1] = 0.0
        w = weights[i, k]
        if w <= 0.0:
            continue
        table = -addresses[k] - 1
        needed = capacity if table < 0 else counts[table, i] + HEADER
        if used + needed > len(arena):
            arena = longer(arena, used, used + needed)
        if table < 0:
            given = components.ctypes.data + 40 * (i * len(addresses) + k)
            n = call(addresses[k], WALK, given, arena.ctypes.data + 8 * used, capacity)
            if n < 0 or not 0.0 < arena[used + 2] < inf:
                return arena, first, inf
        else:
            n = counts[table, i]
            copied(tables, firsts, table, i, n, arena, used)
        place[k, 0], place[k, 1], place[k, 2] = arena[used], n, used + arena[used + 1]
        place[k, 3], place[k, 4], place[k, 5] = w / arena[used + 2], arena[used + 3], arena[used + 4]
        first, last = min(first, arena[used]), max(last, arena[used] + n - 1.0)
        used += int(arena[used + 1]) + n
    return arena, first, last


def copied(tables, firsts, table, i, n, arena, used):
    """A table as `loops.walk` would return it."""
    mean, square = 0.0, 0.0
    for j in range(n):
        arena[used + HEADER + j] = tables[table, i, j]
        mean += tables[table, i, j] * j
    for j in range(n):
        square += tables[table, i, j] * (j - mean) ** 2
    arena[used], arena[used + 1], arena[used + 2] = firsts[table, i], HEADER, 1.0
    arena[used + 3], arena[used + 4] = firsts[table, i] + mean, square


def variance_parts(groups, weights, each, first, grouped, moments, i):
    """Variance within and between groups of components, from the mean and variance of each; by Chan's formula."""
    mean, within, between = 0.0, 0.0, 0.0
    for g in range(len(groups)):
        grouped[g, 0], grouped[g, 1], grouped[g, 2] = 0.0, 0.0, 0.0
    for k in range(len(groups)):
        weight = weights[i, k]
        if weight > 0.0:
            g, own = groups[k], each[k, 0] - first
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


def longer(array, used, size):
    """A longer array that starts with what is used of another one."""
    made = np.empty(2 * size)
    for j in range(used):
        made[j] = array[j]
    return made
