"""Sums of one distribution's weights over a range of counts, of any length and of any family.

A sum starts at the count of the range that is closest to the centre of the distribution and goes outward, to both ends
or until terms are negligible: by panels of counts, see `gauss`, which are as long as the weights are smooth.

A distribution is the address of its family's kernel and a record, see `loops.record`. Its weights are asked for in
blocks: positions go in at the front of a buffer, log weights and scores come out behind them.
"""

from math import exp, inf, log, log1p
from typing import Any

import numpy as np

from ddpn.distributions.kernels import loops
from ddpn.distributions.kernels.gauss import POSITIONS, SIZE, WEIGHTS, is_exact, table_of
from ddpn.distributions.kernels.loops import matters

PREPARED, TERMS, SCORED_TERMS, CENTRE = loops.PREPARED, loops.TERMS, loops.SCORED_TERMS, loops.FACTS
CLEAR, STRIDE, WIDE = loops.CLEAR, loops.STRIDE, loops.WIDE
#: A panel spans at most so many standard deviations, so many times its distance from the ends of the support, and a
#: change of the weights by e^16: error 1e-14 each. From so many standard deviations on, spans grow with the distance
#: from the centre: what is left there is a heavy tail.
SPAN, NEAR, DROP, TAIL = 4.5, 2.0, 16.0, 8.0
#: Log weights below the peak at which a distribution ends.
DEPTH = 60.0

#: A family's kernel at its address: (address, operation, inputs, results, length). `compiling` puts it here.
call: Any = None


def log_weight(address, record, y, buffer):
    """The log weight at one position."""
    buffer[0] = y
    call(address, TERMS, record.ctypes.data, buffer.ctypes.data, 1)
    return buffer[1]


def log_share(address, record, y, centre, buffer):
    """Return the log of a weight times one plus its squared distance from a centre in standard deviations."""
    distance = (y - centre) / record[CENTRE + 1]
    return log_weight(address, record, y, buffer) + log1p(distance * distance)


def range_sums(address, record, low, high, with_score, sums, buffer):
    """Sums over low <= z <= high of the weights over exp(reference), into `sums`; returns the reference and centre.

    Sums of 1, z - centre, (z - centre)^2, of the scores and of their squares.
    """
    high = min(high, record[CENTRE + 2])
    start, reference = peak(address, record, low, high, buffer)
    for j in range(9):
        sums[j] = 0.0
    width, gap = record[CENTRE + 1], CLEAR * record[CENTRE + 1]
    step = 1.0
    if width >= WIDE and record[CENTRE] - gap > max(low, 0.0) and record[CENTRE] + gap < high:
        step = np.floor(width / STRIDE)  # a bell that is smooth at the scale of integers
    outward(address, record, start, high, step, reference, start, with_score, sums, buffer)
    outward(address, record, start - step, low, -step, reference, start, with_score, sums, buffer)
    if step > 1.0:
        for j in range(9):
            sums[j] *= step
    return reference, start


def peak(address, record, low, high, buffer):
    """The count of a range that is closest to the centre of a distribution, or the next one, and its log weight."""
    start = min(max(np.floor(record[CENTRE]), low), high)
    reference = log_weight(address, record, start, buffer)
    if start < high:
        following = log_weight(address, record, start + 1.0, buffer)
        if following > reference:
            return start + 1.0, following
    return start, reference


def outward(address, record, first, last, step, reference, centre, with_score, sums, buffer):
    """Add the weights from `first` to `last`, panel by panel, until they are negligible."""
    y, before, w = first, inf, 0.0
    while (last - y) * step >= 0.0:
        room = (last - y) / step + 1.0
        n = longest(address, record, y, room, step, buffer) if abs(step) == 1.0 else float(SIZE)
        size, k = int(min(room, SIZE)), table_of(n)
        for i in range(size):
            buffer[i] = y + step * (n * POSITIONS[k, i] - 0.5)
        call(address, SCORED_TERMS if with_score > 0.0 else TERMS, record.ctypes.data, buffer.ctypes.data, size)
        for i in range(size):
            w = exp(buffer[size + i] - reference)
            share, gap = w * n * WEIGHTS[k, i], buffer[i] - centre
            sums[0] += share
            sums[1] += share * gap
            sums[2] += share * gap * gap
            if with_score > 0.0:
                for j in range(3):
                    by = buffer[(2 + j) * size + i]
                    sums[3 + j] += share * by
                    sums[6 + j] += share * by * by
        is_more = w > before or matters(w * n, (buffer[size - 1] - centre) / record[CENTRE + 1], SIZE * sums[0])
        if not is_more or y + step * n == y:
            return  # also if weights are NaN, or if counts are so large that adding n does not change them
        before = w
        y += step * n


