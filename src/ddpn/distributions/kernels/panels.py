"""Statistics of mixtures with too many counts to add one by one, by sums over the panels of `gauss`.

A row is one mixture, and its components are distributions. The extent of a component says where its counts lie: its
first and last count that are not negligible, and the other columns of `ranges.FIRST` to `ranges.REFERENCE`. A panel is
a range of consecutive counts over which all components are smooth, and which 16 positions represent; its record has the
first count, the number of counts and the slope of the recalibration map. Where a component is narrow, or near an end of
its range, a panel has 16 single counts. A mixture with fewer counts needs no panels: `walk` computes the weights of all
its counts one after another, which is called a walk.

Each family adds the probabilities of its components at the 16 positions of every panel. Sums over the values give the
moments of the mixture. A quantile, the count to be scored, or a knot of a recalibration map is found by halving the
panel that contains it.

Rows share their arrays: the panels of row i are `offsets[i]` to `offsets[i + 1]`.
"""

from math import exp, inf, log

import numpy as np

from ddpn.distributions.kernels.arrays import compute_slope, recalibrate_mass, split_variance
from ddpn.distributions.kernels.family import prepare
from ddpn.distributions.kernels.gauss import (
    HALVES,
    N_POSITIONS,
    POSITIONS,
    UPTO,
    WEIGHTS,
    find_table,
    is_rounding_harmless,
)
from ddpn.distributions.kernels.ranges import (
    CENTRE,
    EXTENT_DEPTH,
    FIRST,
    HIGH,
    LAST,
    LOW,
    REFERENCE,
    TAIL_DEVIATIONS,
    WIDTH,
    find_extent,
    has_total_1,
)

#: Longest panel in standard deviations. The relative error of a normal cdf by repeated halving is then 3e-12 down to
#: six standard deviations below the mean, which is below PANEL_TOLERANCE. With panels of 2 standard deviations, it
#: would be 3e-8.
MAX_PANEL_DEVIATIONS = 1.25
#: Relative tolerance at the level of a quantile: rounding in sums over panels must not move it.
PANEL_TOLERANCE = 1e-11
#: Columns of `totals`: the log of the sum of a component's weights, its mean and its variance.
LOG_TOTAL, MEAN, VARIANCE = range(3)


# Layout --------------------------------------------------------------------------------------------------------------


def compute_component_extents(family, components, weights, column, extents):
    """Find the extents of the components (rows, k, 5) of a family; see `ranges.find_extent`."""
    for i in range(components.shape[0]):
        for k in range(components.shape[1]):
            if weights[i, column + k] > 0.0:
                p = prepare(family, components[i, k, 0], components[i, k, 1], components[i, k, 2])
                find_extent(p, components[i, k, 3], components[i, k, 4], EXTENT_DEPTH, extents[i, column + k])


def make_row_panels(extents, weights, offsets):
    """Return the panels (panels, 3) of all rows, one row after another, from the extents of their components.

    `extents` (rows, components, 7) and mixture weights (rows, components) describe the rows. The index of each row's
    first panel is written to `offsets` (rows + 1). The columns of a panel are its first count, its number of counts and
    its slope.
    """
    offsets[0], nothing = 0, np.zeros((0, 3))
    for i in range(len(weights)):
        offsets[i + 1] = offsets[i] + lay_panels(extents[i], weights[i], nothing)
    panels = np.empty((offsets[-1], 3))
    for i in range(len(weights)):
        lay_panels(extents[i], weights[i], panels[offsets[i] : offsets[i + 1]])
    return panels


