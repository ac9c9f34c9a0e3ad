"""Calibrated intervals of a predictor: for all rows alike, or within groups (Mondrian conformal prediction)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Self

import narwhals as nw
import numpy as np
import torch
from torch import Tensor

from ddpn.calibration.intervals import IntervalLevels, NeededLevels, interval_at, interval_quantiles, widened
from ddpn.distributions import discretized
from ddpn.distributions.arguments import check_coverage
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_column, is_integer, listed
from ddpn.sample import Sample, row_count
from ddpn.tables.row_hashes import group_labels

_MIXTURE = "mixture"


def column_of(X: Any, name: str) -> Any:
    """A column of a data frame, or None where X is no data frame."""
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
        The column whose values are the groups; empty for ranges of the predicted mean.
    names : tuple of str
        The names of the groups.
    edges : array
        The inner ends of the ranges of the predicted mean.
    prior_rows : float
        The rows that the level of all rows counts as.
    levels : dict
        Levels of each group, by the name of the mixture or member.
    """

    by: str
    names: tuple[str, ...]
    edges: np.ndarray
    prior_rows: float
    levels: dict[str, list[IntervalLevels]] = field(default_factory=dict)
    _known: dict[tuple[str, float], np.ndarray] = field(default_factory=dict, repr=False)

    @classmethod
    def by_labels(cls, by: str, labels: np.ndarray, prior_rows: float) -> Self:
        """Make a group for every label.

        Parameters
        ----------
        by : str
            What the labels are called.
        labels : array
            The label of each calibration row.
        prior_rows : float
            The rows that the level of all rows counts as.
        """
        return cls(by, tuple(sorted(set(labels.tolist()))), np.empty(0), prior_rows)

    @classmethod
    def by_mean(cls, mean: np.ndarray, number: int, prior_rows: float) -> Self:
        """Make groups of ranges of the predicted mean, with about as many calibration rows in each.

        Parameters
        ----------
        mean : array
            The predicted mean of each calibration row.
        number : int
            How many ranges.
        prior_rows : float
            The rows that the level of all rows counts as.
        """
        inner = np.unique(np.quantile(mean, np.linspace(0.0, 1.0, number + 1)[1:-1]))
        ends = ["", *(f"{edge:.3g}" for edge in inner), ""]
        names = [f"{low} to {high}" for low, high in pairwise(ends)]
        names[0], names[-1] = f"up to {ends[1]}", f"above {ends[-2]}"
        return cls("", tuple(names) if len(inner) else ("all",), inner, prior_rows)

    @property
    def rows(self) -> dict[str, int]:
        """The number of calibration rows of each group."""
        first = next(iter(self.levels.values()))
        return {name: len(one.needed) for name, one in zip(self.names, first, strict=True)}

    def codes(self, labels: np.ndarray | None, mean: Any) -> np.ndarray:
        """The position of each row's group, -1 for a group that calibration did not have."""
        if not self.by:
            return np.searchsorted(self.edges, np.asarray(mean, dtype=np.float64), side="left")
        assert labels is not None
        place = {name: code for code, name in enumerate(self.names)}
        return np.array([place.get(label, -1) for label in labels.tolist()], dtype=np.int64)

    def labels(self, X: Any, groups: Any) -> np.ndarray | None:
        """The labels of rows: `groups`, or the column of X; None for ranges of the predicted mean."""
        if not self.by:
            return None
        found = column_of(X, self.by) if groups is None else groups
        if found is None:
            raise InputError(f"groups is missing: intervals were calibrated by {self.by!r}. Pass a label per row.")
        return group_labels(found, row_count(X))

    def unseen(self, labels: np.ndarray | None) -> str:
        """A sentence about rows of groups that calibration did not have, or nothing."""
        if labels is None:
            return ""
        missing = [label for label in labels.tolist() if label not in set(self.names)]
        if not missing:
            return ""
        names = sorted(set(missing))
        shown = listed([repr(name) for name in names[:3]]) + (", ..." if len(names) > 3 else "")
        rows = f"{len(missing):,} of {len(labels):,} rows"
        return f"{rows} have a {self.by} that the calibration rows did not have ({shown}): level of all rows."

    def add(self, name: str, rows: NeededLevels, codes: np.ndarray, weight: np.ndarray | None) -> None:
        """The levels of the mixture or of a member."""
        masks = [codes == code for code in range(len(self.names))]
        weights = [None if weight is None else weight[mask] for mask in masks]
        self.levels[name] = [IntervalLevels.of_rows(rows.rows(m), w) for m, w in zip(masks, weights, strict=True)]

    def at(self, coverage: float, of: str, whole: IntervalLevels, codes: np.ndarray) -> np.ndarray:
        """The level of each row's interval. Shape: (rows,).

        Parameters
        ----------
        coverage : float
            The share of counts that intervals should contain.
        of : str
            The mixture or the member.
        whole : IntervalLevels
            The levels of all rows, which are those of rows in unknown groups.
        codes : array of int
            The position of each row's group, -1 for an unknown one.
        """
        key = of, coverage
        if key not in self._known:
            found = [one.shrunk_towards(whole, self.prior_rows).at(coverage) for one in self.levels[of]]
            # The last, at -1, is that of rows in no group.
            self._known[key] = np.array([*found, whole.at(coverage)])
        return self._known[key][codes]


