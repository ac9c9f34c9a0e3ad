"""Distributions whose parameter is the mean: p(y) is proportional to h(y)^power exp(-c D(y; m)).

The rate m is solved from the mean. h(y) = e^-y y^y / y!, D(y; m) = m - y + y log(y / m), and c is the inverse
dispersion that the user passes. There are two families. With power = c, these are Conway-Maxwell-Poissons with nu = c,
because h(y) exp(-D(y; m)) is the Poisson probability of y for the mean m. With power = 1, they are Double Poissons with
gamma = c.

Both are exponential families with the natural parameter c log m and the sufficient statistic Y. So the derivative of
E[Y] in log m is c Var[Y].

Let R(y) be the derivative of log(h(y)^power exp(-c D(y; m))) in c with m fixed: R(y) = power_slope log h(y) - D(y; m),
where power_slope is the derivative of `power` in c, 1 or 0. The derivative of E[Y] in c with m fixed is Cov[Y, R]. If m
is solved from the mean, it follows that

- d log m / d mean = 1 / (c Var[Y]), and d log m / d c = -Cov[Y, R] / (c Var[Y]),
- d log p(y) / d mean = (y - E[Y]) / Var[Y],
- d log p(y) / d c = R(y) - E[R] - (y - E[Y]) Cov[Y, R] / Var[Y], the residual of a linear regression of R on Y.
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


class MeanParameterizedFamily(NamedTuple):
    """A distribution whose rate m was solved from its mean: p(y) = h(y)^power exp(-c D(y; m)) / total.

    h(y) = e^-y y^y / y!, D(y; m) = m - y + y log(y / m), and R(y) = power_slope log h(y) - D(y; m), the derivative of
    log(h(y)^power exp(-c D(y; m))) in c. This is the base class of two families (see `kernels.family`).

    Parameters
    ----------
    log_m : float
        Logarithm of the rate m.
    c : float
        Inverse dispersion.
    power, power_slope : float
        The exponent of h(y), and its derivative in c.
    width : float
        A rough standard deviation.
    log_total : float
        The logarithm of the sum of h(y)^power exp(-c D(y; m)) over all counts.
    mean, mean_r, variance, covariance : float
        E[Y], E[R(Y)], Var[Y] and Cov[Y, R(Y)]. While these are being computed, the variance is set to 1 and the other
        three to 0, so that the second result of `score` is R(y).
    """

    log_m: float
    c: float
    power: float
    power_slope: float
    width: float
    log_total: float
    mean: float
    mean_r: float
    variance: float
    covariance: float

    def is_normalised(self):
        return True

    def log_weight(self, y):
        return self.power * log_h(y) - self.c * compute_deviance(y, self.log_m) - self.log_total

    def score(self, y):
        """Return the derivatives of log p(y) in the mean and in c, and 0 for the third parameter, which does not exist.

        They are by_mean = (y - E[Y]) / Var[Y] and R(y) - E[R] - by_mean Cov[Y, R]. The docstring of the module derives
        them.
        """
        by_mean = (y - self.mean) / self.variance
        r = self.power_slope * log_h(y) - compute_deviance(y, self.log_m)
        return by_mean, r - self.mean_r - by_mean * self.covariance, 0.0

    def estimate_shape(self):
        """Return a rough centre, a rough standard deviation, and infinity, because there is no largest possible count.

        The centre is m, or 0 where the most probable count may be 0.
        """
        m = exp(self.log_m)
        return (m if self.power_slope == 1.0 or m * self.c > 2.0 else 0.0), self.width, inf


def compute_deviance(y, log_m):
    """Return D(y; m) = m - y + y log(y / m), given log m.

    For m above 1, `scalar.deviance` is called, which is accurate for large counts. A smaller m may underflow to 0, so
    the formula uses its logarithm.
    """
    if log_m > 0.0:
        return deviance(y, exp(log_m))
    return exp(log_m) - y * (1.0 + log_m - look_up_log(max(y, 1.0)))


def compute_rate_moments(mean, c, power, power_slope, log_m, sums):
    """Return the distribution with the rate exp(log_m), with its normalising constant and moments computed.

    Its probabilities are proportional to h(y)^power exp(-c D(y; m)), with h(y) = e^-y y^y / y! and D(y; m) = m - y + y
    log(y / m).

    Parameters
    ----------
    mean : float
        A guess of the mean of this distribution. It only limits the guess of its standard deviation.
    c, power, power_slope : float
        Inverse dispersion, the exponent of h(y) and its derivative in c, as in the docstring of the module.
    log_m : float
        The logarithm of the rate.
    sums : array, (N_SUMS,)
        A work array.

    Returns
    -------
    MeanParameterizedFamily
        The distribution, whose field `mean` is the exact mean for this rate.
    """
    # The variance is about m / c, and at most that of the limit c = 0.
    width = sqrt(min(exp(log_m) / c, mean + 2.0 * mean * mean)) + 0.5
    plain = MeanParameterizedFamily(log_m, c, power, power_slope, width, 0.0, 0.0, 0.0, 1.0, 0.0)
    reference, centre = sum_range(plain, 0.0, inf, True, sums)
    shift, mean_r = sums[1] / sums[0], sums[4] / sums[0]
    variance = max(sums[2] / sums[0] - shift * shift, 1e-300)
    covariance = sums[CROSS_SUM] / sums[0] - shift * mean_r
    log_total = reference + log(sums[0])
    return MeanParameterizedFamily(
        log_m, c, power, power_slope, sqrt(variance) + 0.5, log_total, centre + shift, mean_r, variance, covariance
    )


def solve_rate(mean, c, power, power_slope, log_m):
    """Find the rate m with which the distribution has the given mean.

    p(y) is proportional to h(y)^power exp(-c D(y; m)), with h(y) = e^-y y^y / y!, D(y; m) = m - y + y log(y / m), and m
    the rate. Newton's method is applied to log E[Y] as a function of log m, whose derivative is c Var[Y] / E[Y]. A step
    that leaves the interval known to contain the solution is replaced by bisection. After `MAX_STEPS` steps, the last
    rate is returned even if it is not accurate.

    Parameters
    ----------
    mean : float
        The mean.
    c, power, power_slope : float
        Inverse dispersion, the exponent of h(y) and its derivative in c, as in the docstring of the module.
    log_m : float
        Where the search for log m starts.

    Returns
    -------
    MeanParameterizedFamily
        The distribution with this rate.
    """
    low, high, sums = -inf, inf, np.empty(N_SUMS)
    p = compute_rate_moments(mean, c, power, power_slope, log_m, sums)
    for _ in range(MAX_STEPS):
        gap = p.mean - mean
        if abs(gap) <= TOLERANCE * min(sqrt(p.variance), mean) + ROUNDING * mean:
            break
        if gap < 0.0:
            low = log_m
        else:
            high = log_m
        # The log mean is to fall by log1p(gap / mean); its derivative in log m is c Var[Y] / E[Y].
        step = -log1p(gap / mean) * p.mean / (c * p.variance)
        new = log_m + max(min(step, 2.0 / c), -2.0 / c)
        log_m = new if low < new < high or high - low == inf else 0.5 * (low + high)
        p = compute_rate_moments(mean, c, power, power_slope, log_m, sums)
    return p


def solve_rates(family, inputs, results):
    """Solve for the rates m of n distributions of a family; write log m and the variance of each to `results`.

    p(y) is proportional to h(y)^power exp(-c D(y; m)), with h(y) = e^-y y^y / y!, D(y; m) = m - y + y log(y / m), the
    inverse dispersion c, and the rate m. The rate is chosen such that the distribution has the given mean.

    Parameters
    ----------
    family : type
        A family whose rate is solved from the mean, such as the Double Poisson of `families.mean_double_poisson`.
    inputs : array, (3, n)
        The parameters of each distribution: mean, inverse dispersion, and 0 for the third, which does not exist.
    results : array, (2, n)
        Receives log m and the variance.
    """
    for i in range(inputs.shape[1]):
        p = prepare(family, inputs[0, i], inputs[1, i], inputs[2, i])
        results[0, i], results[1, i] = p.log_m, p.variance
