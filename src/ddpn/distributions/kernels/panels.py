"""Statistics of mixtures with so many counts that adding them one by one takes too long.

Each row is one mixture. Its counts, from 0 to the last one that is not negligible, are divided into panels: runs of n =
16 * 2^k consecutive counts over which all components are smooth. A sum over a panel needs only the probabilities at 16
positions, by Gaussian quadrature (`gauss`). Where a component is narrow, or near its first or last count, panels have
16 counts, and the positions are these counts.

The computation has three steps.

- `compute_component_extents` and `make_row_panels` find out where the components of each row have mass, and choose the
  panels. A panel is an array of three numbers: its first count, its number of counts, and the factor by which
  recalibration has multiplied its probabilities (the slope of the recalibration map).
- `add_values` computes the *values* of each panel, the probabilities of the mixture at its 16 positions. It is called
  for each family, and adds the probabilities of the family's components.
- `summarise_panels` computes statistics. Moments are sums over panels. A quantile, the score of a count and a knot of a
  recalibration map each need the sum over a part of a panel. For these, the panel that contains the count is halved
  until 16 counts are left.

The panels of all rows are stored in one array. Those of row i have the indices offsets[i] to offsets[i + 1] - 1.
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
    """Find the extent of each component of a family, the range of counts whose probabilities are not negligible.

    Parameters
    ----------
    family, components, weights, column
        The family, its components in each row and their mixture weights, as in `kernels.loops`.
    extents : array, (rows, K, N_EXTENT)
        Receives the extents, with the columns `ranges.FIRST` to `ranges.REFERENCE`.
    """
    for i in range(components.shape[0]):
        for k in range(components.shape[1]):
            if weights[i, column + k] > 0.0:
                p = prepare(family, components[i, k, 0], components[i, k, 1], components[i, k, 2])
                find_extent(p, components[i, k, 3], components[i, k, 4], EXTENT_DEPTH, extents[i, column + k])


def make_row_panels(extents, weights, offsets):
    """Divide the counts of each row into panels; return the panels of all rows, one row after another.

    A panel is a run of 16 * 2^k consecutive counts over which all components are smooth.

    Parameters
    ----------
    extents : array, (rows, K, N_EXTENT)
        The results of `compute_component_extents`.
    weights : array, (rows, K)
        Mixture weights.
    offsets : array of int, (rows + 1,)
        Receives the index of the first panel of each row and, at the end, the number of all panels.

    Returns
    -------
    array, (panels, 3)
        The first count and the number of counts of each panel, and 1 (nothing is recalibrated yet).
    """
    offsets[0], no_panels = 0, np.zeros((0, 3))
    for i in range(len(weights)):
        offsets[i + 1] = offsets[i] + lay_panels(extents[i], weights[i], no_panels)
    panels = np.empty((offsets[-1], 3))
    for i in range(len(weights)):
        lay_panels(extents[i], weights[i], panels[offsets[i] : offsets[i + 1]])
    return panels


def lay_panels(extents, weights, panels):
    """Divide the counts of one row, from 0 to the last one that is not negligible, into panels of consecutive counts.

    Each panel is as long as `is_smooth` allows.

    Parameters
    ----------
    extents : array, (K, N_EXTENT)
        The extents of the row's components, see `compute_component_extents`.
    weights : array, (K,)
        Mixture weights.
    panels : array, (n, 3)
        Receives the first count and the number of counts of up to n panels, and 1 (nothing is recalibrated yet).

    Returns
    -------
    int
        The number of panels, which may exceed n: with n = 0, the function only counts panels. It is 0 if a parameter is
        NaN or infinite, or if counts are too large for float64.
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
    """Return True if quadrature over the n counts from x on is accurate for every component of a row.

    For each component, this holds if the counts are outside of its extent. It also holds if they are few compared with
    its standard deviation, and not close to its first or last possible count. `extents` (K, N_EXTENT) has the extents
    of the components, and `weights` (K,) their mixture weights.
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
    """Add the probabilities of a family's components, times their mixture weights, to the values of all panels.

    A panel is a run of consecutive counts of a row. Its values are the probabilities at 16 quadrature positions. If the
    unnormalised probabilities of a component do not have a finite sum, all values of its row become NaN.

    Parameters
    ----------
    family, components, weights, column
        The family, its components in each row and their mixture weights, as in `kernels.loops`.
    extents : array, (rows, K, N_EXTENT)
        The results of `compute_component_extents`.
    offsets, panels
        The panels of each row, see `make_row_panels`.
    values : array, (panels, 16)
        The array to which probabilities are added.
    totals : array, (rows, K, 3)
        Receives for each component the log of the sum of its unnormalised probabilities, its mean and its variance.
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
    """Add the probabilities of one component, times its mixture weight, to the values of a row's panels.

    A panel is a run of consecutive counts. Its values are the probabilities at 16 quadrature positions. The component's
    unnormalised probabilities are stored in `buffer` first, because their sum is known only at the end.

    Parameters
    ----------
    p : Family
        The component.
    weight : float
        Its mixture weight.
    extent : array, (N_EXTENT,)
        Its extent, see `compute_component_extents`.
    panels : array, (panels, 3)
        The row's panels, which are runs of consecutive counts: first count, number of counts, and slope (the factor by
        which recalibration has multiplied the probabilities).
    values : array, (panels, 16)
        The probabilities at the 16 positions of each panel, to which those of the component are added.
    totals : array, (3,)
        Receives the log of the sum of the component's unnormalised probabilities, its mean and its variance.
    buffer : array
        A work array with at least the shape of `values`.
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
    """Add the probabilities of given counts under a family's components, times mixture weights, to `results`.

    Parameters
    ----------
    family, components, weights, column
        The family, its components in each row and their mixture weights, as in `kernels.loops`.
    extents, totals
        Results of `compute_component_extents` and `add_values`.
    y : array, (rows, n)
        Counts of each row, in ascending order.
    results : array, (rows, n)
        The array to which the probabilities are added.
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
    """Compute the statistics of mixtures, one per row, from probabilities at the positions of their panels.

    A panel is a run of consecutive counts. Sums over its counts follow from the probabilities at 16 positions, by
    Gaussian quadrature.

    Parameters
    ----------
    weights, groups, cdf_map, inputs, with_entropy, results
        As for `loops.summarise`. Rows without panels, or with NaN as a value, get the mean NaN.
    totals : array, (rows, K, 3)
        Sums, means and variances of the components, from `add_values`.
    offsets : array of int, (rows + 1,)
        The index of the first panel of each row, from `make_row_panels`.
    all_panels : array, (panels, 3)
        The panels of all rows: first count, number of counts, and 1 (nothing is recalibrated yet).
    all_values : array, (panels, 16)
        The probabilities of the mixtures at the 16 positions of each panel, from `add_values`.
    modes : array, (rows, 2)
        Receives two counts between which the mode of each row lies.
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
    """Compute the 16 quadrature positions of each panel, as counts that may be fractional.

    A panel is a run of consecutive counts. `panels` (panels, 3) has the first count and the number of counts of each
    panel. The result has the shape (panels, 16).
    """
    positions = np.empty((len(panels), N_POSITIONS))
    for s in range(len(panels)):
        t = find_table(panels[s, 1])
        for i in range(N_POSITIONS):
            positions[s, i] = panels[s, 0] - 0.5 + panels[s, 1] * POSITIONS[t, i]
    return positions


def bracket_mode(panels, positions, values, mode):
    """Write two counts between which the mode of a row lies to `mode` (2,).

    They are the positions on both sides of the most probable position. Recalibrated probabilities jump between panels
    with different slopes. So if the next position is in a panel with another slope, the end of the panel is used
    instead.

    Parameters
    ----------
    panels : array, (panels, 3)
        The row's panels, which are runs of consecutive counts: first count, number of counts, and slope (the factor by
        which recalibration has multiplied the probabilities).
    positions, values : array, (panels, 16)
        The 16 quadrature positions of each panel, and the probabilities there.
    mode : array, (2,)
        Receives the two counts.
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
    """Recalibrate the probabilities of a row's panels by a piecewise-linear map of the cdf.

    A panel is a run of consecutive counts. Panels are divided until the cdf stays between two neighbouring knots of the
    map over each panel. Then recalibration multiplies the panel's probabilities by the slope of the map. A panel of 16
    counts over which the cdf passes a knot is not divided further. It is marked by the slope `KNOT_SLOPE`, and left
    unchanged for `recalibrate_knots`.

    Parameters
    ----------
    panels : array, (panels, 3)
        The row's panels, which are runs of consecutive counts: first count, number of counts, and slope (the factor by
        which recalibration has multiplied the probabilities).
    values : array, (panels, 16)
        The probabilities at the 16 quadrature positions of each panel.
    cdf_map : array, (2, knots)
        The knots of the map, and its values at the knots.

    Returns
    -------
    new_panels, new_values : array
        The divided panels and their probabilities. The third number of a panel is its slope.
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
                multiply_by_matrix(HALVES[find_table(n), 0], whole, part_values[waiting])
                multiply_by_matrix(HALVES[find_table(n), 1], whole, part)
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
    """Recalibrate, count by count, the panels that `divide_panels` has marked by the slope `KNOT_SLOPE`.

    These are runs of 16 counts over which the cdf passes a knot of the recalibration map. Their `values`, the
    probabilities of the 16 counts, are changed in place. `cdf_map` (2, knots) has the knots of the map and its values
    at the knots.
    """
    cdf = 0.0
    for s in range(len(panels)):
        if panels[s, 2] == KNOT_SLOPE:
            cdf = recalibrate_mass(values[s], N_POSITIONS, cdf, cdf_map)
        else:
            cdf += sum_panel(values[s], panels[s, 1]) / panels[s, 2]


def sum_panel_moments(panels, values, moments):
    """Compute the mean and the variance of a row from recalibrated probabilities.

    Deviations are taken from the mean before recalibration, for accuracy.

    Parameters
    ----------
    panels : array, (panels, 3)
        The row's panels, which are runs of consecutive counts: first count, number of counts, and slope (the factor by
        which recalibration has multiplied the probabilities).
    values : array, (panels, 16)
        The recalibrated probabilities at the 16 quadrature positions of each panel.
    moments : array, (6,)
        The mean and the variance before recalibration, its first two numbers, are replaced by those after it.
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


