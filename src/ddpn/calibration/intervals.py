"""Calibrate intervals: find the probability that an interval must have by its own distribution to reach a coverage.

A calibrated level is one for all rows, or one for each of some groups of rows (Mondrian conformal prediction). It is
never below the asked coverage, so that every interval has at least the asked probability by its own distribution. It is
above where the predicted distributions are too sure of themselves.
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
from ddpn.distributions.components import Interval, Summary
from ddpn.rows.checks import TableLike, get_row_count
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_choice, check_column, join_words
from ddpn.tables.columns import ColumnTable
from ddpn.tables.row_hashes import name_interval_groups

#: The highest level of an interval, and the level from which on a count may lie beyond it.
_MAX_LEVEL, _MIN_LEVEL_BEYOND = 1.0 - 1e-9, 1.0 - 1e-6
#: Evenly spaced scores, like those of a right model; `prior_rows` is their weight.
_UNIFORM_SCORES = (np.arange(200) + 0.5) / 200


@torch.no_grad()
def score_counts(dist: Distribution, y: Tensor, points: np.ndarray) -> np.ndarray:
    """Score each count by the level from which on the narrowest interval contains it. Shape: (rows,).

    A count with the probability p enters the interval at a step of p; the score is a random point of that step. If the
    distributions are right, scores are uniform on [0, 1], whether counts are small or large. A count beyond the
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
def score_blocks(blocks: Iterable[tuple[np.ndarray | slice, Distribution]], y: np.ndarray, seed: int = 0) -> np.ndarray:
    """Score counts as `score_counts` does; each block has positions in `y`, and the distributions of these counts.

    `seed` draws the random points, in the order of `y`.
    """
    points, scores = np.random.default_rng(seed).random(len(y)), np.zeros(len(y))
    for index, dist in blocks:
        scores[index] = score_counts(dist, torch.from_numpy(y[index]), points[index])
    return scores


def make_interval(dist: Distribution, level: float | np.ndarray, kind: str = "narrowest") -> Interval:
    """Make intervals of counts with at least the probability `level`, one for all rows or one per row.

    `kind` is "narrowest", the fewest consecutive counts, or "central", with at most half of the rest on either side.
    Levels above 1 widen the interval of level 1 - 1e-9: by (level - 1) of its width on each side, e.g. by half for 1.5.
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
    """Summarise count distributions (`CountDistribution.summary`), and return their intervals (`make_interval`)."""
    if check_choice("kind", kind, INTERVAL_KINDS) == "central":
        return counts.summary(quantile_levels), make_interval(counts, level, kind)
    summary = counts.summary(quantile_levels, interval_level=np.minimum(level, _MAX_LEVEL))
    assert summary.interval is not None
    return summary, widen_interval(counts, summary.interval, level)


def widen_interval(counts: CountDistribution, interval: Interval, level: float | np.ndarray) -> Interval:
    """Widen intervals whose level is above 1 by (level - 1) x width on either side; return the others unchanged."""
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
    # As a difference of upper tails above the median, where these have more digits.
    between = torch.where(below > 0.5, above - beyond, upto - below)
    return between.reshape(counts.batch_shape).clamp(0.0, 1.0)


class IntervalLevels(NamedTuple):
    """The sorted scores of calibration rows (`score_counts`), and the weight of each, 1 on average.

    The level of an interval is the score that the asked share of calibration rows does not exceed, or the asked
    coverage itself, whichever is higher (split conformal prediction). Where these rows chose nothing else and
    `prior_rows` is 0, a new row like them lies inside with at least the asked probability, on average over calibration
    sets: exactly so for distributions with one peak, whatever the model.

    Weights that are density ratios of new rows to calibration rows make the same true for the new rows (weighted
    conformal prediction). `new` is the weight of a new row: what one has on average, sum w^2 / sum w, so that the level
    is as cautious as if there were (sum w)^2 / sum w^2 rows.

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
        """Sort the scores; add the uniform scores of a right model with the weight of `prior_rows` rows.

        Rows of weight 0 are left out. `is_censored` is whether some of the counts were censored.
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

    def shrink_towards(self, other: Self, rows: float) -> Self:
        """Add the scores of `other`, which together weigh as much as `rows` rows."""
        if not rows:
            return self
        weight = np.concatenate([self.weight, other.weight * (rows / other.weight.sum())])
        scores = np.concatenate([self.scores, other.scores])
        order = np.argsort(scores, kind="stable")
        return self._replace(scores=scores[order], weight=weight[order])

    def at(self, coverage: float) -> float:
        """Return the level of intervals that should cover `coverage`; above 1 beyond the highest quantiles.

        It is at least the asked coverage. With too few rows to know (fewer than 9 for 90%), it is the asked coverage
        or the highest score.

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
        # The new row counts too. A trace less than asked: sums of weights are not exact.
        total = np.cumsum(self.weight)
        enough = coverage * (total[-1] + self.new[0]) - 1e-9 if len(total) else np.inf
        position = int(np.searchsorted(total, enough))
        score = self.scores[position] if position < len(self.scores) else self.scores.max(initial=0.0)
        level = max(coverage, float(score))
        # A trace more beyond 1: rounding must not leave out the count whose distance it is.
        return level + 1e-9 if level > 1.0 else min(level, _MAX_LEVEL)


