"""Mixtures of Double Poissons and Negative Binomials on all counts from 0 on: moments, quantiles and modes at once.

One table per row gives the normaliser, mean and variance of each of its Double Poissons and, together with Negative
Binomials up to where quantiles are looked for, the cdf of the mixture. In numpy, whose operations on a few rows take
half the time of torch's, and for many rows in torch. Rows whose distributions reach too far, or are too narrow for
sums of this kind, have no table: other modules compute them.
"""

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import ndtri

from ddpn.distributions.family_tables import LONGEST, double_poissons, negative_binomial_end, negative_binomials
from ddpn.distributions.quantiles import LookedUp
from ddpn.distributions.rough_moments import rough_moments
from ddpn.distributions.rows import DEPTH, MARGIN
from ddpn.distributions.shared_moments import shared_moments
from ddpn.distributions.single_tables import single_quantiles

#: Lengths of the tables of Double Poissons.
SIZES = (16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512, 640, 768, LONGEST)
#: The same for rows that are too few to fill blocks of so many lengths.
COARSE = (32, 64, 128, 256, 512, LONGEST)
#: Rows up to which one table serves all: sorting them takes longer.
FEW = 8
#: Rows of a block.
_ROWS = 1024
#: Rows from which on moments are read off polynomials, and quantiles off tables in float32 where these are sure.
MANY = 1024
#: Lowest level, and distance of the highest from 1, at which most of the latter are sure.
_LOWEST = 0.005
#: Moments alone take less time by other methods than from longer tables.
_LONGEST_FOR_MOMENTS = 192
#: Tables that have more numbers in all are not kept.
_KEPT = 2**22
#: Largest gamma mu, and mean of a Negative Binomial, which -log p(0) is below: weights do not overflow, products that
#: start from p(0) do not underflow, and the rounding of gamma y log y stays below 1e-12 of a weight.
_DEEPEST = 600.0
#: Least and greatest shape of a Gamma distribution whose quantiles bound those of a Negative Binomial closely.
_SHAPES = (0.05, 1e4)
#: Counts beyond such a guess that a table has, as a share and at least.
_BEYOND, _AT_LEAST = 1.15, 4.0
#: What a sum and the exact cdf may differ by at a quantile: relatively in a tail, as in `grid_quantiles`; at most, ten
#: times what normalisers are off by; and at least.
_RELATIVE, _MOST, _ABSOLUTE = 2e-6, 1e-8, 1e-12
#: Probabilities tie within rounding from this share of the largest on.
_TIE = 1.0 - 1e-12


class Components(NamedTuple):
    """Parameters of all components and their weights in the mixture, in float64 or float32.

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
        # Where rows lie side by side, `take` along them would copy all.
        return Components(*(x.take(order, axis=0) if x.flags.c_contiguous else x.T.take(order, axis=1).T for x in self))

    def double(self) -> "Components":
        """The same in float64."""
        return Components(*(np.ascontiguousarray(x, dtype=np.float64) for x in self))


class Block(NamedTuple):
    """Rows with tables of one length: moments and sums (rows, D), and the Double Poissons' mass (rows, n)."""

    place: slice
    mean: np.ndarray
    variance: np.ndarray
    mass: np.ndarray
    total: np.ndarray


