"""Counts of which bounds or limits are known: their moments under a Poisson or a Binomial, given what was recorded.

The reference of a count without an upper bound is a Poisson, that of a count with an upper bound n a Binomial of n
trials. Either is truncated below a lower bound, and right-censored at a limit: of a censored count only Z >= limit is
known. All rows have a location, the mean of the reference before truncation and censoring.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats

from ddpn.sample import Sample

#: A tail probability below which the conditional moments beyond a limit are those at the limit.
_TINY = 1e-250
#: How often counts are drawn again that lie below a lower bound.
_DRAWS = 20


@dataclass(frozen=True)
class Limits:
    """What is known about the counts of each row. Shape: (rows,) each.

    Attributes
    ----------
    lower, upper : array
        The smallest and the largest possible count; infinite where there is no upper bound.
    limit : array
        The largest count that can be recorded; infinite where a count is known exactly.
    is_random : bool
        Whether limits are known of censored counts alone, so that those of other rows are unknown.
    options : tuple of str
        The options of `ddpn fit` that say the same.
    """

    lower: np.ndarray
    upper: np.ndarray
    limit: np.ndarray
    is_random: bool = False
    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, sample: Sample, options: tuple[str, ...] = ()) -> "Limits | None":
        """The limits of a sample; None if every count is possible and known exactly."""
        if sample.is_plain:
            return None
        rows = len(sample)
        lower = np.zeros(rows) if sample.lower is None else sample.lower
        upper = np.full(rows, np.inf) if sample.upper is None else sample.upper
        limit = np.full(rows, np.inf) if sample.limit is None else sample.limit
        # One limit for all rows is known; flags are given for censored counts only.
        return cls(lower, upper, limit, bool(np.isinf(limit).any() and np.isfinite(limit).any()), options)

    def rows(self, index: Any) -> "Limits":
        """Those of some rows."""
        return Limits(self.lower[index], self.upper[index], self.limit[index], self.is_random, self.options)

    @property
    def is_bounded(self) -> bool:
        """Whether counts have an upper bound, so that a Binomial is the reference."""
        return bool(np.isfinite(self.upper).all())

    def is_censored(self, y: np.ndarray) -> np.ndarray:
        """Mask of the counts that stand for that many or more."""
        return np.asarray(y >= self.limit)

    def variance(self, location: np.ndarray) -> np.ndarray:
        """The variance of the reference before truncation and censoring."""
        return np.asarray(location * (1.0 - location / self.upper))

    def dispersed(self) -> np.ndarray:
        """1 - 1 / n, what the dispersion of a Binomial is identified by: a single trial has none."""
        return np.asarray(1.0 - 1.0 / self.upper)

    def expected(self, location: np.ndarray) -> "Known":
        """E[Z] and E[Z (Z - 1)] of a possible count."""
        return _beyond(location, self.upper, self.lower)

    def known(self, y: np.ndarray, location: np.ndarray) -> "Known":
        """E[Z] and E[Z (Z - 1)] given what was recorded: the count itself, or the tail beyond a limit."""
        censored = self.is_censored(y)
        found = Known(y.copy(), y * (y - 1.0), np.ones_like(y))
        if censored.any():
            part = self.rows(censored)
            tail = _beyond(location[censored], part.upper, np.maximum(part.lower, y[censored]))
            for values, beyond in zip(found, tail, strict=True):
                values[censored] = beyond
        return found

    def log_likelihood(self, y: np.ndarray, location: np.ndarray) -> np.ndarray:
        """That of what was recorded."""
        censored, base = self.is_censored(y), _base(location, self.upper)
        tail = np.log(np.maximum(_survival(location, self.upper, np.where(censored, y, 0.0)), 1e-300))
        possible = np.log(np.maximum(_survival(location, self.upper, self.lower), 1e-300))
        return np.asarray(np.where(censored, tail, base.logpmf(np.where(censored, 0.0, y))) - possible)

    def draw(self, location: np.ndarray, limit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Recorded counts of the reference, with these limits."""
        drawn, wrong = np.empty_like(location), np.ones(len(location), dtype=bool)
        for _ in range(_DRAWS):
            part = self.upper[wrong].astype(int) if self.is_bounded else None
            chosen = location[wrong]
            drawn[wrong] = (
                rng.poisson(chosen) if part is None else rng.binomial(part, _share(chosen, self.upper[wrong]))
            )
            wrong &= drawn < self.lower
            if not wrong.any():
                break
        else:
            # Truncated far from the mean: by the quantile function, which is slow.
            base, start = _base(location[wrong], self.upper[wrong]), 1.0 - self.expected(location).probability[wrong]
            drawn[wrong] = base.ppf(start + (1.0 - start) * rng.uniform(1e-12, 1.0, int(wrong.sum())))
        return np.asarray(np.minimum(np.clip(drawn, self.lower, self.upper), limit))

    def all_limits(self, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The limits of all rows; of rows that are not censored drawn from limits above the count.

        Limits that are known of censored rows alone are drawn from their Kaplan-Meier estimate, beyond the count.
        """
        if not self.is_random:
            return self.limit
        values, survival = _kaplan_meier(np.where(self.is_censored(y), self.limit, np.inf), y)
        drawn = self.limit.copy()
        exact = np.flatnonzero(~self.is_censored(y))
        above = np.interp(y[exact], values, survival, left=1.0) if len(values) else np.ones(len(exact))
        level = above * rng.uniform(0.0, 1.0, len(exact))
        # The first limit at which the survival falls below the level; none beyond the last.
        place = np.searchsorted(-survival, -level, side="left")
        drawn[exact] = np.append(values, np.inf)[place]
        drawn[exact] = np.maximum(drawn[exact], y[exact] + 1.0)
        return drawn


class Known(NamedTuple):
    """E[Z], E[Z (Z - 1)] and the probability of what is known about Z."""

    mean: np.ndarray
    factorial: np.ndarray
    probability: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        return np.maximum(self.factorial + self.mean - self.mean**2, 0.0)


def _survival(location: np.ndarray, upper: np.ndarray, least: np.ndarray, fewer: int = 0) -> np.ndarray:
    """P(Z >= least) of a Poisson, or of a Binomial with `fewer` trials; the functions of scipy.stats are slow."""
    count = least - 1.0
    if not np.isfinite(upper).all():
        return np.where(count < 0.0, 1.0, special.pdtrc(np.maximum(count, 0.0), location))
    trials = np.maximum(upper - fewer, 0.0)
    inside = np.clip(count, 0.0, np.maximum(trials - 1.0, 0.0))
    found = special.bdtrc(inside, np.maximum(trials, 1.0).astype(int), _share(location, upper))
    return np.where(count < 0.0, 1.0, np.where(count >= trials, 0.0, found))


def _share(location: np.ndarray, upper: np.ndarray) -> np.ndarray:
    return np.clip(location / upper, 1e-12, 1.0 - 1e-12)


def _base(location: np.ndarray, upper: np.ndarray) -> Any:
    is_bounded = np.isfinite(upper).all()
    return stats.binom(upper, _share(location, upper)) if is_bounded else stats.poisson(location)


def _beyond(location: np.ndarray, upper: np.ndarray, least: np.ndarray) -> Known:
    """Moments of a Poisson or Binomial given Z >= least: E[Z; Z >= c] is the mean times P(Z' >= c - 1)."""
    is_bounded = np.isfinite(upper).all()
    tail, first, second = (_survival(location, upper, least - fewer, fewer) for fewer in range(3))
    pairs = location**2 * (1.0 - 1.0 / upper if is_bounded else 1.0)
    far = tail < _TINY
    safe = np.where(far, 1.0, tail)
    mean = np.where(far, least, location * first / safe)
    return Known(mean, np.where(far, least * (least - 1.0), pairs * second / safe), tail)


def _kaplan_meier(limit: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct limits and the probability of a larger one: here a limit is the event, an exact count hides it."""
    seen = np.isfinite(limit)
    at = np.where(seen, limit, y)
    values = np.unique(limit[seen])
    survival = np.cumprod([1.0 - np.sum(seen & (limit == v)) / max(np.sum(at >= v), 1) for v in values])
    return values, np.asarray(survival)