def longest(address, record, y, room, step, buffer):
    """Counts of the longest panel from y on, of at most `room` counts, over which weights are smooth."""
    behind, ahead = (y, record[CENTRE + 2] - y) if step > 0.0 else (record[CENTRE + 2] - y, y)
    scale = max(record[CENTRE + 1], abs(y - record[CENTRE]) / TAIL)
    length = min(room, SPAN * scale, NEAR * behind, NEAR / (1.0 + NEAR) * ahead)
    n = float(SIZE)
    while 2.0 * n <= length < inf:
        n *= 2.0
    if n > SIZE:
        here = log_weight(address, record, y, buffer)
        while n > SIZE and abs(log_weight(address, record, y + step * (n - 1.0), buffer) - here) > DROP:
            n *= 0.5
    return n if is_exact(n, y, record[CENTRE + 1]) else float(SIZE)


# What rows are asked for ---------------------------------------------------------------------------------------------


def long_log_prob(address, given, found):
    """(y, a, b, c) -> log p(y) and its derivatives, as `loops.log_prob`, for sums of any length."""
    record, sums, buffer = np.zeros(16), np.zeros(9), np.zeros(5 * SIZE)
    call(address, PREPARED, given.ctypes.data + 8, record.ctypes.data, 1)
    reference, _ = range_sums(address, record, 0.0, inf, 1.0, sums, buffer)
    buffer[0] = given[0]
    call(address, SCORED_TERMS, record.ctypes.data, buffer.ctypes.data, 1)
    found[0] = min(buffer[1] - reference - log(sums[0]), 0.0)
    for j in range(3):
        found[1 + j] = buffer[2 + j] - sums[3 + j] / sums[0]


def information(address, given, found):
    """(a, b, c) -> the variances of the scores, which are the expected curvatures of -log p in a, b, c."""
    record, sums, buffer = np.zeros(16), np.zeros(9), np.zeros(5 * SIZE)
    call(address, PREPARED, given.ctypes.data, record.ctypes.data, 1)
    range_sums(address, record, 0.0, inf, 1.0, sums, buffer)
    for j in range(3):
        found[j] = max(sums[6 + j] / sums[0] - (sums[3 + j] / sums[0]) ** 2, 0.0)


def log_total(address, record, low, high, sums, buffer):
    """log of the sum of all weights of a range."""
    if record[CENTRE + 3] > 0.0 and low <= 0.0 and high >= record[CENTRE + 2]:
        return 0.0
    reference, _ = range_sums(address, record, low, high, 0.0, sums, buffer)
    return reference + log(sums[0])