class MixtureTables:
    """Tables of the rows of a mixture that are short enough.

    Parameters
    ----------
    given : Components
        The components of all rows. Moments of many rows in float32 are those of `rough_moments`.
    sizes : tuple of int
        Lengths of tables.
    """

    def __init__(self, given: Components, sizes: tuple[int, ...] = SIZES) -> None:
        self.given, self.sizes = given, sizes
        self._known: dict[int, Block] = {}
        self._numbers = 0

    @cached_property
    def parts(self) -> Components:
        """The components in float64."""
        return self.given if self.given.mu.dtype == np.float64 else self.given.double()

    @cached_property
    def _lengths(self) -> np.ndarray:
        """Counts that each row's table of Double Poissons needs; infinite for rows without a table."""
        mu, gamma, _, mean, _, _ = self.parts
        reach = depth = np.zeros(len(mu))
        with np.errstate(all="ignore"):
            if mu.shape[1]:
                reach, depth = _upper_end(mu, gamma).max(axis=1) + MARGIN, (gamma * mu).max(axis=1)
            if mean.shape[1]:
                depth = np.maximum(depth, mean.max(axis=1))
            return np.where((reach < LONGEST) & (depth < _DEEPEST), reach, np.inf)

    @cached_property
    def _order(self) -> np.ndarray | None:
        """Rows by the length of their table; None for the order that they have.

        Rows of one length with similar quantiles are side by side: their tables of Negative Binomials are short then.
        """
        if len(self._lengths) <= FEW and self._lengths.max(initial=0.0) < LONGEST:
            return None
        return np.lexsort(
            (self.parts.mean.max(axis=1, initial=0.0), np.searchsorted(self.sizes, self._lengths, "right"))
        )

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

    def blocks(self, longest: int = LONGEST) -> Iterator[Block]:
        """Tables of at most `longest` counts, or that are known, in blocks of ordered rows.

        Tables are kept up to a size of all of them together.
        """
        for place, n in self._groups():
            block = self._known.get(place.start)
            if block is None:
                if n > longest:
                    continue
                mu, gamma, weight, *_ = self._ordered.rows(place)
                block = Block(place, *double_poissons(mu, gamma, weight, n))
                self._numbers += block.mass.size
                if self._numbers <= _KEPT:
                    self._known[place.start] = block
            yield block

    def _groups(self) -> Iterator[tuple[slice, int]]:
        """Ordered rows and the length of their tables."""
        if self._order is None:
            if len(self._lengths):
                most = np.searchsorted(self.sizes, self._lengths.max(), side="right")
                yield slice(0, len(self._lengths)), self.sizes[int(most)]
            return
        ends = np.searchsorted(self._lengths[self._order], (0, *self.sizes)).tolist()
        for n, low, high in zip(self.sizes, ends[:-1], ends[1:], strict=True):
            for start in range(low, high, _ROWS):
                yield slice(start, min(start + _ROWS, high)), n

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of each Double Poisson; NaN where no table is known or short, or sums lose too many digits.

        Shape: (rows, D) each.
        """
        mean, variance, _ = self._shared if len(self.given.mu) >= MANY else self._summed()
        return mean, variance

    @cached_property
    def _shared(self) -> tuple[np.ndarray, ...]:
        """Moments and the logarithm of sums: by polynomials; where these do not serve from a table per component."""
        shape = self.given.mu.shape[::-1]
        # By component: rows of many may lie side by side.
        mu, gamma = (x.T.reshape(-1) for x in self.given[:2])
        found = rough_moments(mu, gamma) if mu.dtype == np.float32 else shared_moments(mu, gamma)
        rest = np.flatnonzero(np.isnan(found[0]))
        if len(rest):
            none = np.empty((len(rest), 0))
            alone = Components(mu[rest, None], gamma[rest, None], np.ones((len(rest), 1)), none, none, none)
            for values, own in zip(found, MixtureTables(alone.double())._summed(), strict=True):
                values[rest] = own[:, 0]
        return tuple(x.reshape(shape).T for x in found)

    def _summed(self) -> tuple[np.ndarray, ...]:
        if self._order is None:
            for block in self.blocks(_LONGEST_FOR_MOMENTS):
                return block.mean, block.variance, np.log(block.total)
        found = tuple(np.full(self.parts.mu.shape, np.nan) for _ in range(3))
        for block in self.blocks(_LONGEST_FOR_MOMENTS):
            for values, own in zip(found, (block.mean, block.variance, np.log(block.total)), strict=True):
                values[block.place] = own
        return tuple(map(self._restored, found))

    def pmf(self, n: int) -> np.ndarray | None:
        """The pmf at 0..n-1, which hold all mass; None if n is too large, or rows have no table. Shape: (rows, n)."""
        if n > LONGEST or np.isinf(self._lengths).any():
            return None
        found = np.zeros((len(self._lengths), n))
        for block in self.blocks():
            pmf = _mixed(block.mass, self._ordered.rows(block.place), n)
            found[block.place, : pmf.shape[1]] = pmf[:, :n]
        return self._restored(found)

    def whole(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Numbers of rows and their pmf on counts from 0 on that hold all mass; rows that reach too far are left out.

        Shape: (k,) and (k, n).
        """
        ends = self.upper_bound + MARGIN
        lengths = np.searchsorted(SIZES, np.where(np.isfinite(self._lengths), ends, np.inf), "right").astype(np.int16)
        order = np.argsort(lengths, kind="stable")
        starts = np.searchsorted(lengths[order], np.arange(len(SIZES) + 1)).tolist()
        for n, low, high in zip(SIZES, starts[:-1], starts[1:], strict=True):
            for start in range(low, high, _ROWS):
                place = order[start : min(start + _ROWS, high)]
                parts, own = self.parts.ordered(place), int(min(self._lengths[place].max() + 1.0, n))
                mass = double_poissons(*parts[:3], own)[2]
                yield place, _mixed(mass, parts, n)

    @cached_property
    def upper_bound(self) -> np.ndarray:
        """A position at or beyond the end of the window of each row, also of rows without a table. Shape: (rows,)."""
        mu, gamma, _, mean, alpha, _ = self.parts
        ends = [_upper_end(mu, gamma), negative_binomial_end(mean, alpha, DEPTH)]
        used = [np.where(weight > 0.0, end, 0.0) for weight, end in zip(self.parts[2::3], ends, strict=True)]
        return np.maximum(*(end.max(axis=1, initial=0.0) for end in used))

    def quantiles(self, q: np.ndarray) -> LookedUp:
        """The smallest counts y with P(Z <= y) >= q, and modes where these are certain. Shape: q (rows, levels)."""
        is_usual = len(q) >= MANY and q.size > 0 and q.min() >= _LOWEST and q.max() <= 1.0 - _LOWEST
        return self._many_quantiles(q) if is_usual else self._exact_quantiles(q)

    def _exact_quantiles(self, q: np.ndarray) -> LookedUp:
        score = max(_normal_score(float(q.max(initial=0.5))), 0.0)
        if self._order is None:
            for block in self.blocks():
                return _looked_up_few(_mixed(block.mass, self.parts, _length(block.mass, self.parts, score)), q)
        found = LookedUp(np.zeros(q.shape), np.zeros(q.shape, bool), np.full(len(q), np.nan), np.zeros(len(q), bool))
        levels = q.take(np.arange(len(q)) if self._order is None else self._order, axis=0)
        for block in self.blocks():
            parts = self._ordered.rows(block.place)
            pmf = _mixed(block.mass, parts, _length(block.mass, parts, score))
            for whole, part in zip(found, _looked_up(pmf, levels[block.place]), strict=True):
                whole[block.place] = part
        return LookedUp(*map(self._restored, found))

    def _many_quantiles(self, q: np.ndarray) -> LookedUp:
        """The same from tables in float32, and by exact ones where these are not sure."""
        score = max(_normal_score(float(q.max())), 0.0)
        counts, mode, sure = single_quantiles(self.given, self._shared, q, score)
        found = LookedUp(counts, np.ones(q.shape, bool), mode, np.ones(len(q), bool))
        rest = np.flatnonzero(~sure)
        if len(rest):
            sizes = SIZES if len(rest) > _ROWS else COARSE
            exact = MixtureTables(self.given.ordered(rest).double(), sizes)._exact_quantiles(q[rest])
            for whole, own in zip(found, exact, strict=True):
                whole[rest] = own
        return found


