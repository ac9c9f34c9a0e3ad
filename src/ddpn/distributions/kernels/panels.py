"""Rows whose counts are too many to add one by one: a mixture on panels of counts, see `gauss`.

Panels are as long as all components that have mass there are smooth, and where one is not they are single counts: where
it is narrow, and close to the ends of its range. Every component is evaluated once, at the positions of all panels:
these values give its total and its moments, those of the mixture, and by halving panels a quantile, the count that a
CRPS is for, and the count at which a map of the cdf has a knot.
"""

from math import exp, inf, log
from typing import Any

import numpy as np

from ddpn.distributions.kernels import loops
from ddpn.distributions.kernels.gauss import HALVES, POSITIONS, SIZE, UPTO, WEIGHTS, is_exact, table_of
from ddpn.distributions.kernels.ranges import TAIL, extent

PREPARED, TERMS, FACTS = loops.PREPARED, loops.TERMS, loops.FACTS
#: A panel spans at most so many standard deviations. The cdf of a normal distribution by repeated halving then errs by
#: 3e-12 of itself down to six standard deviations below the mean, which is below SLACK; with spans of 2, by 3e-8.
SPAN = 1.25
#: Two probabilities within this share of each other are equal: the smaller count is the mode.
TIE = 1e-15
#: Relative rounding of the masses of panels, which must not move a quantile.
SLACK = 1e-11


#: A family's kernel at its address: (address, operation, inputs, results, length). `compiling` puts it here.
call: Any = None


def of_row(mixture, known, change, levels, y, interval_levels, entropy, results):
    """Mean, variance, mode, entropy, quantiles, CRPS, interval and entry of one mixture, as in `rows.summaries`.

    `mixture` is (addresses, components, weights), and `results` (moments, quantiles, scores, interval, entry).
    """
    addresses, components, weights = mixture
    moments, quantiles, scores, interval, entry = results
    records, buffer = np.zeros((len(weights), 16)), np.zeros(5 * SIZE)
    for k in range(len(weights)):
        if weights[k] > 0.0:
            call(addresses[k], PREPARED, components[k].ctypes.data, records[k].ctypes.data, 1)
            extent(addresses[k], records[k], components[k, 3], components[k, 4], known[k], buffer)
    panels = np.zeros((covered(known, weights, np.zeros((0, 3))), 3))
    covered(known, weights, panels)
    row = addresses, records, weights, known, buffer
    positions, values = np.zeros((len(panels), SIZE)), np.zeros((len(panels), SIZE))
    if len(panels) == 0 or not evaluated(row, panels, positions, values):
        moments[0] = moments[1] = moments[2] = moments[3] = np.nan
        quantiles[:], scores[:], interval[:], entry[:] = np.nan, np.nan, np.nan, np.nan
        return
    mixed_moments(known, weights, moments)
    if change.shape[1] > 0:
        panels, values = divided(panels, values, change)
        positions = np.zeros((len(panels), SIZE))
        for s in range(len(panels)):
            place(panels[s, 0], panels[s, 1], positions[s])
        change_knots(panels, values, change)
        summed_moments(panels, positions, values, moments)
    moments[2] = mode(row, panels, positions, values)
    totals = np.zeros((len(panels), 5))
    moments[3] = accumulated(panels, values, entropy, totals)
    work = np.zeros((4, SIZE))
    for j in range(len(levels)):
        quantiles[j], _, _ = split(panels, values, totals, levels[j], -1.0, work)
    for j in range(len(y)):
        _, scores[j], _ = split(panels, values, totals, -1.0, y[j], work)
    if len(interval) > 0 or len(entry) > 0:
        curve = cdf_curve(panels, positions, values, totals)
        if len(interval) > 0:
            tail = narrowest_tail(curve, interval_levels[0])
            low, _, before = split(panels, values, totals, tail, -1.0, work)
            high, _, _ = split(panels, values, totals, before + interval_levels[0], -1.0, work)
            _, _, upto = split(panels, values, totals, -1.0, high + 1.0, work)
            interval[0], interval[1], interval[2] = low, high, upto - before
        if len(entry) > 0:
            entry[0] = entry[1] = level_of_set(curve, y[0])


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


# Changed cdfs --------------------------------------------------------------------------------------------------------

#: The slope of a panel of 16 counts in which a map has a knot: each count has a slope of its own.
KNOT = 0.0
#: The most parts of a panel that wait while it is halved.
MAX_HALVES = 64