def lay_panels(extents, weights, panels):
    """Write the first count, number of counts and slope of a row's panels; return the number of panels.

    Panels that do not fit into `panels` are counted and not written. Panels reach from 0 to the last count that is not
    negligible. The slope multiplies all probabilities of a panel; it is 1 before recalibration. There are no panels if
    parameters are NaN or infinite, or if counts are too large for float64.
    """
    x, n, last, number = 0.0, float(N_POSITIONS), -1.0, 0
    for k in range(len(weights)):
        if not (weights[k] <= 0.0 or weights[k] * (extents[k, REFERENCE] + extents[k, LAST]) < inf):
            return 0
        if weights[k] > 0.0:
            last = max(last, extents[k, LAST])
    while x <= last:
        while n > N_POSITIONS and not is_smooth(extents, weights, x, n):
            n *= 0.5
        while is_smooth(extents, weights, x, 2.0 * n):
            n *= 2.0
        if not x < x + n < 1e300:
            return 0
        if number < len(panels):
            panels[number, 0], panels[number, 1], panels[number, 2] = x, n, 1.0
        number += 1
        x += n
    return number


def is_smooth(extents, weights, x, n):
    """Return True if every component is smooth over the n counts from x on, or has no mass among them."""
    for k in range(len(weights)):
        if weights[k] > 0.0 and extents[k, FIRST] < x + n and extents[k, LAST] >= x:
            scale = max(extents[k, WIDTH], abs(x - extents[k, CENTRE]) / TAIL_DEVIATIONS)
            is_inner = x - n >= extents[k, LOW] and x + 2.0 * n <= extents[k, HIGH] + 1.0
            if not (is_inner and n <= MAX_PANEL_DEVIATIONS * scale and is_rounding_harmless(n, x, extents[k, WIDTH])):
                return False
    return n < 1e300


# Probabilities -------------------------------------------------------------------------------------------------------


def add_values(family, components, weights, column, extents, offsets, panels, values, totals):
    """Add the probabilities of a family's components, times their mixture weights, to `values` (panels, 16).

    `totals` (rows, K, 3) receives the log of the sum of each component's weights, its mean and its variance. All values
    of a row become NaN if the weights of a component have no finite sum.
    """
    longest = 0
    for i in range(len(weights)):
        longest = max(longest, offsets[i + 1] - offsets[i])
    buffer = np.empty((longest, N_POSITIONS))
    for i in range(len(weights)):
        start, end = offsets[i], offsets[i + 1]
        for k in range(components.shape[1]):
            if weights[i, column + k] > 0.0:
                p = prepare(family, components[i, k, 0], components[i, k, 1], components[i, k, 2])
                extent, total = extents[i, column + k], totals[i, column + k]
                add_component(p, weights[i, column + k], extent, panels[start:end], values[start:end], total, buffer)


def add_component(p, weight, extent, panels, values, totals, buffer):
    """Add the probabilities of one component, times its mixture weight, to the values of a row's panels."""
    low, high, centre, reference = extent[LOW], extent[HIGH], extent[CENTRE], extent[REFERENCE]
    first, end, total, shift, square = len(panels), 0, 0.0, 0.0, 0.0
    for s in range(len(panels)):
        x, n = panels[s, 0], panels[s, 1]
        if not (extent[FIRST] < x + n and extent[LAST] >= x):
            continue
        first, end, t = min(first, s), s + 1, find_table(n)
        for i in range(N_POSITIONS):
            y = x - 0.5 + n * POSITIONS[t, i]
            w = exp(p.log_mass(y) - reference) if low <= y <= high else 0.0
            share, gap = n * WEIGHTS[t, i] * w, y - centre
            buffer[s, i] = w
            total += share
            shift += share * gap
            square += share * gap * gap
    if not 0.0 < total < inf:
        values[:] = np.nan
        return
    shift /= total
    is_whole = has_total_1(p, low, high)
    totals[LOG_TOTAL] = 0.0 if is_whole else reference + log(total)
    totals[MEAN], totals[VARIANCE] = centre + shift, max(square / total - shift * shift, 0.0)
    factor = weight * (exp(reference) if is_whole else 1.0 / total)
    for s in range(first, end):
        for i in range(N_POSITIONS):
            values[s, i] += factor * buffer[s, i]


