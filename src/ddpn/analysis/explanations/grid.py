"""The points of a column at which its effect is measured, and how rows lie among them."""

from typing import Any, NamedTuple

import numpy as np

from ddpn.tables.encoding.table import Column
from ddpn.tables.kinds import number_of

#: Levels of a category that are measured, the most frequent ones.
_LEVELS = 20


class EffectGrid(NamedTuple):
    """Points in their order, and for each of them a row that has this value.

    `code` says for every row which point it has (`discrete`), or at which point the bin ends that it is in; -1 where
    its value is missing or not among the points.
    """

    points: list[Any]
    source: np.ndarray
    code: np.ndarray
    missing: np.ndarray
    discrete: bool

    @property
    def shares(self) -> np.ndarray:
        """The share of rows that each point stands for; the two ends of a bin share its rows."""
        size, used = len(self.points), self.code[self.code >= 0]
        here = np.bincount(used, minlength=size).astype(float)
        if not self.discrete:
            here = (here + np.append(here[1:], 0.0)) / 2.0
        return here / len(self.code)


def is_missing(column: Column) -> np.ndarray:
    """Mask of the rows without a value."""
    return column.values < 0 if column.kind == "category" else np.isnan(column.values)


def grid_of(columns: list[Column], position: int, bins: int) -> EffectGrid:
    """The grid of a column: quantiles of numbers, all values where there are few, and the levels of a category."""
    column = columns[position]
    missing = is_missing(column)
    if column.kind == "category":
        order = _ordered_levels(columns, position)
        lookup = np.full(len(column.levels) + 1, -1)  # the last entry serves code -1
        lookup[order] = np.arange(len(order))
        code = lookup[column.values.astype(int)]
        return EffectGrid([column.levels[level] for level in order], _first_rows(code, len(order)), code, missing, True)
    known = np.unique(column.values[~missing])
    discrete = len(known) <= bins * 3 // 2 + 1  # hours and months are better shown one by one
    edges = known if discrete else _edges(column.values[~missing], bins)
    code = np.where(missing, -1, np.minimum(np.searchsorted(edges, column.values), len(edges) - 1))
    if not discrete:
        code = np.where(missing, -1, np.maximum(code, 1))
    source = np.array([int(np.argmax(column.values == edge)) for edge in edges], dtype=int)
    points = [bool(edge) for edge in edges] if column.kind == "flag" else edges.tolist()
    return EffectGrid(points, source, code, missing, discrete)


def _edges(values: np.ndarray, bins: int) -> np.ndarray:
    """The smallest value and quantiles, all of which occur; equal ones once."""
    return np.unique(np.quantile(values, np.arange(bins + 1) / bins, method="inverted_cdf"))


def _first_rows(code: np.ndarray, size: int) -> np.ndarray:
    return np.array([int(np.argmax(code == point)) for point in range(size)], dtype=int)


# The order of levels ---------------------------------------------------------------------------------------------


def _ordered_levels(columns: list[Column], position: int) -> np.ndarray:
    """The most frequent levels: numbers by size, others so that neighbours are alike in the other columns.

    Effects are accumulated from each level to the next one. Rows of neighbours then are rows for which both levels are
    plausible (Apley and Zhu, 2020). The order is that of the first principal component of what the rows of each level
    have in the other columns: mean ranks of numbers, shares of levels.
    """
    column = columns[position]
    number = np.bincount(column.values[column.values >= 0].astype(int), minlength=len(column.levels))
    # The number of rows decides, then the name: the order of rows does not matter.
    ranked = sorted(np.flatnonzero(number).tolist(), key=lambda level: (-number[level], column.levels[level]))
    found = np.array(ranked[:_LEVELS], dtype=int)
    if len(found) < 3:
        return found
    numbers = [number_of(column.levels[level]) for level in found]
    if None not in numbers:
        return found[np.argsort(np.array(numbers, dtype=float), kind="stable")]
    others = [_profile(column, found, other) for j, other in enumerate(columns) if j != position]
    if not others:
        return found
    profile = np.hstack(others)
    first = np.linalg.svd(profile - profile.mean(0), full_matrices=False)[0][:, 0]
    return found[np.argsort(first * np.sign(first[np.abs(first).argmax()]), kind="stable")]


def _profile(column: Column, levels: np.ndarray, other: Column) -> np.ndarray:
    """What the rows of each level have in another column. Shape: (levels, features)."""
    if other.kind == "category":
        values = np.eye(len(other.levels) + 1)[other.values.astype(int)]
    else:
        values = (np.unique(other.values, return_inverse=True)[1] / len(other.values))[:, None]
    return np.stack([values[column.values == level].mean(0) for level in levels])
