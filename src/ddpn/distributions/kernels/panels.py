"""Statistics of mixtures with so many counts that adding them one by one takes too long.

A row is one mixture. Its counts, from 0 to the last one that is not negligible, are divided into panels: runs of n = 16
* 2^k consecutive counts over which all components are smooth. A sum over a panel needs the probabilities at 16
positions only (`gauss`). Where a component is narrow or ends, panels have 16 counts, and the positions are these
counts.

The computation has three steps.

- `compute_component_extents` and `make_row_panels` find out where the components of each row have mass, and choose the
  panels. A panel is an array of three numbers: its first count, its number of counts, and the slope by which
  recalibration has multiplied its probabilities.
- `add_values` computes the values: the probabilities of the mixture at the 16 positions of each panel. It is called
  for each family, and adds the probabilities of the family's components.
- `summarise_panels` computes statistics. Moments are sums over panels. A quantile, the score of a count and a knot of
  a recalibration map each need the sum over a part of a panel. For these, the panel that contains the count is halved
  until 16 counts are left.

The panels of all rows are stored in one array. Those of row i are offsets[i] to offsets[i + 1] - 1.
"""

from math import exp, inf, log

import numpy as np

from ddpn.distributions.kernels.arrays import compute_piece_slope, recalibrate_mass, split_variance
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
    has_unit_total,
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
    """Find the extent of each component of a family: the range of counts whose weights are not negligible.

    Writes `extents` (rows, K, 7), with the columns `ranges.FIRST` to `ranges.REFERENCE`. For `components` (rows, k, 5),
    `weights` and `column`, see `kernels.loops`.
    """
    for i in range(components.shape[0]):
        for k in range(components.shape[1]):
            if weights[i, column + k] > 0.0:
                p = prepare(family, components[i, k, 0], components[i, k, 1], components[i, k, 2])
                find_extent(p, components[i, k, 3], components[i, k, 4], EXTENT_DEPTH, extents[i, column + k])


def make_row_panels(extents, weights, offsets):
    """Divide the counts of each row into panels; return the panels of all rows, one row after another.

    `extents` (rows, K, 7) has the extents of components, and `weights` (rows, K) their mixture weights. The result
    (panels, 3) has the first count of each panel, its number of counts, and its slope. offsets[i] receives the index of
    the first panel of row i, and the last number of `offsets` (rows + 1,) the number of all panels.
    """
    offsets[0], no_panels = 0, np.zeros((0, 3))
    for i in range(len(weights)):
        offsets[i + 1] = offsets[i] + lay_panels(extents[i], weights[i], no_panels)
    panels = np.empty((offsets[-1], 3))
    for i in range(len(weights)):
        lay_panels(extents[i], weights[i], panels[offsets[i] : offsets[i + 1]])
    return panels


def lay_panels(extents, weights, panels):
    """Divide the counts of one row into panels, from 0 to the last count that is not negligible.

    Each panel is as long as all components allow (`is_smooth`). Writes its first count, its number of counts, and the
    slope 1, as nothing is recalibrated yet, to `panels`. Returns the number of panels, which may exceed the length of
    `panels`: the others are not written. There are no panels if a parameter is NaN or infinite, or if counts are too
    large for float64.
    """
    x, n, last, n_panels = 0.0, float(N_POSITIONS), -1.0, 0
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
        if n_panels < len(panels):
            panels[n_panels, 0], panels[n_panels, 1], panels[n_panels, 2] = x, n, 1.0
        n_panels += 1
        x += n
    return n_panels


