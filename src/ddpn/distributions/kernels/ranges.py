"""Sums of the weights (unnormalised probabilities) of one distribution over a range of counts of any length.

A sum starts at the count of the range that is closest to the centre of the distribution. From there it goes in both
directions, to the ends of the range or until weights are negligible. Counts are taken in panels: runs of 16 * 2^k
consecutive counts over which the weights are so smooth that 16 of them determine the sum, by Gaussian quadrature
(`gauss`).
"""

from math import exp, inf, log, log1p

import numpy as np

from ddpn.distributions.kernels.gauss import N_POSITIONS, POSITIONS, WEIGHTS, find_table, is_rounding_harmless
from ddpn.distributions.kernels.walk import find_peak, is_significant

#: A bell curve is summed over the multiples of a stride, with an error of 1e-13. The constants are the least distance
#: of its centre from both ends in standard deviations, the number of strides per standard deviation, and the smallest
#: standard deviation for which strides save time.
MIN_CLEARANCE, STRIDES_PER_DEVIATION, MIN_STRIDE_DEVIATION = 9.5, 1.5, 4.0
#: Limits of the length of a panel: in standard deviations, in multiples of its distance from an end of the support, and
#: in nats by which log weights change over it. The error is 1e-14 each. Beyond `TAIL_DEVIATIONS` standard deviations
#: from the centre, panels grow with the distance, as only a heavy tail has mass there.
MAX_SPAN_DEVIATIONS, MAX_SPAN_TO_END, MAX_SPAN_LOG_CHANGE, TAIL_DEVIATIONS = 4.5, 2.0, 16.0, 8.0
#: The number of sums of `sum_range`, and the index of the last one.
N_SUMS, CROSS_SUM = 10, 9


def is_interior_bell(p):
    """Return True if the probabilities of a distribution `p` are a wide bell curve that vanishes at both ends.

    Such probabilities can be summed over every tenth count, for example, instead of over all counts.
    """
    centre, width, end = p.estimate_shape()
    return width >= MIN_STRIDE_DEVIATION and centre > MIN_CLEARANCE * width and centre + MIN_CLEARANCE * width < end


def sum_range(p, low, high, with_score, sums):
    """Sum the weights w(z) of a distribution, and moments of them, over the counts low <= z <= high.

    The weight of a count is its unnormalised probability. With v(z) = w(z) / e^reference, and the derivatives s1, s2
    and s3 of log w(z) in the three parameters, the sums are

    - v, v (z - centre) and v (z - centre)^2, at the indices 0 to 2,
    - v s1, v s2 and v s3, at the indices 3 to 5,
    - v s1^2, v s2^2 and v s3^2, at the indices 6 to 8,
    - v s2 (z - centre), at the index `CROSS_SUM`.

    Parameters
    ----------
    p : Family
        The distribution.
    low, high : float
        The first and the last count, both included.
    with_score : bool
        Whether to compute the sums that contain derivatives. If False, these sums are 0.
    sums : array, (N_SUMS,)
        Receives the sums.

    Returns
    -------
    reference : float
        About the largest log weight.
    centre : float
        The count with this log weight.
    """
    middle, width, end = p.estimate_shape()
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
    """Add the weights of the counts from `first` to `last` to the sums of `sum_range`, starting at `first`.

    Weights are unnormalised probabilities. The loop ends early where they become negligible.

    Parameters
    ----------
    p : Family
        The distribution.
    first, last : float
        The counts at which to start and to end, both included; `last` is the smaller one if `step` is negative.
    step : float
        1 or -1 to add all counts, upwards or downwards. A larger number, such as 10 or -10, adds only every tenth
        count, which suffices for a wide bell curve. `sum_range` then multiplies the sums by 10.
    reference, centre : float
        The log weight by which weights are scaled, and the count from which distances are measured (see `sum_range`).
    with_score : bool
        Whether to add to the sums that contain derivatives. If False, these sums are not changed.
    sums : array, (N_SUMS,)
        The sums, which are changed in place.
    """
    _, width, _ = p.estimate_shape()
    y, before, w, z = first, inf, 0.0, first
    while (last - y) * step >= 0.0:
        room = (last - y) / step + 1.0
        n = find_panel_length(p, y, room, step) if abs(step) == 1.0 else float(N_POSITIONS)
        size, k = int(min(room, N_POSITIONS)), find_table(n)
        for i in range(size):
            z = y + step * (n * POSITIONS[k, i] - 0.5)
            w = exp(p.log_weight(z) - reference)
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
        is_more = w > before or is_significant(w * n, (z - centre) / width, N_POSITIONS * sums[0])
        if not is_more or y + step * n == y:
            return  # also if weights are NaN, or if counts are too large to add n to them
        before = w
        y += step * n