def with_labels(sample: Sample, groups: Any) -> tuple[Sample, str | int | None]:
    """A sample that has the labels of its rows apart, where `groups` are labels, and the name of the groups.

    Rows and labels then stay together wherever rows are drawn or divided.
    """
    if groups is None or is_integer(groups) or isinstance(groups, str):
        return sample, groups
    name = str(getattr(groups, "name", None) or "group")
    return sample.replace(interval_groups=group_labels(groups, len(sample))), name


def grouping(
    groups: str | int, sample: Sample, means: Iterable[Any], prior_rows: float
) -> tuple[IntervalGroups, np.ndarray]:
    """The groups of calibration rows, and the position of each row's: by a column, or a number of ranges.

    A column is that of the table, unless the sample has the values apart. `means` are the predicted means in blocks,
    which only ranges of them need.
    """
    if not isinstance(groups, str):
        if groups < 2:
            must = "be at least 2 ranges of the predicted mean"
            raise InputError(argument="groups", must=must, got=str(groups))
        mean = np.concatenate([np.asarray(block, dtype=np.float64) for block in means])
        found = IntervalGroups.by_mean(mean, int(groups), prior_rows)
        return found, found.codes(None, mean)
    values = column_of(sample.X, groups) if sample.interval_groups is None else sample.interval_groups
    if values is None:
        must = "be labels or a number where X is no data frame"
        raise InputError(argument="groups", must=must, got=repr(groups))
    labels = group_labels(values, len(sample))
    found = IntervalGroups.by_labels(groups, labels, prior_rows)
    return found, found.codes(labels, None)


class PredictionSummary(NamedTuple):
    """What `CalibratedLevels.described` returns, (rows,) each: moments, counts, and more quantiles (rows, levels)."""

    mean: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    median: Tensor
    mode: Tensor
    low: Tensor
    high: Tensor
    quantiles: Tensor


class CalibratedLevels:
    """The part of a `Predictor` that takes intervals at the levels that calibration found."""

    intervals: dict[str, IntervalLevels]
    groups: IntervalGroups | None

    def interval_level(self, coverage: float, of: str = _MIXTURE) -> float:
        """The level of the predicted intervals that cover `coverage`; the coverage itself before calibration.

        It is that of all rows together, also where intervals are calibrated by group.

        Parameters
        ----------
        coverage : float
            The share of counts that intervals should contain.
        of : str
            "mixture", or the name of one member.
        """
        return self.intervals[of].at(coverage) if of in self.intervals else check_coverage(coverage)

    def interval(
        self, dist: Any, coverage: float, of: str = _MIXTURE, labels: np.ndarray | None = None
    ) -> tuple[Tensor, Tensor]:
        """Calibrated intervals of predicted distributions, both ends included.

        Parameters
        ----------
        dist : Distribution
            What `distribution` returned, of batch shape (rows,).
        coverage, of
            As for `interval_level`; `of` is whose distributions these are.
        labels : array, optional
            The groups of the rows. Without them, rows have the level of all rows, unless groups are ranges of the
            predicted mean.
        """
        return interval_at(dist, self.row_levels(dist, coverage, of, labels))

    def row_levels(
        self, dist: Any, coverage: float, of: str = _MIXTURE, labels: np.ndarray | None = None
    ) -> float | np.ndarray:
        """The level of the intervals of predicted distributions: one for all rows, or one per row by groups.

        Parameters
        ----------
        dist, coverage, of, labels
            As for `interval`.
        """
        if self.groups is None or of not in self.groups.levels or (self.groups.by and labels is None):
            return self.interval_level(coverage, of)
        codes = self.groups.codes(labels, None if self.groups.by else dist.mean.detach().numpy())
        return self.groups.at(check_coverage(coverage), of, self.intervals[of], codes)

    @torch.no_grad()
    def described(
        self,
        dist: Any,
        coverage: float,
        of: str = _MIXTURE,
        labels: np.ndarray | None = None,
        quantiles: Sequence[float] = (),
    ) -> PredictionSummary:
        """Mean, variance, median, mode, calibrated interval and quantiles of predicted distributions, asked for once.

        Moments are those of the distributions themselves, counts those of rounded values where they are Gaussian.

        Parameters
        ----------
        dist, coverage, of, labels
            As for `interval`.
        quantiles : sequence of float
            Levels of further quantiles, in (0, 1).
        """
        counts = discretized(dist)
        level, rows = self.row_levels(counts, coverage, of, labels), counts.batch_shape[0]
        levels = torch.tensor([0.5, *quantiles], dtype=torch.float64).expand(rows, -1)
        found = counts.summary(torch.cat([interval_quantiles(level, rows), levels], dim=1))
        low, high, median = found.quantiles[:, :3].unbind(1)
        moments = found if counts is dist else dist
        ends = widened(low, high, level)
        return PredictionSummary(
            moments.mean, moments.aleatoric, moments.epistemic, median, found.mode, *ends, found.quantiles[:, 3:]
        )
