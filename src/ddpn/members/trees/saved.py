"""Trees of LightGBM as a file of arrays. What is read is checked: LightGBM would follow a wrong index out of memory."""

from collections.abc import Mapping, Sequence

import numpy as np
from safetensors import SafetensorError

from ddpn.errors import InputError
from ddpn.members.member import arrays_from_bytes, arrays_to_bytes
from ddpn.members.trees.model_text import NAMES, PER_CATEGORY, PER_LEAF, PER_SPLIT, SIZES, tree_slices

_TYPES = dict.fromkeys(SIZES, np.int32) | PER_SPLIT | PER_LEAF | PER_CATEGORY
#: Bits of a decision: by category, default to the left, and two for the kind of missing values (3 is none of them).
_BY_CATEGORY, _MOST, _MISSING = 1, 15, 12


def arrays_to_file(boosters: Sequence[Mapping[str, np.ndarray]]) -> bytes:
    """The arrays of some boosters as the content of a safetensors file."""
    named = {f"{number}.{name}": values for number, arrays in enumerate(boosters) for name, values in arrays.items()}
    return arrays_to_bytes(**named)


def file_to_arrays(content: bytes, name: str, columns: Sequence[int]) -> list[dict[str, np.ndarray]]:
    """The inverse for boosters of so many columns each; raises an `InputError` for what is not a sum of trees."""
    try:
        flat = arrays_from_bytes(content)
        found = [{key: flat.pop(f"{number}.{key}") for key in NAMES} for number in range(len(columns))]
    except (SafetensorError, KeyError) as error:
        raise InputError(f"{name} must hold boosted trees as they were saved, got {error}.") from None
    if flat or not all(_is_sum_of_trees(arrays, most) for arrays, most in zip(found, columns, strict=True)):
        raise InputError(f"{name} must hold boosted trees as they were saved, got other numbers.")
    return found


def _is_sum_of_trees(arrays: Mapping[str, np.ndarray], columns: int) -> bool:
    if any(arrays[name].dtype != dtype or arrays[name].ndim != 1 for name, dtype in _TYPES.items()):
        return False
    leaves, categories, words = (arrays[name].astype(np.int64) for name in SIZES)
    if not len(leaves) == len(categories) == len(words) or (leaves < 1).any():
        return False
    if (categories < 0).any() or (words < 0).any() or (categories > leaves - 1).any():
        return False
    expected = dict.fromkeys(PER_SPLIT, (leaves - 1).sum()) | dict.fromkeys(PER_LEAF, leaves.sum())
    expected |= {"cat_boundaries": (categories + (categories > 0)).sum(), "cat_threshold": words.sum()}
    if any(len(arrays[name]) != size for name, size in expected.items()):
        return False
    return all(_is_tree(tree, columns) for tree in tree_slices(arrays))


def _is_tree(tree: Mapping[str, np.ndarray], columns: int) -> bool:
    """Whether every split leads on, every node has one parent, and every set of levels is there."""
    splits, leaves = len(tree["threshold"]), len(tree["leaf_value"])
    children = np.concatenate([tree["left_child"], tree["right_child"]]).astype(np.int64)
    nodes, ends = np.sort(children[children >= 0]), np.sort(~children[children < 0])
    if splits and not (np.array_equal(nodes, np.arange(1, splits)) and np.array_equal(ends, np.arange(leaves))):
        return False
    # Children come after their parents, so there is no circle.
    parents = np.tile(np.arange(splits), 2)
    kinds, features = tree["decision_type"], tree["split_feature"]
    good = (children < 0) | (children > parents)
    is_kind = (kinds >= 0) & (kinds <= _MOST) & (kinds & _MISSING != _MISSING)
    finite = np.isfinite(tree["leaf_value"]).all() and not np.isnan(tree["threshold"]).any()
    counted = (tree["leaf_count"] >= 0).all() and (tree["internal_count"] >= 0).all()
    known = ((features >= 0) & (features < columns)).all()
    return bool(good.all() and is_kind.all() and finite and counted and known) and _has_levels(tree)


def _has_levels(tree: Mapping[str, np.ndarray]) -> bool:
    """Whether splits by category point at sets of levels, and these at words of 32 bits."""
    borders, words = tree["cat_boundaries"].astype(np.int64), tree["cat_threshold"]
    places = tree["threshold"][tree["decision_type"] & _BY_CATEGORY > 0]
    if not len(borders):
        return not len(places) and not len(words)
    in_order = borders[0] == 0 and (np.diff(borders) > 0).all() and borders[-1] == len(words)
    are_sets = ((places >= 0) & (places < len(borders) - 1) & (places == np.floor(places))).all()
    return bool(in_order and are_sets and ((words >= 0) & (words < 2**32)).all())
