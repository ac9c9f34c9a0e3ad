"""The cdf of a row of panels as a curve of a few points, for intervals and quantiles."""

import numpy as np

from ddpn.distributions.kernels.gauss import (
    N_POSITIONS,
    UPTO,
    find_table,
)
from ddpn.distributions.kernels.panel_sums import PANEL_TOLERANCE, multiply_by_matrix

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
