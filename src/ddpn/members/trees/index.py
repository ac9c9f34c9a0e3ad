"""An additive index of the columns: the sums of boosted stumps, as further inputs of boosted trees."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ddpn.members.trees.booster import Booster


class Index(NamedTuple):
    """Stumps whose sums are further inputs: one booster per group of columns."""

    groups: tuple[Booster, ...]

    def inputs(self, matrix: np.ndarray) -> np.ndarray:
        """The sum of each group and, where there are several, of all. Shape: (rows, k)."""
        parts = np.stack([group.raw(matrix) for group in self.groups], axis=1)
        return parts if len(self.groups) == 1 else np.column_stack([parts, parts.sum(axis=1)])

    @staticmethod
    def width(groups: int) -> int:
        """How many inputs an index of so many groups has."""
        return groups if groups < 2 else groups + 1


def index_of(boosters: Iterator[Booster], groups: int) -> Index | None:
    """The index of the next so many boosters; None for none."""
    return Index(tuple(next(boosters) for _ in range(groups))) if groups else None


def with_index(matrix: np.ndarray, index: Index | None) -> np.ndarray:
    """A matrix with the inputs of an index, if there is one."""
    return matrix if index is None else np.column_stack([matrix, index.inputs(matrix)])
