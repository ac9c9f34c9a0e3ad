"""Trees of LightGBM as a file of arrays. What is read is checked: LightGBM would follow a wrong index out of memory."""

from collections.abc import Mapping, Sequence

import numpy as np
from safetensors import SafetensorError

from ddpn.members.member import arrays_from_bytes, arrays_to_bytes
from ddpn.members.trees.model_text import NAMES, PER_CATEGORY, PER_LEAF, PER_SPLIT, SIZES
from ddpn.runtime.errors import InputError

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
    return _are_trees(arrays, leaves, columns) and _have_levels(arrays, leaves, categories, words)


def _are_trees(arrays: Mapping[str, np.ndarray], leaves: np.ndarray, columns: int) -> bool:
    """Whether every split leads on and every node has one parent, in trees of so many leaves each."""
    splits = leaves - 1
    start, tree = _starts(splits), np.repeat(np.arange(len(leaves)), splits)
    place = np.arange(len(tree)) - start[tree]
    child = np.stack([arrays["left_child"], arrays["right_child"]]).astype(np.int64)
    # Children come after their parents, so there is no circle.
    good = np.where(child < 0, ~child < leaves[tree], (child > place) & (child < splits[tree]))
    if not good.all():
        return False
    nodes, ends = (start[tree] + child)[child >= 0], (_starts(leaves)[tree] + ~child)[child < 0]
    parents = np.bincount(nodes, minlength=len(tree)) == (place > 0)
    if not (parents.all() and (np.bincount(ends, minlength=leaves.sum()) == np.repeat(splits > 0, leaves)).all()):
        return False
    kinds, features = arrays["decision_type"], arrays["split_feature"]
    is_kind = (kinds >= 0) & (kinds <= _MOST) & (kinds & _MISSING != _MISSING)
    finite = np.isfinite(arrays["leaf_value"]).all() and not np.isnan(arrays["threshold"]).any()
    counted = (arrays["leaf_count"] >= 0).all() and (arrays["internal_count"] >= 0).all()
    known = ((features >= 0) & (features < columns)).all()
    return bool(is_kind.all() and finite and counted and known)


def _have_levels(
    arrays: Mapping[str, np.ndarray], leaves: np.ndarray, categories: np.ndarray, words: np.ndarray
) -> bool:
    """Whether splits by category point at sets of levels of their tree, and these at its words of 32 bits."""
    by_category = arrays["decision_type"] & _BY_CATEGORY > 0
    places, sets = arrays["threshold"][by_category], np.repeat(categories, leaves - 1)[by_category]
    if not ((places >= 0) & (places < sets) & (places == np.floor(places))).all() or words[categories == 0].any():
        return False
    borders, values, has = arrays["cat_boundaries"].astype(np.int64), arrays["cat_threshold"], categories > 0
    sizes = (categories + 1)[has]
    first = _starts(sizes)
    is_first = np.zeros(len(borders), dtype=bool)
    is_first[first] = True
    in_order = (borders[first] == 0).all() and (borders[first + sizes - 1] == words[has]).all()
    in_order = in_order and (np.diff(borders)[~is_first[1:]] > 0).all()
    return bool(in_order and ((values >= 0) & (values < 2**32)).all())


def _starts(sizes: np.ndarray) -> np.ndarray:
    """Where parts of these sizes start, one after the other."""
    return np.cumsum(sizes) - sizes
