"""A fitted sum of trees: LightGBM's text as arrays and back, and arrays as a file.

Only arrays are saved, and what is read is checked: no text of a stranger is ever parsed, and LightGBM would follow a
wrong index out of memory.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from safetensors import SafetensorError

from ddpn.runtime.errors import InputError
from ddpn.storage.contents import arrays_from_bytes, arrays_to_bytes

_FILE = "trees.safetensors"
#: Arrays per split, per leaf and per tree with categories, with their types, as in LightGBM's text.
PER_SPLIT = {
    "split_feature": np.int32,
    "threshold": np.float64,
    "decision_type": np.int32,
    "left_child": np.int32,
    "right_child": np.int32,
}
PER_LEAF = {"leaf_value": np.float64}
PER_CATEGORY = {"cat_boundaries": np.int32, "cat_threshold": np.int64}
#: Sizes of the trees: leaves, splits by categories, and words of their sets of levels.
SIZES = ("leaves", "categories", "words")
NAMES = (*SIZES, *PER_SPLIT, *PER_LEAF, *PER_CATEGORY)
_TYPES = dict.fromkeys(SIZES, np.int32) | PER_SPLIT | PER_LEAF | PER_CATEGORY
#: Bits of a decision: by category, default to the left, and two for the kind of missing values (3 is none of them).
_BY_CATEGORY, _MOST, _MISSING = 1, 15, 12


class Booster:
    """A fitted sum of trees, without the rows they were fitted to.

    `text` is what LightGBM writes, "" for no trees; `chosen` are the columns of the matrix that it takes, None for all.
    """

    def __init__(self, text: str, chosen: np.ndarray | None) -> None:
        import lightgbm

        self._text, self.chosen = text, chosen
        self._booster = lightgbm.Booster(model_str=text) if text else None
        self.rounds = 0 if self._booster is None else self._booster.num_trees()

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The trees as arrays, see `parse_arrays`."""
        return parse_arrays(self._text)

    def raw(self, matrix: np.ndarray) -> np.ndarray:
        """The sum of the trees for every row of the whole matrix; for a mean, the logarithm of the rate."""
        if self._booster is None or not len(matrix):
            return np.zeros(len(matrix))
        inputs = matrix if self.chosen is None else matrix[:, self.chosen]
        return np.asarray(self._booster.predict(inputs, raw_score=True))


# Text as arrays -------------------------------------------------------------------------------------------------------


def parse_arrays(text: str) -> dict[str, np.ndarray]:
    """The trees in a text that LightGBM has just written, each kind of number as one array over all trees."""
    trees = []
    for block in text.split("\nTree=")[1:]:
        lines = block.partition("\n\n")[0].splitlines()[1:]
        trees.append({key: value for key, _, value in (line.partition("=") for line in lines)})
    sizes = [
        (int(tree["num_leaves"]), int(tree["num_cat"]), len(tree.get("cat_threshold", "").split())) for tree in trees
    ]
    found = {name: np.array([size[i] for size in sizes], dtype=np.int32) for i, name in enumerate(SIZES)}
    for name, dtype in (PER_SPLIT | PER_LEAF | PER_CATEGORY).items():
        parts = [np.array(tree.get(name, "").split(), dtype=dtype) for tree in trees]
        if name in PER_SPLIT:
            parts = [part[: leaves - 1] for part, (leaves, _, _) in zip(parts, sizes, strict=True)]
        found[name] = np.concatenate([np.empty(0, dtype=dtype), *parts])
    return found


def slice_trees(arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """The arrays of each tree."""
    return [{name: arrays[name][part] for name, part in tree.items()} for tree in _parts(arrays)]


def _parts(arrays: Mapping[str, np.ndarray]) -> list[dict[str, slice]]:
    """Where the numbers of each tree are."""
    leaves, categories, words = (arrays[name].astype(np.int64) for name in SIZES)
    sizes = dict.fromkeys(PER_SPLIT, leaves - 1) | dict.fromkeys(PER_LEAF, leaves)
    sizes |= {"cat_boundaries": np.where(categories > 0, categories + 1, 0), "cat_threshold": words}
    ends = {name: np.cumsum(size) for name, size in sizes.items()}
    found = {name: map(slice, (end - sizes[name]).tolist(), end.tolist()) for name, end in ends.items()}
    return [dict(zip(found, parts, strict=True)) for parts in zip(*found.values(), strict=True)]


def format_trees(arrays: Mapping[str, np.ndarray], columns: int) -> str:
    """What LightGBM reads as a model with these trees."""
    names = " ".join(f"c{i}" for i in range(columns))
    head = [
        "tree", "version=v4", "num_class=1", "num_tree_per_iteration=1", "label_index=0",
        f"max_feature_idx={columns - 1}", f"feature_names={names}", f"feature_infos={' '.join(['none'] * columns)}", "",
    ]  # fmt: skip
    lines, written = head, {name: list(map(repr, arrays[name].tolist())) for name in NAMES}
    for number, parts in enumerate(_parts(arrays)):
        tree = {name: written[name][part] for name, part in parts.items()}
        lines += ["", f"Tree={number}", f"num_leaves={len(tree['leaf_value'])}"]
        lines += [f"num_cat={max(0, len(tree['cat_boundaries']) - 1)}"]
        lines += [f"{name}={' '.join(values)}" for name, values in tree.items() if values]
        lines += ["is_linear=0", "shrinkage=1", ""]
    return "\n".join([*lines, "", "end of trees", "", "pandas_categorical:null", ""])


# Files ----------------------------------------------------------------------------------------------------------------


def boosters_to_files(boosters: Sequence[Booster]) -> dict[str, bytes]:
    """Boosters as files; no pickle."""
    named = {f"{k}.{name}": values for k, each in enumerate(boosters) for name, values in each.arrays.items()}
    return {_FILE: arrays_to_bytes(**named)}


def boosters_from_files(files: Mapping[str, bytes], chosen: Sequence[Any], columns: Sequence[int]) -> list[Booster]:
    """The inverse; raises an `InputError` for what is not a sum of trees.

    Each booster has its own matrix, of so many `columns`, of which it takes those `chosen`, None for all.
    """
    if len(chosen) != len(columns):
        raise InputError(f"A saved model must name the columns of {len(columns)} boosters, got {len(chosen)}.")
    places = [None if part is None else np.array(part, dtype=np.int64) for part in chosen]
    for part, width in zip(places, columns, strict=True):
        if part is not None and (part.ndim != 1 or (part < 0).any() or (part >= width).any()):
            raise InputError("A saved model must choose columns of its table, got others.")
    sizes = [width if part is None else len(part) for part, width in zip(places, columns, strict=True)]
    try:
        flat = arrays_from_bytes(files[_FILE])
        found = [{key: flat.pop(f"{number}.{key}") for key in NAMES} for number in range(len(sizes))]
    except (SafetensorError, KeyError) as error:
        raise InputError(f"{_FILE} must hold boosted trees as they were saved, got {error}.") from None
    if flat or not all(_is_sum_of_trees(arrays, most) for arrays, most in zip(found, sizes, strict=True)):
        raise InputError(f"{_FILE} must hold boosted trees as they were saved, got other numbers.")
    return [
        Booster(format_trees(arrays, size) if len(arrays["leaves"]) else "", part)
        for arrays, part, size in zip(found, places, sizes, strict=True)
    ]


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
    known = ((features >= 0) & (features < columns)).all()
    return bool(is_kind.all() and finite and known)


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
