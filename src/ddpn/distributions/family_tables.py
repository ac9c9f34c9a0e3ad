"""Double Poissons and Negative Binomials on the counts 0, 1, ..., n - 1, for many rows or for few, in float64.

Both are sums of products without a log-gamma function. Few numbers are computed by numpy, whose calls take less time,
many by torch, whose exponentials and products do.
"""

from functools import cache

import numpy as np
import torch

from ddpn.distributions.double_poisson.weights import exact_log_h

#: The longest table.
LONGEST = 512
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
    """1 / y of all counts from 1 on."""
    return 1.0 / np.arange(1.0, LONGEST)


def double_poissons(
    mu: np.ndarray, gamma: np.ndarray, weight: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, variance and weighted mass of Double Poissons whose windows end before n.

    The variance is NaN where it is too small beside the mean. Products gamma mu are below 600.
    Shape: (rows, k) each -> (rows, k), (rows, k) and, summed over the components, (rows, n).
    """
    if not mu.shape[1]:
        return mu, mu, np.zeros((len(mu), n))
    rows, log_h, columns = _powers()
    factors = np.empty((*mu.shape, 2))
    factors[..., 0] = gamma
    np.multiply(gamma, np.log(mu), out=factors[..., 1])
    # log of h(y) exp(gamma mu - gamma D(y; mu)): what is missing is the same for all counts.
    table = _exp_of_product(factors.reshape(-1, 2), rows[:, :n], log_h[:n])
    sums = (table @ columns[:n]).reshape(*mu.shape, 3)
    total = sums[..., 0]
    mean, square = sums[..., 1] / total, sums[..., 2] / total
    variance = square - mean * mean
    narrow = ~(variance > _NARROW * square)
    if narrow.any():
        variance[narrow] = np.nan
    return mean, variance, np.einsum("rk,rkn->rn", weight / total, table.reshape(*mu.shape, n))


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
    table = np.empty((mean.size, n))
    table[:, 0] = first.reshape(-1)
    constant, slope = (scale * alpha).reshape(-1, 1), (scale * (1.0 - alpha)).reshape(-1, 1)
    if table.size < _MANY:
        np.multiply(slope, _inverse()[: n - 1], out=table[:, 1:])
        table[:, 1:] += constant
        np.cumprod(table, axis=1, out=table)
    else:
        both, inverse = torch.from_numpy(table), torch.from_numpy(_inverse()[: n - 1])
        torch.addcmul(torch.from_numpy(constant), torch.from_numpy(slope), inverse, out=both[:, 1:])
        table = torch.cumprod(both, dim=1).numpy()
    return np.add.reduce(table.reshape(*mean.shape, n), axis=1)