def add_masses(family, components, weights, column, extents, totals, y, results):
    """Add the probabilities of counts y (rows, n) under a family's components, times mixture weights, to `results`."""
    for i in range(len(weights)):
        for k in range(components.shape[1]):
            extent, weight = extents[i, column + k], weights[i, column + k]
            if weight > 0.0 and extent[FIRST] <= y[i, -1] and extent[LAST] >= y[i, 0]:
                p = prepare(family, components[i, k, 0], components[i, k, 1], components[i, k, 2])
                for j in range(y.shape[1]):
                    if extent[LOW] <= y[i, j] <= extent[HIGH]:
                        results[i, j] += weight * exp(p.log_mass(y[i, j]) - totals[i, column + k, LOG_TOTAL])


# Rows ----------------------------------------------------------------------------------------------------------------


def summarise_panels(
    weights, groups, totals, offsets, all_panels, all_values, cdf_map, inputs, with_entropy, modes, results
):
    """Write the results of `loops.summarise` for all rows, computed from the values of their panels, to `results`.

    `all_values` (panels, 16) has the probabilities at the positions of `all_panels`, `inputs` are the levels of
    quantiles, the counts to be scored and the levels of intervals, and `results` are the arrays of moments, quantiles,
    scores, intervals and entry levels. The entropy is computed if `with_entropy` is True. `modes` (rows, 2) receives
    two counts that enclose the mode of each row. Rows without panels, or with NaN as a value, get NaN.
    """
    levels, y, interval_levels = inputs
    moments, quantiles, scores, intervals, entries = results
    work = np.zeros((4, N_POSITIONS))
    for i in range(len(weights)):
        panels, values = all_panels[offsets[i] : offsets[i + 1]], all_values[offsets[i] : offsets[i + 1]]
        if len(panels) == 0 or np.isnan(values[0, 0]):
            modes[i, :], moments[i, 0] = 0.0, np.nan
            continue
        split_variance(groups, weights[i], totals[i, :, MEAN : VARIANCE + 1], moments[i])
        if cdf_map.shape[1] > 0:
            panels, values = divide_panels(panels, values, cdf_map)
            recalibrate_knots(panels, values, cdf_map)
            sum_panel_moments(panels, values, moments[i])
        positions = place_positions(panels)
        bracket_mode(panels, positions, values, modes[i])
        sums = np.zeros((len(panels), 5))
        moments[i, 3] = accumulate_panels(panels, values, with_entropy, sums)
        for j in range(levels.shape[1]):
            quantiles[i, j], _, _ = split_at_count(panels, values, sums, levels[i, j], -1.0, work)
        for j in range(y.shape[1]):
            _, scores[i, j], _ = split_at_count(panels, values, sums, -1.0, y[i, j], work)
        if intervals.shape[1] > 0:
            curve = draw_cdf(panels, positions, values, sums)
            tail = find_narrowest_tail(curve, interval_levels[i, 0])
            low, _, before = split_at_count(panels, values, sums, tail, -1.0, work)
            high, _, _ = split_at_count(panels, values, sums, before + interval_levels[i, 0], -1.0, work)
            _, _, upto = split_at_count(panels, values, sums, -1.0, high + 1.0, work)
            intervals[i, 0], intervals[i, 1], intervals[i, 2] = low, high, upto - before
        if entries.shape[1] > 0:
            entries[i, :] = find_entry_level(draw_cdf(panels, positions, values, sums), y[i, 0])


def place_positions(panels):
    """Return the positions of all panels. Shape: (panels, 16)."""
    positions = np.empty((len(panels), N_POSITIONS))
    for s in range(len(panels)):
        t = find_table(panels[s, 1])
        for i in range(N_POSITIONS):
            positions[s, i] = panels[s, 0] - 0.5 + panels[s, 1] * POSITIONS[t, i]
    return positions


