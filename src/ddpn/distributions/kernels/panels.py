"""Statistics of mixtures with so many counts that adding them one by one takes too long.

Each row is one mixture. Its counts, from 0 to the last one that is not negligible, are divided into panels: runs of n =
16 * 2^k consecutive counts over which all components are smooth. A sum over a panel needs only the probabilities at 16
positions, by Gaussian quadrature (`gauss`). Where a component is narrow, or near its first or last count, panels have
16 counts, and the positions are these counts.

The computation has three steps.

- `compute_component_extents` and `make_row_panels`, in `panel_layout`, find out where the components of each row have
  mass, and choose the panels. A panel is an array of three numbers: its first count, its number of counts, and the
  factor by which recalibration has multiplied its probabilities (the slope of the recalibration map).
- `add_values` computes the *values* of each panel, the probabilities of the mixture at its 16 positions. It is called
  for each family, and adds the probabilities of the family's components.
- `summarise_panels` computes statistics. Moments are sums over panels (`panel_sums`). A quantile, the score of a count
  and a knot of a recalibration map each need the sum over a part of a panel. For these, the panel that contains the
  count is halved until 16 counts are left. Intervals are searched on the cdf at a few points per panel
  (`panel_curves`).

The panels of all rows are stored in one array. Those of row i have the indices offsets[i] to offsets[i + 1] - 1.
"""

from math import exp, inf, log

import numpy as np

from ddpn.distributions.kernels.arrays import compute_piece_slope, recalibrate_mass, split_variance
from ddpn.distributions.kernels.extents import (
    CENTRE,
    FIRST,
    HIGH,
    LAST,
    LOW,
    REFERENCE,
)
from ddpn.distributions.kernels.family import prepare
from ddpn.distributions.kernels.gauss import (
    HALVES,
    N_POSITIONS,
    POSITIONS,
    WEIGHTS,
    find_table,
)
from ddpn.distributions.kernels.panel_curves import compute_entry_level, find_narrowest_lower_tail, tabulate_curve
from ddpn.distributions.kernels.panel_layout import compute_positions
from ddpn.distributions.kernels.panel_sums import (
    accumulate_panels,
    multiply_by_matrix,
    split_at_count,
    sum_panel,
    sum_panel_moments,
)
from ddpn.distributions.kernels.ranges import has_unit_total

#: Columns of `totals`: the log of the sum of a component's weights, its mean and its variance.
LOG_TOTAL, MEAN, VARIANCE = range(3)


# Probabilities -------------------------------------------------------------------------------------------------------


def add_values(family, components, weights, column, extents, offsets, panels, values, totals):
    """Add the probabilities of a family's components, times their mixture weights, to the values of all panels.

    A panel is a run of consecutive counts of a row. Its values are the probabilities at 16 quadrature positions. If the
    unnormalised probabilities of a component do not have a finite sum, all values of its row become NaN.

    Parameters
    ----------
    family : type
        The family, see `kernels.family`.
    components : array, (rows, k, 5)
        The family's k components of each row: three parameters, and the first and the last count to which the component
        is restricted.
    weights : array, (rows, K)
        The mixture weights of all K components of each row, of all families.
    column : int
        The column of `weights` that belongs to the first of the family's components.
    extents : array, (rows, K, N_EXTENT)
        The results of `compute_component_extents`.
    offsets : array of int, (rows + 1,)
        The index of the first panel of each row, from `make_row_panels`.
    panels : array, (panels, 3)
        The panels of all rows, from `make_row_panels`.
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
    unnormalised probabilities are stored in `buffer` first, because their sum is known only at the end. If the sum is
    not finite or not positive, all values of the row become NaN.

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
    buffer : array, (panels, 16) or longer
        A work array.
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
    family : type
        The family, see `kernels.family`.
    components : array, (rows, k, 5)
        The family's k components of each row: three parameters, and the first and the last count to which the component
        is restricted, both included.
    weights : array, (rows, K)
        The mixture weights of all K components of each row, of all families.
    column : int
        The column of `weights`, `extents` and `totals` that belongs to the first of the family's components.
    extents : array, (rows, K, N_EXTENT)
        The results of `compute_component_extents`.
    totals : array, (rows, K, 3)
        The log of the sum of each component's unnormalised probabilities, its mean and its variance, from `add_values`.
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
    weights : array, (rows, K)
        Mixture weights.
    groups : array of int, (K,)
        For each component, the index of the component of the user's mixture that it is part of.
    totals : array, (rows, K, 3)
        For each component, the log of the sum of its unnormalised probabilities, its mean and its variance, from
        `add_values`.
    offsets : array of int, (rows + 1,)
        The index of the first panel of each row, from `make_row_panels`.
    all_panels : array, (panels, 3)
        The panels of all rows: first count, number of counts, and 1 (nothing is recalibrated yet).
    all_values : array, (panels, 16)
        The probabilities of the mixtures at the 16 positions of each panel, from `add_values`.
    cdf_map : array, (2, knots)
        The knots and the values of a piecewise-linear map by which all cdfs are recalibrated. If it has no knots, cdfs
        are not changed.
    inputs : tuple of three arrays
        Levels of quantiles (rows, L), counts y to score (rows, Q), and levels of narrowest intervals (rows, 1), or
        (rows, 0) if no intervals are requested.
    with_entropy : bool
        True if the entropy is requested.
    modes : array, (rows, 2)
        Receives two counts between which the mode of each row lies.
    results : tuple of five arrays
        The arrays to write to, in the order of `summaries.Summaries`. Rows without panels, or with NaN as a value, get
        the mean NaN, and their other results are not written. The mode is not written at all, see `modes`.
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
        The row's panels, which are not recalibrated yet: first count, number of counts, and a number that is ignored.
    values : array, (panels, 16)
        The probabilities at the 16 quadrature positions of each panel.
    cdf_map : array, (2, knots)
        The knots of the map, and its values at the knots.

    Returns
    -------
    new_panels : array, (new panels, 3)
        The divided panels. The third number is the slope of the map over the panel, or `KNOT_SLOPE`.
    new_values : array, (new panels, 16)
        The probabilities at their positions, already multiplied by the slope, except in panels with `KNOT_SLOPE`.
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
