"""Prediction intervals that are calibrated on held-out rows (conformal prediction).

The level of an interval is its minimum probability by the predicted distribution. Calibration finds the level at which
intervals reach the requested coverage on held-out rows. If the predicted distributions are overconfident, this level is
above the coverage. It is never below the coverage, so that each interval also has the requested probability by its
predicted distribution. There is one level for all rows, or one for each group of rows (Mondrian conformal prediction).
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
def score_counts(dist: Distribution, y: Tensor, uniforms: np.ndarray) -> np.ndarray:
    """Return the score of each count: the lowest level at which the narrowest interval contains it. Shape: (rows,).

    The level of an interval is its minimum probability. As it rises, the narrowest interval grows count by count. A
    count of probability p enters the interval over a range of levels of length p, and its score is a random point of
    this range, chosen by `uniforms`, one uniform random number per row. Therefore, if the distributions are right,
    scores are uniform on [0, 1] for small and for large counts.

    If a count lies outside the interval of the highest level, 1 - 1e-9, its score is 1 plus its distance from that
    interval divided by the interval's width (the number of counts in it). `make_interval` widens intervals for such
    levels.

    >>> from ddpn.distributions import Poisson
    >>> dist, y = Poisson(torch.tensor([2.0, 300.0])), torch.tensor([0, 300])
    >>> [levels.numpy().round(2).tolist() for levels in dist.entry_levels(y)]  # 0 enters after 1, 2 and 3
    [[0.72, 0.02], [0.86, 0.05]]
    >>> score_counts(dist, y, np.random.default_rng(0).random(2)).round(2).tolist()
    [0.81, 0.03]
    """
    counts = discretize(dist)
    outside, inside = (levels.cpu().numpy() for levels in counts.entry_levels(y))
    score = outside + uniforms * (inside - outside)
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
    """Return the share of each count that lies in the narrowest interval of a level.

    As the level rises, the narrowest interval grows count by count, and a count of probability p enters it over a range
    of levels of length p. The share of the count that lies in the interval is 0 below this range, 1 above, and rises
    linearly within. It is also the probability that the random score of `score_counts` is at most the level. If the
    distributions are right, the mean share over the rows is therefore the level itself. Shape: (rows,).

    >>> from ddpn.distributions import Poisson
    >>> measure_shares_inside(Poisson(torch.full((3,), 2.0)), torch.tensor([2, 0, 9]), 0.75).round(2).tolist()
    [1.0, 0.21, 0.0]
    """
    counts = discretize(dist)
    outside, inside = (levels.cpu().numpy() for levels in counts.entry_levels(y))
    return np.clip((level - outside) / np.maximum(inside - outside, 1e-300), 0.0, 1.0)


@torch.no_grad()
def score_blocks(blocks: Iterable[tuple[np.ndarray | slice, Distribution]], y: np.ndarray) -> np.ndarray:
    """Score counts with `score_counts`, one block of rows after the other; return the scores in the order of `y`.

    A block is a pair: the positions of its rows in `y`, and the distributions of these rows. The uniform random numbers
    that `score_counts` needs are always the same, and are assigned to rows in the order of `y`. So the scores do not
    depend on the division into blocks.
    """
    uniforms, scores = np.random.default_rng(0).random(len(y)), np.zeros(len(y))
    for index, dist in blocks:
        scores[index] = score_counts(dist, torch.from_numpy(y[index]), uniforms[index])
    return scores


def make_interval(dist: Distribution, level: float | np.ndarray, kind: str = "narrowest") -> Interval:
    """Return, for each row, an interval of counts that has a probability of at least `level`.

    `level` is a number for all rows, or one per row. `kind` is "narrowest" (the fewest consecutive counts) or "central"
    (at most half of the remaining probability on either side). Both ends of an interval are included.

    If a level is above 1, the interval of level 1 - 1e-9 is widened on each side by (level - 1) times its width (the
    number of counts in it). For example, a level of 1.5 widens it by half of its width on each side.
    """
    counts = discretize(dist)
    levels = np.minimum(level, _MAX_LEVEL)
    if check_choice("kind", kind, INTERVAL_KINDS) == "narrowest":
        interval = counts.narrowest_interval(levels)
    else:
        tail = torch.as_tensor(0.5 * (1.0 - levels), dtype=torch.float64).expand(counts.batch_shape)
        low, high = counts.icdf(torch.stack([tail, 1.0 - tail]))
        interval = Interval(low, high, compute_probability_between(counts, low, high))
    return widen_interval(counts, interval, level)


def summarise_with_interval(
    counts: CountDistribution, quantile_levels: Tensor, level: float | np.ndarray, kind: str
) -> tuple[Summary, Interval]:
    """Return summaries (`CountDistribution.summary`) and intervals (`make_interval`) of the distributions `counts`.

    `quantile_levels` are the levels of the quantiles in the summary. `level` is the minimum probability of an interval,
    a number for all rows or one per row. `kind` is "narrowest" or "central".
    """
    if check_choice("kind", kind, INTERVAL_KINDS) == "central":
        return counts.summary(quantile_levels), make_interval(counts, level, kind)
    summary = counts.summary(quantile_levels, interval_level=np.minimum(level, _MAX_LEVEL))
    assert summary.interval is not None
    return summary, widen_interval(counts, summary.interval, level)


def widen_interval(counts: CountDistribution, interval: Interval, level: float | np.ndarray) -> Interval:
    """Widen each interval whose level is above 1 by (level - 1) times its width on each side.

    The width is the number of counts in the interval. Other intervals are returned unchanged. `level` is a number for
    all rows or one per row.
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
    """Return P(low <= count <= high) for each row, in float64."""
    (below, above), (upto, beyond) = (counts._compute_tails(end).cpu() for end in (low - 1.0, high))
    # Above the median, upper tails have more digits than the cdf.
    between = torch.where(below > 0.5, above - beyond, upto - below)
    return between.reshape(counts.batch_shape).clamp(0.0, 1.0)