def multiply_by_matrix(matrix, values, results):
    """Multiply the values at 16 positions by a matrix: write values @ matrix to `results`.

    Shape: `matrix` (16, n), `values` (16,), `results` (n,).
    """
    for i in range(len(results)):
        results[i] = 0.0
    for j in range(len(values)):
        for i in range(len(results)):
            results[i] += matrix[j, i] * values[j]


def sum_panel(values, n):
    """Return the sum of a function over n consecutive counts (a panel), given its values at 16 positions.

    The positions are those of Gaussian quadrature for n = 16 * 2^k counts (`gauss`).
    """
    t, total = find_table(n), 0.0
    for i in range(N_POSITIONS):
        total += WEIGHTS[t, i] * values[i]
    return n * total


def sum_squares(values, n, start, sign, work):
    """Return the sum of F(z)^2, or of (1 - F(z))^2, over the n counts z of a panel, with the cdf F.

    A panel is a run of n = 16 * 2^k consecutive counts. More exactly, it is the sum of (start + sign S(z))^2, where
    S(z) is the sum of the panel's probabilities up to the count z.

    Parameters
    ----------
    values : array, (16,)
        The probabilities at the panel's 16 quadrature positions.
    n : float
        The number of counts of the panel.
    start, sign : float
        For F(z)^2, the cdf before the panel, and 1. For (1 - F(z))^2, the probability of the panel and all later
        counts, and -1.
    work : array, (16,)
        A work array.
    """
    t, total = find_table(n), 0.0
    multiply_by_matrix(UPTO[t], values, work)
    for i in range(N_POSITIONS):
        total += WEIGHTS[t, i] * (start + sign * (n * work[i] + 0.5 * values[i])) ** 2
    return n * total


