"""Loops over rows: the kernels that Python calls.

Every row is a mixture of K components. The components of one family are an array (rows, k, 5): three parameters, and
the first and the last count that the component is restricted to. Their mixture weights are k neighbouring columns of
the weights (rows, K), from `column` on. A loop of each family appends the weights of all counts to one array, the
arena. Then, loops that do not depend on the family compute the statistics of the mixtures.
"""

from math import inf

import numpy as np

from ddpn.distributions.kernels.arrays import (
    accumulate_mass,
    compute_crps,
    compute_moments_around,
    find_entry_masses,
    find_narrowest_run,
    find_quantile,
    recalibrate_mass,
    split_variance,
    sum_values,
    write_moments,
)
from ddpn.distributions.kernels.family import prepare
from ddpn.distributions.kernels.ranges import (
    FIRST,
    LAST,
    N_EXTENT,
    N_SUMS,
    find_extent,
    is_interior_bell,
    sum_information,
    sum_log_prob,
    sum_log_range,
    sum_moments,
    sum_sides,
)
from ddpn.distributions.kernels.walk import limit_walk, walk, walk_log_prob

#: The most counts that are summed one by one for a single number, such as a cdf.
MAX_WALKED_COUNTS = 1 << 12
#: Smallest tail probability that is computed from the weights of a walk, which leaves out 1e-18 of the mass.
MIN_WALKED_TAIL = 1e-5


# One distribution per row: inputs (k, n) -> results (m, n) ----------------------------------------------------------


def compute_log_probs(family, inputs, results):
    """Compute log p(y) and its derivatives (4, n) from y and three parameters (4, n), normalising the weights."""
    weights, sums = np.empty(MAX_WALKED_COUNTS), np.empty(N_SUMS)
    for i in range(inputs.shape[1]):
        y, p = inputs[0, i], prepare(family, inputs[1, i], inputs[2, i], inputs[3, i])
        if y > p.shape()[2]:
            results[0, i], results[1, i], results[2, i], results[3, i] = -inf, 0.0, 0.0, 0.0
        elif is_interior_bell(p) or not walk_log_prob(p, y, weights, results, i):
            sum_log_prob(p, y, sums, results, i)


def compute_log_masses(family, inputs, results):
    """Compute the result of `compute_log_probs` for a normalised family, without sums, which compiles much faster."""
    for i in range(inputs.shape[1]):
        y, p = inputs[0, i], prepare(family, inputs[1, i], inputs[2, i], inputs[3, i])
        if y > p.shape()[2]:
            results[0, i], results[1, i], results[2, i], results[3, i] = -inf, 0.0, 0.0, 0.0
        else:
            results[0, i] = p.log_mass(y)
            results[1, i], results[2, i], results[3, i] = p.score(y)


def compute_log_ranges(family, inputs, results):
    """Compute log P(low <= Z <= high) and its derivatives (4, n) from low, high and three parameters (5, n)."""
    sums, outside = np.empty(N_SUMS), np.empty(4)
    for i in range(inputs.shape[1]):
        p = prepare(family, inputs[2, i], inputs[3, i], inputs[4, i])
        sum_log_range(p, inputs[0, i], inputs[1, i], sums, outside, results, i)


def compute_information(family, inputs, results):
    """Compute the diagonal of the Fisher information (3, n) from three parameters (3, n)."""
    sums = np.empty(N_SUMS)
    for i in range(inputs.shape[1]):
        sum_information(prepare(family, inputs[0, i], inputs[1, i], inputs[2, i]), sums, results, i)


def compute_moments(family, inputs, results):
    """Compute mean and variance (2, n) from three parameters (3, n)."""
    weights, sums = np.empty(MAX_WALKED_COUNTS), np.empty(N_SUMS)
    for i in range(inputs.shape[1]):
        p = prepare(family, inputs[0, i], inputs[1, i], inputs[2, i])
        first, n, total, middle = walk(p, 0.0, inf, weights, 0, limit_walk(p, MAX_WALKED_COUNTS))
        if n > 0 and 0.0 < total < inf:
            mean, results[1, i] = compute_moments_around(weights, n, middle - first, total)
            results[0, i] = first + mean
        else:
            results[0, i], results[1, i] = sum_moments(p, 0.0, inf, sums)


def compute_extents(family, inputs, results):
    """Find the first and the last count of a window (2, n) from its depth in nats and three parameters (4, n)."""
    extent = np.empty(N_EXTENT)
    for i in range(inputs.shape[1]):
        p = prepare(family, inputs[1, i], inputs[2, i], inputs[3, i])
        find_extent(p, 0.0, inf, inputs[0, i], extent)
        results[0, i], results[1, i] = extent[FIRST], extent[LAST]


# Mixtures -------------------------------------------------------------------------------------------------------------


def add_sides(family, components, weights, column, y, results):
    """Add weight x P(Z <= y) and weight x P(Z > y) of a family's components to the results (2, rows, n).

    Both probabilities are relatively accurate. Shape: y (rows, n).
    """
    walked, sums = np.empty(MAX_WALKED_COUNTS), np.empty(N_SUMS)
    for i in range(components.shape[0]):
        for k in range(components.shape[1]):
            weight = weights[i, column + k]
            if not weight <= 0.0:
                p = prepare(family, components[i, k, 0], components[i, k, 1], components[i, k, 2])
                low, high = components[i, k, 3], components[i, k, 4]
                first, n, total, _ = walk(p, low, high, walked, 0, limit_walk(p, len(walked)))
                for j in range(y.shape[1]):
                    lower, upper = find_component_sides(p, low, high, y[i, j], walked, first, n, total, sums)
                    results[0, i, j] += weight * lower
                    results[1, i, j] += weight * upper


