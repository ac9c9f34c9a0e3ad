"""Quantiles and modes of many mixtures of Double Poissons and Negative Binomials, from tables in float32.

The tables are exact to a bound per row. A quantile is sure where the cdf right below and at it is farther from the
level than that, and a mode where no other count comes that close: such counts are those of exact tables. Of the other
rows, about one in a hundred, and those that tables in float32 do not serve, exact tables decide.

Tables have one row per count and one column per component, so that all operations run along many rows of the mixture:
running products and sums over counts are one operation per count.
"""

from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from ddpn.distributions.double_poisson.weights import exact_log_h

#: The longest table.
LONGEST = 256
#: Twice the unit roundoff of float32, and log2(e).
_EPS, _BITS = 2.0**-23, 1.4426950408889634
#: The largest bound that tables are used with: too many rows would not be sure.
_MOST = 4e-4
#: Largest gamma mu and -log p(0): products and sums of exponentials neither overflow nor underflow.
_DEEPEST = 80.0
#: Rows of a block, at least and at most; by how much lengths in it differ at most where it is longer; and numbers of a
#: table that are computed together.
_FEWEST, _ROWS, _LONGER, _NUMBERS = 256, 2048, 1.3, 2**19
#: Counts beyond a guess of the highest quantile, as a share for each normal score, and at least.
_SHARE, _AT_LEAST = (1.0, 0.03), 2.0


class Singles(NamedTuple):
    """Quantiles (rows, levels) and modes (rows,), both exact where `sure` (rows,) is true."""

    counts: np.ndarray
    mode: np.ndarray
    sure: np.ndarray


@cache
def _columns() -> tuple[np.ndarray, np.ndarray]:
    """Columns y - y log y and y of all counts, and log2 h(y), in float32."""
    y = np.arange(float(LONGEST))
    powers = np.stack([y - y * np.log(np.maximum(y, 1.0)), y], axis=1)
    return powers.astype(np.float32), (_BITS * exact_log_h(y)).astype(np.float32)[:, None]


def single_quantiles(parts: Any, known: tuple[np.ndarray, ...], q: np.ndarray, score: float) -> Singles:
    """The smallest counts y with P(Z <= y) >= q, and the modes.

    Parameters
    ----------
    parts : Components
        The components of all rows.
    known : tuple of array
        Mean, variance and the logarithm of the sum of weights of each Double Poisson, see `double_poissons`.
    q : array
        Levels. Shape: (rows, levels).
    score : float
        The normal score of the highest of them.
    """
    rows, levels = q.shape
    counts, mode, sure = np.zeros((levels, rows)), np.zeros(rows), np.zeros(rows, bool)
    lengths = _lengths([np.asarray(x.T, dtype=np.float32) for x in (*parts, *known[:2])], score)
    # One array of all parameters, by component.
    columns = np.concatenate([x.T for x in (*parts, known[2])], dtype=np.float32)
    ends = np.cumsum([x.shape[1] for x in parts])
    usable = np.flatnonzero(lengths <= LONGEST)
    # Numbers of 16 bits are sorted in linear time.
    order = usable[np.argsort(lengths[usable].astype(np.int16), kind="stable")]
    lengths, start, level = lengths[order], 0, np.ascontiguousarray(q.T)
    columns = torch.index_select(torch.from_numpy(columns), 1, torch.from_numpy(order)).numpy()
    while start < len(order):
        similar = int(np.searchsorted(lengths, _LONGER * lengths[start], "right"))
        end = min(max(similar, start + _FEWEST), start + _ROWS, len(order))
        place = order[start:end]
        some = [np.ascontiguousarray(x) for x in np.split(columns[:, start:end], ends)]
        own, mode[place], sure[place] = _block(some, level.take(place, axis=1), int(lengths[end - 1]))
        for whole, values in zip(counts, own, strict=True):
            whole[place] = values
        start = end
    return Singles(counts.T, mode, sure)


def _lengths(columns: list[np.ndarray], score: float) -> np.ndarray:
    """Counts up to about the highest quantile, and beyond the mode; infinite where float32 does not serve.

    The quantile is that of the Gamma distribution with the mean and the variance of the mixture, by Wilson and
    Hilferty. Shape: (k, rows) each.
    """
    mu, gamma, weight, mean, alpha, share, own, spread = (torch.from_numpy(x) for x in columns)
    first = (weight * own).sum(0) + (share * mean).sum(0)
    second = (weight * torch.addcmul(spread, own, own)).sum(0) + (share * (mean + (1.0 + alpha) * mean * mean)).sum(0)
    ninth = (second - first * first).clamp_(min=0.0) / (9.0 * first * first)
    root = (1.0 - ninth + score * ninth.sqrt()).clamp_(min=0.0)
    reach, deep = first * root**3 * (_SHARE[0] + _SHARE[1] * score), torch.zeros(mu.shape[1])
    if len(mu):
        reach, deep = torch.maximum(reach, mu.amax(0)), (gamma * mu).amax(0)
    if len(mean):
        reach = torch.maximum(reach, mean.amax(0))
        deep = torch.maximum(deep, ((alpha * mean).log1p_() / alpha).amax(0))
    lengths = (reach + _AT_LEAST).ceil_()
    return torch.where((lengths <= LONGEST) & (deep < _DEEPEST), lengths, torch.inf).numpy()


