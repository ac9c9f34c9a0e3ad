"""Choose the panels of each row: where its components have mass, and how long runs of counts may be."""

from math import inf

import numpy as np

from ddpn.distributions.kernels.extents import (
    CENTRE,
    EXTENT_DEPTH,
    FIRST,
    HIGH,
    LAST,
    LOW,
    REFERENCE,
    WIDTH,
    find_extent,
)
from ddpn.distributions.kernels.family import prepare
from ddpn.distributions.kernels.gauss import (
    N_POSITIONS,
    POSITIONS,
    find_table,
    is_rounding_harmless,
)
from ddpn.distributions.kernels.ranges import TAIL_DEVIATIONS

#: Longest panel in standard deviations. The relative error of a normal cdf by repeated halving is then 3e-12 down to
#: six standard deviations below the mean, which is below PANEL_TOLERANCE. With panels of 2 standard deviations, it
#: would be 3e-8.
MAX_PANEL_DEVIATIONS = 1.25


def compute_component_extents(family, components, weights, column, extents):
    """Find the extent of each component of a family, the range of counts whose probabilities are not negligible.

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
        The column of `weights` and `extents` that belongs to the first of the family's components.
    extents : array, (rows, K, N_EXTENT)
        Receives the extent of each component at the indices `extents.FIRST` to `extents.REFERENCE`, as
        `extents.find_extent` describes. For components whose mixture weight is 0, nothing is written.
    """
    for i in range(components.shape[0]):
        for k in range(components.shape[1]):
            if weights[i, column + k] > 0.0:
                p = prepare(family, components[i, k, 0], components[i, k, 1], components[i, k, 2])
                find_extent(p, components[i, k, 3], components[i, k, 4], EXTENT_DEPTH, extents[i, column + k])


def make_row_panels(extents, weights, offsets):
    """Divide the counts of each row into panels; return the panels of all rows, one row after another.

    A panel is a run of 16 * 2^k consecutive counts over which all components are smooth. A row with a parameter that is
    NaN or infinite gets no panels.

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
        The first count and the number of counts of each panel, and its slope: the factor by which recalibration has
        multiplied the probabilities. The slope is 1, because nothing is recalibrated yet; `panels.divide_panels`
        recalibrates later.
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
        Receives the first count, the number of counts and the slope of up to n panels. The slope is the factor by which
        recalibration has multiplied the probabilities. It is 1, because nothing is recalibrated yet;
        `panels.divide_panels` recalibrates later.

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