def log_range(address, given, found):
    """(low, high, a, b, c) -> log P(low <= Z <= high) and its derivatives, relatively accurate also close to 0."""
    record, sums, buffer = np.zeros(16), np.zeros(9), np.zeros(5 * SIZE)
    expected, rest = np.zeros(4), np.zeros(4)
    call(address, PREPARED, given.ctypes.data + 16, record.ctypes.data, 1)
    low, end = max(given[0], 0.0), record[CENTRE + 2]
    high = min(given[1], end)
    if low > high:
        found[0], found[1], found[2], found[3] = -inf, 0.0, 0.0, 0.0
        return
    if record[CENTRE + 3] == 0.0:
        reference, _ = range_sums(address, record, 0.0, inf, 1.0, sums, buffer)
        expected[0] = reference + log(sums[0])
        for j in range(3):
            expected[1 + j] = sums[3 + j] / sums[0]
    if low <= record[CENTRE] <= high:
        # What is left out is the smaller part, most of the time: log1p keeps its digits.
        for side in range(2):
            first, last = (0.0, low - 1.0) if side == 0 else (high + 1.0, end)
            if first <= last and first < inf:
                reference, _ = range_sums(address, record, first, last, 1.0, sums, buffer)
                unit = exp(reference - expected[0])
                rest[0] += unit * sums[0]
                for j in range(3):
                    rest[1 + j] += unit * sums[3 + j]
        if rest[0] <= 0.5:
            found[0] = log1p(-rest[0])
            for j in range(3):
                found[1 + j] = -(rest[1 + j] - rest[0] * expected[1 + j]) / (1.0 - rest[0])
            return
    reference, _ = range_sums(address, record, low, high, 1.0, sums, buffer)
    found[0] = min(reference + log(sums[0]) - expected[0], 0.0)
    for j in range(3):
        found[1 + j] = sums[3 + j] / sums[0] - expected[1 + j]


def sides(address, component, y):
    """P(Z <= y) and P(Z > y) of (a, b, c, low, high), of which the smaller is summed."""
    record, sums, buffer = np.zeros(16), np.zeros(9), np.zeros(5 * SIZE)
    call(address, PREPARED, component.ctypes.data, record.ctypes.data, 1)
    low, high = component[3], min(component[4], record[CENTRE + 2])
    if y < low or y >= high:
        return (0.0, 1.0) if y < low else (1.0, 0.0)
    whole = log_total(address, record, low, high, sums, buffer)
    upper = y >= record[CENTRE]
    small = 1.0
    for side in range(2):
        first, last = (y + 1.0, high) if upper else (low, y)
        reference, _ = range_sums(address, record, first, last, 0.0, sums, buffer)
        small = min(exp(reference - whole) * sums[0], 1.0)
        if small <= 0.75 or side == 1:
            break
        upper = not upper
    return (1.0 - small, small) if upper else (small, 1.0 - small)


def facts_of(address, record, low, high, found, sums, buffer):
    """Log total, mean and variance of a record, then what `extent` finds."""
    extent(address, record, low, high, found, buffer)
    reference, start = range_sums(address, record, low, high, 0.0, sums, buffer)
    shift = sums[1] / sums[0]
    is_whole = record[CENTRE + 3] > 0.0 and low <= 0.0 and high >= record[CENTRE + 2]
    found[0] = 0.0 if is_whole else reference + log(sums[0])
    found[1], found[2] = start + shift, max(sums[2] / sums[0] - shift * shift, 0.0)


def extent(address, record, low, high, found, buffer):
    """First and last count that matter, rough width, low and high of a record, a probable count and its log weight.

    They are put from the fourth place on, behind what is known from sums.
    """
    end = min(high, record[CENTRE + 2])
    start, reference = peak(address, record, low, end, buffer)
    found[3] = reach(address, record, start, low, -1.0, reference, buffer)
    found[4] = reach(address, record, start, end, 1.0, reference, buffer)
    found[5], found[6], found[7], found[8], found[9] = record[CENTRE + 1], low, end, start, reference


def reach(address, record, start, last, step, peak, buffer):
    """Return a count beyond which, away from the centre, weights and their part of the variance are negligible.

    Their products with the squared distance in standard deviations are then below e^-DEPTH of the peak. Where a
    distribution has nearly all its mass on one count, the variance may come from weights that are much smaller.
    """
    near, gap = start, np.floor(8.0 * record[CENTRE + 1]) + 4.0
    floor = peak - DEPTH
    while gap < 1e300 and (last - near) * step > gap:
        if not log_share(address, record, near + step * gap, start, buffer) > floor:
            break
        near += step * gap
        gap *= 2.0
    far = near + step * gap if (last - near) * step > gap else last
    for _ in range(6):
        middle = np.floor(0.5 * (near + far))
        if log_share(address, record, middle, start, buffer) > floor:
            near = middle
        else:
            far = middle
    return far