def find_component_sides(p, low, high, y, walked, first, n, total, sums):
    """Return P(Z <= y) and P(Z > y) of one component, from the n weights of a walk unless y is far in a tail."""
    at = y - first
    if n > 0 and 0.0 <= at < n:
        split = int(at) + 1
        lower, upper = sum_values(walked, split) / total, sum_values(walked[split:], n - split) / total
        if (lower > MIN_WALKED_TAIL or y >= high) and (upper > MIN_WALKED_TAIL or y >= high):
            return (lower, 1.0 - lower) if lower < upper else (1.0 - upper, upper)
    return sum_sides(p, low, high, y, sums)


def fill_arena(family, components, weights, column, limit, arena, used, slices, walks, is_long):
    """Append the weights of all components of a family to the arena, after its first `used` numbers.

    `slices` (rows, K, 2) receives the start of each component in the arena and its length; `walks` (rows, K, 3)
    receives its first count, the sum of its weights and a probable count. Rows of more than `limit` counts are marked
    in `is_long` and left out.

    Returns
    -------
    int
        The used length of the arena, or -1 if it is full.
    """
    for i in range(components.shape[0]):
        for k in range(components.shape[1]):
            if is_long[i]:
                break
            j = column + k
            slices[i, j, 1] = 0
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
            slices[i, j, 0], slices[i, j, 1] = used, n
            walks[i, j, 0], walks[i, j, 1], walks[i, j, 2] = first, total, middle
            used += n
    return used


def summarise(arena, slices, walks, weights, groups, cdf_map, inputs, entropy, work, is_long, results):
    """Compute the statistics of rows from the weights of their components: the five arrays of `summaries.Summaries`.

    `inputs` are levels of quantiles (n, L), counts y to score (n, Q) and levels of narrowest intervals, (n, 1) or (n,
    0). `cdf_map` (2, knots) is a recalibration map of the cdfs, or has no knots. Rows with more counts than fit into
    `work` (3, counts) are marked in `is_long` and left out. The mean is NaN for parameters without a distribution.
    """
    levels, y, interval_levels = inputs
    moments, quantiles, scores, intervals, entries = results
    mass, below, above = work[0], work[1], work[2]
    component_moments = np.zeros((weights.shape[1], 2))
    for i in range(len(weights)):
        first, last = find_span(slices, walks, weights, i)
        if is_long[i] or not last - first < len(mass):
            is_long[i] = True
            continue
        n = int(last - first) + 1
        mix_components(arena, slices, walks, weights, i, first, n, mass)
        if len(groups) > 1:
            for k in range(len(groups)):
                if slices[i, k, 1] > 0:
                    start = walks[i, k, 0]
                    values, around = arena[slices[i, k, 0] :], walks[i, k, 2] - start
                    mean, component_moments[k, 1] = compute_moments_around(
                        values, slices[i, k, 1], around, walks[i, k, 1]
                    )
                    component_moments[k, 0] = start + mean
            split_variance(groups, weights[i], component_moments, moments[i])
        if cdf_map.shape[1] > 0:
            recalibrate_mass(mass, n, 0.0, cdf_map)
        accumulate_mass(mass, below, above, n)
        write_moments(mass, n, first, entropy, moments[i])
        if len(groups) == 1:
            moments[i, 4], moments[i, 5] = moments[i, 1], 0.0
        for j in range(levels.shape[1]):
            quantiles[i, j] = first + find_quantile(below, above, n, levels[i, j])
        for j in range(y.shape[1]):
            scores[i, j] = compute_crps(below, above, n, first, y[i, j])
        if intervals.shape[1] > 0:
            start, length, probability = find_narrowest_run(below, n, interval_levels[i, 0])
            intervals[i, 0], intervals[i, 1], intervals[i, 2] = first + start, first + start + length - 1, probability
        if entries.shape[1] > 0:
            at = int(min(max(y[i, 0] - first, -1.0), float(n)))
            entries[i, 0], entries[i, 1] = find_entry_masses(below, n, at)
        if not below[n - 1] > 0.0:
            moments[i, 0] = np.nan


def find_span(slices, walks, weights, i):
    """Return the first and the last count of a mixture, over all components of positive weight."""
    first, last = inf, -1.0
    for k in range(weights.shape[1]):
        if not weights[i, k] <= 0.0:
            first, last = min(first, walks[i, k, 0]), max(last, walks[i, k, 0] + slices[i, k, 1] - 1.0)
    return first, last


def mix_components(arena, slices, walks, weights, i, first, n, mass):
    """Compute the mixture's probabilities of n counts from `first` on."""
    for j in range(n):
        mass[j] = 0.0
    for k in range(weights.shape[1]):
        m = slices[i, k, 1]
        if m > 0:
            shift, start, share = int(walks[i, k, 0] - first), slices[i, k, 0], weights[i, k] / walks[i, k, 1]
            into, component = mass[shift : shift + m], arena[start : start + m]
            for j in range(m):
                into[j] += share * component[j]