def bracket_mode(panels, positions, values, mode):
    """Write two counts that enclose the mode, from the positions next to the most probable position.

    Positions in a panel of another slope are not used, as probabilities jump between the two panels.
    """
    best = np.argmax(values)
    s, i = best // N_POSITIONS, best % N_POSITIONS
    x, n, slope = panels[s, 0], panels[s, 1], panels[s, 2]
    low = high = np.floor(positions[s, i])
    if n > N_POSITIONS or slope != KNOT_SLOPE:
        low, high = x, x + n - 1.0
        if i > 0:
            low = np.floor(positions[s, i - 1])
        elif s > 0 and panels[s - 1, 2] == slope and values[s - 1, N_POSITIONS - 1] > 0.0:
            low = np.floor(positions[s - 1, N_POSITIONS - 1])
        if i < N_POSITIONS - 1:
            high = np.floor(positions[s, i + 1])
        elif s < len(panels) - 1 and panels[s + 1, 2] == slope:
            high = np.floor(positions[s + 1, 0])
    mode[0], mode[1] = low, high


# Recalibrated cdfs ----------------------------------------------------------------------------------------------------

#: The slope that marks a panel of 16 counts with a knot of the recalibration map among them.
KNOT_SLOPE = 0.0
#: The size of the stack of parts when a panel is halved.
MAX_HALVES = 64


def divide_panels(panels, values, cdf_map):
    """Divide panels so that each lies within one piece of the recalibration map, and write the slope of the piece.

    A panel that contains a knot is halved until 16 counts are left, which `recalibrate_knots` changes one by one.
    """
    knots, number, piece, upto = cdf_map.shape[1], 0, 0, 0.0
    new_panels, new_values = np.zeros((2 * len(panels) + 64, 3)), np.zeros((2 * len(panels) + 64, N_POSITIONS))
    # A stack of the parts of a panel, with the next part last. Halving leaves at most one part per binary digit of a
    # count.
    parts, part_values = np.zeros((MAX_HALVES, 2)), np.zeros((MAX_HALVES, N_POSITIONS))
    for s in range(len(panels)):
        waiting = 1
        parts[0, 0], parts[0, 1], part_values[0] = panels[s, 0], panels[s, 1], values[s]
        while waiting > 0:
            x, n, part = parts[waiting - 1, 0], parts[waiting - 1, 1], part_values[waiting - 1]
            mass = sum_panel(part, n)
            is_within = piece == knots - 2 or upto + mass <= cdf_map[0, piece + 1]
            if not is_within and n > N_POSITIONS and waiting < MAX_HALVES:
                whole = part.copy()
                multiply(HALVES[find_table(n), 0], whole, part_values[waiting])
                multiply(HALVES[find_table(n), 1], whole, part)
                parts[waiting - 1, 0], parts[waiting - 1, 1] = x + 0.5 * n, 0.5 * n
                parts[waiting, 0], parts[waiting, 1] = x, 0.5 * n
                waiting += 1
                continue
            if number == len(new_panels):
                new_panels = np.concatenate((new_panels, np.zeros_like(new_panels)))
                new_values = np.concatenate((new_values, np.zeros_like(new_values)))
            slope = compute_slope(cdf_map, piece) if is_within else KNOT_SLOPE
            new_panels[number, 0], new_panels[number, 1], new_panels[number, 2] = x, n, slope
            for i in range(N_POSITIONS):
                new_values[number, i] = part[i] * slope if is_within else part[i]
            number += 1
            waiting -= 1
            upto += mass
            while piece < knots - 2 and upto > cdf_map[0, piece + 1]:
                piece += 1
    return new_panels[:number], new_values[:number]


def recalibrate_knots(panels, values, cdf_map):
    """Recalibrate the probabilities of single counts in panels with a knot, which `divide_panels` left unchanged."""
    upto = 0.0
    for s in range(len(panels)):
        if panels[s, 2] == KNOT_SLOPE:
            upto = recalibrate_mass(values[s], N_POSITIONS, upto, cdf_map)
        else:
            upto += sum_panel(values[s], panels[s, 1]) / panels[s, 2]


