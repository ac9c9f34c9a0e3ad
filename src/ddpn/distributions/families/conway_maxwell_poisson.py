"""The Conway-Maxwell-Poisson distribution by its mean and dispersion, as in Huang (2017).

With m = lambda^(1 / nu), p(y) = exp(nu R(y)) / S with R(y) = y log m - m - log y! = log h(y) - D(y; m). The rate of a
mean has no closed form: it is found by Newton's method in log m between brackets. Derivatives in the mean and nu are
moments: d log m / d mu = 1 / (nu Var[Y]), d log m / d nu = -Cov[Y, R] / (nu Var[Y]).
"""

from math import exp, inf, log, log1p, sqrt

import numpy as np
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions.arguments import as_parameters, check_positive, is_checked
from ddpn.distributions.components import Family
from ddpn.distributions.kernels.scalar import DEPTH, HEAD, JOIN, MARGIN, NODES, TERMS, WEIGHTS, deviance, log_h, log_of
from ddpn.distributions.parametric import ParametricDistribution
from ddpn.runtime.errors import InputError

#: nu is at most so many times the mean, or 1: beyond, nearly all mass is on one count and the mean fixes no rate.
NARROWEST = 20.0
#: Steps to the rate at most; and errors of the mean that end the search, in
#: standard deviations and relative to the mean.
_STEPS, _TOLERANCE, _ROUNDING = 60, 1e-11, 1e-15


def rate_kernel(y, log_m):
    """R(y), by the deviance where m is above 1: large counts keep their digits."""
    if log_m > 0.0:
        return log_h(y) - deviance(y, exp(log_m))
    return log_h(y) + y * (1.0 + log_m - log_of(max(y, 1.0))) - exp(log_m)


def window(log_m, nu):
    """Where nu D(y; m) = 32: Newton's method in sqrt(y) and in y from outside."""
    target, m = DEPTH / nu, exp(log_m)
    s = sqrt(m) + sqrt(target)
    if log_m < 0.0:
        s = min(s, sqrt(max(DEPTH / (-nu * log_m), 2.718281828459045)))
    low = max(sqrt(m) - sqrt(target), 0.0) ** 2
    for _ in range(5):
        square = s * s
        slope = log(square) - log_m
        s -= max(m - target + square * (slope - 1.0), 0.0) / max(2.0 * s * slope, 1e-300)
        if low > 0.0:
            slope = log_m - log(low)
            low += max(m - low - low * slope - target, 0.0) / max(slope, 1e-300)
    return (low if target < m else 0.0), s * s


def moments(log_m, nu):
    """log S, E[Y], E[R], Var[Y] and Cov[Y, R], from 64 terms."""
    low, end = window(log_m, nu)
    first = max(np.floor(low) - MARGIN - 2.0, 0.0)
    is_short = end + 2.0 - first < TERMS - 1.0
    start = sqrt(max(low, JOIN - 0.5))
    length = max(sqrt(end) - start, 0.0)
    centre = max(np.floor(exp(log_m)), 0.0)
    top = nu * rate_kernel(centre, log_m)
    s0, s1, s2, r1, sr = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(TERMS):
        if is_short:
            y, weight = first + i, 1.0
        elif i < JOIN + MARGIN:
            y, weight = float(i), HEAD[i] if low < JOIN else 0.0
        else:
            t = start + length * NODES[i - JOIN - MARGIN]
            y, weight = t * t, 2.0 * t * length * WEIGHTS[i - JOIN - MARGIN]
        r = rate_kernel(y, log_m)
        w = weight * exp(nu * r - top)
        gap = y - centre
        s0 += w
        s1 += w * gap
        s2 += w * gap * gap
        r1 += w * r
        sr += w * r * gap
    shift, mean_r = s1 / s0, r1 / s0
    return top + log(s0), centre + shift, mean_r, s2 / s0 - shift * shift, sr / s0 - shift * mean_r


