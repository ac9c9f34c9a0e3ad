"""Boosted trees of LightGBM and scikit-learn as one node per input matrix.

A missing level is the code `LEVELS`, which no level has: with NaN, ONNX Runtime 1.31 errs in splits by sets of levels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ddpn.errors import ConfigError
from ddpn.export.graph import ML, Graph, Value, onnx
from ddpn.members.trees.engine import Booster
from ddpn.members.trees.lightgbm_engine import LightGBMBooster
from ddpn.members.trees.model_text import tree_slices
from ddpn.members.trees.sklearn_engine import HistogramBooster
from ddpn.members.trees.table import LEVELS

#: Bits of LightGBM's decisions: by category, default to the left, missing values are zeros, missing values are NaN.
_BY_CATEGORY, _DEFAULT_LEFT, _ZERO, _NAN = 1, 2, 4, 8
#: How ONNX numbers comparisons: x <= threshold, and x in a set.
_LEQ, _MEMBER = 0, 6


@dataclass
class Forest:
    """Sums of trees over one matrix, each sum a target; `constants` are added to them."""

    nodes: dict[str, list[Any]] = field(default_factory=dict)
    roots: list[int] = field(default_factory=list)
    members: list[float] = field(default_factory=list)
    constants: list[float] = field(default_factory=list)
    leaves: list[float] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)

    def add(self, booster: Booster, columns: Mapping[int, int] | None = None) -> None:
        """Another target: the sum of a booster's trees. `columns` says where a column of the booster's matrix is."""
        self.constants.append(0.0)
        place = _Places(booster.chosen, columns or {})
        if isinstance(booster, LightGBMBooster):
            for tree in tree_slices(booster.arrays):
                self._add_lightgbm(tree, place)
        elif isinstance(booster, HistogramBooster):
            self.add_histogram(booster.trees, place)
        else:
            raise ConfigError(f"Trees to export must be of LightGBM or scikit-learn, got {type(booster).__name__}.")

    def _add_lightgbm(self, tree: Mapping[str, np.ndarray], place: "_Places") -> None:
        if not len(tree["threshold"]):
            self.constants[-1] += float(tree["leaf_value"][0])
            return
        base, first = len(self.roots_nodes), len(self.leaves)
        self.roots.append(base)
        for split in range(len(tree["threshold"])):
            kind, threshold = int(tree["decision_type"][split]), float(tree["threshold"][split])
            levels = _levels(tree, int(threshold)) if kind & _BY_CATEGORY else None
            if kind & _ZERO:
                raise ConfigError("Trees to export must not treat zeros as missing values.")
            # Without missing values in fit, LightGBM reads NaN as 0.
            left = bool(kind & _DEFAULT_LEFT) if kind & _NAN else threshold >= 0.0
            children = [int(tree[name][split]) for name in ("left_child", "right_child")]
            ends = [(base + child, 0) if child >= 0 else (first + ~child, 1) for child in children]
            self._split(place(int(tree["split_feature"][split])), threshold, levels, left, ends)
        self.leaves += tree["leaf_value"].tolist()
        self.targets += [len(self.constants) - 1] * len(tree["leaf_value"])

    def add_histogram(self, trees: Any, place: "_Places") -> None:
        """The trees of a `HistGradientBoostingRegressor` as a part of the last target."""
        self.constants[-1] += float(np.ravel(trees._baseline_prediction)[0])
        order, codes = _preprocessed(trees)
        for (tree,) in trees._predictors:
            nodes = tree.nodes
            if nodes["is_leaf"][0]:
                self.constants[-1] += float(nodes["value"][0])
                continue
            base, first = len(self.roots_nodes), len(self.leaves)
            inner, outer = np.cumsum(~nodes["is_leaf"].astype(bool)) - 1, np.cumsum(nodes["is_leaf"].astype(bool)) - 1
            self.roots.append(base)
            for node in nodes[~nodes["is_leaf"].astype(bool)]:
                ends = [
                    (first + int(outer[child]), 1) if nodes["is_leaf"][child] else (base + int(inner[child]), 0)
                    for child in (int(node["left"]), int(node["right"]))
                ]
                feature, left, levels = int(node["feature_idx"]), bool(node["missing_go_to_left"]), None
                if node["is_categorical"]:
                    bits = tree.raw_left_cat_bitsets[node["bitset_idx"]]
                    levels = [code for number, code in codes[feature] if _has_bit(bits, number)]
                    # Levels that this booster has not seen go where missing values go.
                    seen = {code for _, code in codes[feature]}
                    levels += [float(code) for code in range(LEVELS + 1) if left and code not in seen]
                self._split(place(order[feature]), float(node["num_threshold"]), levels, left, ends)
            self.leaves += nodes["value"][nodes["is_leaf"].astype(bool)].tolist()
            self.targets += [len(self.constants) - 1] * int(nodes["is_leaf"].sum())

    @property
    def roots_nodes(self) -> list[Any]:
        """The splits so far."""
        return self.nodes.setdefault("nodes_featureids", [])

    def _split(
        self,
        feature: int,
        threshold: float,
        levels: list[float] | None,
        left: bool,
        ends: list[tuple[int, int]],
    ) -> None:
        """A split of numbers at a threshold, or of levels into a set and the others."""
        is_set = levels is not None
        if levels is not None:
            self.members += [*levels, np.nan]
        (yes, yes_leaf), (no, no_leaf) = ends
        row = {
            "nodes_featureids": feature,
            "nodes_splits": 0.0 if is_set else threshold,
            "nodes_modes": _MEMBER if is_set else _LEQ,
            "nodes_missing_value_tracks_true": int(left and not is_set),
            "nodes_truenodeids": yes,
            "nodes_trueleafs": yes_leaf,
            "nodes_falsenodeids": no,
            "nodes_falseleafs": no_leaf,
        }
        for name, value in row.items():
            self.nodes.setdefault(name, []).append(value)

    def sums(self, graph: Graph, matrix: Value) -> Value:
        """The targets of every row. Shape: (rows, columns) -> (rows, targets)."""
        constants = np.array([self.constants])
        if not self.roots:
            # A column that may hold NaN serves to count the rows.
            return graph.where(matrix.take([0]).is_nan(), constants, constants)
        values = onnx().numpy_helper.from_array
        attributes: dict[str, Any] = {
            name: each for name, each in self.nodes.items() if name not in ("nodes_splits", "nodes_modes")
        }
        if self.members:
            attributes["membership_values"] = values(np.array(self.members), "membership_values")
        found = matrix.op(
            "TreeEnsemble", domain=ML, **attributes, n_targets=len(self.constants), aggregate_function=1,
            post_transform=0, tree_roots=self.roots, leaf_targetids=self.targets,
            leaf_weights=values(np.array(self.leaves), "leaf_weights"),
            nodes_splits=values(np.array(self.nodes["nodes_splits"]), "nodes_splits"),
            nodes_modes=values(np.array(self.nodes["nodes_modes"], dtype=np.uint8), "nodes_modes"),
        )  # fmt: skip
        return found + constants


class _Places:
    """Where a column that a booster reads is in the matrix of the graph."""

    def __init__(self, chosen: np.ndarray | None, columns: Mapping[int, int]) -> None:
        self._chosen, self._columns = chosen, columns

    def __call__(self, feature: int) -> int:
        column = feature if self._chosen is None else int(self._chosen[feature])
        return self._columns.get(column, column)


def _levels(tree: Mapping[str, np.ndarray], number: int) -> list[float]:
    """The codes of a set of levels, from words of 32 bits."""
    start, end = (int(tree["cat_boundaries"][number + i]) for i in (0, 1))
    words = tree["cat_threshold"][start:end].astype(np.uint32)
    return [float(code) for code in range(32 * len(words)) if _has_bit(words, code)]


def _has_bit(words: np.ndarray, place: int) -> bool:
    return place // 32 < len(words) and bool((int(words[place // 32]) >> (place % 32)) & 1)


def _preprocessed(trees: Any) -> tuple[list[int], dict[int, list[tuple[int, float]]]]:
    """For each column of scikit-learn's own matrix that of ours, and by column its codes with ours."""
    is_category = trees.is_categorical_
    if is_category is None:
        return list(range(trees.n_features_in_)), {}
    categories = np.flatnonzero(is_category)
    order = [*categories.tolist(), *np.flatnonzero(~np.asarray(is_category)).tolist()]
    encoder = trees._preprocessor.named_transformers_["encoder"]
    codes = {}
    for j, known in enumerate(encoder.categories_):
        codes[j] = [(place, float(code)) for place, code in enumerate(known) if not np.isnan(code)]
    return order, codes
