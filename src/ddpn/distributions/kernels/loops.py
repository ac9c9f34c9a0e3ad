"""Kernels that Python calls: loops over many distributions, or over many rows, each a mixture of K components.

The k components of one family are an array (rows, k, 5): three parameters, the first and the last count that the
component is restricted to. Their mixture weights are the columns column, ..., column + k - 1 of the mixture weights
(rows, K).

Statistics of mixtures are computed in two steps. First, `fill_arena` is called for each family. It writes the weights
of the family's components to the arena, a long array in which the weights of one component after another are stored.
Then `summarise`, which does not depend on families, mixes components and computes statistics.
"""

from math import inf

import numpy as np

from ddpn.distributions.kernels.arrays import (
    compute_crps,
    compute_moments_around,
    find_entry_levels,
    find_narrowest_run,
    find_quantile,
    recalibrate_mass,
    split_variance,
    sum_values,
    write_moments,
    write_tails,
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
    sum_tails,
)
from ddpn.distributions.kernels.walk import limit_walk, walk, walk_log_prob

#: The most counts that are summed one by one for a single number, such as a cdf.
MAX_WALKED_COUNTS = 1 << 12
#: Smallest tail probability that is computed from the weights of a walk, which leaves out 1e-18 of the mass.
MIN_WALKED_TAIL = 1e-5


# One distribution per row: inputs (k, n) -> results (m, n) ----------------------------------------------------------


def compute_log_probs(family, inputs, results):
    """Compute log p(y) and its derivatives in the parameters, for n distributions of a family that is not normalised.

    Shape: inputs (4, n), the count y and three parameters; results (4, n), log p(y) and three derivatives.
    """
    weights, sums = np.empty(MAX_WALKED_COUNTS), np.empty(N_SUMS)
    for i in range(inputs.shape[1]):
        y, p = inputs[0, i], prepare(family, inputs[1, i], inputs[2, i], inputs[3, i])
        if y > p.estimate_shape()[2]:
            results[0, i], results[1, i], results[2, i], results[3, i] = -inf, 0.0, 0.0, 0.0
        elif is_interior_bell(p) or not walk_log_prob(p, y, weights, results, i):
            sum_log_prob(p, y, sums, results, i)


def compute_normalised_log_probs(family, inputs, results):
    """Compute log p(y) and its derivatives in the parameters, for n distributions of a normalised family.

    It replaces `compute_log_probs` for these families. It needs no sums over counts, so it compiles much faster. Shape:
    inputs (4, n), the count y and three parameters; results (4, n), log p(y) and three derivatives.
    """
    for i in range(inputs.shape[1]):
        y, p = inputs[0, i], prepare(family, inputs[1, i], inputs[2, i], inputs[3, i])
        if y > p.estimate_shape()[2]:
            results[0, i], results[1, i], results[2, i], results[3, i] = -inf, 0.0, 0.0, 0.0
        else:
            results[0, i] = p.log_weight(y)
            results[1, i], results[2, i], results[3, i] = p.score(y)


def compute_log_ranges(family, inputs, results):
    """Compute log P(low <= Z <= high) and its derivatives in the parameters, for n distributions of a family.

    Shape: inputs (5, n), low, high and three parameters; results (4, n), the logarithm and three derivatives.
    """
    sums, outside = np.empty(N_SUMS), np.empty(4)
    for i in range(inputs.shape[1]):
        p = prepare(family, inputs[2, i], inputs[3, i], inputs[4, i])
        sum_log_range(p, inputs[0, i], inputs[1, i], sums, outside, results, i)


def compute_information(family, inputs, results):
    """Compute the diagonal of the Fisher information of n distributions of a family.

    Shape: inputs (3, n), the parameters; results (3, n), the variance of the score in each parameter.
    """
    sums = np.empty(N_SUMS)
    for i in range(inputs.shape[1]):
        sum_information(prepare(family, inputs[0, i], inputs[1, i], inputs[2, i]), sums, results, i)


def compute_moments(family, inputs, results):
    """Compute mean and variance of n distributions of a family.

    Shape: inputs (3, n), the parameters; results (2, n).
    """
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
    """Find windows of counts that hold nearly all mass, for n distributions of a family.

    Outside of its window, weights are less than about e^-depth times the largest weight. Shape: inputs (4, n), the
    depth and three parameters; results (2, n), the first and the last count of the window.
    """
    extent = np.empty(N_EXTENT)
    for i in range(inputs.shape[1]):
        p = prepare(family, inputs[1, i], inputs[2, i], inputs[3, i])
        find_extent(p, 0.0, inf, inputs[0, i], extent)
        results[0, i], results[1, i] = extent[FIRST], extent[LAST]


# Mixtures -------------------------------------------------------------------------------------------------------------