def guess(mu, nu):
    """log m by the mean's expansion where that is close, else between the rates of the limits.

    nu = 0 is the Geometric with lambda = mu / (1 + mu), nu = infinity the Bernoulli.
    """
    by_mean = log(max(mu + 0.5 - 0.5 / nu, 1e-300))
    if nu < 1.0:
        return by_mean if 2.0 * nu * mu > 3.0 else (log(mu) - (1.0 - nu) * log1p(mu)) / nu
    if mu < 1.0:
        return min(by_mean, (log(mu) - (1.0 - 1.0 / nu) * log1p(-min(mu, 1.0 - 2.0**-53))) / nu)
    return by_mean


def prepared(mu, nu, c):
    """log m, nu, log S, mu, E[R], Var[Y] and Cov[Y, R] of the distribution with mean mu."""
    log_m, low, high = guess(mu, nu), -inf, inf
    found = moments(log_m, nu)
    for _ in range(_STEPS):
        gap, variance = found[1] - mu, found[3]
        if abs(gap) <= _TOLERANCE * sqrt(variance) + _ROUNDING * mu:
            break
        if gap < 0.0:
            low = log_m
        else:
            high = log_m
        step = -log1p(gap / mu) * found[1] / max(nu * variance, 1e-300)
        new = log_m + max(min(step, 2.0 / nu), -2.0 / nu)
        log_m = new if low < new < high or high - low == inf else 0.5 * (low + high)
        found = moments(log_m, nu)
    return log_m, nu, found[0], mu, found[2], found[3], found[4]


def log_mass(y, p):
    """nu R(y) - log S."""
    return p[1] * rate_kernel(y, p[0]) - p[2]


def score(y, p):
    """(y - mu) / Var[Y] and R(y) - E[R] - (y - mu) Cov[Y, R] / Var[Y]."""
    by_mu = (y - p[3]) / p[5]
    return by_mu, rate_kernel(y, p[0]) - p[4] - by_mu * p[6], 0.0


def shape(p):
    """m and the standard deviation."""
    return exp(p[0]), sqrt(p[5]) + 0.5, inf


class ConwayMaxwellPoisson(ParametricDistribution):
    r"""Conway-Maxwell-Poisson with mean mu: p(y) proportional to lambda^y / (y!)^nu.

    lambda is the one that gives the mean mu, found by Newton's method. nu > 1 is under-, nu < 1 over-dispersed, nu = 1
    is Poisson(mu), nu = 0 would be the Geometric distribution: the variance never exceeds mu (1 + mu). nu must be at
    most 20 times the larger of mu and 1: beyond, nearly all mass is on one count.

    Shape: mu and nu broadcast to `batch_shape`. Computation is in float64, results come in the parameters' dtype.

    Parameters
    ----------
    mu : Tensor or float
        Mean, positive.
    nu : Tensor or float
        Inverse dispersion, positive.
    validate_args : bool, optional
        Whether values are checked. Default: only on a CPU.

    Examples
    --------
    >>> dist = ConwayMaxwellPoisson(mu=5.0, nu=2.0)
    >>> dist.mean.item(), round(dist.variance.item(), 4), dist.mode.item()
    (5.0, 2.632, 5.0)
    """

    arg_constraints = {"mu": constraints.positive, "nu": constraints.positive}
    family = Family("conway_maxwell_poisson", log_mass, score, shape, prepared=prepared, normalised=True)
    _names = ("mu", "nu")

    def __init__(self, mu: Tensor | float, nu: Tensor | float, validate_args: bool | None = None) -> None:
        self.mu, self.nu = as_parameters(mu=mu, nu=nu)
        if is_checked(validate_args, self.mu):
            check_positive("mu", self.mu, "Emit its logarithm and exponentiate, or clamp it.")
            check_positive("nu", self.nu, "Emit its logarithm and exponentiate, or clamp it.")
            if (bad := self.nu > NARROWEST * self.mu.clamp(min=1.0)).any():
                got = f"{self.nu[bad][0].item():g} for a mean of {self.mu[bad][0].item():g}"
                raise InputError(f"nu must be at most {NARROWEST:g} times the mean, or {NARROWEST:g}, got {got}.")
        super().__init__(self.mu.shape, validate_args)

    @property
    def mean(self) -> Tensor:
        """mu."""
        return self.mu
