"""Sum the weights of one distribution over a range of counts of any length.

A sum starts at the count of the range that is closest to the centre of the distribution. From there it goes to both
ends of the range, or until terms are negligible, by panels of counts (see `gauss`) over which the weights are smooth.
"""

from math import exp, inf, log, log1p

import numpy as np

from ddpn.distributions.kernels.gauss import N_POSITIONS, POSITIONS, WEIGHTS, find_table, is_rounding_harmless
from ddpn.distributions.kernels.walk import find_peak, matters

#: A bell curve is summed over the multiples of a stride, with an error of 1e-13. The constants are the least distance
#: of its centre from both ends in standard deviations, the number of strides per standard deviation, and the smallest
#: standard deviation for which strides save time.
MIN_CLEARANCE, STRIDES_PER_DEVIATION, MIN_STRIDE_DEVIATION = 9.5, 1.5, 4.0
#: Limits of the length of a panel: in standard deviations, in multiples of its distance from an end of the support, and
#: in nats by which log weights change over it. The error is 1e-14 each. Beyond `TAIL_DEVIATIONS` standard deviations
#: from the centre, panels grow with the distance, as only a heavy tail has mass there.
MAX_SPAN_DEVIATIONS, MAX_SPAN_TO_END, MAX_SPAN_LOG_CHANGE, TAIL_DEVIATIONS = 4.5, 2.0, 16.0, 8.0
#: Depth in nats below the peak at which a distribution ends.
EXTENT_DEPTH = 60.0
#: The number of sums of `sum_range`, and the index of the last one.
N_SUMS, CROSS_SUM = 10, 9
#: Columns of an extent: the first and the last count that are not negligible, a rough standard deviation, the first and
#: the last possible count, a probable count and its log weight.
FIRST, LAST, WIDTH, LOW, HIGH, CENTRE, REFERENCE = range(7)
N_EXTENT = 7


def is_interior_bell(p):
    """Return True if the weights are a bell curve many counts wide, whose tails vanish before the support ends."""
    centre, width, end = p.shape()
    return width >= MIN_STRIDE_DEVIATION and centre > MIN_CLEARANCE * width and centre + MIN_CLEARANCE * width < end


def sum_range(p, low, high, with_score, sums):
    """Sum the weights of low <= z <= high; return a reference (about the largest log weight) and a centre.

    `sums` receives the sums of weights divided by e^reference, times 1, z - centre, (z - centre)^2, the three scores,
    their squares, and the second score times z - centre. Sums with scores are 0 unless `with_score` is true.
    """
    middle, width, end = p.shape()
    high = min(high, end)
    centre, reference = find_peak(p, min(max(np.floor(middle), low), high), high)
    for j in range(N_SUMS):
        sums[j] = 0.0
    gap, step = MIN_CLEARANCE * width, 1.0
    if width >= MIN_STRIDE_DEVIATION and middle - gap > max(low, 0.0) and middle + gap < high:
        step = np.floor(width / STRIDES_PER_DEVIATION)  # the bell curve is smooth at the scale of a stride
    sum_outward(p, centre, high, step, reference, centre, with_score, sums)
    sum_outward(p, centre - step, low, -step, reference, centre, with_score, sums)
    if step > 1.0:
        for j in range(N_SUMS):
            sums[j] *= step
    return reference, centre


def sum_outward(p, first, last, step, reference, centre, with_score, sums):
    """Add the weights from `first` to `last` to the sums, panel by panel, until they are negligible."""
    _, width, _ = p.shape()
    y, before, w, z = first, inf, 0.0, first
    while (last - y) * step >= 0.0:
        room = (last - y) / step + 1.0
        n = find_length(p, y, room, step) if abs(step) == 1.0 else float(N_POSITIONS)
        size, k = int(min(room, N_POSITIONS)), find_table(n)
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
                sums[CROSS_SUM] += share * b * gap
        is_more = w > before or matters(w * n, (z - centre) / width, N_POSITIONS * sums[0])
        if not is_more or y + step * n == y:
            return  # also if weights are NaN, or if counts are too large to add n to them
        before = w
        y += step * n


