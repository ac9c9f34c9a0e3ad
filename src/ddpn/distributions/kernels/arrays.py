"""Compute statistics of one distribution from an array of the probabilities of consecutive counts.

In all functions, `mass` has the probabilities of n consecutive counts. The *index* of a count is its position in this
array. `cdf` and `upper_tail` are arrays of P(Z <= z) and P(Z >= z) for the same counts z.
"""

from collections.abc import Callable
from math import log, log1p
from typing import TypeVar

import numpy as np

#: Relative difference up to which two probabilities count as equal, so that the smaller count is the mode.
TIE_TOLERANCE = 1e-13
Kernel = TypeVar("Kernel", bound=Callable[..., object])
#: Relative tolerance at the level of a quantile: rounding in sums of probabilities must not move it.
SUM_TOLERANCE = 1e-10

#: Functions whose sums the compiler may reorder, to vectorise them.
REORDERABLE: set[Callable[..., object]] = set()


def allow_reordering(function: Kernel) -> Kernel:
    """Mark a function in which the compiler may change the order of additions, so that it can vectorise them."""
    REORDERABLE.add(function)
    return function


@allow_reordering
def sum_values(values, n):
    """Return the sum of the first n numbers of `values`."""
    total = 0.0
    for j in range(n):
        total += values[j]
    return total


@allow_reordering
def sum_deviations(mass, n, origin):
    """Return the sums of mass[j] (j - origin) and of mass[j] (j - origin)^2 over j < n."""
    first, second = 0.0, 0.0
    for j in range(n):
        weighted = mass[j] * (j - origin)
        first += weighted
        second += weighted * (j - origin)
    return first, second


@allow_reordering
def sum_squared_values(values, n):
    """Return the sum of the squares of the first n numbers of `values`."""
    total = 0.0
    for j in range(n):
        total += values[j] * values[j]
    return total


def compute_moments_around(mass, n, origin, total):
    """Return the mean and the variance of a distribution over the indices 0, ..., n - 1.

    Deviations are taken from `origin`, so that even a tiny variance is accurate.

    Parameters
    ----------
    mass : array, (n,) or longer
        Probabilities, up to a common factor.
    n : int
        The number of probabilities.
    origin : float
        An index with a large probability.
    total : float
        The sum of the probabilities.
    """
    first, second = sum_deviations(mass, n, origin)
    shift = first / total
    return origin + shift, max(second / total - shift * shift, 0.0)


def compute_piece_slope(cdf_map, piece):
    """Return the slope of a piecewise-linear map between two neighbouring knots.

    `cdf_map` (2, knots) has the knots of the map and its values at the knots. `piece` is the index of the left one of
    the two knots.
    """
    return (cdf_map[1, piece + 1] - cdf_map[1, piece]) / (cdf_map[0, piece + 1] - cdf_map[0, piece])


def recalibrate_mass(mass, n, cdf, cdf_map):
    """Recalibrate probabilities in place: replace their cdf F by G(F), where G is a piecewise-linear map.

    The probability of a count is the increase of F at this count. If F stays between two neighbouring knots of G, the
    probability is multiplied by the slope of G there. Otherwise the probability is split at the knots, and each part is
    multiplied by its own slope.

    Parameters
    ----------
    mass : array, (n,) or longer
        The probabilities of n consecutive counts.
    n : int
        The number of counts.
    cdf : float
        F before the first of these counts.
    cdf_map : array, (2, knots)
        The knots of G, and its values at the knots.

    Returns
    -------
    float
        F, before recalibration, at the last of the counts.
    """
    piece, knots = 0, cdf_map.shape[1]
    while piece < knots - 2 and cdf > cdf_map[0, piece + 1]:
        piece += 1
    slope = compute_piece_slope(cdf_map, piece)
    for j in range(n):
        remaining, total = mass[j], 0.0
        while piece < knots - 2 and cdf + remaining > cdf_map[0, piece + 1]:
            part = max(cdf_map[0, piece + 1] - cdf, 0.0)
            total += slope * part
            remaining -= part
            cdf = cdf_map[0, piece + 1]
            piece += 1
            slope = compute_piece_slope(cdf_map, piece)
        cdf += remaining
        mass[j] = total + slope * remaining
    return cdf


def find_largest(values, n):
    """Return the largest of the first n numbers of `values`, none of which may be negative.

    Non-negative floats are in the same order as their bits, read as integers. So the loop compares integers, which the
    compiler can vectorise.
    """
    bits = values.view(np.int64)
    best = bits[0]
    for j in range(n):
        best = max(best, bits[j])
    return np.int64(best).view(np.float64)


