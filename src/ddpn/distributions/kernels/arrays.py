"""Statistics of one row, from an array of its probabilities of consecutive counts."""

from collections.abc import Callable
from math import log, log1p
from typing import TypeVar

import numpy as np

Kernel = TypeVar("Kernel", bound=Callable[..., object])
#: Relative difference up to which two probabilities count as equal, so that the smaller count is the mode.
TIE_TOLERANCE = 1e-13
#: Relative tolerance at the level of a quantile: rounding in sums of probabilities must not move it.
SUM_TOLERANCE = 1e-10

#: Functions whose sums the compiler may reorder, to vectorise them.
ANY_ORDER: set[Callable[..., object]] = set()


def any_order(function: Kernel) -> Kernel:
    """Decorate a function whose sums the compiler may reorder."""
    ANY_ORDER.add(function)
    return function


@any_order
def sum_values(values, n):
    """Return the sum of n numbers."""
    total = 0.0
    for j in range(n):
        total += values[j]
    return total


@any_order
def sum_moments(mass, n, around):
    """Return the sums of mass[j] (j - around) and of mass[j] (j - around)^2 over j < n."""
    first, second = 0.0, 0.0
    for j in range(n):
        weighted = mass[j] * (j - around)
        first += weighted
        second += weighted * (j - around)
    return first, second


@any_order
def sum_squared_values(values, n):
    """Return the sum of the squares of n numbers."""
    total = 0.0
    for j in range(n):
        total += values[j] * values[j]
    return total


def compute_moments_around(mass, n, around, total):
    """Return the mean index and the variance; `around` is a probable index, so that a tiny variance keeps digits."""
    first, second = sum_moments(mass, n, around)
    shift = first / total
    return around + shift, max(second / total - shift * shift, 0.0)


def compute_slope(cdf_map, piece):
    """Return the slope of one piece of a recalibration map (2, knots)."""
    return (cdf_map[1, piece + 1] - cdf_map[1, piece]) / (cdf_map[0, piece + 1] - cdf_map[0, piece])


def recalibrate_mass(mass, n, upto, cdf_map):
    """Recalibrate n probabilities in place: replace the cdf F by G(F), with a piecewise-linear map G.

    `upto` is F before the first probability. A probability within one piece of G is multiplied by the slope of the
    piece; a probability that spans several pieces is split. Returns F after the last probability.
    """
    piece, knots = 0, cdf_map.shape[1]
    while piece < knots - 2 and upto > cdf_map[0, piece + 1]:
        piece += 1
    slope = compute_slope(cdf_map, piece)
    for j in range(n):
        remaining, total = mass[j], 0.0
        while piece < knots - 2 and upto + remaining > cdf_map[0, piece + 1]:
            part = max(cdf_map[0, piece + 1] - upto, 0.0)
            total += slope * part
            remaining -= part
            upto = cdf_map[0, piece + 1]
            piece += 1
            slope = compute_slope(cdf_map, piece)
        upto += remaining
        mass[j] = total + slope * remaining
    return upto


def find_largest(values, n):
    """Return the largest of n numbers >= 0. Their bits are compared as integers, which the compiler can vectorise."""
    bits = values.view(np.int64)
    best = bits[0]
    for j in range(n):
        best = max(best, bits[j])
    return np.int64(best).view(np.float64)


def cumulate_product(values, n, start):
    """Replace values[:n] in place by `start` times their cumulative product.

    The loop is unrolled by four to shorten the chain of dependent multiplications.
    """
    total, fours = start, n - n % 4
    for j in range(0, fours, 4):
        two, others = values[j] * values[j + 1], values[j + 2] * values[j + 3]
        values[j], values[j + 1], values[j + 2] = total * values[j], total * two, total * (two * values[j + 2])
        total *= two * others
        values[j + 3] = total
    for j in range(fours, n):
        total *= values[j]
        values[j] = total


def accumulate_mass(mass, below, above, n):
    """Write P(Z <= z) of every index z to `below` and P(Z >= z) to `above`."""
    lower, upper = 0.0, 0.0
    for j in range(n):
        lower += mass[j]
        upper += mass[n - 1 - j]
        below[j], above[j] = lower, upper