def find_length(p, y, room, step):
    """Return the length (at most `room`) of the longest panel that starts at y and over which weights are smooth."""
    centre, width, end = p.shape()
    behind, ahead = (y, end - y) if step > 0.0 else (end - y, y)
    scale = max(width, abs(y - centre) / TAIL_DEVIATIONS)
    length = min(
        room, MAX_SPAN_DEVIATIONS * scale, MAX_SPAN_TO_END * behind, MAX_SPAN_TO_END / (1.0 + MAX_SPAN_TO_END) * ahead
    )
    n = float(N_POSITIONS)
    while 2.0 * n <= length < inf:
        n *= 2.0
    if n > N_POSITIONS:
        top = p.log_mass(y)
        while n > N_POSITIONS and abs(p.log_mass(y + step * (n - 1.0)) - top) > MAX_SPAN_LOG_CHANGE:
            n *= 0.5
    return n if is_rounding_harmless(n, y, width) else float(N_POSITIONS)


# Results for users ----------------------------------------------------------------------------------------------------


def sum_log_prob(p, y, sums, results, i):
    """Write log p(y) and its derivatives to column i of `results`, for ranges of any length.

    `p` is a distribution whose weights are not normalised. `sums` is a work array for the sums over all its counts (see
    `sum_range`), by which log p(y) is normalised.
    """
    reference, _ = sum_range(p, 0.0, inf, True, sums)
    a, b, c = p.score(y)
    results[0, i] = min(p.log_mass(y) - reference - log(sums[0]), 0.0)
    results[1, i], results[2, i] = a - sums[3] / sums[0], b - sums[4] / sums[0]
    results[3, i] = c - sums[5] / sums[0]


def sum_information(p, sums, results, i):
    """Write the variances of the scores, the diagonal of the Fisher information, to column i of the results."""
    sum_range(p, 0.0, inf, True, sums)
    for j in range(3):
        results[j, i] = max(sums[6 + j] / sums[0] - (sums[3 + j] / sums[0]) ** 2, 0.0)


def has_total_1(p, low, high):
    """Return True if the range holds the whole support of a normalised family."""
    _, _, end = p.shape()
    return p.is_normalised() and low <= 0.0 and high >= end


def log_total(p, low, high, sums):
    """Return the log of the sum of all weights of a range."""
    if has_total_1(p, low, high):
        return 0.0
    reference, _ = sum_range(p, low, high, False, sums)
    return reference + log(sums[0])


def sum_log_range(p, low, high, sums, outside, results, i):
    """Write log P(low <= Z <= high) and its derivatives to column i of the results, accurate even if it is close to 0.

    `outside` is a work array for four sums.
    """
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
        # Usually less than half of the mass is outside, so log1p(-outside) keeps its digits.
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
    """Return P(Z <= y) and P(Z > y) of a distribution restricted to a range, by summing over the smaller side."""
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
    """Return the mean and the variance of a distribution restricted to a range."""
    _, centre = sum_range(p, low, high, False, sums)
    shift = sums[1] / sums[0]
    return centre + shift, max(sums[2] / sums[0] - shift * shift, 0.0)


def find_extent(p, low, high, depth, extent):
    """Write to `extent` the extent of a distribution `p`, restricted to the counts from `low` to `high`.

    Its first and last count are those at which the log weight is `depth` below the weight at the peak, or the ends of
    the range. The columns of an extent are listed at `FIRST`.
    """
    centre, width, end = p.shape()
    end = min(high, end)
    start, reference = find_peak(p, min(max(np.floor(centre), low), end), end)
    extent[FIRST] = find_reach(p, start, low, -1.0, reference - depth)
    extent[LAST] = find_reach(p, start, end, 1.0, reference - depth)
    extent[WIDTH], extent[LOW], extent[HIGH], extent[CENTRE], extent[REFERENCE] = width, low, end, start, reference


def find_reach(p, start, last, step, floor):
    """Return a count beyond which, going by `step` from `start`, `log_share` is below `floor`.

    Weights are multiplied by their squared distance because the variance of a distribution with nearly all its mass on
    one count comes from weights that are much smaller.
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
    """Return the log of w(y) (1 + d^2), with w the weight and d the distance from the centre in standard deviations."""
    _, width, _ = p.shape()
    distance = (y - centre) / width
    return p.log_mass(y) + log1p(distance * distance)
