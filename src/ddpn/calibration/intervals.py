"""Interval calibration: the level at which a predicted interval has to be taken to cover what is asked."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions import discretized
from ddpn.distributions.arguments import check_coverage
from ddpn.metrics import pit_bounds

#: Counts that all predicted distributions together are asked for, where they regularise the levels.
_EXPECTED = 2000
#: Its multiples fill the interval from 0 to 1 evenly.
_GOLDEN = (5**0.5 - 1.0) / 2.0
#: A count enters an interval just above the level it needs; levels lie strictly between 0 and 1.
_JUST = 1e-9


def level_needed(dist: Distribution, y: Tensor) -> Tensor:
    """The level from which on the central interval contains y: max(1 - 2 F(y), 2 F(y - 1) - 1, 0).

    Shape: y broadcasts with dist.batch_shape.

    >>> from ddpn.distributions import Poisson
    >>> dist, y = Poisson(torch.tensor([2.0, 2.0])), torch.tensor([0, 5])
    >>> level_needed(dist, y)
    tensor([0.7293, 0.8947])
    >>> dist.interval(0.89)[1], dist.interval(0.9)[1]
    (tensor([4., 4.]), tensor([5., 5.]))
    """
    before, upto = pit_bounds(discretized(dist), y)
    return torch.maximum(1.0 - 2.0 * upto, 2.0 * before - 1.0).clamp(min=0.0)


def level_expected(dist: Distribution, rows: int, first: int = 0) -> Tensor:
    """The levels that the predicted distributions' own counts would need, at evenly spread quantiles.

    `rows` is how many rows there are in all, of which these are those from `first` on. Shape: (B, k).
    """
    counts: Any = discretized(dist)
    each = max(1, _EXPECTED // rows)
    start = (first + torch.arange(counts.batch_shape[0], dtype=torch.float64) + 0.5) * _GOLDEN % 1.0
    levels = (start + torch.arange(each, dtype=torch.float64).unsqueeze(1)) / each
    return level_needed(counts, counts.icdf(levels)).T


class IntervalLevels(NamedTuple):
    """The levels that calibration rows need, in order, and the weight of each, 1 on average (split conformal).

    An interval of counts covers more than its level, much more where few counts have all the mass, and a prediction may
    be too sure or not sure enough. The level that covered the asked share of the calibration rows makes up for both:
    where these rows chose nothing else and `prior_rows` is 0, a new row like them lies inside with at least that
    probability, on average over calibration sets, whatever the model.
    """

    needed: np.ndarray
    weight: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(
        cls,
        needed: np.ndarray,
        weight: np.ndarray | None = None,
        expected: np.ndarray | None = None,
        prior_rows: float = 0.0,
    ) -> Self:
        """From rows in any order; what the model expects of them (`expected`) counts as `prior_rows` more."""
        rows = len(needed)
        each = np.ones(rows) if weight is None else weight * (rows / weight.sum())
        if expected is not None and prior_rows:
            more = np.repeat(each * (prior_rows / rows / expected.shape[1]), expected.shape[1])
            needed, each = np.concatenate([needed, expected.ravel()]), np.concatenate([each, more])
        order = np.argsort(needed, kind="stable")
        return cls(np.ascontiguousarray(needed[order]), np.ascontiguousarray(each[order]), np.array([rows]))

    @classmethod
    @torch.no_grad()
    def fit(
        cls, blocks: Iterable[Distribution], y: np.ndarray, weight: np.ndarray | None = None, prior_rows: float = 0.0
    ) -> Self:
        """From predictions of calibration rows, in blocks, and their counts; rows of weight 0 are left out."""
        needed, expected, rest = [], [], torch.from_numpy(y)
        for dist in blocks:
            part, rest = rest[: dist.batch_shape[0]], rest[dist.batch_shape[0] :]
            needed.append(level_needed(dist, part).double())
            if prior_rows:
                expected.append(level_expected(dist, len(y), len(y) - len(rest) - len(part)).double())
        used = np.ones(len(y), dtype=bool) if weight is None else weight > 0
        words = torch.cat(expected).numpy()[used] if expected else None
        return cls.of(torch.cat(needed).numpy()[used], None if weight is None else weight[used], words, prior_rows)

    def at(self, coverage: float) -> float:
        """The level to take an interval at, so that it covers `coverage`.

        With too few rows to know (fewer than 9 for 90%), the asked level itself, or the highest that any row needed.

        >>> IntervalLevels.of(np.linspace(0.05, 0.95, 19)).at(0.9), IntervalLevels.of(np.array([0.2])).at(0.9)
        (0.900000001, 0.9)
        """
        coverage = check_coverage(coverage)
        # The new row counts too. A trace less than asked: sums of weights are not exact.
        total = np.cumsum(self.weight)
        wanted = coverage * (total[-1] + 1.0) - 1e-9 if len(total) else np.inf
        place = int(np.searchsorted(total, wanted))
        if place < len(self.needed):
            level = float(self.needed[place])
        else:
            level = max(coverage - _JUST, float(self.needed.max(initial=0.0)))
        return float(np.clip(level + _JUST, _JUST, 1.0 - _JUST))
