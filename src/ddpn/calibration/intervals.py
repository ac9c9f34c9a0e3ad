"""Interval calibration: the level at which a predicted interval has to be taken to cover what is asked.

It is one for all rows alike, or one for each of some groups of rows (Mondrian conformal prediction).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import narwhals as nw
import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions import discretized
from ddpn.distributions.arguments import check_coverage
from ddpn.distributions.count import reshaped
from ddpn.metrics import pit_bounds
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_column, listed
from ddpn.sample import Sample, row_count
from ddpn.tables.row_hashes import group_labels

#: Counts that all predicted distributions together are asked for, where they regularise the levels.
_EXPECTED = 2000
#: Its multiples fill the interval from 0 to 1 evenly.
_GOLDEN = (5**0.5 - 1.0) / 2.0
#: A count enters an interval just above the level it needs.
_JUST = 1e-9
#: The highest level of a quantile; from the second on (which float32 can tell from 1) counts may lie beyond it.
_TOP, _NEAR_TOP = 1.0 - _JUST, 1.0 - 1e-6


def level_needed(dist: Distribution, y: Tensor) -> Tensor:
    """The level from which on the central interval contains y: max(1 - 2 F(y), 2 F(y - 1) - 1, 0).

    Counts that a distribution considers impossible lie beyond the interval of the highest level, 1 - 1e-9. Their level
    is above 1: 1 plus their distance from that interval, as a share of its width (see `interval_at`).

    Shape: y broadcasts with dist.batch_shape.

    >>> from ddpn.distributions import Poisson
    >>> dist, y = Poisson(torch.tensor([2.0, 2.0])), torch.tensor([0, 5])
    >>> level_needed(dist, y)
    tensor([0.7293, 0.8947])
    >>> dist.interval(0.89)[1], dist.interval(0.9)[1]
    (tensor([4., 4.]), tensor([5., 5.]))
    """
    counts: Any = discretized(dist)
    before, upto = pit_bounds(counts, y)
    level = torch.maximum(1.0 - 2.0 * upto, 2.0 * before - 1.0).clamp(min=0.0)
    top = (level > _NEAR_TOP).nonzero(as_tuple=True)
    if len(top[0]):
        level, y = level.double(), torch.as_tensor(y).expand_as(level).double()
        whole = counts if counts.batch_shape == level.shape else counts.expand(level.shape)
        flat = torch.from_numpy(np.ravel_multi_index([part.numpy() for part in top], tuple(level.shape)))
        low, high = (end.double() for end in reshaped(whole, (-1,)).rows(flat).interval(_TOP))
        beyond = torch.maximum(low - y[top], y[top] - high) / (high - low + 1.0)
        level[top] = torch.where(beyond > 0.0, 1.0 + beyond, level[top].clamp(max=_TOP))
    return level


def level_expected(dist: Distribution, rows: int, first: int = 0) -> Tensor:
    """The levels that the predicted distributions' own counts would need, at evenly spread quantiles.

    `rows` is how many rows there are in all, of which these are those from `first` on. Shape: (B, k).
    """
    counts: Any = discretized(dist)
    each = max(1, _EXPECTED // rows)
    start = (first + torch.arange(counts.batch_shape[0], dtype=torch.float64) + 0.5) * _GOLDEN % 1.0
    levels = (start + torch.arange(each, dtype=torch.float64).unsqueeze(1)) / each
    return level_needed(counts, counts.icdf(levels)).T


def interval_at(dist: Any, level: float | np.ndarray) -> tuple[Tensor, Tensor]:
    """Counts (low, high) of the central interval at one level for all rows, or at a level per row. Shape: (rows,).

    A level of 1.5 is the interval of level 1 - 1e-9 with half of its width more on either side.
    """
    counts: Any = discretized(dist)
    if isinstance(level, np.ndarray):
        low, high = counts.icdf(interval_quantiles(level, counts.batch_shape[0]).T)
    else:
        low, high = counts.interval(min(level, _TOP))
    return widened(low, high, level)


def interval_quantiles(level: float | np.ndarray, rows: int) -> Tensor:
    """Levels of the quantiles between which the interval of `interval_at` lies, before `widened`. Shape: (rows, 2)."""
    rest = 0.5 * (1.0 - torch.as_tensor(level, dtype=torch.float64).clamp(max=_TOP))
    return torch.stack([rest, 1.0 - rest], dim=-1).expand(rows, 2)


def widened(low: Tensor, high: Tensor, level: float | np.ndarray) -> tuple[Tensor, Tensor]:
    """Intervals as they are up to a level of 1; beyond, with the share of their width that is above it on each side."""
    if np.max(level, initial=0.0) <= 1.0:
        return low, high
    share = (torch.as_tensor(level, dtype=torch.float64) - 1.0).clamp(min=0.0)
    more = (share * (high - low + 1.0).double()).floor().to(low.dtype)
    return (low - more).clamp(min=0.0), high + more


@torch.no_grad()
def levels_of(
    blocks: Iterable[Distribution], y: np.ndarray, with_expected: bool = False
) -> tuple[np.ndarray, np.ndarray | None]:
    """The level that each row needs, (rows,), and those that its distribution expects, (rows, k) or None.

    `blocks` are predictions for some rows after the other.
    """
    needed, expected, rest = [], [], torch.from_numpy(y)
    for dist in blocks:
        part, rest = rest[: dist.batch_shape[0]], rest[dist.batch_shape[0] :]
        needed.append(level_needed(dist, part).double())
        if with_expected:
            expected.append(level_expected(dist, len(y), len(y) - len(rest) - len(part)).double())
    return torch.cat(needed).numpy(), torch.cat(expected).numpy() if expected else None


class IntervalLevels(NamedTuple):
    """The levels that calibration rows need, in order, and the weight of each, 1 on average (split conformal).

    An interval of counts covers more than its level, much more where few counts have all the mass, and a prediction may
    be too sure or not sure enough. The level that covered the asked share of the calibration rows makes up for both:
    where these rows chose nothing else and `prior_rows` is 0, a new row like them lies inside with at least that
    probability, on average over calibration sets, whatever the model.

    Weights that are density ratios of new rows to calibration rows make the same true for the new rows (weighted
    conformal prediction). `new` is the weight of a new row: what one has on average, sum w^2 / sum w, so that the level
    is as cautious as that of so many rows as the weights are worth, (sum w)^2 / sum w^2.

    Parameters
    ----------
    needed : array
        The level of the interval that just covers each calibration row, ascending.
    weight : array
        The weight of each, 1 on average.
    rows : array, shape (1,)
        The number of calibration rows.
    new : array, shape (1,)
        The weight of a new row.
    """

    needed: np.ndarray
    weight: np.ndarray
    rows: np.ndarray
    new: np.ndarray = np.ones(1)

    @classmethod
    def of(
        cls,
        needed: np.ndarray,
        weight: np.ndarray | None = None,
        expected: np.ndarray | None = None,
        prior_rows: float = 0.0,
        is_censored: np.ndarray | None = None,
    ) -> Self:
        """From rows in any order; what the model expects of them (`expected`) counts as `prior_rows` more.

        Rows of weight 0 are left out. `is_censored` marks rows whose count is known only to be the recorded one or
        more, so that whether intervals cover it is not known: if there are any, no level is below the asked coverage.
        """
        if weight is not None:
            used = weight > 0
            needed, weight = needed[used], weight[used]
            expected = None if expected is None else expected[used]
            is_censored = None if is_censored is None else is_censored[used]
        rows = len(needed)
        each = np.ones(rows) if weight is None else weight * (rows / weight.sum())
        new = np.ones(1) if weight is None else np.array([np.square(each).sum() / rows])
        if expected is not None and prior_rows:
            more = np.repeat(each * (prior_rows / rows / expected.shape[1]), expected.shape[1])
            needed, each = np.concatenate([needed, expected.ravel()]), np.concatenate([each, more])
        order = np.argsort(needed, kind="stable")
        needed, each = needed[order], each[order]
        if is_censored is not None and is_censored.any():
            needed = np.maximum(needed, np.cumsum(each) / (each.sum() + new[0]))
        return cls(np.ascontiguousarray(needed), np.ascontiguousarray(each), np.array([rows]), new)

    def shrunk_towards(self, other: Self, rows: float) -> Self:
        """These levels with those of `other` added, which count as so many rows more."""
        if not rows:
            return self
        weight = np.concatenate([self.weight, other.weight * (rows / other.weight.sum())])
        needed = np.concatenate([self.needed, other.needed])
        order = np.argsort(needed, kind="stable")
        return self._replace(needed=needed[order], weight=weight[order])

    def at(self, coverage: float) -> float:
        """The level to take an interval at, so that it covers `coverage`; above 1 beyond the highest quantiles.

        With too few rows to know (fewer than 9 for 90%), the asked level itself, or the highest that any row needed.

        Parameters
        ----------
        coverage : float
            The share of counts that intervals should contain.

        Examples
        --------
        >>> IntervalLevels.of(np.linspace(0.05, 0.95, 19)).at(0.9), IntervalLevels.of(np.array([0.2])).at(0.9)
        (0.900000001, 0.9)
        """
        coverage = check_coverage(coverage)
        # The new row counts too. A trace less than asked: sums of weights are not exact.
        total = np.cumsum(self.weight)
        wanted = coverage * (total[-1] + self.new[0]) - 1e-9 if len(total) else np.inf
        place = int(np.searchsorted(total, wanted))
        if place < len(self.needed):
            level = float(self.needed[place])
        else:
            level = max(coverage - _JUST, float(self.needed.max(initial=0.0)))
        return level + _JUST if level > 1.0 else float(np.clip(level + _JUST, _JUST, _TOP))


# Groups ---------------------------------------------------------------------------------------------------------------


def column_of(X: Any, name: str) -> Any:
    """A column of a data frame, or None if X is not a data frame."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return None
    return frame[check_column(name, frame.columns, "groups", InputError)].to_native()


