"""Rows whose counts are too many to add one by one: a mixture on panels of counts, see `gauss`.

Panels are as long as all components that have mass there are smooth, and where one is not they are single counts: where
it is narrow, and close to the ends of its range. A quantile and the count that a CRPS is for are found by halving.
"""

from math import exp, inf, log
from typing import Any

import numpy as np

from ddpn.distributions.kernels import loops
from ddpn.distributions.kernels.gauss import POSITIONS, SIZE, UPTO, WEIGHTS, is_exact, table_of
from ddpn.distributions.kernels.ranges import TAIL, facts_of

PREPARED, TERMS = loops.PREPARED, loops.TERMS
#: A panel spans at most so many standard deviations: partial sums of its polynomial then err by 2e-12 of its mass.
SPAN = 2.5
#: Two probabilities within this share of each other are equal: the smaller count is the mode.
TIE = 1e-15
#: Relative rounding of the masses of panels, which must not move a quantile.
SLACK = 1e-11


#: A family's kernel at its address: (address, operation, inputs, results, length). `compiling` puts it here.
call: Any = None


def of_row(addresses, components, weights, known, levels, y, entropy, moments, quantiles, scores):
    """Mean, variance, mode, entropy, quantiles and CRPS of one mixture, as in `rows.summaries`."""
    records = np.zeros((len(weights), 16))
    sums, buffer = np.zeros(9), np.zeros(5 * SIZE)
    for k in range(len(weights)):
        if weights[k] > 0.0:
            call(addresses[k], PREPARED, components[k].ctypes.data, records[k].ctypes.data, 1)
            facts_of(addresses[k], records[k], components[k, 3], components[k, 4], known[k], sums, buffer)
    panels = np.zeros((covered(known, weights, np.zeros((0, 2))), 2))
    covered(known, weights, panels)
    if len(panels) == 0:
        moments[0] = moments[1] = moments[2] = moments[3] = np.nan
        quantiles[:], scores[:] = np.nan, np.nan
        return
    row = addresses, records, weights, known, buffer
    positions, values = np.zeros((len(panels), SIZE)), np.zeros((len(panels), SIZE))
    for s in range(len(panels)):
        panel_masses(row, panels[s, 0], panels[s, 1], positions[s], values[s])
    mixed_moments(known, weights, moments)
    moments[2] = mode(row, positions.reshape(-1), values.reshape(-1))
    totals = np.zeros((len(panels), 5))
    moments[3] = accumulated(panels, values, entropy, totals)
    work = np.zeros((5, SIZE))
    for j in range(len(levels)):
        quantiles[j], _ = split(row, panels, values, totals, levels[j], -1.0, work)
    for j in range(len(y)):
        _, scores[j] = split(row, panels, values, totals, -1.0, y[j], work)


def mixed_moments(known, weights, moments):
    """Mean and variance of the mixture."""
    mean, variance, total = 0.0, 0.0, 0.0
    for k in range(len(weights)):
        if weights[k] > 0.0:
            mean += weights[k] * known[k, 1]
            total += weights[k]
    mean /= total
    for k in range(len(weights)):
        if weights[k] > 0.0:
            variance += weights[k] * (known[k, 2] + (known[k, 1] - mean) ** 2)
    moments[0], moments[1] = mean, variance / total


def covered(known, weights, panels):
    """First count and size of the panels from 0 to the last count, as many as there is room for; their number."""
    x, n, last, number = 0.0, float(SIZE), -1.0, 0
    for k in range(len(weights)):
        if not (weights[k] <= 0.0 or weights[k] * (known[k, 0] + known[k, 1]) < inf):
            return 0  # NaN or infinite
        if weights[k] > 0.0:
            last = max(last, known[k, 4])
    while x <= last:
        while n > SIZE and not is_smooth(known, weights, x, n):
            n *= 0.5
        while is_smooth(known, weights, x, 2.0 * n):
            n *= 2.0
        if not x < x + n < 1e300:
            return 0  # counts that float64 cannot tell apart
        if number < len(panels):
            panels[number, 0], panels[number, 1] = x, n
        number += 1
        x += n
    return number


def is_smooth(known, weights, x, n):
    """Whether every component that has mass among n counts from x on is smooth there."""
    for k in range(len(weights)):
        has_mass = weights[k] > 0.0 and known[k, 3] < x + n and known[k, 4] >= x
        scale = max(known[k, 5], abs(x - known[k, 1]) / TAIL)
        is_inner = x - n >= known[k, 6] and x + 2.0 * n <= known[k, 7] + 1.0
        if has_mass and not (is_inner and n <= SPAN * scale and is_exact(n, x, known[k, 5])):
            return False
    return n < 1e300


def panel_masses(row, x, n, positions, values):
    """The positions of the panel of n counts from x on, and the mixture's pmf there."""
    for i in range(SIZE):
        positions[i], values[i] = x - 0.5 + n * POSITIONS[table_of(n), i], 0.0
    add_mass(row, x, x + n, positions, SIZE, values)