def sum_panel_moments(panels, values, moments):
    """Compute mean and variance by sums over all panels, around the mean before recalibration."""
    around, work = moments[0], np.zeros(N_POSITIONS)
    positions = place_positions(panels)
    total, first, second = 0.0, 0.0, 0.0
    for s in range(len(panels)):
        n = panels[s, 1]
        total += sum_panel(values[s], n)
        for i in range(N_POSITIONS):
            work[i] = values[s, i] * (positions[s, i] - around)
        first += sum_panel(work, n)
        for i in range(N_POSITIONS):
            work[i] *= positions[s, i] - around
        second += sum_panel(work, n)
    shift = first / total
    moments[0], moments[1] = around + shift, max(second / total - shift * shift, 0.0)


# Sums over panels ----------------------------------------------------------------------------------------------------


def multiply(matrix, values, results):
    """Write the product of a table (values, results) with the values of a panel to `results`."""
    for i in range(len(results)):
        results[i] = 0.0
    for j in range(len(values)):
        for i in range(len(results)):
            results[i] += matrix[j, i] * values[j]


def sum_panel(values, n):
    """Return the sum over a panel of n counts."""
    t, total = find_table(n), 0.0
    for i in range(N_POSITIONS):
        total += WEIGHTS[t, i] * values[i]
    return n * total


def sum_squares(values, n, first, sign, work):
    """Return the sum over a panel of (first + sign x S(z))^2; S(z) is the sum of its values up to the count z."""
    t, total = find_table(n), 0.0
    multiply(UPTO[t], values, work)
    for i in range(N_POSITIONS):
        total += WEIGHTS[t, i] * (first + sign * (n * work[i] + 0.5 * values[i])) ** 2
    return n * total


def accumulate_panels(panels, values, with_entropy, totals):
    """Write five sums over the panels of one row to `totals` (panels, 5), and return the row's entropy.

    Partial sums let a quantile be found without adding all panels again. The five are the panel's mass, the mass before
    it, the mass after it, the sum of F(z)^2 over the counts z before it, and the sum of (1 - F(z))^2 over the counts z
    after it, where F is the cdf. The entropy is 0 if `with_entropy` is False.
    """
    work, last, spread = np.zeros(N_POSITIONS), len(panels) - 1, 0.0
    for s in range(len(panels)):
        n = panels[s, 1]
        totals[s, 0] = sum_panel(values[s], n)
        if with_entropy:
            for i in range(N_POSITIONS):
                work[i] = -values[s, i] * log(values[s, i]) if values[s, i] > 0.0 else 0.0
            spread += sum_panel(work, n)
        if s < last:
            totals[s + 1, 1] = totals[s, 1] + totals[s, 0]
            totals[s + 1, 3] = totals[s, 3] + sum_squares(values[s], n, totals[s, 1], 1.0, work)
    for s in range(last, 0, -1):
        totals[s - 1, 2] = totals[s, 2] + totals[s, 0]
        totals[s - 1, 4] = totals[s, 4] + sum_squares(values[s], panels[s, 1], totals[s - 1, 2], -1.0, work)
    return spread


def is_reached(below, above, end, level, y):
    """Return True if the level of the cdf (or the count y, if the level is -1) is reached before the count `end`.

    `below` and `above` are P(Z < end) and P(Z >= end).
    """
    if level < 0.0:
        return y < end
    if level <= 0.5:
        return below >= level * (1.0 - PANEL_TOLERANCE)
    return above <= (1.0 - level) * (1.0 + PANEL_TOLERANCE)