def slope_of(change, piece):
    """The slope of one piece of a map."""
    return (change[1, piece + 1] - change[1, piece]) / (change[0, piece + 1] - change[0, piece])


def divided(panels, values, change):
    """Panels that each lie within one piece of the map, with the slope there; around a knot they are 16 counts.

    Panels with a knot in them are halved. All that is computed for a panel is linear in its probabilities, so that a
    panel within a piece only needs its slope, which its values are multiplied by.
    """
    knots, number, piece, upto = change.shape[1], 0, 0, 0.0
    new_panels, new_values = np.zeros((2 * len(panels) + 64, 3)), np.zeros((2 * len(panels) + 64, SIZE))
    # What is left of a panel, its next part last: halves of halves, and so at most as many as the digits of a count.
    parts, part_values = np.zeros((MAX_HALVES, 2)), np.zeros((MAX_HALVES, SIZE))
    for s in range(len(panels)):
        waiting = 1
        parts[0, 0], parts[0, 1], part_values[0] = panels[s, 0], panels[s, 1], values[s]
        while waiting > 0:
            x, n, own = parts[waiting - 1, 0], parts[waiting - 1, 1], part_values[waiting - 1]
            mass = mass_of(own, n)
            is_within = piece == knots - 2 or upto + mass <= change[0, piece + 1]
            if not is_within and n > SIZE and waiting < MAX_HALVES:
                right = own.copy()
                times(HALVES[table_of(n), 0], right, part_values[waiting])
                times(HALVES[table_of(n), 1], right, own)
                parts[waiting - 1, 0], parts[waiting - 1, 1] = x + 0.5 * n, 0.5 * n
                parts[waiting, 0], parts[waiting, 1] = x, 0.5 * n
                waiting += 1
                continue
            if number == len(new_panels):
                new_panels = np.concatenate((new_panels, np.zeros_like(new_panels)))
                new_values = np.concatenate((new_values, np.zeros_like(new_values)))
            slope = slope_of(change, piece) if is_within else KNOT
            new_panels[number, 0], new_panels[number, 1], new_panels[number, 2] = x, n, slope
            for i in range(SIZE):
                new_values[number, i] = own[i] * slope if is_within else own[i]
            number += 1
            waiting -= 1
            upto += mass
            while piece < knots - 2 and upto > change[0, piece + 1]:
                piece += 1
    return new_panels[:number], new_values[:number]


def change_knots(panels, values, change):
    """Change the probabilities of counts in panels with a knot, which have not been multiplied by a slope."""
    upto, piece, knots = 0.0, 0, change.shape[1]
    for s in range(len(panels)):
        n, slope = panels[s, 1], panels[s, 2]
        if slope != KNOT:
            upto += mass_of(values[s], n) / slope
            continue
        while piece < knots - 2 and upto > change[0, piece + 1]:
            piece += 1
        for i in range(SIZE):
            rest, total = values[s, i], 0.0
            while piece < knots - 2 and upto + rest > change[0, piece + 1]:
                part = max(change[0, piece + 1] - upto, 0.0)
                total += slope_of(change, piece) * part
                rest -= part
                upto += part
                piece += 1
            upto += rest
            values[s, i] = total + slope_of(change, piece) * rest


def summed_moments(panels, positions, values, moments):
    """Mean and variance by sums over all panels, around the mean that `moments` has before."""
    around, work = moments[0], np.zeros(SIZE)
    total, first, second = 0.0, 0.0, 0.0
    for s in range(len(panels)):
        total += mass_of(values[s], panels[s, 1])
        for i in range(SIZE):
            work[i] = values[s, i] * (positions[s, i] - around)
        first += mass_of(work, panels[s, 1])
        for i in range(SIZE):
            work[i] *= positions[s, i] - around
        second += mass_of(work, panels[s, 1])
    shift = first / total
    moments[0], moments[1] = around + shift, max(second / total - shift * shift, 0.0)


# Panels --------------------------------------------------------------------------------------------------------------


def covered(known, weights, panels):
    """First count, size and slope 1 of the panels from 0 to the last count, as many as there is room for; their number.

    A slope is what multiplies all probabilities of a panel.
    """
    x, n, last, number = 0.0, float(SIZE), -1.0, 0
    for k in range(len(weights)):
        if not (weights[k] <= 0.0 or weights[k] * (known[k, 9] + known[k, 4]) < inf):
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
            panels[number, 0], panels[number, 1], panels[number, 2] = x, n, 1.0
        number += 1
        x += n
    return number


