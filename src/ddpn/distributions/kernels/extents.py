"""The extent of a distribution: the range of counts whose probabilities are not negligible."""

from math import log1p

import numpy as np

from ddpn.distributions.kernels.walk import find_peak

#: Depth in nats below the peak at which a distribution ends.
EXTENT_DEPTH = 60.0
#: Columns of an extent: the first and the last count that are not negligible, a rough standard deviation, the first and
#: the last possible count, a probable count and its log weight.
FIRST, LAST, WIDTH, LOW, HIGH, CENTRE, REFERENCE = range(7)
N_EXTENT = 7


def find_extent(p, low, high, depth, extent):
    """Find the extent of a distribution, the range of counts whose probabilities are not negligible.

    Parameters
    ----------
    p : Family
        The distribution.
    low, high : float
        The first and the last count to which it is restricted.
    depth : float
        A probability is negligible if it is smaller than about e^-depth times the largest one.
    extent : array, (N_EXTENT,)
        Receives, at the indices FIRST to REFERENCE: the first and the last count of the range, a rough standard
        deviation, the first and the last possible count, a probable count, and the log of its unnormalised probability.
    """
    centre, width, end = p.estimate_shape()
    end = min(high, end)
    start, reference = find_peak(p, min(max(np.floor(centre), low), end), end)
    extent[FIRST] = find_outer_count(p, start, low, -1.0, reference - depth)
    extent[LAST] = find_outer_count(p, start, end, 1.0, reference - depth)
    extent[WIDTH], extent[LOW], extent[HIGH], extent[CENTRE], extent[REFERENCE] = width, low, end, start, reference


def find_outer_count(p, start, last, step, floor):
    """Return a count beyond which the probabilities of the distribution `p` are negligible, on one side of `start`.

    The result is approximate: some of the counts between `start` and it may have negligible probabilities as well. If
    probabilities are not negligible up to `last`, the result is `last`.

    Parameters
    ----------
    p : Family
        The distribution.
    start : float
        A count with a large probability.
    last : float
        The possible count at which the search ends.
    step : float
        1 to search above `start`, -1 to search below.
    floor : float
        The probability of a count y is negligible if log(w(y) (1 + d^2)) is at most this. w(y) is the unnormalised
        probability of y, and d is the distance of y from `start` in standard deviations (`compute_log_influence`).
    """
    _, width, _ = p.estimate_shape()
    near, gap = start, np.floor(8.0 * width) + 4.0
    while gap < 1e300 and (last - near) * step > gap:
        if not compute_log_influence(p, near + step * gap, start) > floor:
            break
        near += step * gap
        gap *= 2.0
    far = near + step * gap if (last - near) * step > gap else last
    for _ in range(6):
        middle = np.floor(0.5 * (near + far))
        if compute_log_influence(p, middle, start) > floor:
            near = middle
        else:
            far = middle
    return far


def compute_log_influence(p, y, centre):
    """Return log(w(y) (1 + d^2)), a measure of how much w(y) adds to the sum of all weights and the variance.

    w(y) is the weight (unnormalised probability) of the count y. d is the distance of y from `centre` in standard
    deviations of the distribution `p`. The factor 1 + d^2 matters if nearly all mass is on one count. Then the variance
    comes from weights that are small compared with the total.
    """
    _, width, _ = p.estimate_shape()
    distance = (y - centre) / width
    return p.log_weight(y) + log1p(distance * distance)
