"""Kernels that Python calls: loops over many distributions, or over the rows of a table, each of which is a mixture.

Some terms: a family is a class of distributions, such as the Poisson, and each component of a mixture is a distribution
of some family. The weights of a distribution are the unnormalised probabilities of counts. The mixture weights of K
components are an array (rows, K).

A kernel for mixtures is called once per family, with that family's k components of each row. They are passed as an
array `components` (rows, k, 5): three parameters, and the first and the last count to which the component is
restricted. Their mixture weights are the columns `column`, ..., `column` + k - 1 of the array of mixture weights.

Statistics of mixtures are computed in two steps. First, `fill_arena` is called for each family. It writes the weights
of its components, one component after another, to a long array, the arena. Then `summarise`, which does not depend on
families, mixes the components and computes statistics.
"""

from math import inf

import numpy as np

from ddpn.distributions.kernels.arrays import (
    compute_crps,
    compute_moments_around,
    find_quantile,
    recalibrate_mass,
    split_variance,
    sum_values,
    write_moments,
    write_tails,
)
from ddpn.distributions.kernels.extents import FIRST, LAST, N_EXTENT, find_extent
from ddpn.distributions.kernels.family import prepare
from ddpn.distributions.kernels.ranges import (
    N_SUMS,
    is_interior_bell,
    sum_information,
    sum_log_prob,
    sum_log_range,
    sum_moments,
    sum_tails,
)
from ddpn.distributions.kernels.runs_of_counts import find_entry_levels, find_narrowest_run
from ddpn.distributions.kernels.walk import limit_walk, walk, walk_log_prob

#: The most counts that are summed one by one for a single number, such as a cdf.
MAX_WALKED_COUNTS = 1 << 12
#: Smallest tail probability that is computed from the weights of a walk, which leaves out 1e-18 of the mass.
MIN_WALKED_TAIL = 1e-5


# One distribution per row: inputs (k, n) -> results (m, n) ----------------------------------------------------------


def compute_log_probs(family, inputs, results):
    """Compute log p(y) and its derivatives in the parameters, for n distributions of an unnormalised family.

    The formula of such a family gives only weights, which are proportional to probabilities. The normalising constant
    is computed here, as the sum of the weights over all counts.

    Parameters
    ----------
    family : type
        The family, see `kernels.family`.
    inputs : array, (4, n)
        The count y and three parameters of each distribution.
    results : array, (4, n)
        Receives log p(y) and its three derivatives. For y above the largest possible count, these are -inf and 0.
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

    This kernel does the same as `compute_log_probs`, for families whose formula gives probabilities, so that no sum
    over counts is needed. It compiles much faster.

    Parameters
    ----------
    family : type
        The family, see `kernels.family`.
    inputs : array, (4, n)
        The count y and three parameters of each distribution.
    results : array, (4, n)
        Receives log p(y) and its three derivatives. For y above the largest possible count, these are -inf and 0.
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

    Parameters
    ----------
    family : type
        The family, see `kernels.family`.
    inputs : array, (5, n)
        `low`, `high` and three parameters of each distribution.
    results : array, (4, n)
        Receives the log probability and its three derivatives.
    """
    sums, outside = np.empty(N_SUMS), np.empty(4)
    for i in range(inputs.shape[1]):
        p = prepare(family, inputs[2, i], inputs[3, i], inputs[4, i])
        sum_log_range(p, inputs[0, i], inputs[1, i], sums, outside, results, i)


def compute_information(family, inputs, results):
    """Compute the diagonal of the Fisher information of n distributions of a family.

    Parameters
    ----------
    family : type
        The family, see `kernels.family`.
    inputs : array, (3, n)
        Three parameters of each distribution.
    results : array, (3, n)
        Receives the variance of the score in each parameter.
    """
    sums = np.empty(N_SUMS)
    for i in range(inputs.shape[1]):
        sum_information(prepare(family, inputs[0, i], inputs[1, i], inputs[2, i]), sums, results, i)


