"""Trees of scikit-learn from a file, checked: its compiled code would follow a wrong index out of memory."""

import io
import json
from collections.abc import Iterator
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE

from ddpn.errors import InputError

#: All that a file of boosted trees is made of; skops itself would load any estimator of scikit-learn.
_KINDS = {
    "builtins": {"dict", "list", "slice", "str", "tuple", "int", "float", "bool", "NoneType"},
    "functools": {"partial"},
    "numpy": {"ndarray", "float64", "float32", "int64", "int32", "uint64", "uint32", "uint8", "bool", "bool_"},
    "numpy.random._generator": {"Generator"},
    "sklearn._loss._loss": {"CyHalfPoissonLoss"},
    "sklearn._loss.link": {"Interval", "LogLink"},
    "sklearn._loss.loss": {"HalfPoissonLoss"},
    "sklearn.compose._column_transformer": {"ColumnTransformer"},
    "sklearn.ensemble._hist_gradient_boosting.binning": {"_BinMapper"},
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting": {"HistGradientBoostingRegressor"},
    "sklearn.ensemble._hist_gradient_boosting.predictor": {"TreePredictor"},
    "sklearn.preprocessing._encoders": {"OrdinalEncoder"},
    "sklearn.preprocessing._function_transformer": {"FunctionTransformer"},
    "sklearn.utils.validation": {"check_array"},
}
#: Unpacked bytes per byte of the file, and some more: skops does not compress.
_GROWTH, _SOME = 4, 2**20
#: Words of a set of levels, each of 32 levels.
_WORDS = 8


def check_file(content: bytes, name: str) -> None:
    """Raise an `InputError` for a skops file that unpacks to much more than it is, or has other types than trees."""
    try:
        with ZipFile(io.BytesIO(content)) as file:
            unpacked = sum(entry.file_size for entry in file.infolist())
            most = _GROWTH * len(content) + _SOME
            if unpacked > most:
                raise InputError(f"{name} must unpack to at most {most:,} bytes, got {unpacked:,}.")
            schema = json.loads(file.read("schema.json"))
        for module, kind in _kinds(schema):
            if kind not in _KINDS.get(module, ()):
                raise InputError(f"{name} must hold boosted trees as they were saved, got {module}.{kind}.")
    except (BadZipFile, KeyError, NotImplementedError, RecursionError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name} must hold boosted trees as they were saved, got {error}.") from None


def _kinds(node: Any) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        if "__class__" in node:
            yield str(node.get("__module__")), str(node["__class__"])
        for each in node.values():
            yield from _kinds(each)
    elif isinstance(node, list):
        for each in node:
            yield from _kinds(each)


def check_trees(trees: HistGradientBoostingRegressor, name: str) -> None:
    """Raise an `InputError` for trees with a node, a column or a set of levels that does not exist."""
    try:
        good = _has_bins(trees) and all(_is_tree(each, trees) for (each,) in trees._predictors)
    except (AttributeError, IndexError, TypeError, ValueError):
        good = False
    if not good:
        raise InputError(f"{name} is damaged: a tree refers to a node, a column or a level that does not exist.")


def _has_bins(trees: HistGradientBoostingRegressor) -> bool:
    """Whether there is a set of levels, from 0 to 255, for every column of levels and for no other."""
    mapper, columns = trees._bin_mapper, trees.n_features_in_
    flags = np.asarray(mapper.is_categorical_)
    if trees.n_trees_per_iteration_ != 1 or len(flags) != columns or len(mapper.bin_thresholds_) != columns:
        return False
    if np.shape(trees._baseline_prediction) != (1, 1):
        return False
    levels = [np.asarray(bins) for bins, flag in zip(mapper.bin_thresholds_, flags, strict=True) if flag]
    return all(bool(((bins >= 0) & (bins < 32 * _WORDS) & (bins == np.floor(bins))).all()) for bins in levels)


def _is_tree(tree: Any, trees: HistGradientBoostingRegressor) -> bool:
    """Whether every split is of a column and leads on: children come after their parents, so there is no circle."""
    nodes, sets = tree.nodes, tree.raw_left_cat_bitsets
    if nodes.dtype != PREDICTOR_RECORD_DTYPE or nodes.ndim != 1 or not len(nodes):
        return False
    if sets.dtype != np.uint32 or sets.ndim != 2 or sets.shape[1] != _WORDS:
        return False
    place = np.flatnonzero(nodes["is_leaf"] == 0)
    splits = nodes[place]
    for side in ("left", "right"):
        if not ((splits[side] > place) & (splits[side] < len(nodes))).all():
            return False
    column = splits["feature_idx"]
    if not ((column >= 0) & (column < trees.n_features_in_)).all():
        return False
    by_level = splits["is_categorical"] != 0
    flags = np.asarray(trees._bin_mapper.is_categorical_) != 0
    return bool(flags[column[by_level]].all() and (splits["bitset_idx"][by_level] < len(sets)).all())