def add_tails(family, components, weights, column, y, results):
    """Add the tail probabilities of a family's components, times their mixture weights, to `results` (2, rows, n).

    The tails are P(Z <= y) and P(Z > y) at n counts y (rows, n) per row. Their relative errors are small even if they
    are close to 0. For `components`, `weights` and `column`, see the module.
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
                    lower, upper = compute_component_tails(p, low, high, y[i, j], walked, first, n, total, sums)
                    results[0, i, j] += weight * lower
                    results[1, i, j] += weight * upper


def compute_component_tails(p, low, high, y, weights, first, n, total, sums):
    """Return P(Z <= y) and P(Z > y) of one distribution `p`, restricted to the counts from `low` to `high`.

    `weights` has the weights of n counts from `first` on, and `total` is their sum. If y is one of these counts and
    neither tail is too small, the tails are sums of these weights. Otherwise `ranges.sum_tails` is called, which takes
    longer.
    """
    index = y - first
    if n > 0 and 0.0 <= index < n:
        split = int(index) + 1
        lower, upper = sum_values(weights, split) / total, sum_values(weights[split:], n - split) / total
        if (lower > MIN_WALKED_TAIL or y >= high) and (upper > MIN_WALKED_TAIL or y >= high):
            return (lower, 1.0 - lower) if lower < upper else (1.0 - upper, upper)
    return sum_tails(p, low, high, y, sums)


def fill_arena(family, components, weights, column, limit, arena, used, slices, walks, is_long):
    """Write the weights of all components of a family to the arena, after its first `used` numbers.

    Component j of row i starts at slices[i, j, 0] in the arena and has slices[i, j, 1] weights. walks[i, j] has its
    first count, the sum of its weights and a count with a large weight. A row is marked in `is_long` and skipped if one
    of its components has more than `limit` counts. For `components`, `weights` and `column`, see the module.

    Returns
    -------
    int
        The number of used places in the arena, or -1 if the arena is too short.
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


def summarise(arena, slices, walks, weights, groups, cdf_map, inputs, with_entropy, work, is_long, results):
    """Compute the statistics of mixtures from the weights that `fill_arena` wrote: the arrays of `summaries.Summaries`.

    Parameters
    ----------
    arena, slices, walks
        The weights of all components, as in `fill_arena`.
    weights : array, (rows, K)
        Mixture weights.
    groups : array, (K,)
        The index of each component in the user's mixture, see `arrays.split_variance`.
    cdf_map : array, (2, knots)
        Knots and values of a map by which cdfs are recalibrated; without knots, cdfs are not changed.
    inputs : tuple of array
        Levels of quantiles (rows, L), counts y to score (rows, Q) and levels of narrowest intervals, (rows, 1) or
        (rows, 0).
    with_entropy : bool
        Compute the entropy, too.
    work : array, (3, counts)
        Space for the probabilities and tails of one row.
    is_long : array, (rows,)
        Rows to skip. Rows with too many counts for `work` are marked and skipped, too.
    results : tuple of array
        The arrays to write to. The mean of a row is NaN if there is no distribution with its parameters.
    """
    levels, y, interval_levels = inputs
    moments, quantiles, scores, intervals, entries = results
    mass, cdf, upper_tail = work[0], work[1], work[2]
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
                    values, origin = arena[slices[i, k, 0] :], walks[i, k, 2] - start
                    mean, component_moments[k, 1] = compute_moments_around(
                        values, slices[i, k, 1], origin, walks[i, k, 1]
                    )
                    component_moments[k, 0] = start + mean
            split_variance(groups, weights[i], component_moments, moments[i])
        if cdf_map.shape[1] > 0:
            recalibrate_mass(mass, n, 0.0, cdf_map)
        write_tails(mass, cdf, upper_tail, n)
        write_moments(mass, n, first, with_entropy, moments[i])
        if len(groups) == 1:
            moments[i, 4], moments[i, 5] = moments[i, 1], 0.0
        for j in range(levels.shape[1]):
            quantiles[i, j] = first + find_quantile(cdf, upper_tail, n, levels[i, j])
        for j in range(y.shape[1]):
            scores[i, j] = compute_crps(cdf, upper_tail, n, first, y[i, j])
        if intervals.shape[1] > 0:
            start, length, probability = find_narrowest_run(cdf, n, interval_levels[i, 0])
            intervals[i, 0], intervals[i, 1], intervals[i, 2] = first + start, first + start + length - 1, probability
        if entries.shape[1] > 0:
            index = int(min(max(y[i, 0] - first, -1.0), float(n)))
            entries[i, 0], entries[i, 1] = find_entry_levels(cdf, n, index)
        if not cdf[n - 1] > 0.0:
            moments[i, 0] = np.nan


def find_span(slices, walks, weights, i):
    """Return the first and the last count of the mixture of row i.

    Counts are those that `fill_arena` wrote for the components with a positive mixture weight.
    """
    first, last = inf, -1.0
    for k in range(weights.shape[1]):
        if not weights[i, k] <= 0.0:
            first, last = min(first, walks[i, k, 0]), max(last, walks[i, k, 0] + slices[i, k, 1] - 1.0)
    return first, last


def mix_components(arena, slices, walks, weights, i, first, n, mass):
    """Write the probabilities of n counts from `first` on under the mixture of row i to `mass`.

    The weights of components, which are not normalised, are taken from the arena (see `fill_arena`).
    """
    for j in range(n):
        mass[j] = 0.0
    for k in range(weights.shape[1]):
        m = slices[i, k, 1]
        if m > 0:
            shift, start, share = int(walks[i, k, 0] - first), slices[i, k, 0], weights[i, k] / walks[i, k, 1]
            target, component = mass[shift : shift + m], arena[start : start + m]
            for j in range(m):
                target[j] += share * component[j]