@dataclass
class IntervalGroups:
    """Groups of rows, and the levels that each of them needs, for the mixture and every member by name.

    The level of a group is that of its own rows, to which those of all calibration rows are added as if they were
    `prior_rows` rows: groups of few rows take the level of all rows.

    Parameters
    ----------
    by : str
        The column whose values are the groups.
    names : tuple of str
        The names of the groups.
    prior_rows : float
        The rows that the level of all rows counts as.
    levels : dict
        Levels of each group, by the name of the mixture or member.
    """

    by: str
    names: tuple[str, ...]
    prior_rows: float
    levels: dict[str, list[IntervalLevels]] = field(default_factory=dict)
    _known: dict[tuple[str, float], np.ndarray] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> dict[str, int]:
        """The number of calibration rows of each group."""
        first = next(iter(self.levels.values()))
        return {name: len(one.needed) for name, one in zip(self.names, first, strict=True)}

    def codes(self, labels: np.ndarray) -> np.ndarray:
        """The position of each row's group, -1 for a group that calibration did not have."""
        place = {name: code for code, name in enumerate(self.names)}
        return np.array([place.get(label, -1) for label in labels.tolist()], dtype=np.int64)

    def labels(self, X: Any, groups: Any, argument: str = "groups") -> np.ndarray:
        """The labels of rows: `groups`, or the column of X."""
        found = column_of(X, self.by) if groups is None else groups
        if found is None:
            raise InputError(f"{argument} is missing: intervals were calibrated by {self.by!r}. Pass a label per row.")
        return group_labels(found, row_count(X))

    def unseen(self, labels: np.ndarray) -> str:
        """A sentence about rows of groups that calibration did not have, or nothing."""
        missing = [label for label in labels.tolist() if label not in set(self.names)]
        if not missing:
            return ""
        names = sorted(set(missing))
        shown = listed([repr(name) for name in names[:3]]) + (", ..." if len(names) > 3 else "")
        rows = f"{len(missing):,} of {len(labels):,} rows"
        return f"{rows} have a {self.by} that the calibration rows did not have ({shown}): level of all rows."

    def add(
        self,
        name: str,
        needed: np.ndarray,
        codes: np.ndarray,
        weight: np.ndarray | None = None,
        is_censored: np.ndarray | None = None,
    ) -> None:
        """The levels of the mixture or of a member, from those that the rows of all groups need."""
        masks = [codes == code for code in range(len(self.names))]
        known = [[None if each is None else each[own] for each in (weight, is_censored)] for own in masks]
        self.levels[name] = [
            IntervalLevels.of(needed[own], weights, is_censored=censored)
            for own, (weights, censored) in zip(masks, known, strict=True)
        ]

    def at(self, coverage: float, of: str, whole: IntervalLevels, codes: np.ndarray) -> np.ndarray:
        """The level of each row's interval, that of all rows (`whole`) for a code of -1. Shape: (rows,)."""
        key = of, coverage
        if key not in self._known:
            found = [one.shrunk_towards(whole, self.prior_rows).at(coverage) for one in self.levels[of]]
            # The last, at -1, is that of rows in no group.
            self._known[key] = np.array([*found, whole.at(coverage)])
        return self._known[key][codes]


def with_labels(sample: Sample, groups: Any) -> tuple[Sample, str | None]:
    """A sample that has the labels of its rows apart, where `groups` are labels, and the name of the groups.

    Rows and labels then stay together wherever rows are drawn or divided.
    """
    if groups is None or isinstance(groups, str):
        return sample, groups
    name = str(getattr(groups, "name", None) or "group")
    return sample.replace(interval_groups=group_labels(groups, len(sample))), name


def grouping(groups: str, sample: Sample, prior_rows: float) -> tuple[IntervalGroups, np.ndarray]:
    """The groups of calibration rows by a column of the table or the sample's own labels, and each row's position."""
    values = column_of(sample.X, groups) if sample.interval_groups is None else sample.interval_groups
    if values is None:
        must = "be labels if X is not a data frame"
        raise InputError(argument="groups", must=must, got=repr(groups))
    labels = group_labels(values, len(sample))
    found = IntervalGroups(groups, tuple(sorted(set(labels.tolist()))), prior_rows)
    return found, found.codes(labels)