def is_smooth(extents, weights, x, n):
    """Return True if a panel of n counts from x on can represent every component of a row.

    For each component, the panel is either outside of its extent, or short compared with its standard deviation and not
    close to its first or last possible count.
    """
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

    Values belong to the 16 positions of each panel. Also writes the log of the sum of each component's weights, its
    mean and its variance to `totals` (rows, K, 3). If the sum of a component's weights is not finite, all values of the
    row become NaN.
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
    """Add the probabilities of one distribution `p`, times its mixture weight, to the values of a row's panels.

    Its weights at the positions are first collected in `buffer`, because their sum, which normalises them, is known
    only at the end. For `extent` and `totals`, see `compute_component_extents` and `add_values`.
    """
    low, high, centre, reference = extent[LOW], extent[HIGH], extent[CENTRE], extent[REFERENCE]
    first, end, total, shift, square = len(panels), 0, 0.0, 0.0, 0.0
    for s in range(len(panels)):
        x, n = panels[s, 0], panels[s, 1]
        if not (extent[FIRST] < x + n and extent[LAST] >= x):
            continue
        first, end, t = min(first, s), s + 1, find_table(n)
        for i in range(N_POSITIONS):
            y = x - 0.5 + n * POSITIONS[t, i]
            w = exp(p.log_weight(y) - reference) if low <= y <= high else 0.0
            share, gap = n * WEIGHTS[t, i] * w, y - centre
            buffer[s, i] = w
            total += share
            shift += share * gap
            square += share * gap * gap
    if not 0.0 < total < inf:
        values[:] = np.nan
        return
    shift /= total
    is_whole = has_unit_total(p, low, high)
    totals[LOG_TOTAL] = 0.0 if is_whole else reference + log(total)
    totals[MEAN], totals[VARIANCE] = centre + shift, max(square / total - shift * shift, 0.0)
    factor = weight * (exp(reference) if is_whole else 1.0 / total)
    for s in range(first, end):
        for i in range(N_POSITIONS):
            values[s, i] += factor * buffer[s, i]


def add_masses(family, components, weights, column, extents, totals, y, results):
    """Add the probabilities of counts under a family's components, times mixture weights, to `results` (rows, n).

    `y` (rows, n) has the counts of each row in ascending order, and `totals` the sums of weights from `add_values`.
    """
    for i in range(len(weights)):
        for k in range(components.shape[1]):
            extent, weight = extents[i, column + k], weights[i, column + k]
            if weight > 0.0 and extent[FIRST] <= y[i, -1] and extent[LAST] >= y[i, 0]:
                p = prepare(family, components[i, k, 0], components[i, k, 1], components[i, k, 2])
                for j in range(y.shape[1]):
                    if extent[LOW] <= y[i, j] <= extent[HIGH]:
                        results[i, j] += weight * exp(p.log_weight(y[i, j]) - totals[i, column + k, LOG_TOTAL])


# Rows ----------------------------------------------------------------------------------------------------------------


def summarise_panels(
    weights, groups, totals, offsets, all_panels, all_values, cdf_map, inputs, with_entropy, modes, results
):
    """Compute the statistics of mixtures from the values of their panels.

    Parameters
    ----------
    weights, groups, cdf_map, inputs, with_entropy, results
        As for `loops.summarise`. Rows without panels, or with NaN as a value, get the mean NaN.
    totals, offsets
        Sums, means and variances of components from `add_values`, and the first panel of each row.
    all_panels : array, (panels, 3)
        The panels of all rows.
    all_values : array, (panels, 16)
        The probabilities of the mixtures at the positions of all panels.
    modes : array, (rows, 2)
        Receives two counts that enclose the mode of each row.
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
        positions = compute_positions(panels)
        bracket_mode(panels, positions, values, modes[i])
        sums = np.zeros((len(panels), 5))
        moments[i, 3] = accumulate_panels(panels, values, with_entropy, sums)
        for j in range(levels.shape[1]):
            quantiles[i, j], _, _ = split_at_count(panels, values, sums, levels[i, j], -1.0, work)
        for j in range(y.shape[1]):
            _, scores[i, j], _ = split_at_count(panels, values, sums, -1.0, y[i, j], work)
        if intervals.shape[1] > 0:
            curve = tabulate_curve(panels, positions, values, sums)
            tail = find_narrowest_lower_tail(curve, interval_levels[i, 0])
            low, _, before = split_at_count(panels, values, sums, tail, -1.0, work)
            high, _, _ = split_at_count(panels, values, sums, before + interval_levels[i, 0], -1.0, work)
            _, _, upto = split_at_count(panels, values, sums, -1.0, high + 1.0, work)
            intervals[i, 0], intervals[i, 1], intervals[i, 2] = low, high, upto - before
        if entries.shape[1] > 0:
            entries[i, :] = compute_entry_level(tabulate_curve(panels, positions, values, sums), y[i, 0])


def compute_positions(panels):
    """Compute the 16 positions of each panel, as counts that may be fractional. Shape: (panels, 16)."""
    positions = np.empty((len(panels), N_POSITIONS))
    for s in range(len(panels)):
        t = find_table(panels[s, 1])
        for i in range(N_POSITIONS):
            positions[s, i] = panels[s, 0] - 0.5 + panels[s, 1] * POSITIONS[t, i]
    return positions


def bracket_mode(panels, positions, values, mode):
    """Write two counts that enclose the mode of a row to `mode`: the positions next to the most probable position.

    Recalibrated probabilities jump where the slope changes. So if the next position is in a panel with another slope,
    the end of the panel is written instead.
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
    """Divide panels so that each lies within one piece of the recalibration map, and recalibrate them.

    Within a piece, recalibration multiplies probabilities by the slope of the piece. A panel that contains a knot is
    halved until it has 16 counts. It gets the slope `KNOT_SLOPE`, and its probabilities are left to
    `recalibrate_knots`. Returns new panels and values. `cdf_map` (2, knots) has the knots and the values of the map.
    """
    knots, n_panels, piece, cdf = cdf_map.shape[1], 0, 0, 0.0
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
            is_within = piece == knots - 2 or cdf + mass <= cdf_map[0, piece + 1]
            if not is_within and n > N_POSITIONS and waiting < MAX_HALVES:
                whole = part.copy()
                apply_table(HALVES[find_table(n), 0], whole, part_values[waiting])
                apply_table(HALVES[find_table(n), 1], whole, part)
                parts[waiting - 1, 0], parts[waiting - 1, 1] = x + 0.5 * n, 0.5 * n
                parts[waiting, 0], parts[waiting, 1] = x, 0.5 * n
                waiting += 1
                continue
            if n_panels == len(new_panels):
                new_panels = np.concatenate((new_panels, np.zeros_like(new_panels)))
                new_values = np.concatenate((new_values, np.zeros_like(new_values)))
            slope = compute_piece_slope(cdf_map, piece) if is_within else KNOT_SLOPE
            new_panels[n_panels, 0], new_panels[n_panels, 1], new_panels[n_panels, 2] = x, n, slope
            for i in range(N_POSITIONS):
                new_values[n_panels, i] = part[i] * slope if is_within else part[i]
            n_panels += 1
            waiting -= 1
            cdf += mass
            while piece < knots - 2 and cdf > cdf_map[0, piece + 1]:
                piece += 1
    return new_panels[:n_panels], new_values[:n_panels]