def find_panel_length(p, y, room, step):
    """Return the length of the longest panel that starts at the count y.

    A panel is a run of 16 * 2^k consecutive counts over which the probabilities of `p` are smooth enough for
    quadrature.

    Parameters
    ----------
    p : Family
        The distribution.
    y : float
        The first count of the panel.
    room : float
        The number of counts that are left to add, including y. A panel of more than 16 counts is not longer than this.
    step : float
        1 if the panel extends upwards from y, -1 if it extends downwards.
    """
    centre, width, end = p.estimate_shape()
    behind, ahead = (y, end - y) if step > 0.0 else (end - y, y)
    scale = max(width, abs(y - centre) / TAIL_DEVIATIONS)
    length = min(
        room, MAX_SPAN_DEVIATIONS * scale, MAX_SPAN_TO_END * behind, MAX_SPAN_TO_END / (1.0 + MAX_SPAN_TO_END) * ahead
    )
    n = float(N_POSITIONS)
    while 2.0 * n <= length < inf:
        n *= 2.0
    if n > N_POSITIONS:
        top = p.log_weight(y)
        while n > N_POSITIONS and abs(p.log_weight(y + step * (n - 1.0)) - top) > MAX_SPAN_LOG_CHANGE:
            n *= 0.5
    return n if is_rounding_harmless(n, y, width) else float(N_POSITIONS)


# Results for users ----------------------------------------------------------------------------------------------------


def sum_log_prob(p, y, sums, results, i):
    """Write log p(y) and its derivatives in the three parameters to column i of `results` (4, n).

    The unnormalised probability of y is divided by the sum over all counts. From the derivatives of its logarithm at y,
    their means over all counts are subtracted. The sums use quadrature, so the number of counts is not limited, unlike
    in `walk.walk_log_prob`. `sums` (N_SUMS,) is a work array.
    """
    reference, _ = sum_range(p, 0.0, inf, True, sums)
    a, b, c = p.score(y)
    results[0, i] = min(p.log_weight(y) - reference - log(sums[0]), 0.0)
    results[1, i], results[2, i] = a - sums[3] / sums[0], b - sums[4] / sums[0]
    results[3, i] = c - sums[5] / sums[0]


def sum_information(p, sums, results, i):
    """Write the diagonal of the Fisher information of the distribution `p` to column i of `results` (3, n).

    It consists of the variances of the derivatives of log p(Z) in the three parameters of the family, in the order of
    the arguments a, b and c of `Family.prepare`. `sums` (N_SUMS,) is a work array.
    """
    sum_range(p, 0.0, inf, True, sums)
    for j in range(3):
        results[j, i] = max(sums[6 + j] / sums[0] - (sums[3 + j] / sums[0]) ** 2, 0.0)


def has_unit_total(p, low, high):
    """Return True if it is known without summing that the weights of the counts from `low` to `high` sum to 1.

    This is so if the weights of `p` are probabilities, not unnormalised ones, and the range contains all possible
    counts. Both ends are included in the range.
    """
    _, _, end = p.estimate_shape()
    return p.is_normalised() and low <= 0.0 and high >= end


def log_total(p, low, high, sums):
    """Return the log of the sum of the weights of the distribution `p` over the counts from `low` to `high`.

    Weights are unnormalised probabilities. Both ends are included. `sums` (N_SUMS,) is a work array.
    """
    if has_unit_total(p, low, high):
        return 0.0
    reference, _ = sum_range(p, low, high, False, sums)
    return reference + log(sums[0])


def sum_log_range(p, low, high, sums, outside, results, i):
    """Write log P(low <= Z <= high) and its derivatives in the parameters to column i of `results`.

    For an empty range (low > high), the result is -inf, with derivatives 0. If most of the mass is within the range,
    the mass outside of it is summed and subtracted from 1. This is accurate even if the logarithm is close to 0.

    Parameters
    ----------
    p : Family
        The distribution.
    low, high : float
        The first and the last count of the range, both included.
    sums, outside : array, (N_SUMS,) and (4,)
        Work arrays. `outside` has the mass outside of the range, and the sums of the mass times the three derivatives
        of the log weight there.
    results : array, (4, n)
        Receives the log probability and three derivatives in column i.
    i : int
        The column.
    """
    centre, _, end = p.estimate_shape()
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


def sum_tails(p, low, high, y, sums):
    """Return P(Z <= y) and P(Z > y) of a distribution `p` restricted to the counts from `low` to `high`.

    Both ends are included. Only the smaller tail is summed, and the other one is 1 minus this sum. So a tail close to 0
    has a small relative error. `sums` (N_SUMS,) is a work array.
    """
    centre, _, end = p.estimate_shape()
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
    """Return the mean and the variance of a distribution `p` restricted to the counts from `low` to `high`.

    Both ends are included. `sums` (N_SUMS,) is a work array.
    """
    _, centre = sum_range(p, low, high, False, sums)
    shift = sums[1] / sums[0]
    return centre + shift, max(sums[2] / sums[0] - shift * shift, 0.0)