# Groups ---------------------------------------------------------------------------------------------------------------


def get_column(X: TableLike, name: str) -> ArrayLike | None:
    """Get a column of a data frame; None if X is not a data frame."""
    if isinstance(X, ColumnTable):
        return X.column(check_column(name, X.names, "groups", InputError)).cells() if X.is_named else None
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return None
    return frame[check_column(name, frame.columns, "groups", InputError)].to_native()


@dataclass
class IntervalGroups:
    """Groups of rows with their own levels of intervals, for the mixture and every member by name.

    The level of a group follows from the scores of its own rows, to which those of all calibration rows are added as if
    they were `prior_rows` rows: groups of few rows take the level of all rows.

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
        return {name: len(one.scores) for name, one in zip(self.names, first, strict=True)}

    def encode_labels(self, labels: np.ndarray) -> np.ndarray:
        """Return the position of each row's group, -1 for a group that calibration did not have."""
        code_by_name = {name: code for code, name in enumerate(self.names)}
        return np.array([code_by_name.get(label, -1) for label in labels.tolist()], dtype=np.int64)

    def read_labels(self, X: TableLike, groups: ArrayLike | None, argument: str = "groups") -> np.ndarray:
        """Return the labels of rows: `groups`, or the column of X."""
        labels = get_column(X, self.by) if groups is None else groups
        if labels is None:
            raise InputError(f"{argument} is missing: intervals were calibrated by {self.by!r}. Pass a label per row.")
        return name_interval_groups(labels, get_row_count(X))

    def describe_unseen(self, labels: np.ndarray) -> str:
        """Describe rows of groups that calibration did not have in a sentence; "" if there are none."""
        missing = [label for label in labels.tolist() if label not in set(self.names)]
        if not missing:
            return ""
        names = sorted(set(missing))
        shown = join_words([repr(name) for name in names[:3]]) + (", ..." if len(names) > 3 else "")
        rows = f"{len(missing):,} of {len(labels):,} rows"
        return f"{rows} have a {self.by} that the calibration rows did not have ({shown}): level of all rows."

    def add(self, name: str, scores: np.ndarray, codes: np.ndarray, weight: np.ndarray | None = None) -> None:
        """Add the scores of the mixture or of a member, by the group of each row."""
        masks = [codes == code for code in range(len(self.names))]
        self.levels[name] = [
            IntervalLevels.from_scores(scores[mask], None if weight is None else weight[mask]) for mask in masks
        ]

    def at(self, coverage: float, of: str, whole: IntervalLevels, codes: np.ndarray) -> np.ndarray:
        """Return the level of each row's interval; code -1 stands for all rows (`whole`). Shape: (rows,)."""
        key = of, coverage
        if key not in self._known:
            levels = [one.shrink_towards(whole, self.prior_rows).at(coverage) for one in self.levels[of]]
            # The last, at -1, is that of rows in no group.
            self._known[key] = np.array([*levels, whole.at(coverage)])
        return self._known[key][codes]


def attach_group_labels(sample: CountRows, groups: str | ArrayLike | None) -> tuple[CountRows, str | None]:
    """Attach `groups` to the rows if they are labels; also return the name of the groups.

    Rows and labels then stay together wherever rows are drawn or divided.
    """
    if groups is None or isinstance(groups, str):
        return sample, groups
    name = str(getattr(groups, "name", None) or "group")
    return sample.replace(interval_groups=name_interval_groups(groups, len(sample))), name


def make_interval_groups(groups: str, sample: CountRows, prior_rows: float) -> tuple[IntervalGroups, np.ndarray]:
    """Make the groups of calibration rows, from a column or the rows' labels; also return each row's position."""
    values = get_column(sample.X, groups) if sample.interval_groups is None else sample.interval_groups
    if values is None:
        must = "be labels if X is not a data frame"
        raise InputError(argument="groups", must=must, got=repr(groups))
    labels = name_interval_groups(values, len(sample))
    interval_groups = IntervalGroups(groups, tuple(sorted(set(labels.tolist()))), prior_rows)
    return interval_groups, interval_groups.encode_labels(labels)