def compute_moments(family, inputs, results):
    """Compute the mean and the variance of n distributions of a family.

    Parameters
    ----------
    family : type
        The family, see `kernels.family`.
    inputs : array, (3, n)
        Three parameters of each distribution.
    results : array, (2, n)
        Receives the mean and the variance.
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
    """Find the range of counts that holds nearly all mass, for n distributions of a family.

    Outside of the range, every probability is less than about e^-depth times the largest probability.

    Parameters
    ----------
    family : type
        The family, see `kernels.family`.
    inputs : array, (4, n)
        The depth, and three parameters of each distribution.
    results : array, (2, n)
        Receives the first and the last count of the range.
    """
    extent = np.empty(N_EXTENT)
    for i in range(inputs.shape[1]):
        p = prepare(family, inputs[1, i], inputs[2, i], inputs[3, i])
        find_extent(p, 0.0, inf, inputs[0, i], extent)
        results[0, i], results[1, i] = extent[FIRST], extent[LAST]


# Mixtures -------------------------------------------------------------------------------------------------------------


def add_tails(family, components, weights, column, y, results):
    """Add P(Z <= y) and P(Z > y) of a family's components, times their mixture weights, to `results`.

    After a call for each family, `results` has the tail probabilities of the mixtures. Relative errors are small even
    for tail probabilities close to 0.

    Parameters
    ----------
    family : type
        The family, see `kernels.family`.
    components : array, (rows, k, 5)
        The family's k components of each row: three parameters, and the first and the last count to which the component
        is restricted.
    weights : array, (rows, K)
        The mixture weights of all K components of each row, of all families.
    column : int
        The column of `weights` that belongs to the first of the family's components. The next k - 1 columns belong to
        its other components.
    y : array, (rows, n)
        n counts per row.
    results : array, (2, rows, n)
        The array to which P(Z <= y) and P(Z > y) are added.
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
    """Return P(Z <= y) and P(Z > y) of a distribution restricted to the counts from `low` to `high`.

    The tails are sums of the given weights, unless a tail is very small or y is not one of the counts. Then
    `ranges.sum_tails` computes them, which takes longer.

    Parameters
    ----------
    p : Family
        The distribution.
    low, high : float
        The first and the last count to which it is restricted.
    y : float
        The count.
    weights : array, (n,) or longer
        The weights (unnormalised probabilities) of the n counts first, first + 1, ...
    first, n, total : float
        The first of these counts, their number, and the sum of their weights.
    sums : array, (N_SUMS,)
        A work array.
    """
    index = y - first
    if n > 0 and 0.0 <= index < n:
        split = int(index) + 1
        lower, upper = sum_values(weights, split) / total, sum_values(weights[split:], n - split) / total
        if (lower > MIN_WALKED_TAIL or y >= high) and (upper > MIN_WALKED_TAIL or y >= high):
            return (lower, 1.0 - lower) if lower < upper else (1.0 - upper, upper)
    return sum_tails(p, low, high, y, sums)


def fill_arena(family, components, weights, column, limit, arena, used, slices, walks, is_long):
    """Write the weights of all components of a family to a long array, the arena, one component after another.

    The weights of a component are its unnormalised probabilities of consecutive counts. A component whose mixture
    weight is 0 has no weights in the arena.

    Parameters
    ----------
    family : type
        The family, see `kernels.family`.
    components : array, (rows, k, 5)
        The family's k components of each row: three parameters, and the first and the last count to which the component
        is restricted.
    weights : array, (rows, K)
        The mixture weights of all K components of each row, of all families.
    column : int
        The column of `weights`, `slices` and `walks` that belongs to the first of the family's components.
    limit : int
        The most counts of a component. If a component of a row has more, the row is marked in `is_long` and skipped.
    arena : array, (size,)
        The array to write to.
    used : int
        The number of places of the arena that are in use already.
    slices : array of int, (rows, K, 2)
        Receives for each component the index of its first weight in the arena, and the number of its weights.
    walks : array, (rows, K, 3)
        Receives for each component the count of its first weight, the sum of its weights, and a count with a large
        weight.
    is_long : array of bool, (rows,)
        The rows that have been skipped. A row that an earlier call has marked is skipped again.

    Returns
    -------
    int
        The number of places of the arena that are in use now, or -1 if the arena is too short. In that case, start
        again with a longer arena.
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
    """Compute the statistics of mixtures, see `summaries.Summaries`, from the arrays that `fill_arena` wrote.

    Parameters
    ----------
    arena : array, (size,)
        The unnormalised probabilities of all components, one component after another.
    slices : array of int, (rows, K, 2)
        For each component, the index of its first probability in the arena, and the number of its probabilities.
    walks : array, (rows, K, 3)
        For each component, the count of its first probability, the sum of its unnormalised probabilities, and a
        probable count.
    weights : array, (rows, K)
        Mixture weights.
    groups : array of int, (K,)
        For each component, the index of the component of the user's mixture that it is part of. It differs from the
        component's own index if the user's mixture is nested. See `arrays.split_variance`.
    cdf_map : array, (2, knots)
        The knots and the values of a piecewise-linear map by which all cdfs are recalibrated. If it has no knots, cdfs
        are not changed.
    inputs : tuple of three arrays
        Levels of quantiles (rows, L), counts y to score (rows, Q), and levels of narrowest intervals (rows, 1), or
        (rows, 0) if no intervals are requested.
    with_entropy : bool
        True if the entropy is requested.
    work : array, (3, counts)
        Space for the probabilities, cdf and upper tails of one row.
    is_long : array of bool, (rows,)
        Rows to skip. Rows with too many counts for `work` are skipped as well, and marked here.
    results : tuple of five arrays
        The arrays to write to, in the order of `summaries.Summaries`. The mean of a row becomes NaN if its
        probabilities do not have a positive sum.
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
    """Return the smallest and the largest count of row i for which `fill_arena` wrote a probability.

    Components without mixture weight are ignored. `slices` (rows, K, 2) and `walks` (rows, K, 3) are results of
    `fill_arena`, and `weights` (rows, K) are the mixture weights.
    """
    first, last = inf, -1.0
    for k in range(weights.shape[1]):
        if not weights[i, k] <= 0.0:
            first, last = min(first, walks[i, k, 0]), max(last, walks[i, k, 0] + slices[i, k, 1] - 1.0)
    return first, last


def mix_components(arena, slices, walks, weights, i, first, n, mass):
    """Write the probabilities of n counts, from `first` on, under the mixture of row i to the array `mass` (n,).

    The components' unnormalised probabilities are taken from the arena, divided by their sum, and multiplied by the
    mixture weights `weights` (rows, K). `arena`, `slices` (rows, K, 2) and `walks` (rows, K, 3) are results of
    `fill_arena`.
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