def recalibrate_knots(panels, values, cdf_map):
    """Recalibrate, count by count, the panels of 16 counts in which the map has a knot.

    `divide_panels` has left their probabilities unchanged and given them the slope `KNOT_SLOPE`.
    """
    cdf = 0.0
    for s in range(len(panels)):
        if panels[s, 2] == KNOT_SLOPE:
            cdf = recalibrate_mass(values[s], N_POSITIONS, cdf, cdf_map)
        else:
            cdf += sum_panel(values[s], panels[s, 1]) / panels[s, 2]


def sum_panel_moments(panels, values, moments):
    """Compute mean and variance of a row by sums over its panels, after recalibration.

    They replace the first two numbers of `moments`, the mean and variance before recalibration. Deviations are taken
    from the old mean, so that no digits are lost.
    """
    origin, work = moments[0], np.zeros(N_POSITIONS)
    positions = compute_positions(panels)
    total, first, second = 0.0, 0.0, 0.0
    for s in range(len(panels)):
        n = panels[s, 1]
        total += sum_panel(values[s], n)
        for i in range(N_POSITIONS):
            work[i] = values[s, i] * (positions[s, i] - origin)
        first += sum_panel(work, n)
        for i in range(N_POSITIONS):
            work[i] *= positions[s, i] - origin
        second += sum_panel(work, n)
    shift = first / total
    moments[0], moments[1] = origin + shift, max(second / total - shift * shift, 0.0)


# Sums over panels ----------------------------------------------------------------------------------------------------


def apply_table(matrix, values, results):
    """Write the products of a table (16, n) with the 16 values of a panel to `results` (n,)."""
    for i in range(len(results)):
        results[i] = 0.0
    for j in range(len(values)):
        for i in range(len(results)):
            results[i] += matrix[j, i] * values[j]


def sum_panel(values, n):
    """Return the sum of a function over the n counts of a panel, from its `values` at the 16 positions."""
    t, total = find_table(n), 0.0
    for i in range(N_POSITIONS):
        total += WEIGHTS[t, i] * values[i]
    return n * total


def sum_squares(values, n, start, sign, work):
    """Return the sum of (start + sign S(z))^2 over the n counts z of a panel.

    S(z) is the sum of the panel's probabilities up to the count z, from their `values` at the 16 positions. With the
    cdf before the panel as `start` and sign 1, the result is the sum of F(z)^2. With the probability of the panel and
    all later counts as `start` and sign -1, it is the sum of (1 - F(z))^2.
    """
    t, total = find_table(n), 0.0
    apply_table(UPTO[t], values, work)
    for i in range(N_POSITIONS):
        total += WEIGHTS[t, i] * (start + sign * (n * work[i] + 0.5 * values[i])) ** 2
    return n * total


