"""log p of Double Poissons to the digits of float32, for training steps: log c from a table instead of a sum.

Bicubic splines over log mu and log gamma, for gamma up to 4 or a variance, mu / gamma, above 1.3. Elsewhere mass sits
on single integers, log c oscillates with mu, and the kernel sums. The error is below 2e-6 for log c, and below 1e-5 for
its slopes. Variances above 400 times the mean are in a second table, which most fits never need. Beyond the largest mu
of a table log c depends on gamma mu alone if that is large: what is left is 1 / (12 mu) from the series of log c, and
sqrt(gamma) e^(-gamma mu) from the counts near 0.
"""

import math
from collections.abc import Callable
from math import log

import numpy as np
from scipy.ndimage import spline_filter

from ddpn.distributions.kernels.scalar import deviance, log_h

#: Ends of both tables: log mu from and to, log gamma from and to. Networks that separate zeros from large counts reach
#: the lower ends of the second one.
USUAL, SMALL_GAMMA = (-8.0, 14.0, -6.0, 5.0), (-16.0, 16.0, -18.0, -6.0)
#: log gamma up to which log c is smooth for every mu, and how much smaller than log mu it must be elsewhere.
SMOOTH, WIDE = math.log(4.0), math.log(1.3)
#: log (gamma mu) from which on log c depends on it alone where mu is beyond a table.
FAR_FROM_0 = math.log(10.0)
#: Nodes per unit of both, and nodes beyond the ends, where splines do not know how to go on.
PER_UNIT, BEYOND = 16, 12


def log_probs(table, ends, inputs, results):
    """Evaluate log p and its derivatives in mu and gamma (3, n) at y, mu, gamma (3, n); NaN beyond the table.

    `ends` are those of the table. Shape: table (n_mu, n_gamma, 3), ends (4,).
    """
    splines = np.zeros(3)
    low_mu, high_mu, low, high = ends[0], ends[1], ends[2], ends[3]
    for i in range(inputs.shape[1]):
        y, mu, gamma = inputs[0, i], inputs[1, i], inputs[2, i]
        log_mu, log_gamma = log(mu), log(gamma)
        u, v = log_mu, log_gamma
        if u > high_mu and u + v >= FAR_FROM_0:
            u, v = high_mu, u + v - high_mu
        if low_mu <= u <= high_mu and low <= v <= high and log_gamma <= max(log_mu - WIDE, SMOOTH):
            interpolate(table, (u - low_mu) * PER_UNIT + BEYOND, (v - low) * PER_UNIT + BEYOND, splines)
            dev = gamma * deviance(y, mu)
            results[0, i] = min(log_h(y) - dev + 0.5 * log_gamma - splines[0], 0.0)
            results[1, i] = (gamma * (y - mu) - splines[1]) / mu
            results[2, i] = (0.5 - dev - splines[2]) / gamma
        else:
            results[0, i] = results[1, i] = results[2, i] = np.nan


def interpolate(table, x, y, splines):
    """Evaluate three splines at a position, from the four nodes around it on either axis."""
    i, j = int(x), int(y)
    s, t = x - i, y - j
    for k in range(3):
        splines[k] = 0.0
    for a in range(4):
        w = basis(a, s)
        for b in range(4):
            weight = w * basis(b, t)
            for k in range(3):
                splines[k] += weight * table[i - 1 + a, j - 1 + b, k]


def basis(a, s):
    """Return the weight of node a of 0..3 of a cubic B-spline at position s between nodes 1 and 2."""
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
    """Compute the spline coefficients of log c and its slopes in log mu and log gamma.

    `log_prob` returns log p(0) and its derivatives in mu and gamma: log p(0) is log(gamma) / 2 - gamma mu - log c.
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
    number = math.ceil((high - low) * PER_UNIT) + 2 * BEYOND + 1
    return low + (np.arange(number) - BEYOND) / PER_UNIT