def add_mass(row, first, end, positions, n, values):
    """Add the mixture's pmf at n positions, all of them among the counts from `first` on and before `end`."""
    addresses, records, weights, known, buffer = row
    for k in range(len(weights)):
        if weights[k] > 0.0 and known[k, 3] < end and known[k, 4] >= first:
            low, high = known[k, 6], known[k, 7]
            for i in range(n):
                buffer[i] = min(max(positions[i], low), high)
            call(addresses[k], TERMS, records[k].ctypes.data, buffer.ctypes.data, n)
            for i in range(n):
                if low <= positions[i] <= high:
                    values[i] += weights[k] * exp(buffer[n + i] - known[k, 0])


def mode(row, positions, values):
    """The most probable count: between the neighbours of the highest position, by halving."""
    best = np.argmax(values)
    before = best - 1 if best > 0 and values[best - 1] > 0.0 else best
    low, high = np.floor(positions[before]), np.floor(positions[min(best + 1, len(positions) - 1)])
    pair, there = np.zeros(2), np.zeros(2)
    while low < high:
        pair[0] = np.floor(0.5 * (low + high))
        pair[1], there[0], there[1] = pair[0] + 1.0, 0.0, 0.0
        if not pair[0] < high:
            break  # counts that float64 cannot tell apart
        add_mass(row, pair[0], pair[1] + 1.0, pair, 2, there)
        if there[1] > there[0] * (1.0 + TIE):
            low = pair[1]
        else:
            high = pair[0]
    return low


# Sums over panels ----------------------------------------------------------------------------------------------------


def times(matrix, values, results):
    """Results of a table for the values of a panel."""
    for i in range(len(results)):
        results[i] = 0.0
    for j in range(len(values)):
        for i in range(len(results)):
            results[i] += matrix[j, i] * values[j]


def mass_of(values, n):
    """The sum over a panel of n counts."""
    total = 0.0
    for i in range(SIZE):
        total += WEIGHTS[table_of(n), i] * values[i]
    return n * total


def squares(values, n, first, sign, work):
    """The sum over a panel of the squares of `first` with the sum up to each count added (sign 1) or removed (-1)."""
    times(UPTO[table_of(n)], values, work)
    total = 0.0
    for i in range(SIZE):
        total += WEIGHTS[table_of(n), i] * (first + sign * (n * work[i] + 0.5 * values[i])) ** 2
    return n * total


def accumulated(panels, values, entropy, totals):
    """Per panel: mass, that before and after it, sums of F(z)^2 before and of (1 - F(z))^2 after it; the entropy."""
    work, last, spread = np.zeros(SIZE), len(panels) - 1, 0.0
    for s in range(len(panels)):
        n = panels[s, 1]
        totals[s, 0] = mass_of(values[s], n)
        if entropy:
            for i in range(SIZE):
                work[i] = -values[s, i] * log(values[s, i]) if values[s, i] > 0.0 else 0.0
            spread += mass_of(work, n)
        if s < last:
            totals[s + 1, 1] = totals[s, 1] + totals[s, 0]
            totals[s + 1, 3] = totals[s, 3] + squares(values[s], n, totals[s, 1], 1.0, work)
    for s in range(last, 0, -1):
        totals[s - 1, 2] = totals[s, 2] + totals[s, 0]
        totals[s - 1, 4] = totals[s, 4] + squares(values[s], panels[s, 1], totals[s - 1, 2], -1.0, work)
    return spread


def is_reached(below, above, end, level, y):
    """Whether the count that is looked for is before `end`, with so much mass before and from there on."""
    if level < 0.0:
        return y < end
    if level <= 0.5:
        return below >= level * (1.0 - SLACK)
    return above <= (1.0 - level) * (1.0 + SLACK)


def split(row, panels, values, totals, level, y, work):
    """The count at a level of the cdf, or y if the level is -1; the sum of F(z)^2 below it, (1 - F(z))^2 from it on.

    The panel that it is in is halved until it is 16 counts.
    """
    s, last = 0, len(panels) - 1
    while s < last and not is_reached(totals[s + 1, 1], totals[s, 2], panels[s + 1, 0], level, y):
        s += 1
    x, n, below, above, score = panels[s, 0], panels[s, 1], totals[s, 1], totals[s, 2], totals[s, 3] + totals[s, 4]
    here, left, right, sums, positions = work[0], work[1], work[2], work[3], work[4]
    for i in range(SIZE):
        here[i] = values[s, i]
    while n > SIZE:
        n *= 0.5
        panel_masses(row, x, n, positions, left)
        panel_masses(row, x + n, n, positions, right)
        lower, upper = mass_of(left, n), mass_of(right, n)
        if is_reached(below + lower, above + upper, x + n, level, y):
            score += squares(right, n, above + upper, -1.0, sums)
            above += upper
            here, left = left, here
        else:
            score += squares(left, n, below, 1.0, sums)
            below += lower
            x += n
            here, right = right, here
    count, rest = x, mass_of(here, n)
    for i in range(SIZE):
        below += here[i]
        rest -= here[i]
        beyond = above + max(rest, 0.0)
        if count < x + i or is_reached(below, beyond, x + i + 1.0, level, y):
            score += beyond**2
        else:
            score += below**2
            count += 1.0
    end = x + SIZE
    return min(count, end - 1.0), score + max(y - end, 0.0)