@lru_cache(maxsize=64)
def _normal_score(level: float) -> float:
    return float(ndtri(min(level, 1.0 - 1e-15)))


def _upper_end(mu: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """An upper bound on where the window of a Double Poisson ends, as `weights.upper_end` in one step."""
    target = DEPTH / gamma
    s = np.sqrt(mu) + np.sqrt(0.5 * target)
    square = s * s
    log_ratio = np.log(square / mu)
    return np.square(s - (mu - target + square * (log_ratio - 1.0)) / (2.0 * s * log_ratio))


def _length(mass: np.ndarray, parts: Components, score: float) -> int:
    """Counts that hold all Double Poissons, and the quantiles of a normal score of all Negative Binomials."""
    return max(int(min(_guesses(parts, score).max(initial=0.0), LONGEST)), mass.shape[1])


def _guesses(parts: Components, score: float) -> np.ndarray:
    """About where all Negative Binomials have the quantile of a normal score, by Wilson and Hilferty's Gamma."""
    if not parts.mean.shape[1]:
        return np.zeros(len(parts.mean))
    shape = np.clip(parts.mean / (1.0 + parts.alpha * parts.mean), *_SHAPES)
    ninth = 1.0 / (9.0 * shape)
    root = np.maximum(1.0 - ninth + score * np.sqrt(ninth), 0.0)
    end = (parts.mean * root * root * root).max(axis=1)
    return end * _BEYOND + _AT_LEAST


def _mixed(mass: np.ndarray, parts: Components, n: int) -> np.ndarray:
    """The pmf of the mixture on counts from 0 on: n of them if there are Negative Binomials. Shape: (rows, n)."""
    if not parts.mean.shape[1]:
        return mass
    pmf = negative_binomials(parts.mean, parts.alpha, parts.share, n)
    both = min(n, mass.shape[1])
    pmf[:, :both] += mass[:, :both]
    return pmf


def _looked_up(pmf: np.ndarray, q: np.ndarray) -> LookedUp:
    """Quantiles and modes of a table of the pmf from 0 on. Shape: (rows, n), (rows, levels)."""
    rows, n = pmf.shape
    cdf = pmf.cumsum(axis=1)
    place = torch.searchsorted(torch.from_numpy(cdf), torch.from_numpy(q)).numpy()
    slack = _ABSOLUTE + np.minimum(_RELATIVE * np.minimum(q, 1.0 - q), _MOST)
    last = cdf[:, -1]
    reached = ((last[:, None] - q > slack) | (q >= 1.0)).all(axis=1)
    flat = np.minimum(place, n - 1) + n * np.arange(rows)[:, None]
    upto = cdf.reshape(-1)[flat]
    before = upto - pmf.reshape(-1)[flat]
    highest = pmf.max(axis=1)
    mode = (pmf >= (highest * _TIE)[:, None]).argmax(axis=1)
    # No count beyond the table has more mass than all of them together.
    mode = np.where(highest > 1.0 - last + _ABSOLUTE, mode, np.nan)
    return LookedUp(place, (upto - q > slack) & (q - before > slack), mode, reached)


def _looked_up_few(pmf: np.ndarray, q: np.ndarray) -> LookedUp:
    """The same for a few rows, by Python: fewer calls of numpy take less time."""
    counts, sure, modes, reached = [], [], [], []
    for row, cdf, levels in zip(pmf.tolist(), pmf.cumsum(axis=1).tolist(), q.tolist(), strict=True):
        highest, last = max(row), cdf[-1]
        mode = next(y for y, p in enumerate(row) if p >= highest * _TIE)
        modes.append(float(mode) if highest > 1.0 - last + _ABSOLUTE else np.nan)
        slacks = [_ABSOLUTE + min(_RELATIVE * min(level, 1.0 - level), _MOST) for level in levels]
        reached.append(all(last - x > slack or x >= 1.0 for x, slack in zip(levels, slacks, strict=True)))
        places = [min(bisect_left(cdf, level), len(cdf) - 1) for level in levels]
        counts.append([float(place) for place in places])
        sure.append(
            [
                cdf[at] - x > slack and x - (cdf[at] - row[at]) > slack
                for at, x, slack in zip(places, levels, slacks, strict=True)
            ]
        )
    return LookedUp(np.array(counts), np.array(sure), np.array(modes), np.array(reached))
