"""A row's probabilities of consecutive counts in an array: what is asked for about them."""

from math import log, log1p

#: Two probabilities within this share of each other are equal: the smaller count is the mode.
TIE = 1e-13
#: Relative error of sums of probabilities, which must not move a quantile.
SLACK = 1e-10


def sum_of(values, n):
    """The sum of n numbers."""
    total = 0.0
    for j in range(n):
        total += values[j]
    return total


def moments(mass, n, around):
    """The sums of n probabilities times their places' distance from a place, and times the square of it."""
    first, second = 0.0, 0.0
    for j in range(n):
        weighted = mass[j] * (j - around)
        first += weighted
        second += weighted * (j - around)
    return first, second


def sum_of_squares(values, n):
    """The sum of the squares of n numbers."""
    total = 0.0
    for j in range(n):
        total += values[j] * values[j]
    return total


#: Sums that may add their terms in any order, and so several at once.
ANY_ORDER = (sum_of, moments, sum_of_squares)


def changed(mass, n, change):
    """Probabilities of a cdf G(F), with a piecewise-linear map G: the slopes of G times the parts of each mass."""
    piece, upto, knots = 0, 0.0, change.shape[1]
    slope = (change[1, 1] - change[1, 0]) / (change[0, 1] - change[0, 0])
    for j in range(n):
        rest, found = mass[j], 0.0
        while piece < knots - 2 and upto + rest > change[0, piece + 1]:
            part = max(change[0, piece + 1] - upto, 0.0)
            found += slope * part
            rest -= part
            upto = change[0, piece + 1]
            piece += 1
            slope = (change[1, piece + 1] - change[1, piece]) / (change[0, piece + 1] - change[0, piece])
        upto += rest
        mass[j] = found + slope * rest


def totals(mass, below, above, n):
    """P(Z <= z) and P(Z > z)."""
    lower, upper = 0.0, 0.0
    for j in range(n):
        lower += mass[j]
        below[j] = lower
        above[n - 1 - j] = upper
        upper += mass[n - 1 - j]


def described(mass, n, first, entropy, results, i):
    """Mean, variance, mode and entropy."""
    best, at = 0.0, 0
    for j in range(n):
        best = max(best, mass[j])
    while mass[at] < best * (1.0 - TIE):
        at += 1
    total = sum_of(mass, n)
    shift, square = moments(mass, n, float(at))
    shift, square = shift / total, square / total
    results[i, 0], results[i, 1] = first + at + shift, max(square - shift * shift, 0.0)
    results[i, 2] = first + at
    if entropy:
        others, spread = 0.0, 0.0
        for j in range(n):
            if j != at and mass[j] > 0.0:
                others += mass[j]
                spread -= mass[j] * log(mass[j])
        results[i, 3] = spread - (1.0 - others) * log1p(-others) if others < 0.5 else spread - best * log(best)


def place_of(below, above, n, q):
    """The first place whose cdf is at least q."""
    low, high = 0, n - 1
    if q <= 0.5:
        level = q * (1.0 - SLACK)
        while low < high:
            middle = (low + high) // 2
            if below[middle] >= level:
                high = middle
            else:
                low = middle + 1
        return low
    level = (1.0 - q) * (1.0 + SLACK)
    while low < high:
        middle = (low + high) // 2
        if above[middle] <= level:
            high = middle
        else:
            low = middle + 1
    return low


def crps(below, above, n, first, y):
    """Sum of (F(z) - 1[z >= y])^2 over all counts."""
    at = min(max(int(min(max(y - first, -1.0), 4e18)), 0), n)
    total = sum_of_squares(below, at) + sum_of_squares(above[at:n], n - at)
    return total + max(y - first - n, 0.0) + max(first - y, 0.0)