def is_smooth(known, weights, x, n):
    """Whether every component that has mass among n counts from x on is smooth there."""
    for k in range(len(weights)):
        has_mass = weights[k] > 0.0 and known[k, 3] < x + n and known[k, 4] >= x
        scale = max(known[k, 5], abs(x - known[k, 8]) / TAIL)
        is_inner = x - n >= known[k, 6] and x + 2.0 * n <= known[k, 7] + 1.0
        if has_mass and not (is_inner and n <= SPAN * scale and is_exact(n, x, known[k, 5])):
            return False
    return n < 1e300


def place(x, n, positions):
    """The positions of the panel of n counts from x on."""
    for i in range(SIZE):
        positions[i] = x - 0.5 + n * POSITIONS[table_of(n), i]


def evaluated(row, panels, positions, values):
    """The positions of all panels and the mixture's pmf there; whether all components have finite sums.

    `known` gets the log total, the mean and the variance of every component.
    """
    addresses, records, weights, known, buffer = row
    for s in range(len(panels)):
        place(panels[s, 0], panels[s, 1], positions[s])
    own = np.zeros((len(panels), SIZE))
    for k in range(len(weights)):
        if weights[k] <= 0.0:
            continue
        low, high, start, reference = known[k, 6], known[k, 7], known[k, 8], known[k, 9]
        first, end, total, shift, square = len(panels), 0, 0.0, 0.0, 0.0
        for s in range(len(panels)):
            if not (known[k, 3] < panels[s, 0] + panels[s, 1] and known[k, 4] >= panels[s, 0]):
                continue
            first, end = min(first, s), s + 1
            for i in range(SIZE):
                buffer[i] = min(max(positions[s, i], low), high)
            call(addresses[k], TERMS, records[k].ctypes.data, buffer.ctypes.data, SIZE)
            n = panels[s, 1]
            for i in range(SIZE):
                is_inside = low <= positions[s, i] <= high
                own[s, i] = exp(buffer[SIZE + i] - reference) if is_inside else 0.0
                share, gap = n * WEIGHTS[table_of(n), i] * own[s, i], positions[s, i] - start
                total += share
                shift += share * gap
                square += share * gap * gap
        if not 0.0 < total < inf:
            return False
        shift /= total
        is_whole = records[k, FACTS + 3] > 0.0 and low <= 0.0 and high >= records[k, FACTS + 2]
        known[k, 0] = 0.0 if is_whole else reference + log(total)
        known[k, 1], known[k, 2] = start + shift, max(square / total - shift * shift, 0.0)
        factor = weights[k] * (exp(reference) if is_whole else 1.0 / total)
        for s in range(first, end):
            for i in range(SIZE):
                values[s, i] += factor * own[s, i]
    return True


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


def mode(row, panels, positions, values):
    """The most probable count: between the neighbours of the highest position, by halving.

    Neighbours in panels of another slope do not count: probabilities jump between them.
    """
    best = np.argmax(values)
    s, i = best // SIZE, best % SIZE
    x, n, slope = panels[s, 0], panels[s, 1], panels[s, 2]
    low = high = np.floor(positions[s, i])
    if n > SIZE or slope != KNOT:
        low, high = x, x + n - 1.0
        if i > 0:
            low = np.floor(positions[s, i - 1])
        elif s > 0 and panels[s - 1, 2] == slope and values[s - 1, SIZE - 1] > 0.0:
            low = np.floor(positions[s - 1, SIZE - 1])
        if i < SIZE - 1:
            high = np.floor(positions[s, i + 1])
        elif s < len(panels) - 1 and panels[s + 1, 2] == slope:
            high = np.floor(positions[s + 1, 0])
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


def split(panels, values, totals, level, y, work):
    """The count at a level of the cdf, or y if the level is -1; its CRPS; and the mass below it.

    The CRPS is the sum of F(z)^2 below the count and of (1 - F(z))^2 from it on. The panel that the count is in is
    halved until it is 16 counts.
    """
    s, last = 0, len(panels) - 1
    while s < last and not is_reached(totals[s + 1, 1], totals[s, 2], panels[s + 1, 0], level, y):
        s += 1
    x, n, below, above, score = panels[s, 0], panels[s, 1], totals[s, 1], totals[s, 2], totals[s, 3] + totals[s, 4]
    here, left, right, sums = work[0], work[1], work[2], work[3]
    for i in range(SIZE):
        here[i] = values[s, i]
    while n > SIZE:
        times(HALVES[table_of(n), 0], here, left)
        times(HALVES[table_of(n), 1], here, right)
        n *= 0.5
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
    count, before = x, below
    for i in range(SIZE - 1, -1, -1):  # what is above each count, of which the last is above the panel
        left[i] = above
        above += here[i]
    for i in range(SIZE):
        below += here[i]
        if count < x + i or is_reached(below, left[i], x + i + 1.0, level, y):
            score += left[i] ** 2
        else:
            score += below**2
            count += 1.0
            before = below
    end = x + SIZE
    return min(count, end - 1.0), score + max(y - end, 0.0), before