def accumulate_panels(panels, values, with_entropy, totals):
    """Compute sums over each panel of a row and over all panels before and after it; return the row's entropy.

    Quantiles and scores are found from these sums without adding all panels again.

    Parameters
    ----------
    panels : array, (panels, 3)
        The row's panels, which are runs of consecutive counts: first count, number of counts, and slope (the factor by
        which recalibration has multiplied the probabilities).
    values : array, (panels, 16)
        The probabilities at the 16 quadrature positions of each panel.
    with_entropy : bool
        Compute the entropy. If False, 0 is returned.
    totals : array, (panels, 5)
        Receives, for each panel: its probability, the probability of all earlier panels, and that of all later panels;
        the sum of F(z)^2 over the counts z of earlier panels, and the sum of (1 - F(z))^2 over the counts z of later
        panels, with the cdf F.
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

    Parameters
    ----------
    below, above : float
        P(Z < end) and P(Z >= end).
    end : float
        The count to compare with.
    level : float
        The search looks for the quantile of this level. If it is -1, the search looks for the count `y` instead.
    y : float
        The count that is searched, if `level` is -1.
    """
    if level < 0.0:
        return y < end
    if level <= 0.5:
        return below >= level * (1.0 - PANEL_TOLERANCE)
    return above <= (1.0 - level) * (1.0 + PANEL_TOLERANCE)


