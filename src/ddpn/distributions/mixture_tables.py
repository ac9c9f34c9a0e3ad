"""Mixtures of Double Poissons and Negative Binomials on all counts from 0 on: moments, quantiles and modes at once.

One table per row gives the normaliser, mean and variance of each of its Double Poissons and, together with Negative
Binomials up to where quantiles are looked for, the cdf of the mixture. In numpy, whose operations on a few rows take
half the time of torch's, and for many rows in torch. Rows whose distributions reach too far, or are too narrow for
sums of this kind, have no table: other modules compute them.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import ndtri

from ddpn.distributions.family_tables import LONGEST, double_poissons, negative_binomials
from ddpn.distributions.rows import DEPTH, MARGIN

#: Lengths of the tables of Double Poissons.
SIZES = (16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 160, 192, 256, 320, 384, LONGEST)
#: Rows up to which one table serves all: sorting them takes longer.
_FEW = 8
#: Numbers in one temporary of a block: half of a CPU's second-level cache.
_BLOCK = 2**16
#: Tables that have more numbers in all are not kept.
_KEPT = 2**22
#: Largest gamma y log y: its rounding is 1e-11 of a weight.
_STEEPEST = 1e5
#: Largest gamma mu, and depth of p(0) of a Negative Binomial: neither weights overflow nor products underflow.
_DEEPEST = 600.0
#: Least and greatest shape of a Gamma distribution whose quantiles bound those of a Negative Binomial closely.
_SHAPES = (0.05, 1e4)
#: Counts beyond such a guess that a table has, as a share and at least.
_BEYOND, _AT_LEAST = 1.15, 4.0
#: What a sum may be off by at a quantile: relatively in a tail, and absolutely. As in `grid_quantiles`.
_RELATIVE, _ABSOLUTE = 2e-6, 1e-12


class Components(NamedTuple):
    """Parameters of all components and their weights in the mixture, in float64.

    Shape: (rows, D) of Double Poissons, `mu` to `weight`, and (rows, N) of Negative Binomials, `mean` to `share`.
    """

    mu: np.ndarray
    gamma: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    alpha: np.ndarray
    share: np.ndarray

    def rows(self, index: slice) -> "Components":
        """Some of the rows."""
        return Components(*(x[index] for x in self))

    def ordered(self, order: np.ndarray) -> "Components":
        """The rows in another order."""
        return Components(*(x.take(order, axis=0) for x in self))


class Block(NamedTuple):
    """Rows with tables of one length: their places, moments (rows, D), and the Double Poissons' mass (rows, n)."""

    index: slice
    mean: np.ndarray
    variance: np.ndarray
    mass: np.ndarray


class Found(NamedTuple):
    """Quantiles (rows, levels), where they are sure, the mode (rows,) or NaN, and rows whose table reaches the levels."""

    counts: np.ndarray
    sure: np.ndarray
    mode: np.ndarray
    reached: np.ndarray