# Narrowest intervals --------------------------------------------------------------------------------------------------

#: Points of a curve per position of a panel: at four the interval is the narrowest to a thousandth of its width.
POINTS = 4


def cdf_curve(panels, positions, values, totals):
    """Counts, P(Z <= count) and pmf at the positions of all panels and at points between them. Shape: (3, points)."""
    nodes = np.zeros((3, len(panels) * SIZE))
    upto = np.zeros(SIZE)
    for s in range(len(panels)):
        n = panels[s, 1]
        times(UPTO[table_of(n)], values[s], upto)
        for i in range(SIZE):
            node = s * SIZE + i
            nodes[0, node], nodes[2, node] = positions[s, i], values[s, i]
            nodes[1, node] = totals[s, 1] + n * upto[i] + 0.5 * values[s, i]
    curve = np.zeros((3, (nodes.shape[1] - 1) * POINTS + 1))
    for node in range(nodes.shape[1] - 1):
        x, h = nodes[0, node], nodes[0, node + 1] - nodes[0, node]
        start, end = nodes[1, node], nodes[1, node + 1]
        slope, next_slope = h * nodes[2, node], h * nodes[2, node + 1]
        for i in range(POINTS):
            t = i / POINTS
            cubic = (
                slope * t * (1.0 - t) ** 2 - next_slope * t * t * (1.0 - t) + (end - start) * t * t * (3.0 - 2.0 * t)
            )
            point = node * POINTS + i
            curve[0, point], curve[1, point] = x + t * h, min(max(start + cubic, start), end)
            curve[2, point] = nodes[2, node] + t * (nodes[2, node + 1] - nodes[2, node])
    curve[:, -1] = nodes[:, -1]
    return curve


def narrowest_tail(curve, level):
    """The mass below the shortest stretch of a curve that has so much mass, at points of the curve."""
    best, tail, end = curve[0, -1] + 1.0, 0.0, 0
    for start in range(curve.shape[1]):
        goal = (curve[1, start] if start > 0 else 0.0) + level
        while end < curve.shape[1] and curve[1, end] < goal:
            end += 1
        if end == curve.shape[1]:
            break
        step = curve[1, end] - curve[1, end - 1] if end > 0 else 0.0
        share = (curve[1, end] - goal) / step if step > 0.0 else 0.0
        stop = curve[0, end] - share * (curve[0, end] - curve[0, end - 1]) if end > 0 else curve[0, end]
        first = curve[0, start] if start > 0 else 0.0
        if stop - first < best * (1.0 - SLACK):
            best, tail = stop - first, goal - level
    return tail


def level_of_set(curve, y):
    """The mass of the shortest stretch that has y and all counts that are more probable than y."""
    last = curve.shape[1] - 1
    if y > curve[0, last]:
        return curve[1, last]
    at = np.searchsorted(curve[0], y)
    before = max(at - 1, 0)
    width = curve[0, at] - curve[0, before]
    share = (y - curve[0, before]) / width if width > 0.0 else 0.0
    probability = curve[2, before] + share * (curve[2, at] - curve[2, before])
    cdf = curve[1, before] + share * (curve[1, at] - curve[1, before])
    first, end = 0, last
    while first < last and curve[2, first] < probability:
        first += 1
    while end > 0 and curve[2, end] < probability:
        end -= 1
    low = min(crossing(curve, first - 1, first, probability), cdf) if first > 0 else 0.0
    high = max(crossing(curve, end, end + 1, probability), cdf) if end < last else curve[1, last]
    return high - low


def crossing(curve, before, after, probability):
    """The cdf where the pmf passes a value between two points of a curve."""
    rise = curve[2, after] - curve[2, before]
    share = min(max((probability - curve[2, before]) / rise, 0.0), 1.0) if rise != 0.0 else 0.0
    return curve[1, before] + share * (curve[1, after] - curve[1, before])
