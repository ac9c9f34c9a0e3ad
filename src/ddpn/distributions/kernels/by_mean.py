"""Distributions with a prescribed mean: weights exp(power log h(y) - c D(y; m)), whose rate m is solved from the mean.

With power = c, these are Conway-Maxwell-Poissons, with power = 1 Double Poissons. Both are exponential families in c
log m, so derivatives in the mean and in c are moments: d log m / d mean = 1 / (c Var[Y]) and d log m / d c = -Cov[Y, R]
/ (c Var[Y]). Here, R(y) = lean log h(y) - D(y; m) is the derivative of the log weight in c, with lean 1 if power = c,
else 0.
"""

from math import exp, inf, log, log1p, sqrt
from typing import NamedTuple

import numpy as np

from ddpn.distributions.kernels.family import prepare
from ddpn.distributions.kernels.ranges import CROSS_SUM, N_SUMS, sum_range
from ddpn.distributions.kernels.scalar import deviance, log_h, look_up_log

#: The most Newton steps of the search for the rate. It ends if the error of the mean is at most `TOLERANCE` times the
#: smaller of the standard deviation and the mean, plus `ROUNDING` times the mean.
MAX_STEPS, TOLERANCE, ROUNDING = 60, 1e-12, 1e-15


class RateWeights(NamedTuple):
    """Probabilities of a distribution whose rate is solved, see `kernels.family`.

    `log_total` is the log of the sum of all weights, `mean_r` is E[R(Y)], and `covariance` Cov[Y, R(Y)]. While these
    moments are being computed, they are 0 and `variance` is 1, so that the second result of `score` is R itself.
    """

    log_m: float
    c: float
    power: float
    lean: float
    width: float
    log_total: float
    mean: float
    mean_r: float
    variance: float
    covariance: float

    def is_normalised(self):
        return True

    def log_mass(self, y):
        return self.power * log_h(y) - self.c * deviance_at(y, self.log_m) - self.log_total

    def score(self, y):
        """Return (y - mean) / Var[Y], and the residual of R on Y."""
        by_mean = (y - self.mean) / self.variance
        r = self.lean * log_h(y) - deviance_at(y, self.log_m)
        return by_mean, r - self.mean_r - by_mean * self.covariance, 0.0

    def shape(self):
        """Return m, or 0 if there may be no interior mode, and the standard deviation."""
        m = exp(self.log_m)
        return (m if self.lean == 1.0 or m * self.c > 2.0 else 0.0), self.width, inf


def deviance_at(y, log_m):
    """Return D(y; m). A series is used if m is above 1, so that large counts keep their digits."""
    if log_m > 0.0:
        return deviance(y, exp(log_m))
    return exp(log_m) - y * (1.0 + log_m - look_up_log(max(y, 1.0)))


def compute_rate_moments(mean, c, power, lean, log_m, sums):
    """Return the distribution with the rate exp(log_m) and its moments; `mean` is a guess of its mean."""
    # The variance is about m / c, and at most that of the limit c = 0.
    width = sqrt(min(exp(log_m) / c, mean + 2.0 * mean * mean)) + 0.5
    plain = RateWeights(log_m, c, power, lean, width, 0.0, 0.0, 0.0, 1.0, 0.0)
    reference, centre = sum_range(plain, 0.0, inf, True, sums)
    shift, mean_r = sums[1] / sums[0], sums[4] / sums[0]
    variance = max(sums[2] / sums[0] - shift * shift, 1e-300)
    covariance = sums[CROSS_SUM] / sums[0] - shift * mean_r
    log_total = reference + log(sums[0])
    return RateWeights(
        log_m, c, power, lean, sqrt(variance) + 0.5, log_total, centre + shift, mean_r, variance, covariance
    )


def solve_rate(mean, c, power, lean, log_m):
    """Solve for the rate that gives a mean, by Newton's method within brackets, from a guess of log m."""
    low, high, sums = -inf, inf, np.empty(N_SUMS)
    p = compute_rate_moments(mean, c, power, lean, log_m, sums)
    for _ in range(MAX_STEPS):
        gap = p.mean - mean
        if abs(gap) <= TOLERANCE * min(sqrt(p.variance), mean) + ROUNDING * mean:
            break
        if gap < 0.0:
            low = log_m
        else:
            high = log_m
        step = -log1p(gap / mean) * p.mean / (c * p.variance)
        new = log_m + max(min(step, 2.0 / c), -2.0 / c)
        log_m = new if low < new < high or high - low == inf else 0.5 * (low + high)
        p = compute_rate_moments(mean, c, power, lean, log_m, sums)
    return p


def solve_rates(family, inputs, results):
    """Compute log m and the variance (2, n) from three parameters (3, n)."""
    for i in range(inputs.shape[1]):
        p = prepare(family, inputs[0, i], inputs[1, i], inputs[2, i])
        results[0, i], results[1, i] = p.log_m, p.variance
