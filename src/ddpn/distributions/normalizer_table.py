"""Fast log probabilities of Double Poissons for training, with the precision of float32.

The normalising constant c(mu, gamma) is interpolated in a table instead of being computed by a sum. The table has the
coefficients of bicubic splines in log mu and log gamma, for log c and its two derivatives. The error is below 2e-6 for
log c, and below 1e-5 for the derivatives.

- The table is used if gamma is at most 4, or mu / gamma is above 1.3. Otherwise, most mass is on few integers and log c
  oscillates with mu, so the caller computes the sum.
- A second table, which most fits never need, is for smaller gammas: variances above 400 times the mean.
- For mu beyond a table, log c depends only on gamma mu if gamma mu is at least 10. Then the table is read at its
  largest mu and at the gamma that gives the same gamma mu. The error is 1 / (12 mu), from the series of log c, plus
  sqrt(gamma) e^(-gamma mu), from the counts near 0.
"""

import math
from collections.abc import Callable
from math import log

import numpy as np
from scipy.ndimage import spline_filter

from ddpn.distributions.kernels.scalar import deviance, log_h

#: First and last log mu, and first and last log gamma, of both tables. Networks that separate zeros from large counts
#: reach the smallest mu and gamma of the second table.
USUAL, SMALL_GAMMA = (-8.0, 14.0, -6.0, 5.0), (-16.0, 16.0, -18.0, -6.0)
#: log c is smooth for every mu up to this log gamma, and for every gamma from this log (mu / gamma) on.
MAX_SMOOTH_LOG_GAMMA, MIN_LOG_VARIANCE = math.log(4.0), math.log(1.3)
#: From this log (gamma mu) on, log c depends on gamma mu alone, for mu beyond the table.
MIN_LOG_LEVEL = math.log(10.0)
#: Nodes per unit of log mu and log gamma, and extra nodes beyond each end, as splines are inaccurate near their ends.
NODES_PER_UNIT, MARGIN_NODES = 16, 12


def log_probs(table, ends, inputs, results):
    """Compute log p(y) of n Double Poissons and its derivatives in mu and gamma.

    The normalising constant is interpolated in a table. Results are NaN where the table cannot be used: for mu or gamma
    outside of it, and where most mass is on few integers (see the docstring of the module). The caller must compute
    these by a sum.

    Parameters
    ----------
    table : array, (n_mu, n_gamma, 3)
        A result of `compute_table`.
    ends : array, (4,)
        The first and last log mu, and the first and last log gamma, of the table.
    inputs : array, (3, n)
        y, mu and gamma.
    results : array, (3, n)
        Receives log p(y) and its derivatives in mu and gamma.
    """
    splines = np.zeros(3)
    low_mu, high_mu, low, high = ends[0], ends[1], ends[2], ends[3]
    for i in range(inputs.shape[1]):
        y, mu, gamma = inputs[0, i], inputs[1, i], inputs[2, i]
        log_mu, log_gamma = log(mu), log(gamma)
        u, v = log_mu, log_gamma
        if u > high_mu and u + v >= MIN_LOG_LEVEL:
            u, v = high_mu, u + v - high_mu
        if (
            low_mu <= u <= high_mu
            and low <= v <= high
            and log_gamma <= max(log_mu - MIN_LOG_VARIANCE, MAX_SMOOTH_LOG_GAMMA)
        ):
            interpolate(
                table, (u - low_mu) * NODES_PER_UNIT + MARGIN_NODES, (v - low) * NODES_PER_UNIT + MARGIN_NODES, splines
            )
            dev = gamma * deviance(y, mu)
            results[0, i] = min(log_h(y) - dev + 0.5 * log_gamma - splines[0], 0.0)
            results[1, i] = (gamma * (y - mu) - splines[1]) / mu
            results[2, i] = (0.5 - dev - splines[2]) / gamma
        else:
            results[0, i] = results[1, i] = results[2, i] = np.nan


def interpolate(table, x, y, splines):
    """Evaluate three bicubic splines on a grid at one point, and write their values to `splines` (3,).

    `table` has the three splines' coefficients at each node of the grid. x and y are the coordinates of the point, in
    units of the distance between neighbouring nodes.
    """
    i, j = int(x), int(y)
    s, t = x - i, y - j
    for k in range(3):
        splines[k] = 0.0
    for a in range(4):
        w = compute_node_weight(a, s)
        for b in range(4):
            weight = w * compute_node_weight(b, t)
            for k in range(3):
                splines[k] += weight * table[i - 1 + a, j - 1 + b, k]


def compute_node_weight(a, s):
    """Return the weight of one of four neighbouring nodes in a cubic B-spline.

    The nodes a = 0, ..., 3 are at the positions -1, 0, 1 and 2, and the spline is evaluated at a position s between 0
    and 1.
    """
    if a == 0:
        return (1.0 - s) ** 3 / 6.0
    if a == 1:
        return (4.0 - 6.0 * s * s + 3.0 * s**3) / 6.0
    if a == 2:
        return (1.0 + 3.0 * s + 3.0 * s * s - 3.0 * s**3) / 6.0
    return s**3 / 6.0


def compute_table(
    log_prob: Callable[[np.ndarray, np.ndarray], np.ndarray], ends: tuple[float, ...] = USUAL
) -> np.ndarray:
    """Compute the spline coefficients of log c, and of its derivatives in log mu and log gamma, on a grid.

    c(mu, gamma) is the normalising constant of the Double Poisson. It follows from log p(0) = log(gamma) / 2 - gamma mu
    - log c.

    Parameters
    ----------
    log_prob : function
        A function of arrays mu and gamma. It returns an array whose first three rows are log p(0) and its derivatives
        in mu and gamma.
    ends : tuple of float
        The first and last log mu, and the first and last log gamma.

    Returns
    -------
    array, (n_mu, n_gamma, 3)
        The coefficients of the three splines at the nodes of the grid.
    """
    axes = [_nodes(*ends[:2]), _nodes(*ends[2:])]
    u, v = (x.ravel() for x in np.meshgrid(*axes, indexing="ij"))
    mu, gamma = np.exp(u), np.exp(v)
    value, by_mu, by_gamma = log_prob(mu, gamma)[:3]
    log_c = 0.5 * v - gamma * mu - value
    slopes = -gamma * mu - mu * by_mu, 0.5 - gamma * mu - gamma * by_gamma
    shape = len(axes[0]), len(axes[1])
    return np.stack([spline_filter(x.reshape(shape), order=3, mode="mirror") for x in (log_c, *slopes)], axis=-1)


def _nodes(low: float, high: float) -> np.ndarray:
    number = math.ceil((high - low) * NODES_PER_UNIT) + 2 * MARGIN_NODES + 1
    return low + (np.arange(number) - MARGIN_NODES) / NODES_PER_UNIT