class MixtureTables:
    """Tables of the rows of a mixture that are short enough.

    Parameters
    ----------
    parts : Components
        The components of all rows.
    """

    def __init__(self, parts: Components) -> None:
        self.parts = parts
        self._blocks: list[Block] | None = None

    @cached_property
    def _lengths(self) -> np.ndarray:
        """Counts that each row's table of Double Poissons needs; infinite for rows without a table."""
        mu, gamma, _, mean, alpha, _ = self.parts
        reach = np.zeros(len(mu))
        with np.errstate(all="ignore"):
            if mu.shape[1]:
                end = _upper_end(mu, gamma) + MARGIN
                good = (gamma * end * np.log(end + 1.0) < _STEEPEST) & (gamma * mu < _DEEPEST)
                reach = np.where(good, end, np.inf).max(axis=1)
            if mean.shape[1]:
                good = (np.log1p(alpha * mean) < _DEEPEST * alpha).all(axis=1)
                reach = np.where(good, reach, np.inf)
        return np.where(reach < LONGEST, reach, np.inf)

    @cached_property
    def _order(self) -> np.ndarray | None:
        """Rows by the length of their table; None for the order that they have.

        Rows of one length with similar quantiles are side by side: their tables of Negative Binomials are short then.
        """
        if len(self._lengths) <= _FEW and self._lengths.max(initial=0.0) < LONGEST:
            return None
        return np.lexsort((self.parts.mean.max(axis=1, initial=0.0), np.searchsorted(SIZES, self._lengths, "right")))

    @cached_property
    def _ordered(self) -> Components:
        return self.parts if self._order is None else self.parts.ordered(self._order)

    def _restored(self, ordered: np.ndarray) -> np.ndarray:
        """Results in the order of the rows."""
        if self._order is None:
            return ordered
        found = np.empty_like(ordered)
        found[self._order] = ordered
        return found

    def blocks(self) -> Iterator[Block]:
        """Tables of all rows that have one, in blocks of ordered rows; they are kept unless they are large."""
        if self._blocks is not None:
            yield from self._blocks
            return
        kept: list[Block] = []
        numbers = 0
        for index, n in self._groups():
            mu, gamma, weight, *_ = self._ordered.rows(index)
            block = Block(index, *double_poissons(mu, gamma, weight, n))
            numbers += block.mass.size
            if numbers <= _KEPT:
                kept.append(block)
            yield block
        if numbers <= _KEPT:
            self._blocks = kept

    def _groups(self) -> Iterator[tuple[slice, int]]:
        """Ordered rows and the length of their tables."""
        if self._order is None:
            if len(self._lengths):
                most = np.searchsorted(SIZES, self._lengths.max(), side="right")
                yield slice(0, len(self._lengths)), SIZES[int(most)]
            return
        ends = np.searchsorted(self._lengths[self._order], (0, *SIZES)).tolist()
        each = max(1, self.parts.mu.shape[1], self.parts.mean.shape[1])
        for n, low, high in zip(SIZES, ends[:-1], ends[1:], strict=True):
            step = max(1, _BLOCK // (n * each))
            for start in range(low, high, step):
                yield slice(start, min(start + step, high)), n

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of each Double Poisson; NaN in rows without a table, and where sums lose too many digits.

        Shape: (rows, D) each.
        """
        mean, variance = np.full(self.parts.mu.shape, np.nan), np.full(self.parts.mu.shape, np.nan)
        for block in self.blocks():
            mean[block.index], variance[block.index] = block.mean, block.variance
        return self._restored(mean), self._restored(variance)

    def quantiles(self, q: np.ndarray) -> Found:
        """The smallest counts y with P(Z <= y) >= q, and modes where these are certain. Shape: q (rows, levels)."""
        found = Found(np.zeros(q.shape), np.zeros(q.shape, bool), np.full(len(q), np.nan), np.zeros(len(q), bool))
        score = float(ndtri(min(float(q.max(initial=0.5)), 1.0 - 1e-15)))
        levels = np.ascontiguousarray(q) if self._order is None else q.take(self._order, axis=0)
        for block in self.blocks():
            parts = self._ordered.rows(block.index)
            pmf = _mixed(block.mass, parts, _guess(parts, max(score, 0.0)))
            for whole, part in zip(found, _looked_up(pmf, levels[block.index]), strict=True):
                whole[block.index] = part
        return Found(*map(self._restored, found))


def _upper_end(mu: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """An upper bound on where the window of a Double Poisson ends, as `weights.upper_end` in one step."""
    target = DEPTH / gamma
    s = np.sqrt(mu) + np.sqrt(0.5 * target)
    square = s * s
    log_ratio = np.log(square / mu)
    return np.square(s - (mu - target + square * (log_ratio - 1.0)) / (2.0 * s * log_ratio))


def _guess(parts: Components, score: float) -> int:
    """About where all Negative Binomials have the quantile of a normal score, by Wilson and Hilferty's Gamma."""
    if not parts.mean.shape[1]:
        return 0
    shape = np.clip(parts.mean / (1.0 + parts.alpha * parts.mean), *_SHAPES)
    ninth = 1.0 / (9.0 * shape)
    root = np.maximum(1.0 - ninth + score * np.sqrt(ninth), 0.0)
    end = (parts.mean * root * root * root).max(initial=0.0)
    return int(min(end * _BEYOND + _AT_LEAST, LONGEST))


def _mixed(mass: np.ndarray, parts: Components, n: int) -> np.ndarray:
    """The pmf of the mixture on counts from 0 on: n of them if there are Negative Binomials. Shape: (rows, n)."""
    if not parts.mean.shape[1]:
        return mass
    pmf = negative_binomials(parts.mean, parts.alpha, parts.share, n)
    both = min(n, mass.shape[1])
    pmf[:, :both] += mass[:, :both]
    return pmf


def _looked_up(pmf: np.ndarray, q: np.ndarray) -> Found:
    """Quantiles and modes of a table of the pmf from 0 on. Shape: (rows, n), (rows, levels)."""
    rows, n = pmf.shape
    cdf = pmf.cumsum(axis=1)
    if rows == 1:
        place = cdf[0].searchsorted(q[0])[None]
    else:
        place = torch.searchsorted(torch.from_numpy(cdf), torch.from_numpy(q)).numpy()
    slack = _ABSOLUTE + _RELATIVE * np.minimum(q, 1.0 - q)
    last = cdf[:, -1]
    reached = ((last[:, None] - q > slack) | (q >= 1.0)).all(axis=1)
    flat = np.minimum(place, n - 1) + n * np.arange(rows)[:, None]
    upto = cdf.reshape(-1)[flat]
    before = upto - pmf.reshape(-1)[flat]
    highest = pmf.max(axis=1)
    mode = (pmf >= (highest * (1.0 - 1e-12))[:, None]).argmax(axis=1)
    # No count beyond the table has more mass than all of them together.
    mode = np.where(highest > 1.0 - last + _ABSOLUTE, mode, np.nan)
    return Found(place, (upto - q > slack) & (q - before > slack), mode, reached)