def write_cumulative_product(values, n, factor):
    """Replace the first n numbers of `values` by `factor` times their cumulative product.

    The loop handles four values per step, so that only every fourth multiplication has to wait for the previous one.
    """
    total, n_unrolled = factor, n - n % 4
    for j in range(0, n_unrolled, 4):
        first_pair, second_pair = values[j] * values[j + 1], values[j + 2] * values[j + 3]
        values[j], values[j + 1], values[j + 2] = (
            total * values[j],
            total * first_pair,
            total * (first_pair * values[j + 2]),
        )
        total *= first_pair * second_pair
        values[j + 3] = total
    for j in range(n_unrolled, n):
        total *= values[j]
        values[j] = total


def write_tails(mass, cdf, upper_tail, n):
    """Write P(Z <= z) to the array `cdf` and P(Z >= z) to the array `upper_tail`, for n consecutive counts z.

    `mass` has the probabilities of the counts. The results go to the first n places of `cdf` and `upper_tail`. The sum
    for `cdf` starts at the first count and that for `upper_tail` at the last one, where probabilities are smallest, so
    that tail probabilities are accurate.
    """
    lower, upper = 0.0, 0.0
    for j in range(n):
        lower += mass[j]
        upper += mass[n - 1 - j]
        cdf[j], upper_tail[j] = lower, upper


def write_moments(mass, n, first_count, with_entropy, moments):
    """Write the mean, the variance and the mode of a distribution to the indices 0 to 2 of the array `moments`.

    If `with_entropy` is True, the entropy is written to the index 3. `mass` has the probabilities of n consecutive
    counts, the first of which is `first_count`. If several counts are equally probable, the mode is the smallest.
    """
    best, mode = find_largest(mass, n), 0
    while mass[mode] < best * (1.0 - TIE_TOLERANCE):
        mode += 1
    mean, moments[1] = compute_moments_around(mass, n, float(mode), sum_values(mass, n))
    moments[0], moments[2] = first_count + mean, first_count + mode
    if with_entropy:
        others, spread = 0.0, 0.0
        for j in range(n):
            if j != mode and mass[j] > 0.0:
                others += mass[j]
                spread -= mass[j] * log(mass[j])
        moments[3] = spread - (1.0 - others) * log1p(-others) if others < 0.5 else spread - best * log(best)


def find_quantile(cdf, upper_tail, n, q):
    """Return the index of the q-quantile, the smallest index at which the cdf is at least q.

    `cdf` has P(Z <= z) and `upper_tail` P(Z >= z) for n consecutive counts z. For q above 1/2, the search uses
    `upper_tail`, which is more accurate there. If no index reaches q, the result is the last one, n - 1.
    """
    if q <= 0.5:
        return min(np.searchsorted(cdf[:n], q * (1.0 - SUM_TOLERANCE)), n - 1)
    return max(n - 1 - np.searchsorted(upper_tail[:n], (1.0 - q) * (1.0 + SUM_TOLERANCE), side="right"), 0)


def compute_crps(cdf, upper_tail, n, first_count, y):
    """Return the CRPS for an observed count y: the sum of (F(z) - 1[z >= y])^2 over all counts z, with the cdf F.

    `cdf` has P(Z <= z) and `upper_tail` P(Z >= z) for n consecutive counts z, the first of which is `first_count`. If y
    is outside of these counts, every count between them and y adds 1 to the sum.
    """
    index = min(max(int(min(max(y - first_count, -1.0), 4e18)), 0), n)
    total = sum_squared_values(cdf, index) + sum_squared_values(upper_tail, max(n - 1 - index, 0))
    return total + max(y - first_count - n, 0.0) + max(first_count - y, 0.0)


def split_variance(groups, weights, component_moments, moments):
    """Compute mean and variance of a mixture, and split the variance into parts within and between groups.

    A group consists of all components that come from the same component of the user's mixture, which may itself be a
    mixture. The variance within groups is the weighted mean of the groups' variances. The variance between groups is
    the weighted variance of their means. The sum of both is the variance of the mixture. Moments of a group are updated
    component by component, by Chan's formula.

    Parameters
    ----------
    groups : array of int, (K,)
        The group of each component.
    weights : array, (K,)
        Mixture weights.
    component_moments : array, (K, 2)
        The mean and the variance of each component.
    moments : array, (6,)
        Receives mean and variance at the indices 0 and 1, and the variance within and between groups at 4 and 5.
    """
    sums = np.zeros((len(groups), 3))
    total, mean, within, between = 0.0, 0.0, 0.0, 0.0
    for k in range(len(groups)):
        weight = weights[k]
        if weight > 0.0:
            group, centre = sums[groups[k]], component_moments[k, 0]
            before, upto = group[0], group[0] + weight
            gap = centre - group[1]
            group[0] = upto
            group[1] += gap * weight / upto
            group[2] += weight * component_moments[k, 1] + gap * gap * before * weight / upto
            mean += weight * centre
            total += weight
    mean /= total
    for g in range(len(groups)):
        if sums[g, 0] > 0.0:
            within += sums[g, 2] / total
            between += sums[g, 0] / total * (sums[g, 1] - mean) ** 2
    moments[0], moments[1], moments[4], moments[5] = mean, within + between, within, between
