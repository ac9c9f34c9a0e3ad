"""Distributions given by their mean: weights exp(power log h(y) - c D(y; m)) whose rate m is found from the mean.

With power = c these are Conway-Maxwell-Poissons, with power = 1 Double Poissons. Both are exponential families in
c log m, so derivatives in the mean and in c are moments. With R(y) = lean log h(y) - D(y; m), the derivative of the log
weight in c (lean is 1 where power = c, else 0): d log m / d mean = 1 / (c Var[Y]), and
d log m / d c = -Cov[Y, R] / (c Var[Y]).
"""

from math import exp, inf, log, log1p, sqrt
from typing import NamedTuple

import numpy as np

from ddpn.distributions.kernels.scalar import DEPTH, HEAD, JOIN, MARGIN, NODES, TERMS, WEIGHTS, deviance, log_h, log_of

#: Steps to the rate at most; and errors of the mean that end the search, in standard deviations and relative to the
#: mean.
MAX_STEPS, TOLERANCE, ROUNDING = 60, 1e-11, 1e-15


class Rate(NamedTuple):
    """A distribution whose rate has been found: log m, c, log of the sum of all weights, and moments.

    `score` is E[R(Y)], and `covariance` Cov[Y, R(Y)].
    """

    log_m: float
    c: float
    log_total: float
    mean: float
    score: float
    variance: float
    covariance: float


def deviance_at(y, log_m):
    """Return D(y; m), by the series where m is above 1: large counts keep their digits."""
    if log_m > 0.0:
        return deviance(y, exp(log_m))
    return exp(log_m) - y * (1.0 + log_m - log_of(max(y, 1.0)))


def find_window(log_m, c):
    """Return where c D(y; m) = 32: Newton's method in sqrt(y) and in y from outside."""
    target, m = DEPTH / c, exp(log_m)
    s = sqrt(m) + sqrt(target)
    if log_m < 0.0:
        s = min(s, sqrt(max(DEPTH / (-c * log_m), 2.718281828459045)))
    low = max(sqrt(m) - sqrt(target), 0.0) ** 2
    for _ in range(5):
        square = s * s
        slope = log(square) - log_m
        s -= max(m - target + square * (slope - 1.0), 0.0) / max(2.0 * s * slope, 1e-300)
        if low > 0.0:
            slope = log_m - log(low)
            low += max(m - low - low * slope - target, 0.0) / max(slope, 1e-300)
    return (low if target < m else 0.0), s * s


def sum_moments(log_m, c, power, lean):
    """Return log of the sum of all weights, E[Y], E[R], Var[Y] and Cov[Y, R], from 64 terms."""
    low, end = find_window(log_m, c)
    first = max(np.floor(low) - MARGIN - 2.0, 0.0)
    is_short = end + 2.0 - first < TERMS - 1.0
    start = sqrt(max(low, JOIN - 0.5))
    length = max(sqrt(end) - start, 0.0)
    centre = max(np.floor(exp(log_m)), 0.0)
    top = power * log_h(centre) - c * deviance_at(centre, log_m)
    s0, s1, s2, r1, sr = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(TERMS):
        if is_short:
            y, weight = first + i, 1.0
        elif i < JOIN + MARGIN:
            y, weight = float(i), HEAD[i] if low < JOIN else 0.0
        else:
            t = start + length * NODES[i - JOIN - MARGIN]
            y, weight = t * t, 2.0 * t * length * WEIGHTS[i - JOIN - MARGIN]
        own, dev = log_h(y), deviance_at(y, log_m)
        w = weight * exp(power * own - c * dev - top)
        r, gap = lean * own - dev, y - centre
        s0 += w
        s1 += w * gap
        s2 += w * gap * gap
        r1 += w * r
        sr += w * r * gap
    shift, mean_r = s1 / s0, r1 / s0
    return top + log(s0), centre + shift, mean_r, s2 / s0 - shift * shift, sr / s0 - shift * mean_r


def solve(mean, c, power, lean, log_m):
    """Find the rate of a mean by Newton's method from a guess of log m, between brackets."""
    low, high = -inf, inf
    sums = sum_moments(log_m, c, power, lean)
    for _ in range(MAX_STEPS):
        gap, variance = sums[1] - mean, sums[3]
        if abs(gap) <= TOLERANCE * sqrt(variance) + ROUNDING * mean:
            break
        if gap < 0.0:
            low = log_m
        else:
            high = log_m
        step = -log1p(gap / mean) * sums[1] / max(c * variance, 1e-300)
        new = log_m + max(min(step, 2.0 / c), -2.0 / c)
        log_m = new if low < new < high or high - low == inf else 0.5 * (low + high)
        sums = sum_moments(log_m, c, power, lean)
    return Rate(log_m, c, sums[0], mean, sums[2], sums[3], sums[4])


def log_probability(rate, y, power):
    """Return the logarithm of the probability of y."""
    return power * log_h(y) - rate.c * deviance_at(y, rate.log_m) - rate.log_total


def differentiate(rate, y, lean):
    """Return the derivatives of the log probability in the mean and in c.

    They are (y - mean) / Var[Y], and the residual of R on Y.
    """
    by_mean = (y - rate.mean) / rate.variance
    by_c = lean * log_h(y) - deviance_at(y, rate.log_m) - rate.score - by_mean * rate.covariance
    return by_mean, by_c, 0.0