def split_at_count(panels, values, totals, level, y, work):
    """Find the quantile of a level, or locate a count y; return its CRPS and the probability of smaller counts.

    The panel that contains the count is halved until 16 counts are left, which are searched one by one.

    Parameters
    ----------
    panels : array, (panels, 3)
        The row's panels, which are runs of consecutive counts: first count, number of counts, and slope (the factor by
        which recalibration has multiplied the probabilities).
    values : array, (panels, 16)
        The probabilities at the 16 quadrature positions of each panel.
    totals : array, (panels, 5)
        The sums that `accumulate_panels` wrote.
    level : float
        The level of the quantile, or -1 to locate `y`.
    y : float
        The count to locate, or -1 if `level` is the level of a quantile.
    work : array, (4, 16)
        A work array.

    Returns
    -------
    count : float
        The quantile. For a given y, it is y, or the last count of the last panel if y is larger.
    crps : float
        The sum of F(z)^2 over smaller counts z and of (1 - F(z))^2 over all other counts, with the cdf F. For a given
        y, it is the CRPS of y.
    before : float
        The probability of all counts smaller than `count`.
    """
    s, last = 0, len(panels) - 1
    while s < last and not is_reached(totals[s + 1, 1], totals[s, 2], panels[s + 1, 0], level, y):
        s += 1
    x, n, below, above, score = panels[s, 0], panels[s, 1], totals[s, 1], totals[s, 2], totals[s, 3] + totals[s, 4]
    inner, left, right, sums = work[0], work[1], work[2], work[3]
    for i in range(N_POSITIONS):
        inner[i] = values[s, i]
    while n > N_POSITIONS:
        multiply_by_matrix(HALVES[find_table(n), 0], inner, left)
        multiply_by_matrix(HALVES[find_table(n), 1], inner, right)
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
    """Tabulate the cdf and the pmf of a row at quadrature positions, and at three points between neighbours.

    Between two positions, the cdf is a cubic whose slope at both ends is the pmf (Hermite interpolation). The pmf is
    interpolated linearly.

    Parameters
    ----------
    panels : array, (panels, 3)
        The row's panels, which are runs of consecutive counts: first count, number of counts, and slope (the factor by
        which recalibration has multiplied the probabilities).
    positions, values : array, (panels, 16)
        The 16 quadrature positions of each panel, and the probabilities there.
    totals : array, (panels, 5)
        The sums that `accumulate_panels` wrote.

    Returns
    -------
    array, (3, points)
        Counts, which may be fractional, the cdf and the pmf.
    """
    nodes = np.zeros((3, len(panels) * N_POSITIONS))
    partial_sums = np.zeros(N_POSITIONS)
    for s in range(len(panels)):
        n = panels[s, 1]
        multiply_by_matrix(UPTO[find_table(n)], values[s], partial_sums)
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
    """Find the narrowest interval with the probability `level`; return the probability of all smaller counts.

    `curve` (3, points) is the result of `tabulate_curve`. The intervals that start at each of its points are compared.
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
    """Return the smallest level (probability) at which the narrowest interval includes the count y.

    For a pmf with one peak, it is the probability of all counts that are more probable than y. `curve` (3, points) is
    the result of `tabulate_curve`.
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
    """Return the cdf where the pmf equals `probability`, between two neighbouring points of a curve.

    `curve` (3, points) is the result of `tabulate_curve`, and `start` and `end` are the indices of the points. Between
    them, cdf and pmf are interpolated linearly.
    """
    rise = curve[2, end] - curve[2, start]
    share = min(max((probability - curve[2, start]) / rise, 0.0), 1.0) if rise != 0.0 else 0.0
    return curve[1, start] + share * (curve[1, end] - curve[1, start])
