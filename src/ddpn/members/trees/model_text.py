"""LightGBM's text of a model as arrays, and back. Only arrays are saved, so no text of a stranger is ever parsed."""

from collections.abc import Mapping

import numpy as np

#: Arrays per split, per leaf and per tree with categories, with their types. Counts serve SHAP values.
PER_SPLIT = {
    "split_feature": np.int32,
    "threshold": np.float64,
    "decision_type": np.int32,
    "left_child": np.int32,
    "right_child": np.int32,
    "internal_count": np.int32,
}
PER_LEAF = {"leaf_value": np.float64, "leaf_count": np.int32}
PER_CATEGORY = {"cat_boundaries": np.int32, "cat_threshold": np.int64}
#: Sizes of the trees: leaves, splits by categories, and words of their sets of levels.
SIZES = ("leaves", "categories", "words")
NAMES = (*SIZES, *PER_SPLIT, *PER_LEAF, *PER_CATEGORY)


def arrays_of(text: str) -> dict[str, np.ndarray]:
    """The trees in a text that LightGBM has just written, each kind of number as one array over all trees."""
    trees = [_fields(block) for block in text.split("\nTree=")[1:]]
    sizes = [
        (int(tree["num_leaves"]), int(tree["num_cat"]), len(tree.get("cat_threshold", "").split())) for tree in trees
    ]
    found = {name: np.array([size[i] for size in sizes], dtype=np.int32) for i, name in enumerate(SIZES)}
    for name, dtype in (PER_SPLIT | PER_LEAF | PER_CATEGORY).items():
        parts = [np.array(tree.get(name, "").split(), dtype=dtype) for tree in trees]
        if name in PER_LEAF:  # a tree without a split has no count
            parts = [part if len(part) else np.zeros(1, dtype=dtype) for part in parts]
        elif name in PER_SPLIT:
            parts = [part[: leaves - 1] for part, (leaves, _, _) in zip(parts, sizes, strict=True)]
        found[name] = np.concatenate([np.empty(0, dtype=dtype), *parts])
    return found


def _fields(block: str) -> dict[str, str]:
    lines = block.partition("\n\n")[0].splitlines()[1:]
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def tree_slices(arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
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


def some_trees(arrays: Mapping[str, np.ndarray], wanted: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays of the trees for which `wanted` is True."""
    kept = [tree for tree, is_wanted in zip(tree_slices(arrays), wanted, strict=True) if is_wanted]
    found = {name: arrays[name][wanted] for name in SIZES}
    for name in (*PER_SPLIT, *PER_LEAF, *PER_CATEGORY):
        found[name] = np.concatenate([np.empty(0, dtype=arrays[name].dtype), *(tree[name] for tree in kept)])
    return found


def text_of(arrays: Mapping[str, np.ndarray], columns: int) -> str:
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
