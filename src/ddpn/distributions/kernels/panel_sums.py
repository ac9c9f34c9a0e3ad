"""Sums over the panels of one row: moments, squared cdfs, and the part of a panel up to a count."""

from math import log

import numpy as np

from ddpn.distributions.kernels.gauss import (
    HALVES,
    N_POSITIONS,
    UPTO,
    WEIGHTS,
    find_table,
)
from ddpn.distributions.kernels.panel_layout import compute_positions

#: Relative tolerance at the level of a quantile: rounding in sums over panels must not move it.
PANEL_TOLERANCE = 1e-11


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


def multiply_by_matrix(matrix, values, results):
    """Multiply a quadrature table by the values at 16 positions: write values @ matrix to `results`.

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
        Must be 0 at first. Receives, for each panel: its probability (index 0), the probability of all earlier panels
        (1), and that of all later panels (2); the sum of F(z)^2 over the counts z of earlier panels (3), and the sum of
        (1 - F(z))^2 over the counts z of later panels (4), with the cdf F.
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
