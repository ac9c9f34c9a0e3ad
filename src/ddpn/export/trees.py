"""Add graph nodes that evaluate boosted trees: all trees at the same time, level by level from their roots.

ONNX's own operators for tree ensembles are not used. One rounds to float32. The other is missing in ONNX Runtime 1.20,
and versions 1.21 and 1.22 return wrong sums for some trees.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ddpn.export.graph import Graph, Value
from ddpn.members.trees.booster import CATEGORY_BIT, DEFAULT_LEFT_BIT, NAN_BIT, Booster, slice_trees
from ddpn.members.trees.table import MAX_LEVELS

#: Trees are evaluated together if their depths, rounded up to a multiple of this, are equal.
_DEPTH_CLASS = 4
#: The largest threshold. Infinity stands for a missing value that goes to the right.
_LARGEST_FLOAT = float(np.finfo(np.float64).max)


class Tree(NamedTuple):
    """The splits and leaves of a decision tree.

    Attributes
    ----------
    columns : list of int
        The column that each split compares with its threshold. Split 0 is the root, and parents come before children.
    thresholds : list of float
        The threshold of each split. Values up to the threshold go to the left child.
    to_left : list of bool
        Whether missing values go to the left child of each split.
    children : list of pairs of int
        The left and the right child of each split: n >= 0 means split n, and ~n means leaf n.
    leaves : list of float
        The value of each leaf.
    target : int
        The number of the booster to which the tree belongs, in a `Forest`.
    """

    columns: list[int]
    thresholds: list[float]
    to_left: list[bool]
    children: list[tuple[int, int]]
    leaves: list[float]
    target: int

    @property
    def depth(self) -> int:
        """The largest number of splits from the root to a leaf."""
        depths = [0] * len(self.children)
        for number in reversed(range(len(depths))):
            depths[number] = 1 + max(depths[child] if child >= 0 else 0 for child in self.children[number])
        return depths[0]


@dataclass
class Forest:
    """The trees of several boosters, which predict from the columns of the same matrix.

    The prediction of a booster is called a target. It is a constant plus the sum of the leaf values of its trees.

    Attributes
    ----------
    width : int
        The number of columns of the matrix.
    trees : list of Tree
        The trees of all boosters.
    constants : list of float
        The constant of each booster.
    sets : dict of (int, tuple of int) to int
        For each column of categories and set of codes by which a tree splits it, the number of an additional column: it
        is 0 in rows whose code is in the set, and 1 in all other rows.
    """

    width: int
    trees: list[Tree] = field(default_factory=list)
    constants: list[float] = field(default_factory=list)
    #: For each (column, set of codes), the number of an additional column: 0 for codes in the set and 1 for others.
    sets: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)

    def add(self, booster: Booster) -> None:
        """Add the trees of a booster.

        Its prediction becomes a further output of the forest (ONNX: a target), after those of the boosters that were
        added before. A tree without splits is a constant.
        """
        self.constants.append(0.0)
        for tree in slice_trees(booster.arrays):
            if len(tree["threshold"]):
                self.trees.append(self._convert_tree(tree, booster.chosen))
            else:
                self.constants[-1] += float(tree["leaf_value"][0])

    def _convert_tree(self, tree: Mapping[str, np.ndarray], chosen: np.ndarray | None) -> Tree:
        """Convert a tree from LightGBM's arrays.

        A split by a set of codes (of a category) becomes a split of an additional column, which says whether the code
        is in the set; this column is added to `sets`. `chosen` has the positions of the columns that the booster uses.
        None means all columns.
        """
        columns, thresholds, to_left = [], [], []
        for feature, kind, threshold in zip(
            tree["split_feature"].tolist(), tree["decision_type"].tolist(), tree["threshold"].tolist(), strict=True
        ):
            column = feature if chosen is None else int(chosen[feature])
            # If there were no missing values in training, LightGBM treats NaN as 0.
            is_left = bool(kind & DEFAULT_LEFT_BIT) if kind & NAN_BIT else threshold >= 0.0
            if kind & CATEGORY_BIT:
                number = self.sets.setdefault((column, _unpack_codes(tree, int(threshold))), len(self.sets))
                column, threshold, is_left = self.width + number, 0.5, False
            columns.append(column)
            thresholds.append(min(threshold, _LARGEST_FLOAT))
            to_left.append(is_left)
        children = list(zip(tree["left_child"].tolist(), tree["right_child"].tolist(), strict=True))
        return Tree(columns, thresholds, to_left, children, tree["leaf_value"].tolist(), len(self.constants) - 1)

    def sum_trees(self, graph: Graph, matrix: Value) -> Value:
        """Add the nodes that predict with all boosters. Shape: (rows, columns) -> (rows, targets)."""
        total = graph.where(matrix.take([0]).is_nan(), 0.0, 0.0) + np.array([self.constants])
        if not self.trees:
            return total
        matrix_with_sets = self._append_set_columns(graph, matrix)
        missing = matrix_with_sets.is_nan()
        # In the first half of the columns, missing values go to the right; in the second half, to the left.
        values = graph.concat([graph.where(missing, side, matrix_with_sets) for side in (np.inf, -np.inf)])
        groups: dict[int, list[Tree]] = {}
        for tree in self.trees:
            groups.setdefault(-(-tree.depth // _DEPTH_CLASS), []).append(tree)
        for group in groups.values():
            target_matrix = np.eye(len(self.constants))[[tree.target for tree in group]]
            leaf_values = _evaluate_trees(graph, values, group, self.width + len(self.sets))
            total = total + leaf_values.op("MatMul", graph.constant(target_matrix))
        return total

    def _append_set_columns(self, graph: Graph, matrix: Value) -> Value:
        """Append a column to `matrix` for each set of codes of a category, in the order of `sets`.

        The column is 0 in rows whose code is in the set, and 1 in all other rows. Shape: (rows, columns) -> (rows,
        columns + sets).
        """
        parts, order = [matrix], list(range(self.width))
        for column in sorted({column for column, _ in self.sets}):
            numbers = {levels: number for (set_column, levels), number in self.sets.items() if set_column == column}
            outside = np.ones((MAX_LEVELS + 1, len(numbers)), dtype=bool)
            for j, levels in enumerate(numbers):
                outside[list(levels), j] = False
            order += [self.width + number for number in numbers.values()]
            parts.append(graph.constant(outside).take(matrix.take(column).cast("i"), axis=0).cast("f"))
        return graph.concat(parts) if len(parts) == 1 else graph.concat(parts).take(np.argsort(order))


def _evaluate_trees(graph: Graph, values: Value, trees: list[Tree], width: int) -> Value:
    """Return the value of the leaf that each row reaches in each tree. Shape: (rows, 2 `width`) -> (rows, trees).

    `width` is the number of columns that trees split. `values` has every column twice, because missing values are
    replaced by numbers. They are infinity in the first half, so that they go to the right, and minus infinity in the
    second half, so that they go to the left.
    """
    column: list[int] = []
    threshold, leaf, children, roots = [], [], [], []
    for tree in trees:
        splits, leaves = len(tree.columns), len(tree.leaves)
        first, last = len(column), len(column) + splits
        roots.append(first)
        column += [number + (width if left else 0) for number, left in zip(tree.columns, tree.to_left, strict=True)]
        column += [0] * leaves
        threshold += [*tree.thresholds, *[0.0] * leaves]
        leaf += [*[0.0] * splits, *tree.leaves]
        for pair in tree.children:
            # The right child comes first, because it is taken if the comparison is false (0).
            children += [first + child if child >= 0 else last + ~child for child in reversed(pair)]
        children += [last + number for number in range(leaves) for _ in range(2)]
    columns, thresholds, node_values, next_nodes = (
        graph.constant(numbers) for numbers in (column, threshold, leaf, children)
    )
    # No value is above infinity, so the comparison gives a zero per row. The nodes have one axis, because only then
    # ONNX Runtime gathers single elements fast.
    nodes = ((values.take([0]) > np.inf).cast("i") + np.array([roots])).reshape(-1)
    for _ in range(max(tree.depth for tree in trees)):
        split_columns = columns.op("GatherElements", nodes, axis=0).reshape(-1, len(trees))
        cells = values.op("GatherElements", split_columns, axis=1).reshape(-1)
        is_left = (cells <= thresholds.op("GatherElements", nodes, axis=0)).cast("i")
        nodes = next_nodes.op("GatherElements", nodes * 2 + is_left, axis=0)
    return node_values.op("GatherElements", nodes, axis=0).reshape(-1, len(trees))


def _unpack_codes(tree: Mapping[str, np.ndarray], number: int) -> tuple[int, ...]:
    """Return the codes in set `number` of a tree in LightGBM's arrays, which store each set as bits of 32-bit words.

    Bits beyond `MAX_LEVELS` are ignored, because no code is that large.
    """
    start, end = (int(tree["cat_boundaries"][number + i]) for i in (0, 1))
    bits = np.unpackbits(tree["cat_threshold"][start:end].astype("<u4").view(np.uint8), bitorder="little")
    return tuple(np.flatnonzero(bits[:MAX_LEVELS]).tolist())