def write_moments(mass, n, first_count, with_entropy, moments):
    """Write the mean, the variance, the mode and, if `with_entropy` is True, the entropy of a row to `moments`.

    The row has the probabilities `mass` of n consecutive counts, the first of which is `first_count`.
    """
    best, at = find_largest(mass, n), 0
    while mass[at] < best * (1.0 - TIE_TOLERANCE):
        at += 1
    mean, moments[1] = compute_moments_around(mass, n, float(at), sum_values(mass, n))
    moments[0], moments[2] = first_count + mean, first_count + at
    if with_entropy:
        others, spread = 0.0, 0.0
        for j in range(n):
            if j != at and mass[j] > 0.0:
                others += mass[j]
                spread -= mass[j] * log(mass[j])
        moments[3] = spread - (1.0 - others) * log1p(-others) if others < 0.5 else spread - best * log(best)


def find_quantile(below, above, n, q):
    """Return the first index whose cdf is at least q."""
    if q <= 0.5:
        return min(np.searchsorted(below[:n], q * (1.0 - SUM_TOLERANCE)), n - 1)
    return max(n - 1 - np.searchsorted(above[:n], (1.0 - q) * (1.0 + SUM_TOLERANCE), side="right"), 0)


def compute_crps(below, above, n, first, y):
    """Return the CRPS: the sum of (F(z) - 1[z >= y])^2 over all counts z."""
    at = min(max(int(min(max(y - first, -1.0), 4e18)), 0), n)
    total = sum_squared_values(below, at) + sum_squared_values(above, max(n - 1 - at, 0))
    return total + max(y - first - n, 0.0) + max(first - y, 0.0)


def split_variance(groups, weights, component_moments, moments):
    """Compute mean and variance of a mixture, and the parts of the variance within and between groups of components.

    Means and variances of components are joined by Chan's formula. The results are written to the first two and the
    last two numbers of `moments`.
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


# Intervals of consecutive counts --------------------------------------------------------------------------------------


def sum_run(below, first, length):
    """Return the probability of `length` consecutive counts from index `first` on."""
    return below[first + length - 1] - (below[first - 1] if first > 0 else 0.0)


def find_narrowest_run(below, n, level):
    """Return first index, length and probability of the shortest run with a probability of at least `level`.

    Among runs of that length the most probable is chosen, and among equally probable ones the first.
    """
    enough, end = level * (1.0 - SUM_TOLERANCE), 0
    best_first, best_length, best = 0, n + 1, 0.0
    for first in range(n):
        before = below[first - 1] if first > 0 else 0.0
        while end < n and below[end] - before < enough:
            end += 1
        if end == n:
            break
        length, mass = end - first + 1, below[end] - before
        if length < best_length or (length == best_length and mass > best * (1.0 + TIE_TOLERANCE)):
            best_first, best_length, best = first, length, mass
    if best_length > n:
        return 0, n, below[n - 1]
    return best_first, best_length, best


def find_most_probable_run(below, n, length):
    """Return the first index of the most probable run of `length` counts; of equally probable runs, the first."""
    best_first, best = 0, sum_run(below, 0, length)
    for first in range(1, n - length + 1):
        mass = sum_run(below, first, length)
        if mass > best * (1.0 + TIE_TOLERANCE):
            best_first, best = first, mass
    return best_first


def find_entry_masses(below, n, at):
    """Return the probabilities of the last narrowest interval without the index `at` and the first with it.

    Narrowest intervals grow with their level. If the distribution has several peaks, an index may enter and leave the
    interval repeatedly; the probabilities of one entry are returned.
    """
    if at < 0 or at >= n:
        return below[n - 1], below[n - 1]
    without, length = 0, n
    while length - without > 1:
        middle = (without + length) // 2
        first = find_most_probable_run(below, n, middle)
        if first <= at < first + middle:
            length = middle
        else:
            without = middle
    before = sum_run(below, find_most_probable_run(below, n, without), without) if without > 0 else 0.0
    return before, sum_run(below, find_most_probable_run(below, n, length), length)
