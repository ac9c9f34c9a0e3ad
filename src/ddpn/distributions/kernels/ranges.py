"""Sums of one distribution's weights over a range of counts, of any length.

A sum starts at the count of the range that is closest to the centre of the distribution and goes outward, to both ends
or until terms are negligible: by panels of counts, see `gauss`, which are as long as the weights are smooth.
"""

from math import exp, inf, log, log1p

import numpy as np

from ddpn.distributions.kernels.gauss import POSITIONS, SIZE, WEIGHTS, find_table, is_exact
from ddpn.distributions.kernels.walk import matters

#: Distance of the centre from both ends in standard deviations from which on a sum may take strides, their length in
#: standard deviations (error 1e-13), and the deviation from which on they are worth while.
CLEAR, STRIDE, WIDE = 9.5, 1.5, 4.0
#: A panel spans at most so many standard deviations, so many times its distance from the ends of the support, and a
#: change of the weights by e^16: error 1e-14 each. From so many standard deviations on, spans grow with the distance
#: from the centre: what is left there is a heavy tail.
SPAN, NEAR, DROP, TAIL = 4.5, 2.0, 16.0, 8.0
#: Log weights below the peak at which a distribution ends.
DEPTH = 60.0
#: Numbers that `sum_range` finds, and the place of the last one.
SUMS, CROSS = 10, 9
#: The extent of a distribution: the first and the last count that matter, a rough standard deviation, the first and the
#: last possible count, a probable count and its log weight.
FIRST, LAST, WIDTH, LOW, HIGH, CENTRE, REFERENCE = range(7)
EXTENT = 7


def is_interior_bell(p):
    """Return whether the weights form a bell curve many integers wide, clear of both ends.

    Its tails vanish before both ends of the range.
    """
    centre, width, end = p.shape()
    return width >= WIDE and centre > CLEAR * width and centre + CLEAR * width < end


def sum_range(p, low, high, with_score, sums):
    """Sum the weights of low <= z <= high, divided by e^reference, into `sums`; return the reference and a centre.

    Sums are those of 1, z - centre, (z - centre)^2, of the scores, of their squares, and of the second score times
    z - centre.
    """
    middle, width, end = p.shape()
    high = min(high, end)
    centre, reference = find_peak(p, low, high)
    for j in range(SUMS):
        sums[j] = 0.0
    gap, step = CLEAR * width, 1.0
    if width >= WIDE and middle - gap > max(low, 0.0) and middle + gap < high:
        step = np.floor(width / STRIDE)  # a bell that is smooth at the scale of integers
    sum_outward(p, centre, high, step, reference, centre, with_score, sums)
    sum_outward(p, centre - step, low, -step, reference, centre, with_score, sums)
    if step > 1.0:
        for j in range(SUMS):
            sums[j] *= step
    return reference, centre


def find_peak(p, low, high):
    """Return the count of a range that is closest to the centre, or the next if it weighs more, and its log weight."""
    middle, _, _ = p.shape()
    y = min(max(np.floor(middle), low), high)
    top = p.log_mass(y)
    if y < high:
        following = p.log_mass(y + 1.0)
        if following > top:
            return y + 1.0, following
    return y, top


def sum_outward(p, first, last, step, reference, centre, with_score, sums):
    """Add the weights from `first` to `last`, panel by panel, until they are negligible."""
    _, width, _ = p.shape()
    y, before, w, z = first, inf, 0.0, first
    while (last - y) * step >= 0.0:
        room = (last - y) / step + 1.0
        n = find_length(p, y, room, step) if abs(step) == 1.0 else float(SIZE)
        size, k = int(min(room, SIZE)), find_table(n)
        for i in range(size):
            z = y + step * (n * POSITIONS[k, i] - 0.5)
            w = exp(p.log_mass(z) - reference)
            share, gap = w * n * WEIGHTS[k, i], z - centre
            sums[0] += share
            sums[1] += share * gap
            sums[2] += share * gap * gap
            if with_score:
                a, b, c = p.score(z)
                sums[3] += share * a
                sums[4] += share * b
                sums[5] += share * c
                sums[6] += share * a * a
                sums[7] += share * b * b
                sums[8] += share * c * c
                sums[CROSS] += share * b * gap
        is_more = w > before or matters(w * n, (z - centre) / width, SIZE * sums[0])
        if not is_more or y + step * n == y:
            return  # also if weights are NaN, or if counts are so large that adding n does not change them
        before = w
        y += step * n


def find_length(p, y, room, step):
    """Return the counts of the longest panel from y on, of at most `room` counts, over which weights are smooth."""
    centre, width, end = p.shape()
    behind, ahead = (y, end - y) if step > 0.0 else (end - y, y)
    scale = max(width, abs(y - centre) / TAIL)
    length = min(room, SPAN * scale, NEAR * behind, NEAR / (1.0 + NEAR) * ahead)
    n = float(SIZE)
    while 2.0 * n <= length < inf:
        n *= 2.0
    if n > SIZE:
        top = p.log_mass(y)
        while n > SIZE and abs(p.log_mass(y + step * (n - 1.0)) - top) > DROP:
            n *= 0.5
    return n if is_exact(n, y, width) else float(SIZE)


# What a distribution is asked for ------------------------------------------------------------------------------------


