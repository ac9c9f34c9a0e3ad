"""Calibrate intervals: find the probability that intervals must have by their own distributions to reach a coverage.

There is one level for all rows, or one for each group of rows (Mondrian conformal prediction). It is never below the
requested coverage, so each interval has at least the requested probability by its own distribution. It is higher if the
predicted distributions are overconfident.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import narwhals as nw
import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Distribution

from ddpn.calibration import INTERVAL_KINDS
from ddpn.distributions import CountDistribution, discretize
from ddpn.distributions.arguments import check_coverage
from ddpn.distributions.summaries import Interval, Summary
from ddpn.rows.checks import TableLike, get_row_count
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.display import plural
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_choice, check_column, join_words
from ddpn.statistics import effective_rows
from ddpn.tables.columns import ColumnTable
from ddpn.tables.groups import name_interval_groups

#: The highest level of an interval, and the score above which a count is checked for lying outside that interval.
_MAX_LEVEL, _MIN_LEVEL_BEYOND = 1.0 - 1e-9, 1.0 - 1e-6
#: Evenly spaced scores, the scores of a correct model. Their total weight is `prior_rows`.
_UNIFORM_SCORES = (np.arange(200) + 0.5) / 200


@torch.no_grad()
def score_counts(dist: Distribution, y: Tensor, points: np.ndarray) -> np.ndarray:
    """Score each count by the lowest level at which the narrowest interval contains it. Shape: (rows,).

    With a count of probability p, the interval grows by a step of p, and the score is a random point of that step. If
    the distributions are right, scores are uniform on [0, 1] for small and for large counts. A count outside the
    interval of the highest level, 1 - 1e-9, has a score above 1: 1 plus its distance from that interval, as a share of
    the interval's width (see `make_interval`). `points` are uniform random numbers, one per row.

    >>> from ddpn.distributions import Poisson
    >>> dist, y = Poisson(torch.tensor([2.0, 300.0])), torch.tensor([0, 300])
    >>> [levels.numpy().round(2).tolist() for levels in dist.entry_levels(y)]  # 0 enters after 1, 2 and 3
    [[0.72, 0.02], [0.86, 0.05]]
    >>> score_counts(dist, y, np.random.default_rng(0).random(2)).round(2).tolist()
    [0.81, 0.03]
    """
    counts = discretize(dist)
    outside, inside = (levels.cpu().numpy() for levels in counts.entry_levels(y))
    score = outside + points * (inside - outside)
    far = np.flatnonzero(score > _MIN_LEVEL_BEYOND)
    if len(far):
        observed = torch.as_tensor(y)[far].double()
        low, high, _ = counts.rows(torch.from_numpy(far)).narrowest_interval(_MAX_LEVEL)
        beyond = (
            torch.maximum(low.double() - observed, observed - high.double()) / (high - low + 1.0).double()
        ).numpy()
        score[far] = np.where(beyond > 0.0, 1.0 + beyond, np.minimum(score[far], _MAX_LEVEL))
    return score


@torch.no_grad()
def measure_shares_inside(dist: Distribution, y: Tensor, level: float) -> np.ndarray:
    """Return how far each count lies inside its row's narrowest interval of a level, from 0 to 1. Shape: (rows,).

    It is the probability that `score_counts` is at most the level: 1 for a count inside the interval, 0 outside, and
    between them for a count that enters the interval at this level. If the distributions are right, the mean over the
    rows is the level itself.

    >>> from ddpn.distributions import Poisson
    >>> measure_shares_inside(Poisson(torch.full((3,), 2.0)), torch.tensor([2, 0, 9]), 0.75).round(2).tolist()
    [1.0, 0.21, 0.0]
    """
    counts = discretize(dist)
    outside, inside = (levels.cpu().numpy() for levels in counts.entry_levels(y))
    return np.clip((level - outside) / np.maximum(inside - outside, 1e-300), 0.0, 1.0)


@torch.no_grad()
def score_blocks(blocks: Iterable[tuple[np.ndarray | slice, Distribution]], y: np.ndarray, seed: int = 0) -> np.ndarray:
    """Score counts like `score_counts`, block by block; return the scores in the order of `y`.

    A block has the positions of its rows in `y` and their distributions. `seed` determines the uniform random
    numbers, one per row, that `score_counts` needs. They are assigned in the order of `y`, so that scores do not depend
    on the blocks.
    """
    points, scores = np.random.default_rng(seed).random(len(y)), np.zeros(len(y))
    for index, dist in blocks:
        scores[index] = score_counts(dist, torch.from_numpy(y[index]), points[index])
    return scores


def make_interval(dist: Distribution, level: float | np.ndarray, kind: str = "narrowest") -> Interval:
    """Return intervals of counts with a probability of at least `level`, a number for all rows or one per row.

    `kind` is "narrowest" (the fewest consecutive counts) or "central" (at most half of the remaining probability on
    either side). Levels above 1 widen the interval of level 1 - 1e-9 by (level - 1) times its width on each side, for
    example by half of its width for 1.5.
    """
    counts = discretize(dist)
    levels = torch.as_tensor(level, dtype=torch.float64).clamp(max=_MAX_LEVEL).expand(counts.batch_shape)
    if check_choice("kind", kind, INTERVAL_KINDS) == "narrowest":
        interval = counts.narrowest_interval(levels)
    else:
        tail = 0.5 * (1.0 - levels)
        low, high = counts.icdf(torch.stack([tail, 1.0 - tail]))
        interval = Interval(low, high, compute_probability_between(counts, low, high))
    return widen_interval(counts, interval, level)


def summarise_with_interval(
    counts: CountDistribution, quantile_levels: Tensor, level: float | np.ndarray, kind: str
) -> tuple[Summary, Interval]:
    """Return the summary of count distributions (`CountDistribution.summary`) and their intervals (`make_interval`)."""
    if check_choice("kind", kind, INTERVAL_KINDS) == "central":
        return counts.summary(quantile_levels), make_interval(counts, level, kind)
    summary = counts.summary(quantile_levels, interval_level=np.minimum(level, _MAX_LEVEL))
    assert summary.interval is not None
    return summary, widen_interval(counts, summary.interval, level)


def widen_interval(counts: CountDistribution, interval: Interval, level: float | np.ndarray) -> Interval:
    """Widen each interval whose level is above 1 by (level - 1) times its width on each side.

    Other intervals are returned unchanged. `level` is a number for all rows or one per row.
    """
    if np.max(level, initial=0.0) <= 1.0:
        return interval
    low, high, probability = interval
    share = (torch.as_tensor(level, dtype=torch.float64) - 1.0).clamp(min=0.0)
    more = (share * (high - low + 1.0).double()).floor().to(low.dtype)
    low, high = (low - more).clamp(min=0.0), high + more
    return Interval(low, high, torch.where(share > 0.0, compute_probability_between(counts, low, high), probability))


@torch.no_grad()
def compute_probability_between(counts: CountDistribution, low: Tensor, high: Tensor) -> Tensor:
    """Return P(low <= count <= high) of each row in float64."""
    (below, above), (upto, beyond) = (counts._compute_sides(end).cpu() for end in (low - 1.0, high))
    # Above the median, upper tails have more digits than the cdf.
    between = torch.where(below > 0.5, above - beyond, upto - below)
    return between.reshape(counts.batch_shape).clamp(0.0, 1.0)


class IntervalLevels(NamedTuple):
    """The sorted scores of calibration rows (`score_counts`) with their weights, from which interval levels follow.

    The level for a coverage is the score that this share of calibration rows does not exceed, or the coverage itself,
    whichever is higher (split conformal prediction). Suppose that the calibration rows were not used for other choices
    and that `prior_rows` is 0. Then an interval contains the count of a new row like them with at least the requested
    probability, on average over calibration sets. For distributions with one peak this holds exactly, whatever the
    model.

    With weights that are density ratios of new rows to calibration rows, the same holds for the new rows (weighted
    conformal prediction). `new` is the weight of a new row: the average over calibration rows, sum w^2 / sum w. The
    level is then as cautious as for (sum w)^2 / sum w^2 rows.

    Parameters
    ----------
    scores : array
        The score of each calibration row, ascending.
    weight : array
        The weight of each, 1 on average.
    rows : array, shape (1,)
        The number of calibration rows.
    new : array, shape (1,)
        The weight of a new row.
    censored : array, shape (1,)
        1 if some of the counts were censored, else 0.
    """

    scores: np.ndarray
    weight: np.ndarray
    rows: np.ndarray
    new: np.ndarray = np.ones(1)
    censored: np.ndarray = np.zeros(1)

    @classmethod
    def from_scores(
        cls,
        scores: np.ndarray,
        weight: np.ndarray | None = None,
        prior_rows: float = 0.0,
        is_censored: bool = False,
    ) -> Self:
        """Sort the scores, and add the uniform scores of a correct model with the weight of `prior_rows` rows.

        Rows of weight 0 are dropped. `is_censored` is True if some of the counts were censored.
        """
        if weight is not None:
            used = weight > 0
            scores, weight = scores[used], weight[used]
        rows = len(scores)
        weight = np.ones(rows) if weight is None else weight * (rows / weight.sum())
        new = np.array([np.square(weight).sum() / rows if rows else 1.0])
        if prior_rows:
            scores = np.concatenate([scores, _UNIFORM_SCORES])
            weight = np.concatenate([weight, np.full(len(_UNIFORM_SCORES), prior_rows / len(_UNIFORM_SCORES))])
        order = np.argsort(scores, kind="stable")
        scores, weight = (np.ascontiguousarray(values[order]) for values in (scores, weight))
        return cls(scores, weight, np.array([rows]), new, np.array([float(is_censored)]))

    @property
    def is_censored(self) -> bool:
        """True if some of the counts were censored."""
        return bool(self.censored[0])

    def measure_held_out(self, level: float) -> tuple[float, float]:
        """Return the weighted share of calibration rows that score at most `level`, and the rows' effective number.

        The uniform scores that `from_scores` adds for `prior_rows` do not count.
        """
        observed = ~np.isin(self.scores, _UNIFORM_SCORES)
        scores, weight = self.scores[observed], self.weight[observed]
        return float(weight[scores <= level].sum() / weight.sum()), effective_rows(weight)

    def shrink_towards(self, other: Self, rows: float) -> Self:
        """Return these levels with the scores of `other` added, all of which together weigh as much as `rows` rows.

        The levels of a small group are drawn towards those of all rows in this way.
        """
        if not rows:
            return self
        weight = np.concatenate([self.weight, other.weight * (rows / other.weight.sum())])
        scores = np.concatenate([self.scores, other.scores])
        order = np.argsort(scores, kind="stable")
        return self._replace(scores=scores[order], weight=weight[order])

    def at(self, coverage: float) -> float:
        """Return the level of intervals for a coverage.

        The level is at least the coverage. With too few rows (fewer than 9 for 90%), it is the coverage or the highest
        score, whichever is higher.

        Parameters
        ----------
        coverage : float
            The share of counts that intervals should contain.

        Examples
        --------
        >>> right = np.linspace(0.05, 1.0, 20)
        >>> too_narrow, too_wide = IntervalLevels.from_scores(right**0.25), IntervalLevels.from_scores(right**4)
        >>> round(too_narrow.at(0.9), 3), too_wide.at(0.9)
        (0.987, 0.9)
        """
        coverage = check_coverage(coverage)
        # The new row counts as well. 1e-9 is subtracted because sums of weights are not exact.
        total = np.cumsum(self.weight)
        enough = coverage * (total[-1] + self.new[0]) - 1e-9 if len(total) else np.inf
        position = int(np.searchsorted(total, enough))
        score = self.scores[position] if position < len(self.scores) else self.scores.max(initial=0.0)
        level = max(coverage, float(score))
        # Above 1, 1e-9 is added so that rounding does not exclude the count that determines the level.
        return level + 1e-9 if level > 1.0 else min(level, _MAX_LEVEL)


# Groups ---------------------------------------------------------------------------------------------------------------


def get_column(X: TableLike, name: str) -> ArrayLike | None:
    """Return the column of X with this name; None if X has no column names, as an array."""
    if isinstance(X, ColumnTable):
        return X.column(check_column(name, X.names, "groups", InputError)).cells() if X.is_named else None
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return None
    return frame[check_column(name, frame.columns, "groups", InputError)].to_native()


@dataclass
class IntervalGroups:
    """Interval levels of each group of rows, for the mixture and every member by name.

    The level of a group follows from the scores of its own rows and of all calibration rows, which together count as
    `prior_rows` rows. Small groups thus get a level near the overall one.

    Parameters
    ----------
    by : str
        The name of the column with the groups.
    names : tuple of str
        The names of the groups.
    prior_rows : float
        The number of rows as which the overall scores count in each group.
    levels : dict
        Interval levels of each group, keyed by "mixture" and the names of the members.
    """

    by: str
    names: tuple[str, ...]
    prior_rows: float
    levels: dict[str, list[IntervalLevels]] = field(default_factory=dict)
    _cached_levels: dict[tuple[str, float], np.ndarray] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> dict[str, int]:
        """The number of calibration rows of each group."""
        first = next(iter(self.levels.values()))
        return {name: len(one.scores) for name, one in zip(self.names, first, strict=True)}

    def encode_labels(self, labels: np.ndarray) -> np.ndarray:
        """Return the index in `names` of each row's group, given its label; -1 for a group without calibration rows."""
        code_by_name = {name: code for code, name in enumerate(self.names)}
        return np.array([code_by_name.get(label, -1) for label in labels.tolist()], dtype=np.int64)

    def read_labels(self, X: TableLike, groups: ArrayLike | None, argument: str = "groups") -> np.ndarray:
        """Return the group label of each row: from `groups` or, if it is None, from the column `by` of X.

        Raise an `InputError` that names `argument` if there is neither.
        """
        labels = get_column(X, self.by) if groups is None else groups
        if labels is None:
            reason = f"intervals were calibrated by group of {self.by!r}"
            raise InputError(f"{argument} is missing: {reason}. Pass one label per row.")
        return name_interval_groups(labels, get_row_count(X))

    def describe_unseen(self, labels: np.ndarray) -> str:
        """Describe in a sentence how many rows belong to groups without calibration rows; return "" if none does.

        `labels` has the group label of each row.
        """
        missing = [label for label in labels.tolist() if label not in set(self.names)]
        if not missing:
            return ""
        names = sorted(set(missing))
        shown = join_words([repr(name) for name in names[:3]]) + (", ..." if len(names) > 3 else "")
        has = "has" if len(missing) == 1 else "have"
        rows = f"{len(missing):,} of {plural(len(labels), 'row')} {has}"
        return f"{rows} a {self.by} that no calibration row has ({shown}): intervals use the overall level."

    def add(self, name: str, scores: np.ndarray, codes: np.ndarray, weight: np.ndarray | None = None) -> None:
        """Fit the interval levels of each group to scores of calibration rows, and store them under `name`.

        `scores` are results of `score_counts` for the distributions of the mixture or of a member, and `name` is
        "mixture" or the name of that member. `codes` has the index of each row's group in `names`.
        """
        masks = [codes == code for code in range(len(self.names))]
        self.levels[name] = [
            IntervalLevels.from_scores(scores[mask], None if weight is None else weight[mask]) for mask in masks
        ]

    def at(self, coverage: float, member: str, whole: IntervalLevels, codes: np.ndarray) -> np.ndarray:
        """Return the interval level of each row for a coverage.

        `member` is "mixture" or the name of a member, `whole` its levels over all rows, and `codes` the result of
        `encode_labels`. Rows with the code -1 have the level of `whole`.
        """
        key = member, coverage
        if key not in self._cached_levels:
            levels = [one.shrink_towards(whole, self.prior_rows).at(coverage) for one in self.levels[member]]
            # The overall level comes last, where the code -1 finds it.
            self._cached_levels[key] = np.array([*levels, whole.at(coverage)])
        return self._cached_levels[key][codes]


def attach_group_labels(sample: CountRows, groups: str | ArrayLike | None) -> tuple[CountRows, str | None]:
    """Attach group labels to the rows they belong to; return the rows and the name of the groups.

    Labels then stay with their rows when rows are selected or split. If `groups` is None or the name of a column, both
    are returned unchanged.
    """
    if groups is None or isinstance(groups, str):
        return sample, groups
    name = str(getattr(groups, "name", None) or "group")
    return sample.replace(interval_groups=name_interval_groups(groups, len(sample))), name


def make_interval_groups(groups: str, sample: CountRows, prior_rows: float) -> tuple[IntervalGroups, np.ndarray]:
    """Make the groups of calibration rows; return them, still without levels, and the index of each row's group.

    Groups are the rows' `interval_groups` or, without these, the values of the column `groups` of X.
    """
    values = get_column(sample.X, groups) if sample.interval_groups is None else sample.interval_groups
    if values is None:
        must = "be labels if X is not a data frame, whose columns have names"
        raise InputError(argument="groups", must=must, got=repr(groups))
    labels = name_interval_groups(values, len(sample))
    interval_groups = IntervalGroups(groups, tuple(sorted(set(labels.tolist()))), prior_rows)
    return interval_groups, interval_groups.encode_labels(labels)
