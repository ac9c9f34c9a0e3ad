"""Values of a column (grid points) at which its effect on predictions is measured."""

from typing import NamedTuple

import numpy as np

from ddpn.tables.columns import Column, Kind
from ddpn.tables.levels import parse_number_level

#: The most levels of a category that are measured. The most frequent ones are chosen.
_MAX_LEVELS = 20


class EffectGrid(NamedTuple):
    """Values of a column at which its effect is measured (points), and the point that belongs to each row.

    Attributes
    ----------
    points : list
        The values.
    source_rows : array of int, shape (points,)
        For each point, the position of a row with this value.
    code : array of int, shape (rows,)
        For each row, the index of its point. If `discrete` is True, this is the point that equals the value of the row;
        otherwise, it is the upper end of the bin that contains the value. The code is -1 if the value is missing or is
        a level that is not among the points.
    missing : array of bool, shape (rows,)
        True for rows with a missing value.
    discrete : bool
        True if the points are all values or levels, False if they are the ends of bins.
    """

    points: list[float | bool | str]
    source_rows: np.ndarray
    code: np.ndarray
    missing: np.ndarray
    discrete: bool

    def compute_shares(self, row_weights: np.ndarray) -> np.ndarray:
        """Compute the share of the rows at each point, weighted by `row_weights`, an array of shape (rows,).

        If points are ends of bins, a row counts half at both ends of its bin.
        """
        is_used = self.code >= 0
        totals = np.bincount(self.code[is_used], weights=row_weights[is_used], minlength=len(self.points))
        if not self.discrete:
            totals = (totals + np.append(totals[1:], 0.0)) / 2.0
        return totals / row_weights.sum()


def make_grid(columns: list[Column], position: int, bins: int) -> EffectGrid:
    """Choose the values (points) at which the effect of the column at `position` is measured.

    The points of a numeric column are its values or, if there are more than about 1.5 times `bins`, `bins` + 1
    quantiles. The points of a category are its levels or, if there are more than 20, the 20 most frequent ones.
    """
    column = columns[position]
    missing = column.is_missing
    if column.is_category:
        order = _order_levels(columns, position)
        lookup = np.full(len(column.levels) + 1, -1)  # the last entry serves code -1
        lookup[order] = np.arange(len(order))
        code = lookup[column.values.astype(int)]
        source = np.array([int(np.argmax(code == point)) for point in range(len(order))], dtype=int)
        return EffectGrid([column.levels[level] for level in order], source, code, missing, True)
    values = np.unique(column.values[~missing])
    discrete = len(values) <= bins * 3 // 2 + 1  # so that hours and months are shown one by one
    edges = values
    if not discrete:  # distinct quantiles, each of which is the value of a row
        edges = np.unique(np.quantile(column.values[~missing], np.arange(bins + 1) / bins, method="inverted_cdf"))
    code = np.where(missing, -1, np.minimum(np.searchsorted(edges, column.values), len(edges) - 1))
    if not discrete:
        code = np.where(missing, -1, np.maximum(code, 1))
    source = np.array([int(np.argmax(column.values == edge)) for edge in edges], dtype=int)
    points = [bool(edge) for edge in edges] if column.kind == Kind.BOOLEAN else edges.tolist()
    return EffectGrid(points, source, code, missing, discrete)


def _order_levels(columns: list[Column], position: int) -> np.ndarray:
    """Return the codes of a category's most frequent levels (at most 20), with similar levels next to each other.

    `position` is the index of the category in `columns`. If all levels are numbers, they are sorted in ascending order.
    Otherwise, each level is described by the averages of the other columns over its rows (mean ranks of numbers, and
    shares of levels), and levels are sorted by the first principal component of these averages.

    The order matters because the effect of the category is accumulated from each level to the next: rows with one of
    the two levels are predicted with the other level. Such rows are plausible only if the two levels are similar (Apley
    and Zhu, 2020).
    """
    column = columns[position]
    number = column.count_levels()
    # Sorted by the number of rows, then by name, so that the order of rows does not matter.
    ranked = sorted(np.flatnonzero(number).tolist(), key=lambda level: (-number[level], column.levels[level]))
    levels = np.array(ranked[:_MAX_LEVELS], dtype=int)
    if len(levels) < 3:
        return levels
    numbers = [parse_number_level(column.levels[level]) for level in levels]
    if None not in numbers:
        return levels[np.argsort(np.array(numbers, dtype=float), kind="stable")]
    profiles = []  # shape: (levels, features) each
    for other in (candidate for index, candidate in enumerate(columns) if index != position):
        if other.is_category:
            size, codes = len(other.levels) + 1, other.values.astype(int)
            codes = np.where(codes < 0, size - 1, codes)
            counts = (np.bincount(codes[column.values == level], minlength=size) for level in levels)
            profiles.append(np.stack([level_counts / level_counts.sum() for level_counts in counts]))
        else:
            values = np.unique(other.values, return_inverse=True)[1] / len(other.values)
            profiles.append(np.stack([values[column.values == level].mean(keepdims=True) for level in levels]))
    if not profiles:
        return levels
    profile = np.hstack(profiles)
    first = np.linalg.svd(profile - profile.mean(0), full_matrices=False)[0][:, 0]
    return levels[np.argsort(first * np.sign(first[np.abs(first).argmax()]), kind="stable")]