def _block(some: list[np.ndarray], q: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quantiles, modes, and whether they are sure, of rows with tables of n counts. Shape: q (levels, rows)."""
    mu, gamma, weight, mean, alpha, share, total = some
    pmf, bound = np.zeros((n, q.shape[1]), dtype=np.float32), np.full(q.shape[1], n * _EPS)
    if len(mu):
        bound += _set_double_poissons(pmf, mu, gamma, weight, total)
    if len(mean):
        bound += _add_negative_binomials(pmf, mean, alpha, share)
    return _looked_up(pmf, q, bound)


def _set_double_poissons(
    pmf: np.ndarray, mu: np.ndarray, gamma: np.ndarray, weight: np.ndarray, total: np.ndarray
) -> np.ndarray:
    """Set a table to the weighted mass of Double Poissons, and return what it may be off by. Shape: mu (k, rows)."""
    n, rows = pmf.shape
    powers, log_h = (torch.from_numpy(x[:n]) for x in _columns())
    factors = np.empty((2, *gamma.shape), dtype=np.float32)
    log_mu = torch.from_numpy(mu).log().numpy()
    np.multiply(gamma, _BITS, out=factors[0])
    np.multiply(factors[0], log_mu, out=factors[1])
    step = max(16, _NUMBERS // (n * len(gamma)))
    share = weight * torch.from_numpy(total).neg().exp_().numpy()
    for start in range(0, rows, step):
        own = np.ascontiguousarray(factors[:, :, start : start + step])
        table = torch.addmm(log_h, powers, torch.from_numpy(own.reshape(2, -1))).exp2_()
        parts = table.numpy().reshape(n, *own.shape[1:])
        np.einsum("nkr,kr->nr", parts, share[:, start : start + step], out=pmf[:, start : start + step])
    # The terms of the exponent, their factors and their sum are rounded, which matters where the mass is: up to y, and
    # |log(y) - 1| is at most that of the largest y, or 0.31 from y = 2 on.
    y = mu / gamma
    np.sqrt(y, out=y)
    y += 1.0
    y *= 2.0
    y += mu
    size = np.abs(log_mu, out=log_mu)
    size += np.maximum(np.log(y.max(axis=0)) - 1.0, 0.31)
    y *= gamma
    y *= size
    y *= 2.0
    y += np.abs(total)
    return _EPS * (2.0 + y.max(axis=0))


def _add_negative_binomials(pmf: np.ndarray, mean: np.ndarray, alpha: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Add the weighted pmf of Negative Binomials, from the ratios of neighbours, and return what it may be off by."""
    n, rows = pmf.shape
    spread = alpha * mean
    scale = mean / (1.0 + spread)
    depth = torch.from_numpy(spread).log1p_().numpy() / alpha
    first = share * torch.from_numpy(depth).neg().exp_().numpy()
    constant, slope = scale * alpha, scale * (1.0 - alpha)
    inverse = (1.0 / np.arange(1.0, n)).astype(np.float32)[:, None, None]
    step = max(16, _NUMBERS // (n * len(mean)))
    for start in range(0, rows, step):
        part = slice(start, start + step)
        table = np.empty((n, *first[:, part].shape), dtype=np.float32)
        table[0] = first[:, part]
        np.multiply(slope[:, part], inverse, out=table[1:])
        table[1:] += constant[:, part]
        for before, ratio in pairwise(table):
            ratio *= before
        pmf[:, part] += np.add.reduce(table, axis=1)
    return 3.0 * _EPS * (1.0 + (depth + mean).max(axis=0))


def _looked_up(pmf: np.ndarray, q: np.ndarray, bound: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quantiles and modes of tables, and whether all of a row are sure. Shape: pmf (n, rows), q (levels, rows)."""
    n, rows = pmf.shape
    cdf = pmf.copy()
    for before, here in pairwise(cdf):
        here += before
    single = q.astype(np.float32)
    place = np.stack([np.add.reduce(cdf < level, axis=0, dtype=np.int16) for level in single]).astype(np.int64)
    flat = np.minimum(place, n - 1) * rows
    flat += np.arange(rows)
    upto = cdf.reshape(-1).take(flat)
    before = upto - pmf.reshape(-1).take(flat)
    sure = ((upto - q > bound) & (q - before > bound)).all(axis=0)
    # Beyond the means of all components, which a table reaches, the pmf decreases.
    highest = pmf.max(axis=0)
    near = pmf >= highest * (1.0 - 2.0 * bound).astype(np.float32)
    sure &= (np.add.reduce(near, axis=0, dtype=np.int16) == 1) & ~near[-1] & (bound < _MOST)
    return place, near.argmax(axis=0), sure