def accumulate_panels(panels, values, with_entropy, totals):
    """Write five sums for each panel of a row to `totals` (panels, 5), and return the row's entropy.

    With the cdf F, the columns are

    - the probability of the panel, that of all earlier panels, and that of all later panels,
    - the sum of F(z)^2 over the counts z of earlier panels, and of (1 - F(z))^2 over the counts z of later panels.

    Quantiles and scores are found from these without adding all panels again. The entropy is 0 if `with_entropy` is
    False.
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
    """Return True if the count that a search is looking for is smaller than the count `end`.

    A search for a quantile looks for the first count at which the cdf reaches `level`; `below` and `above` are P(Z <
    end) and P(Z >= end). If `level` is -1, the search looks for the count y.
    """
    if level < 0.0:
        return y < end
    if level <= 0.5:
        return below >= level * (1.0 - PANEL_TOLERANCE)
    return above <= (1.0 - level) * (1.0 + PANEL_TOLERANCE)


def split_at_count(panels, values, totals, level, y, work):
    """Find the quantile at a level, or with level -1 the count y, and compute sums on both sides of it.

    The panel that contains the count is halved until 16 counts are left, which are searched one by one. Returns the
    count, its CRPS (the sum of F(z)^2 over smaller counts z and of (1 - F(z))^2 over all others), and the probability
    of smaller counts. `totals` are the sums of `accumulate_panels`, and `work` is a work array (4, 16).
    """
    s, last = 0, len(panels) - 1
    while s < last and not is_reached(totals[s + 1, 1], totals[s, 2], panels[s + 1, 0], level, y):
        s += 1
    x, n, below, above, score = panels[s, 0], panels[s, 1], totals[s, 1], totals[s, 2], totals[s, 3] + totals[s, 4]
    inner, left, right, sums = work[0], work[1], work[2], work[3]
    for i in range(N_POSITIONS):
        inner[i] = values[s, i]
    while n > N_POSITIONS:
        apply_table(HALVES[find_table(n), 0], inner, left)
        apply_table(HALVES[find_table(n), 1], inner, right)
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


def tabulate_curve(panels, positions, values, totals):
    """Tabulate the cdf and the pmf of a row at all positions, and at three points between neighbouring positions.

    Between positions, the cdf is a cubic with the pmf as its slope at both ends (Hermite interpolation), and the pmf is
    linear. Returns counts, which may be fractional, cdf and pmf as the rows of an array (3, points).
    """
    nodes = np.zeros((3, len(panels) * N_POSITIONS))
    partial_sums = np.zeros(N_POSITIONS)
    for s in range(len(panels)):
        n = panels[s, 1]
        apply_table(UPTO[find_table(n)], values[s], partial_sums)
        for i in range(N_POSITIONS):
            node = s * N_POSITIONS + i
            nodes[0, node], nodes[2, node] = positions[s, i], values[s, i]
            nodes[1, node] = totals[s, 1] + n * partial_sums[i] + 0.5 * values[s, i]
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


def find_narrowest_lower_tail(curve, level):
    """Find the narrowest interval with the probability `level`; return the probability of all counts below it.

    `curve` is the result of `tabulate_curve`. Intervals that start at each of its points are compared.
    """
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


def compute_entry_level(curve, y):
    """Return the smallest level at which the narrowest interval includes the count y.

    It is the probability of all counts that are more probable than y, for a pmf with one peak. `curve` is the result of
    `tabulate_curve`.
    """
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
    low = min(find_cdf_at_probability(curve, first - 1, first, probability), cdf) if first > 0 else 0.0
    high = max(find_cdf_at_probability(curve, end, end + 1, probability), cdf) if end < last else curve[1, last]
    return high - low


def find_cdf_at_probability(curve, start, end, probability):
    """Return the cdf at the place where the pmf equals `probability`, between the points `start` and `end` of a curve.

    cdf and pmf are interpolated linearly. `curve` is the result of `tabulate_curve`.
    """
    rise = curve[2, end] - curve[2, start]
    share = min(max((probability - curve[2, start]) / rise, 0.0), 1.0) if rise != 0.0 else 0.0
    return curve[1, start] + share * (curve[1, end] - curve[1, start])