def split_at_count(panels, values, totals, level, y, work):
    """Return the quantile at a level (y if the level is -1), its CRPS, and the probability of smaller counts.

    The CRPS is the sum of F(z)^2 below the count and of (1 - F(z))^2 from the count on. The panel that contains the
    count is halved until 16 counts are left.
    """
    s, last = 0, len(panels) - 1
    while s < last and not is_reached(totals[s + 1, 1], totals[s, 2], panels[s + 1, 0], level, y):
        s += 1
    x, n, below, above, score = panels[s, 0], panels[s, 1], totals[s, 1], totals[s, 2], totals[s, 3] + totals[s, 4]
    inner, left, right, sums = work[0], work[1], work[2], work[3]
    for i in range(N_POSITIONS):
        inner[i] = values[s, i]
    while n > N_POSITIONS:
        multiply(HALVES[find_table(n), 0], inner, left)
        multiply(HALVES[find_table(n), 1], inner, right)
        n *= 0.5
        lower, upper = sum_panel(left, n), sum_panel(right, n)
        if is_reached(below + lower, above + upper, x + n, level, y):
            score += sum_squares(right, n, above + upper, -1.0, sums)
            above += upper
            inner, left = left, inner
        else:
            score += sum_squares(left, n, below, 1.0, sums)
            below += lower
            x += n
            inner, right = right, inner
    count, before = x, below
    for i in range(N_POSITIONS - 1, -1, -1):  # P(Z > count) of the 16 counts, by adding from the last one down
        left[i] = above
        above += inner[i]
    for i in range(N_POSITIONS):
        below += inner[i]
        if count < x + i or is_reached(below, left[i], x + i + 1.0, level, y):
            score += left[i] ** 2
        else:
            score += below**2
            count += 1.0
            before = below
    end = x + N_POSITIONS
    return min(count, end - 1.0), score + max(y - end, 0.0), before


# Narrowest intervals --------------------------------------------------------------------------------------------------

#: Points of the cdf per position of a panel: with four, intervals are narrowest to a thousandth of their width.
POINTS_PER_POSITION = 4


def draw_cdf(panels, positions, values, totals):
    """Evaluate the cdf and the pmf at all positions and at points between them. Shape: counts, cdf, pmf (3, points)."""
    nodes = np.zeros((3, len(panels) * N_POSITIONS))
    upto = np.zeros(N_POSITIONS)
    for s in range(len(panels)):
        n = panels[s, 1]
        multiply(UPTO[find_table(n)], values[s], upto)
        for i in range(N_POSITIONS):
            node = s * N_POSITIONS + i
            nodes[0, node], nodes[2, node] = positions[s, i], values[s, i]
            nodes[1, node] = totals[s, 1] + n * upto[i] + 0.5 * values[s, i]
    curve = np.zeros((3, (nodes.shape[1] - 1) * POINTS_PER_POSITION + 1))
    for node in range(nodes.shape[1] - 1):
        x, h = nodes[0, node], nodes[0, node + 1] - nodes[0, node]
        start, end = nodes[1, node], nodes[1, node + 1]
        slope, next_slope = h * nodes[2, node], h * nodes[2, node + 1]
        for i in range(POINTS_PER_POSITION):
            t = i / POINTS_PER_POSITION
            cubic = (
                slope * t * (1.0 - t) ** 2 - next_slope * t * t * (1.0 - t) + (end - start) * t * t * (3.0 - 2.0 * t)
            )
            point = node * POINTS_PER_POSITION + i
            curve[0, point], curve[1, point] = x + t * h, min(max(start + cubic, start), end)
            curve[2, point] = nodes[2, node] + t * (nodes[2, node + 1] - nodes[2, node])
    curve[:, -1] = nodes[:, -1]
    return curve


def find_narrowest_tail(curve, level):
    """Return the probability below the narrowest interval of a level that starts at a point of the curve."""
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
        if stop - first < best * (1.0 - PANEL_TOLERANCE):
            best, tail = stop - first, goal - level
    return tail


def find_entry_level(curve, y):
    """Return the level from which the narrowest interval includes y: the probability of all more likely counts."""
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
    low = min(interpolate_cdf(curve, first - 1, first, probability), cdf) if first > 0 else 0.0
    high = max(interpolate_cdf(curve, end, end + 1, probability), cdf) if end < last else curve[1, last]
    return high - low


def interpolate_cdf(curve, before, after, probability):
    """Return the cdf at the point between two points of the curve where the pmf equals `probability`."""
    rise = curve[2, after] - curve[2, before]
    share = min(max((probability - curve[2, before]) / rise, 0.0), 1.0) if rise != 0.0 else 0.0
    return curve[1, before] + share * (curve[1, after] - curve[1, before])
