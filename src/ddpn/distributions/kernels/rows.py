"""Loops over rows, the kernels that are called from Python.

A row is a mixture. Each family has its components (rows, k, 5), three parameters and the range of counts they are
restricted to, beside each other from a `column` of the weights (rows, K) on. Families append the weights of counts to
one array, the arena, and then loops that know no family do the work.
"""

from math import inf

import numpy as np

from ddpn.distributions.kernels.arrays import (
    accumulate_mass,
    change_mass,
    crps,
    describe,
    find_entry_masses,
    find_narrowest_run,
    find_quantile,
    moments_around,
    split_variance,
    sum_values,
)
from ddpn.distributions.kernels.family import prepare
from ddpn.distributions.kernels.ranges import (
    EXTENT,
    FIRST,
    LAST,
    SUMS,
    find_extent,
    is_interior_bell,
    sum_information,
    sum_log_prob,
    sum_log_range,
    sum_moments,
    sum_sides,
)
from ddpn.distributions.kernels.walk import limit_walk, walk, walk_log_prob

#: The most counts that are summed one by one for a single result.
WALKED = 1 << 12
#: Tails of less mass than this are summed on their own: a walk leaves out 1e-18.
FAR = 1e-5


# One distribution per row: inputs (k, n) -> results (m, n) ----------------------------------------------------------


def find_log_probs(family, inputs, results):
    """Find log p(y) and its derivatives in the parameters (4, n) from y and three parameters (4, n), by sums."""
    weights, sums = np.empty(WALKED), np.empty(SUMS)
    for i in range(inputs.shape[1]):
        y, p = inputs[0, i], prepare(family, inputs[1, i], inputs[2, i], inputs[3, i])
        if y > p.shape()[2]:
            results[0, i], results[1, i], results[2, i], results[3, i] = -inf, 0.0, 0.0, 0.0
        elif is_interior_bell(p) or not walk_log_prob(p, y, weights, results, i):
            sum_log_prob(p, y, sums, results, i)


def find_log_masses(family, inputs, results):
    """Find what `find_log_probs` does, for a family that is normalised: without the sums, it compiles much faster."""
    for i in range(inputs.shape[1]):
        y, p = inputs[0, i], prepare(family, inputs[1, i], inputs[2, i], inputs[3, i])
        if y > p.shape()[2]:
            results[0, i], results[1, i], results[2, i], results[3, i] = -inf, 0.0, 0.0, 0.0
        else:
            results[0, i] = p.log_mass(y)
            results[1, i], results[2, i], results[3, i] = p.score(y)


def find_log_ranges(family, inputs, results):
    """Find log P(low <= Z <= high) and its derivatives (4, n) from low, high and three parameters (5, n)."""
    sums, outside = np.empty(SUMS), np.empty(4)
    for i in range(inputs.shape[1]):
        p = prepare(family, inputs[2, i], inputs[3, i], inputs[4, i])
        sum_log_range(p, inputs[0, i], inputs[1, i], sums, outside, results, i)


def find_information(family, inputs, results):
    """Find the expected curvatures of -log p in the parameters (3, n) from three parameters (3, n)."""
    sums = np.empty(SUMS)
    for i in range(inputs.shape[1]):
        sum_information(prepare(family, inputs[0, i], inputs[1, i], inputs[2, i]), sums, results, i)


def find_moments(family, inputs, results):
    """Find mean and variance (2, n) from three parameters (3, n)."""
    weights, sums = np.empty(WALKED), np.empty(SUMS)
    for i in range(inputs.shape[1]):
        p = prepare(family, inputs[0, i], inputs[1, i], inputs[2, i])
        first, n, total, middle = walk(p, 0.0, inf, weights, 0, limit_walk(p, WALKED))
        if n > 0 and 0.0 < total < inf:
            mean, results[1, i] = moments_around(weights, n, middle - first, total)
            results[0, i] = first + mean
        else:
            results[0, i], results[1, i] = sum_moments(p, 0.0, inf, sums)


def find_extents(family, inputs, results):
    """Find the first and the last count that matter (2, n) from a depth and three parameters (4, n)."""
    extent = np.empty(EXTENT)
    for i in range(inputs.shape[1]):
        p = prepare(family, inputs[1, i], inputs[2, i], inputs[3, i])
        find_extent(p, 0.0, inf, inputs[0, i], extent)
        results[0, i], results[1, i] = extent[FIRST], extent[LAST]


# Mixtures -------------------------------------------------------------------------------------------------------------


def add_sides(family, components, weights, column, y, results):
    """Add P(Z <= y) and P(Z > y), both relatively accurate, of a family's components to the results (2, rows, n).

    Shape: y (rows, n).
    """
    walked, sums = np.empty(WALKED), np.empty(SUMS)
    for i in range(components.shape[0]):
        for k in range(components.shape[1]):
            weight = weights[i, column + k]
            if not weight <= 0.0:
                p = prepare(family, components[i, k, 0], components[i, k, 1], components[i, k, 2])
                low, high = components[i, k, 3], components[i, k, 4]
                first, n, total, _ = walk(p, low, high, walked, 0, limit_walk(p, len(walked)))
                for j in range(y.shape[1]):
                    lower, upper = find_sides(p, low, high, y[i, j], walked, first, n, total, sums)
                    results[0, i, j] += weight * lower
                    results[1, i, j] += weight * upper


