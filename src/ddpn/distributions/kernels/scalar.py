"""Special functions of one number that several families share. They work compiled by numba and as plain Python."""

from math import erfc, lgamma, log, log1p

import numpy as np
from scipy.special import gammaln

#: Counts in the tables of log y and log h(y).
TABLE_COUNTS = 8192
#: log(2 pi) / 2
HALF_LOG_TWO_PI = 0.9189385332046727
#: log 2 as a sum of two numbers, the first with few digits so that products with integers are exact; and 1 / log 2.
LOG_TWO, LOG_TWO_REST, ONE_OVER_LOG_TWO = 0.6931471803691238, 1.9082149292705877e-10, 1.4426950408889634
#: 1.5 * 2^52: adding it to a number, and subtracting it again, rounds the number to an integer.
ROUNDER = 6755399441055744.0
#: An x at which exp(x) is 0, and a factor that keeps the power of two of a small result representable.
UNDERFLOW, SCALE = -746.0, 2.0**-64

_Y = np.arange(float(TABLE_COUNTS))
LOG = np.log(np.maximum(_Y, 1.0))
LOG_H = _Y * LOG - _Y - gammaln(_Y + 1.0)
# From 16 on Stirling's series has more digits than the difference of large numbers.
_R = 1.0 / np.maximum(_Y, 1.0)
_SERIES = _R * (1 / 12 - _R**2 * (1 / 360 - _R**2 * (1 / 1260 - _R**2 * (1 / 1680 - _R**2 / 1188))))
LOG_H[16:] = (-0.5 * LOG - HALF_LOG_TWO_PI - _SERIES)[16:]
LOG_H[0] = 0.0


def stirling_error(x: float) -> float:
    """Compute the error of Stirling's formula for real x > 0: log x! - log(sqrt(2 pi x) x^x e^-x).

    From 16 on, it is a series in 1 / x.
    """
    if x < 16.0:
        return lgamma(x + 1.0) - (x + 0.5) * log(x) + x - HALF_LOG_TWO_PI
    r = 1.0 / x
    s = r * r
    return r * (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * (1 / 1188)))))


def stirling_slope(x: float) -> float:
    """Compute digamma(x) - log x + 1 / (2 x), for real x > 0.

    It is the derivative of `log_gamma(x) - ((x - 1/2) log x - x + log(2 pi) / 2)`, the error of Stirling's formula for
    the log of the gamma function.
    """
    if x < 16.0:
        return digamma(x) - log(x) + 0.5 / x
    s = 1.0 / (x * x)
    return -s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132)))))


def digamma(x: float) -> float:
    """Compute the digamma function, the derivative of the log of the gamma function, for x > 0.

    From 16 on, an asymptotic series is used. A smaller x is first raised above 16 by the recurrence digamma(x) =
    digamma(x + 1) - 1 / x.
    """
    total = 0.0
    while x < 16.0:
        total -= 1.0 / x
        x += 1.0
    s = 1.0 / (x * x)
    return total + log(x) - 0.5 / x - s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132)))))


def log_h(y: float) -> float:
    """Compute log h(y) with h(y) = e^-y y^y / y!, for counts y below `TABLE_COUNTS` and for any real y of at least 16.

    Counts below `TABLE_COUNTS` are looked up in a table. For other y, the factorial is computed by Stirling's formula.
    """
    if y < TABLE_COUNTS:
        i = int(y)
        if i == y:
            return LOG_H[i]
    return -0.5 * log(y) - HALF_LOG_TWO_PI - stirling_error(y)


def log_h_and_log(y: float) -> tuple[float, float]:
    """Return log h(y), with h(y) = e^-y y^y / y!, and log y. At y = 0, the second result is 0 instead of -infinity.

    Counts below `TABLE_COUNTS` are looked up in tables.
    """
    if y < TABLE_COUNTS:
        i = int(y)
        if i == y:
            return LOG_H[i], LOG[i]
    return log_h(y), log(y)


def look_up_log(y: float) -> float:
    """Return log y, or 0 at y = 0. Counts below `TABLE_COUNTS` are looked up in a table."""
    if y < TABLE_COUNTS:
        i = int(y)
        if i == y:
            return LOG[i]
    return log(y)


def deviance(y: float, mu: float) -> float:
    """Compute D(y; mu) = mu - y + y log(y / mu), half of the Poisson deviance.

    If y is close to mu, the terms nearly cancel, and a series in v = (y - mu) / (y + mu) is used instead. It follows
    from log(y / mu) = 2 atanh(v).
    """
    v = (y - mu) / (y + mu)
    if abs(v) < 0.1:
        s = v * v
        tail = s * (1 / 3 + s * (1 / 5 + s * (1 / 7 + s * (1 / 9 + s * (1 / 11 + s * (1 / 13 + s * (1 / 15)))))))
        return (y - mu) * v + 2.0 * y * v * tail
    return mu - y + y * log(y / mu) if y > 0.0 else mu


def exponential(x: float) -> float:
    """Compute exp(x) for x up to 650, with operations that the compiler can vectorise.

    x is written as k log 2 + r with an integer k, so that exp(x) = 2^k exp(r). Adding `ROUNDER` to x / log 2 rounds it,
    which leaves k in the lowest bits of the sum. These bits are shifted to the exponent of a float, which gives 2^k.
    exp(r) is computed by a Taylor series.
    """
    x = max(x, UNDERFLOW)
    rounded = x * ONE_OVER_LOG_TWO + ROUNDER  # the lowest bits are k
    k = rounded - ROUNDER
    r = (x - k * LOG_TWO) - k * LOG_TWO_REST
    # The exponent of a float starts at bit 52, with an offset of 1023. The extra 2^64 is divided out by `SCALE`.
    power = np.int64((np.float64(rounded).view(np.int64) + 1023 + 64) << 52).view(np.float64)
    beyond = 1 / 3628800 + r * (1 / 39916800 + r * (1 / 479001600 + r * (1 / 6227020800)))
    series = 1 / 120 + r * (1 / 720 + r * (1 / 5040 + r * (1 / 40320 + r * (1 / 362880 + r * beyond))))
    return SCALE * (power * (1.0 + r * (1.0 + r * (0.5 + r * (1 / 6 + r * (1 / 24 + r * series))))))


def log_normal_cdf(x: float) -> float:
    """Compute log P(X < x) for a standard Normal X, with a small relative error in both tails."""
    if x > -20.0:
        upper = 0.5 * erfc(x * 0.7071067811865476)
        return log1p(-upper) if x > 0.0 else log(0.5 * erfc(-x * 0.7071067811865476))
    s = 1.0 / (x * x)
    series = 1.0 - s * (1.0 - s * (3.0 - s * (15.0 - s * (105.0 - s * 945.0))))
    return -0.5 * x * x - log(-x) - HALF_LOG_TWO_PI + log(series)