class IntervalLevels(NamedTuple):
    """Weighted scores of calibration rows, which determine the interval level for any coverage.

    This is split conformal prediction. The score of a row is the lowest level at which the interval contains its count
    (`score_counts`). The level for a coverage of 90% is the score that 90% of the calibration rows do not exceed, or
    90% if this is higher.

    Guarantee: the interval of a new row contains its count with at least the requested probability, on average over
    calibration sets. It has three conditions:

    - the new row is exchangeable with the calibration rows;
    - the calibration rows were not used for other choices, such as that of the mixture weights;
    - no artificial scores were added (`prior_rows` of `from_scores` is 0).

    If the predicted distributions have one peak, the guarantee holds for any number of calibration rows, however wrong
    the model is. If they have several peaks, it is approximate, because the interval of a higher level need not contain
    that of a lower level.

    If new rows are distributed differently, the guarantee extends to them if weights are density ratios of new rows to
    calibration rows (weighted conformal prediction). A new row has the weight `new` = sum w^2 / sum w. This makes the
    level as cautious as with (sum w)^2 / sum w^2 rows of equal weight.

    Parameters
    ----------
    scores : array, shape (scores,)
        The scores of the calibration rows, and artificial scores if there are any, ascending.
    weight : array, shape (scores,)
        The weights of these scores. Those of the calibration rows are 1 on average.
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
        """Make levels from the scores of calibration rows (`score_counts`). Rows of weight 0 are dropped.

        If `prior_rows` is not 0, artificial scores are added: the uniform scores of a correct model, with the total
        weight of this many rows. They shrink levels towards the requested coverage. `is_censored` is True if some of
        the counts were censored.
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

    def measure_coverage(self, level: float) -> tuple[float, float]:
        """Return the weighted share of calibration rows whose counts lie inside intervals of a level.

        A count lies inside if its score is at most `level`. The artificial uniform scores that `from_scores` adds for
        `prior_rows` are left out. Also return the effective number of calibration rows, (sum w)^2 / sum w^2. It is
        smaller than their number if the weights w differ.
        """
        observed = ~np.isin(self.scores, _UNIFORM_SCORES)
        scores, weight = self.scores[observed], self.weight[observed]
        return float(weight[scores <= level].sum() / weight.sum()), effective_rows(weight)

    def shrink_towards(self, other: Self, rows: float) -> Self:
        """Return these levels of a group of rows, shrunk towards the levels `other` of all rows.

        The scores of `other` are added to those of the group. Their total weight is that of `rows` rows.
        """
        if not rows:
            return self
        weight = np.concatenate([self.weight, other.weight * (rows / other.weight.sum())])
        scores = np.concatenate([self.scores, other.scores])
        order = np.argsort(scores, kind="stable")
        return self._replace(scores=scores[order], weight=weight[order])

    def at(self, coverage: float) -> float:
        """Return the interval level for a coverage: the minimum probability of intervals by the predicted distribution.

        The level is at least the coverage. With too few calibration rows (fewer than 9 for a coverage of 90%), it is
        the highest score or the coverage, whichever is higher.

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


def get_column(X: TableLike, name: str, argument: str = "groups") -> ArrayLike | None:
    """Return the column `name` of X; None if X is an array, which has no column names.

    If X has column names, but not this one, an `InputError` is raised, which names the `argument` for the column.
    """
    if isinstance(X, ColumnTable):
        return X.column(check_column(name, X.names, argument, InputError)).cells() if X.is_named else None
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return None
    return frame[check_column(name, frame.columns, argument, InputError)].to_native()


@dataclass
class IntervalGroups:
    """Interval levels of each group of rows, for the mixture and its members.

    The level of an interval is its minimum probability by the predicted distribution. The levels of a group are
    determined by the scores of its own calibration rows, together with the scores of all calibration rows, which count
    as `prior_rows` rows. So the levels of small groups are close to the levels over all rows.

    Parameters
    ----------
    by : str
        The name of the groups, usually of the column of X with the group of each row.
    names : tuple of str
        The groups.
    prior_rows : float
        The total weight of the scores of all calibration rows within each group, as a number of rows.
    levels : dict
        For "mixture" and the name of each member, a list with the levels of each group, in the order of `names`.
    """

    by: str
    names: tuple[str, ...]
    prior_rows: float
    levels: dict[str, list[IntervalLevels]] = field(default_factory=dict)
    _cached_levels: dict[tuple[str, float], np.ndarray] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> dict[str, int]:
        """The number of calibration rows of each group with positive weight, by the name of the group."""
        first = next(iter(self.levels.values()))
        return {name: len(one.scores) for name, one in zip(self.names, first, strict=True)}

    def encode_labels(self, labels: np.ndarray) -> np.ndarray:
        """Return, for each row, the position in `names` of its label, or -1 if no calibration row has this label."""
        code_by_name = {name: code for code, name in enumerate(self.names)}
        return np.array([code_by_name.get(label, -1) for label in labels.tolist()], dtype=np.int64)

    def read_labels(self, X: TableLike, groups: ArrayLike | None, argument: str = "groups") -> np.ndarray:
        """Return the group label of each row: from `groups` or, if this is None, from the column `by` of X.

        If both are missing, raise an `InputError`. Its message asks the user to pass `argument`.
        """
        labels = get_column(X, self.by, argument) if groups is None else groups
        if labels is None:
            reason = f"intervals were calibrated by group of {self.by!r}"
            raise InputError(f"{argument} is missing: {reason}. Pass one label per row.")
        return name_interval_groups(labels, get_row_count(X))

    def describe_unseen(self, labels: np.ndarray) -> str:
        """Return a sentence about rows whose group has no calibration rows; "" if there are none.

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
        """Fit the interval levels of each group for the mixture or one member, and store them.

        `name` is "mixture" or the name of the member. `scores` has the score of each calibration row by its predicted
        distribution (`score_counts`), `codes` its group (`encode_labels`), and `weight` its weight.
        """
        masks = [codes == code for code in range(len(self.names))]
        self.levels[name] = [
            IntervalLevels.from_scores(scores[mask], None if weight is None else weight[mask]) for mask in masks
        ]

    def at(self, coverage: float, member: str, overall_levels: IntervalLevels, codes: np.ndarray) -> np.ndarray:
        """Return the interval level of each row for a coverage.

        `member` is "mixture" or the name of a member. `codes` has the group of each row (`encode_labels`). Rows of
        unknown groups (-1) get the level of `overall_levels`, the member's levels over all rows. The levels of groups
        are cached by `member` and `coverage`, so `overall_levels` must always be the same for a member.
        """
        key = member, coverage
        if key not in self._cached_levels:
            levels = [one.shrink_towards(overall_levels, self.prior_rows).at(coverage) for one in self.levels[member]]
            # The overall level comes last, where the code -1 finds it.
            self._cached_levels[key] = np.array([*levels, overall_levels.at(coverage)])
        return self._cached_levels[key][codes]


def attach_group_labels(sample: CountRows, groups: str | ArrayLike | None) -> tuple[CountRows, str | None]:
    """Attach group labels to rows as `interval_groups`; return the rows and the name of the groups.

    `groups` is the name of a column of X, or has the label of each row. The labels stay with their rows when rows are
    selected or split. The name of the groups is the name of the column, or the name of `groups` if this is a series
    with a name, otherwise "group". If `groups` is None, there are no labels to attach.

    If `groups` is a name, but X is an array, whose columns have no names, an `InputError` is raised.
    """
    if groups is None:
        return sample, None
    if isinstance(groups, str):
        name, labels = groups, get_column(sample.X, groups)
        if labels is None:
            must = "be labels if X is not a data frame, whose columns have names"
            raise InputError(argument="groups", must=must, got=repr(groups))
    else:
        name, labels = str(getattr(groups, "name", None) or "group"), groups
    return sample.replace(interval_groups=name_interval_groups(labels, len(sample))), name