def find_sides(p, low, high, y, walked, first, n, total, sums):
    """Return P(Z <= y) and P(Z > y): from n weights that were walked from `first` on, unless y is far out."""
    at = y - first
    if n > 0 and 0.0 <= at < n:
        split = int(at) + 1
        lower, upper = sum_values(walked, split) / total, sum_values(walked[split:], n - split) / total
        if (lower > FAR or y >= high) and (upper > FAR or y >= high):
            return (lower, 1.0 - lower) if lower < upper else (1.0 - upper, upper)
    return sum_sides(p, low, high, y, sums)


def fill(family, components, weights, column, limit, arena, used, spans, facts, is_long):
    """Append the weights of all components of a family to the arena.

    `spans` (rows, K, 2) gets where they start in the arena and how many they are; `facts` (rows, K, 3) the first count,
    the sum of the weights and a probable count. Rows of more than `limit` counts are marked in `is_long` and left out.

    Returns
    -------
    int
        How much of the arena is used; -1 if it is full.
    """
    for i in range(components.shape[0]):
        for k in range(components.shape[1]):
            if is_long[i]:
                break
            j = column + k
            spans[i, j, 1] = 0
            if weights[i, j] <= 0.0:
                continue
            p = prepare(family, components[i, k, 0], components[i, k, 1], components[i, k, 2])
            longest = limit_walk(p, limit)
            room = min(longest, len(arena) - used)
            first, n, total, middle = walk(p, components[i, k, 3], components[i, k, 4], arena, used, room)
            if n < 0 and room < longest:
                return -1
            if n < 0 or not 0.0 < total < inf:
                is_long[i] = True
                break
            spans[i, j, 0], spans[i, j, 1] = used, n
            facts[i, j, 0], facts[i, j, 1], facts[i, j, 2] = first, total, middle
            used += n
    return used


def summarise(arena, spans, facts, weights, groups, change, inputs, entropy, work, is_long, results):
    """Find moments (n, 6), quantiles (n, L), CRPS (n, Q), narrowest intervals (n, 3) and entries of y (n, 2).

    Moments are mean, variance, mode, entropy, and the variance within and between `groups` of components. Intervals are
    first and last count and their probability, at one level per row if `interval_levels` has a column; entries are what
    `find_entry_masses` finds for the first y, if asked for. `change` (2, knots) is a map of the cdfs, if it has knots.
    Rows with more counts than there is room for in `work` (3, counts) are marked in `is_long` and left out. The mean is
    NaN where there is no distribution.
    """
    levels, y, interval_levels = inputs
    moments, quantiles, scores, intervals, entries = results
    mass, below, above = work[0], work[1], work[2]
    component_moments = np.zeros((weights.shape[1], 2))
    for i in range(len(weights)):
        first, last = find_span(spans, facts, weights, i)
        if is_long[i] or not last - first < len(mass):
            is_long[i] = True
            continue
        n = int(last - first) + 1
        mix(arena, spans, facts, weights, i, first, n, mass)
        if len(groups) > 1:
            for k in range(len(groups)):
                if spans[i, k, 1] > 0:
                    start = facts[i, k, 0]
                    values, around = arena[spans[i, k, 0] :], facts[i, k, 2] - start
                    mean, component_moments[k, 1] = moments_around(values, spans[i, k, 1], around, facts[i, k, 1])
                    component_moments[k, 0] = start + mean
            split_variance(groups, weights[i], component_moments, moments[i])
        if change.shape[1] > 0:
            change_mass(mass, n, 0.0, change)
        accumulate_mass(mass, below, above, n)
        describe(mass, n, first, entropy, moments[i])
        if len(groups) == 1:
            moments[i, 4], moments[i, 5] = moments[i, 1], 0.0
        for j in range(levels.shape[1]):
            quantiles[i, j] = first + find_quantile(below, above, n, levels[i, j])
        for j in range(y.shape[1]):
            scores[i, j] = crps(below, above, n, first, y[i, j])
        if intervals.shape[1] > 0:
            start, length, probability = find_narrowest_run(below, n, interval_levels[i, 0])
            intervals[i, 0], intervals[i, 1], intervals[i, 2] = first + start, first + start + length - 1, probability
        if entries.shape[1] > 0:
            at = int(min(max(y[i, 0] - first, -1.0), float(n)))
            entries[i, 0], entries[i, 1] = find_entry_masses(below, n, at)
        if not below[n - 1] > 0.0:
            moments[i, 0] = np.nan


def find_span(spans, facts, weights, i):
    """Return the first and the last count of a row."""
    first, last = inf, -1.0
    for k in range(weights.shape[1]):
        if not weights[i, k] <= 0.0:
            first, last = min(first, facts[i, k, 0]), max(last, facts[i, k, 0] + spans[i, k, 1] - 1.0)
    return first, last


def mix(arena, spans, facts, weights, i, first, n, mass):
    """Find the probabilities of n counts from `first` on in a row."""
    for j in range(n):
        mass[j] = 0.0
    for k in range(weights.shape[1]):
        m = spans[i, k, 1]
        if m > 0:
            shift, start, share = int(facts[i, k, 0] - first), spans[i, k, 0], weights[i, k] / facts[i, k, 1]
            into, component = mass[shift : shift + m], arena[start : start + m]
            for j in range(m):
                into[j] += share * component[j]
