"""Boosted trees by plain operators: every tree is followed from its root, all at once.

ONNX has operators for sums of trees. One rounds them to float32; the other is not part of ONNX Runtime 1.20, and 1.21
and 1.22 return wrong sums for some trees.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ddpn.export.graph import Graph, Value
from ddpn.members.trees.booster import Booster, tree_slices
from ddpn.members.trees.member import LEVELS
from ddpn.runtime.errors import ConfigError

#: Bits of LightGBM's decisions: by category, default to the left, missing values are zeros, missing values are NaN.
_BY_CATEGORY, _DEFAULT_LEFT, _ZERO, _NAN = 1, 2, 4, 8
#: Trees whose depths are within so many steps are followed together.
_STEP = 4
#: A threshold below infinity, which stands for a missing value that goes to the right.
_HIGHEST = float(np.finfo(np.float64).max)


class TreeSplit(NamedTuple):
    """A split of a column: left up to the threshold, `left` says whether missing values go there, too.

    With `levels` it is one of codes: left if the code is among them. Children are splits (from 0) or leaves (~number).
    """

    column: int
    threshold: float
    left: bool
    levels: tuple[int, ...] | None
    children: tuple[int, int]


class Tree(NamedTuple):
    """Splits, of which the first is the root and parents come before their children, and the values of the leaves."""

    splits: list[TreeSplit]
    leaves: list[float]
    target: int

    @property
    def depth(self) -> int:
        """Splits on the longest way to a leaf."""
        depths = [0] * len(self.splits)
        for number in reversed(range(len(self.splits))):
            own = (depths[child] if child >= 0 else 0 for child in self.splits[number].children)
            depths[number] = 1 + max(own)
        return depths[0]


@dataclass
class Forest:
    """Sums of trees over one matrix of `width` columns, each sum a target; `constants` are added to them."""

    width: int
    trees: list[Tree] = field(default_factory=list)
    constants: list[float] = field(default_factory=list)
    #: Sets of codes of columns, each of which becomes a column: 0 for codes of the set and 1 for others.
    sets: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)

    def add(self, booster: Booster) -> None:
        """Another target: the sum of a booster's trees."""
        self.constants.append(0.0)
        for tree in tree_slices(booster.arrays):
            self._add(*_of_lightgbm(tree), booster.chosen)

    def _add(self, splits: list[TreeSplit], leaves: list[float], chosen: np.ndarray | None) -> None:
        """One more tree of the last target."""
        if not splits:
            self.constants[-1] += leaves[0]
            return
        placed = []
        for split in splits:
            column = split.column if chosen is None else int(chosen[split.column])
            placed.append(self._by_number(split._replace(column=column)))
        self.trees.append(Tree(placed, leaves, len(self.constants) - 1))

    def _by_number(self, split: TreeSplit) -> TreeSplit:
        """A split by a set of codes as one of the set's own column."""
        if split.levels is None:
            return split._replace(threshold=min(split.threshold, _HIGHEST))
        number = self.sets.setdefault((split.column, split.levels), len(self.sets))
        return TreeSplit(self.width + number, 0.5, False, None, split.children)

    def sums(self, graph: Graph, matrix: Value) -> Value:
        """The targets of every row. Shape: (rows, columns) -> (rows, targets)."""
        total = graph.where(matrix.take([0]).is_nan(), 0.0, 0.0) + np.array([self.constants])
        if not self.trees:
            return total
        wide = self._with_sets(graph, matrix)
        missing = wide.is_nan()
        # Missing values go to the right in the first half and to the left in the second.
        values = graph.concat([graph.where(missing, side, wide) for side in (np.inf, -np.inf)])
        groups: dict[int, list[Tree]] = {}
        for tree in self.trees:
            groups.setdefault(-(-tree.depth // _STEP), []).append(tree)
        for group in groups.values():
            onto = np.eye(len(self.constants))[[tree.target for tree in group]]
            found = _followed(graph, values, group, self.width + len(self.sets))
            total = total + found.op("MatMul", graph.constant(onto))
        return total

    def _with_sets(self, graph: Graph, matrix: Value) -> Value:
        """The matrix with a column per set of codes: 1 where a row's code is not in it."""
        parts, order = [matrix], list(range(self.width))
        for column in sorted({column for column, _ in self.sets}):
            own = {levels: number for (each, levels), number in self.sets.items() if each == column}
            outside = np.ones((LEVELS + 1, len(own)), dtype=bool)
            for j, levels in enumerate(own):
                outside[list(levels), j] = False
            order += [self.width + number for number in own.values()]
            parts.append(graph.constant(outside).take(matrix.take(column).cast("i"), axis=0).cast("f"))
        return graph.concat(parts) if len(parts) == 1 else graph.concat(parts).take(np.argsort(order))


def _followed(graph: Graph, values: Value, trees: list[Tree], width: int) -> Value:
    """The value of the leaf that each row reaches in each tree. Shape: (rows, 2 width) -> (rows, trees)."""
    column: list[int] = []
    threshold, leaf, children, roots = [], [], [], []
    for tree in trees:
        first, last = len(column), len(column) + len(tree.splits)
        roots.append(first)
        for split in tree.splits:
            column.append(split.column + (width if split.left else 0))
            threshold.append(split.threshold)
            leaf.append(0.0)
            # The right child first: it is taken where the comparison is false.
            children += [first + child if child >= 0 else last + ~child for child in reversed(split.children)]
        for number, value in enumerate(tree.leaves):
            column.append(0)
            threshold.append(0.0)
            leaf.append(value)
            children += [last + number] * 2
    columns, thresholds, leaves, nexts = (graph.constant(each) for each in (column, threshold, leaf, children))
    # No value is above infinity: a zero per row. One axis, as ONNX Runtime gathers single elements fast from one only.
    at = ((values.take([0]) > np.inf).cast("i") + np.array([roots])).reshaped(-1)
    for _ in range(max(tree.depth for tree in trees)):
        place = columns.op("GatherElements", at, axis=0).reshaped(-1, len(trees))
        own = values.op("GatherElements", place, axis=1).reshaped(-1)
        is_left = (own <= thresholds.op("GatherElements", at, axis=0)).cast("i")
        at = nexts.op("GatherElements", at * 2 + is_left, axis=0)
    return leaves.op("GatherElements", at, axis=0).reshaped(-1, len(trees))


def _of_lightgbm(tree: Mapping[str, np.ndarray]) -> tuple[list[TreeSplit], list[float]]:
    splits = []
    for number in range(len(tree["threshold"])):
        kind, threshold = int(tree["decision_type"][number]), float(tree["threshold"][number])
        if kind & _ZERO:
            raise ConfigError("Trees to export must not treat zeros as missing values.")
        levels = _codes(tree, int(threshold)) if kind & _BY_CATEGORY else None
        # Without missing values in fit, LightGBM reads NaN as 0.
        left = bool(kind & _DEFAULT_LEFT) if kind & _NAN else threshold >= 0.0
        children = int(tree["left_child"][number]), int(tree["right_child"][number])
        splits.append(TreeSplit(int(tree["split_feature"][number]), threshold, left, levels, children))
    return splits, tree["leaf_value"].tolist()


def _codes(tree: Mapping[str, np.ndarray], number: int) -> tuple[int, ...]:
    """The codes of a set, from words of 32 bits. Codes beyond `LEVELS` do not occur."""
    start, end = (int(tree["cat_boundaries"][number + i]) for i in (0, 1))
    words = tree["cat_threshold"][start:end]
    return tuple(code for code in range(min(32 * len(words), LEVELS)) if _has_bit(words, code))


def _has_bit(words: np.ndarray, place: int) -> bool:
    return place // 32 < len(words) and bool((int(words[place // 32]) >> (place % 32)) & 1)