def sum_log_prob(p, y, sums, results, i):
    """Put log p(y) and its derivatives into column i of the results, by sums of any length."""
    reference, _ = sum_range(p, 0.0, inf, True, sums)
    a, b, c = p.score(y)
    results[0, i] = min(p.log_mass(y) - reference - log(sums[0]), 0.0)
    results[1, i], results[2, i] = a - sums[3] / sums[0], b - sums[4] / sums[0]
    results[3, i] = c - sums[5] / sums[0]


def sum_information(p, sums, results, i):
    """Put the variances of the scores, which are the expected curvatures of -log p, into column i of the results."""
    sum_range(p, 0.0, inf, True, sums)
    for j in range(3):
        results[j, i] = max(sums[6 + j] / sums[0] - (sums[3 + j] / sums[0]) ** 2, 0.0)


def has_total_1(p, low, high):
    """Return whether the weights of a range are all there are, and their sum is 1."""
    _, _, end = p.shape()
    return p.is_normalised() and low <= 0.0 and high >= end


def log_total(p, low, high, sums):
    """Return the log of the sum of all weights of a range."""
    if has_total_1(p, low, high):
        return 0.0
    reference, _ = sum_range(p, low, high, False, sums)
    return reference + log(sums[0])


def sum_log_range(p, low, high, sums, outside, results, i):
    """Put log P(low <= Z <= high) and its derivatives into column i of the results, accurate also close to 0."""
    centre, _, end = p.shape()
    low, high = max(low, 0.0), min(high, end)
    for j in range(4):
        results[j, i], outside[j] = 0.0, 0.0
    if low > high:
        results[0, i] = -inf
        return
    total, e0, e1, e2 = 0.0, 0.0, 0.0, 0.0
    if not p.is_normalised():
        reference, _ = sum_range(p, 0.0, inf, True, sums)
        total = reference + log(sums[0])
        e0, e1, e2 = sums[3] / sums[0], sums[4] / sums[0], sums[5] / sums[0]
    if low <= centre <= high:
        # What is left out is the smaller part, most of the time: log1p keeps its digits.
        for side in range(2):
            first, last = (0.0, low - 1.0) if side == 0 else (high + 1.0, end)
            if first <= last and first < inf:
                reference, _ = sum_range(p, first, last, True, sums)
                unit = exp(reference - total)
                outside[0] += unit * sums[0]
                for j in range(3):
                    outside[1 + j] += unit * sums[3 + j]
        share = outside[0]
        if share <= 0.5:
            results[0, i] = log1p(-share)
            results[1, i] = -(outside[1] - share * e0) / (1.0 - share)
            results[2, i] = -(outside[2] - share * e1) / (1.0 - share)
            results[3, i] = -(outside[3] - share * e2) / (1.0 - share)
            return
    reference, _ = sum_range(p, low, high, True, sums)
    results[0, i] = min(reference + log(sums[0]) - total, 0.0)
    results[1, i], results[2, i] = sums[3] / sums[0] - e0, sums[4] / sums[0] - e1
    results[3, i] = sums[5] / sums[0] - e2


def sum_sides(p, low, high, y, sums):
    """Return P(Z <= y) and P(Z > y) within a range, of which the smaller is summed."""
    centre, _, end = p.shape()
    high = min(high, end)
    if y < low or y >= high:
        return (0.0, 1.0) if y < low else (1.0, 0.0)
    whole = log_total(p, low, high, sums)
    is_upper = y >= centre
    small = 1.0
    for side in range(2):
        first, last = (y + 1.0, high) if is_upper else (low, y)
        reference, _ = sum_range(p, first, last, False, sums)
        small = min(exp(reference - whole) * sums[0], 1.0)
        if small <= 0.75 or side == 1:
            break
        is_upper = not is_upper
    return (1.0 - small, small) if is_upper else (small, 1.0 - small)


def sum_moments(p, low, high, sums):
    """Return the mean and the variance within a range."""
    _, centre = sum_range(p, low, high, False, sums)
    shift = sums[1] / sums[0]
    return centre + shift, max(sums[2] / sums[0] - shift * shift, 0.0)


def find_extent(p, low, high, depth, extent):
    """Find the extent of a distribution within a range, down to a depth below the peak."""
    _, width, end = p.shape()
    end = min(high, end)
    start, reference = find_peak(p, low, end)
    extent[FIRST] = find_reach(p, start, low, -1.0, reference - depth)
    extent[LAST] = find_reach(p, start, end, 1.0, reference - depth)
    extent[WIDTH], extent[LOW], extent[HIGH], extent[CENTRE], extent[REFERENCE] = width, low, end, start, reference


def find_reach(p, start, last, step, floor):
    """Return a count beyond which, away from the centre, weights and their part of the variance are negligible.

    Their products with the squared distance in standard deviations are then below e^floor. Where a
    distribution has nearly all its mass on one count, the variance may come from weights that are much smaller.
    """
    _, width, _ = p.shape()
    near, gap = start, np.floor(8.0 * width) + 4.0
    while gap < 1e300 and (last - near) * step > gap:
        if not log_share(p, near + step * gap, start) > floor:
            break
        near += step * gap
        gap *= 2.0
    far = near + step * gap if (last - near) * step > gap else last
    for _ in range(6):
        middle = np.floor(0.5 * (near + far))
        if log_share(p, middle, start) > floor:
            near = middle
        else:
            far = middle
    return far


def log_share(p, y, centre):
    """Return the log of a weight times one plus its squared distance from a centre in standard deviations."""
    _, width, _ = p.shape()
    distance = (y - centre) / width
    return p.log_mass(y) + log1p(distance * distance)
