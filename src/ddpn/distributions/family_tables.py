"""Double Poissons and Negative Binomials on the counts 0, 1, ..., n - 1, for many rows or for few, in float64.

Both are sums of products without a log-gamma function. Few numbers are computed by numpy, whose calls take less time,
many by torch, whose exponentials and products do.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np
import torch

from ddpn.distributions.double_poisson.weights import exact_log_h

#: The longest table.
LONGEST = 1024
#: Numbers in one temporary: half of a CPU's second-level cache.
_BLOCK = 2**16
#: From so many numbers on torch is faster.
_MANY = 4096
#: Variances below this share of the squared mean lose more than ten digits as a difference of sums.
_NARROW = 1e-5


@cache
def _powers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows y - y log y and y of all counts, log h(y), and columns 1, y and y^2."""
    y = np.arange(float(LONGEST))
    rows = np.stack([y - y * np.log(np.maximum(y, 1.0)), y])
    return rows, exact_log_h(y), np.stack([np.ones_like(y), y, y * y], axis=1)


@cache
def _inverse() -> np.ndarray:
    """1 / y of all counts; 1 for 0."""
    return 1.0 / np.maximum(np.arange(float(LONGEST)), 1.0)


def double_poissons(
    mu: np.ndarray, gamma: np.ndarray, weight: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mean, variance and weighted mass of Double Poissons whose windows end before n, and the sums of their weights.

    The variance is NaN where it is too small beside the mean. Products gamma mu are below 600. Sums are those of
    h(y) exp(gamma (y - y log y + y log mu)).
    Shape: (rows, k) each -> (rows, k), (rows, k), summed over the components (rows, n), and (rows, k).
    """
    if not mu.size:
        return mu, mu, np.zeros((len(mu), n)), mu
    powers, log_h, columns = _powers()
    factors = np.empty((*mu.shape, 2))
    factors[..., 0] = gamma
    np.multiply(gamma, np.log(mu), out=factors[..., 1])
    sums, mass = np.empty((*mu.shape, 3)), np.empty((len(mu), n))
    for rows in _parts(mu, n):
        # log of h(y) exp(gamma mu - gamma D(y; mu)): what is missing is the same for all counts.
        table = _exp_of_product(factors[rows].reshape(-1, 2), powers[:, :n], log_h[:n])
        own = sums[rows]
        np.matmul(table, columns[:n], out=own.reshape(-1, 3))
        np.einsum("rk,rkn->rn", weight[rows] / own[..., 0], table.reshape(*own.shape[:2], n), out=mass[rows])
    mean, square = sums[..., 1] / sums[..., 0], sums[..., 2] / sums[..., 0]
    variance = square - mean * mean
    narrow = ~(variance > _NARROW * square)
    if narrow.any():
        variance[narrow] = np.nan
    return mean, variance, mass, sums[..., 0]


def _parts(each: np.ndarray, n: int) -> Iterator[slice]:
    """Rows in blocks whose tables stay in cache. Shape: (rows, k)."""
    step = max(1, _BLOCK // (each.shape[1] * n))
    return (slice(start, start + step) for start in range(0, len(each), step))


def _exp_of_product(factors: np.ndarray, rows: np.ndarray, constant: np.ndarray) -> np.ndarray:
    if len(factors) * len(constant) < _MANY:
        table = factors @ rows
        table += constant
        return np.exp(table, out=table)
    return torch.addmm(*(torch.from_numpy(x) for x in (constant, factors, rows))).exp_().numpy()


def negative_binomials(mean: np.ndarray, alpha: np.ndarray, weight: np.ndarray, n: int) -> np.ndarray:
    """The weighted pmf of Negative Binomials, from the ratios p(y) / p(y - 1) = s (alpha + (1 - alpha) / y).

    With s = mean / (1 + alpha mean). Shape: (rows, k) each -> (rows, n), summed over the components.
    """
    spread = alpha * mean
    scale = mean / (1.0 + spread)
    first = weight * np.exp(-np.log1p(spread) / alpha)
    constant, slope = scale * alpha, scale * (1.0 - alpha)
    found = np.empty((len(mean), n))
    for rows in _parts(mean, n):
        a, b = constant[rows].reshape(-1, 1), slope[rows].reshape(-1, 1)
        table = _products_of_ratios(a, b, n).reshape(-1, mean.shape[1], n)
        np.einsum("rk,rkn->rn", first[rows], table, out=found[rows])
    return found


def _products_of_ratios(constant: np.ndarray, slope: np.ndarray, n: int) -> np.ndarray:
    """Running products of constant + slope / y for y = 1, 2, ..., from 1 on. Shape: (rows, 1) each -> (rows, n)."""
    inverse = _inverse()[:n]
    if len(constant) * n < _MANY:
        table = slope * inverse
        table += constant
        table[:, 0] = 1.0
        return np.cumprod(table, axis=1, out=table)
    ratios = torch.addcmul(*(torch.from_numpy(x) for x in (constant, slope, inverse)))
    ratios[:, 0] = 1.0
    return ratios.cumprod(dim=1).numpy()


def negative_binomial_end(mean: np.ndarray, alpha: np.ndarray, depth: float) -> np.ndarray:
    """An upper bound on where the unit deviance of Negative Binomials reaches `depth`.

    In asinh(sqrt(alpha y)) / sqrt(alpha) the deviance exceeds the squared distance from the mean. It is convex in y, so
    that Newton's method from there stays above.
    """
    if not mean.size:
        return mean
    root, r = np.sqrt(alpha), 1.0 / alpha
    with np.errstate(over="ignore"):
        y = np.square(np.sinh(np.arcsinh(np.sqrt(alpha * mean)) + root * np.sqrt(depth))) * r
        spread = np.sqrt(depth * mean * (1.0 + alpha * mean))
        y = np.minimum(y, mean + 4.0 * (depth + 1.0) / np.log1p(r / mean) + 20.0 * spread)
    for _ in range(2):
        slope = np.log1p(r * (y - mean) / (mean * (y + r)))
        y = y - np.maximum(y * slope - r * np.log1p((y - mean) / (mean + r)) - depth, 0.0) / slope
    return y
