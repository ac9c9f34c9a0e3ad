"""`Booster`: a sum of trees that LightGBM fitted, as arrays that predict and can be saved safely.

LightGBM fits the trees. Predictions need the arrays alone, which are validated when they are loaded from a file.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from safetensors import SafetensorError

from ddpn.distributions.kernels.compiling import compile_kernel
from ddpn.members.trees.kernel import sum_leaves
from ddpn.runtime.errors import InputError
from ddpn.storage.contents import arrays_from_bytes, arrays_to_bytes

_FILE = "trees.safetensors"
#: Arrays with one entry per split, per leaf and per set of levels, with their types, as in LightGBM's text.
PER_SPLIT = {
    "split_feature": np.int32,
    "threshold": np.float64,
    "decision_type": np.int32,
    "left_child": np.int32,
    "right_child": np.int32,
}
PER_LEAF = {"leaf_value": np.float64}
PER_CATEGORY = {"cat_boundaries": np.int32, "cat_threshold": np.int64}
#: Sizes of each tree: the number of leaves, of splits by category, and of 32-bit words that encode sets of levels.
SIZES = ("leaves", "categories", "words")
NAMES = (*SIZES, *PER_SPLIT, *PER_LEAF, *PER_CATEGORY)
_TYPES = dict.fromkeys(SIZES, np.int32) | PER_SPLIT | PER_LEAF | PER_CATEGORY
#: Bits of a decision type: split by category, missing values go to the left, zeros are missing (which no tree here was
#: fitted with), and NaN is missing.
CATEGORY_BIT, DEFAULT_LEFT_BIT, _ZERO_BIT, NAN_BIT = 1, 2, 4, 8
_MAX_DECISION = 15


class LinkedTrees(NamedTuple):
    """The trees of a booster with positions in the flat arrays of all trees, which `sum_leaves` follows.

    A node n >= 0 is a split, and ~n is a leaf. All arrays but the last two have one entry per tree (`roots`), per leaf
    (`leaf_values`) or per split.

    Attributes
    ----------
    roots : array of int
        The first node of each tree.
    columns : array of int
        The matrix column that a split compares.
    thresholds : array of float
        Numbers up to the threshold go to the left. For a split by category, the number of its set of levels.
    by_category : array of bool
        True if codes of categories in the set of levels go to the left.
    missing_left : array of bool
        True if missing numbers go to the left. Missing categories always go to the right.
    left, right : array of int
        The two nodes below a split.
    leaf_values : array of float
        The output of each leaf.
    set_starts : array of int
        The first word of each set of levels, and the number of all words.
    words : array of int
        Sets of levels as bits, 32 per word: the lowest bit of the first word is for code 0.
    """

    roots: np.ndarray
    columns: np.ndarray
    thresholds: np.ndarray
    by_category: np.ndarray
    missing_left: np.ndarray
    left: np.ndarray
    right: np.ndarray
    leaf_values: np.ndarray
    set_starts: np.ndarray
    words: np.ndarray


class Booster:
    """A sum of trees that maps each row of a matrix to a number, as LightGBM fitted it.

    Parameters
    ----------
    arrays : dict of str to array
        The trees as flat arrays by name, such as the thresholds of all splits; see `parse_arrays`.
    chosen : array of int, optional
        The positions of the matrix columns that the trees use. Default: all.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], chosen: np.ndarray | None) -> None:
        self.arrays, self.chosen = arrays, chosen
        self.rounds = len(arrays["leaves"])
        self._trees = _link_trees(arrays, chosen)

    @classmethod
    def from_lightgbm(cls, booster: Any, rounds: int, chosen: np.ndarray | None) -> Self:
        """Take the first `rounds` trees of a LightGBM booster. `chosen` are the columns to which it was fitted."""
        return cls(parse_arrays(booster.model_to_string(num_iteration=rounds) if rounds else ""), chosen)

    def raw(self, matrix: np.ndarray) -> np.ndarray:
        """Compute the sum of the tree outputs for each row of a matrix, without a link function.

        The result equals LightGBM's digit by digit. A block of rows passes through one tree after the other, so that a
        tree is read from memory once per block. Missing numbers and categories are NaN. `matrix` has all columns of the
        table. Shape: (rows, columns) -> (rows,). If the trees predict a mean, the result is the log rate, the log mean
        of a row with the reference exposure (`Trees.unit`).
        """
        total = np.zeros(len(matrix))
        if self.rounds:
            compile_kernel(sum_leaves)(np.ascontiguousarray(matrix, dtype=np.float64), total, *self._trees)
        return total


def _link_trees(arrays: Mapping[str, np.ndarray], chosen: np.ndarray | None) -> LinkedTrees:
    """Replace positions within each tree by positions in the arrays of all trees.

    `arrays` are the flat arrays of a booster (`parse_arrays`), and `chosen` are the matrix columns that it uses.
    """
    leaves, n_sets, n_words = (arrays[name].astype(np.int64) for name in SIZES)
    splits = leaves - 1
    first_split, first_leaf = _compute_starts(splits), _compute_starts(leaves)
    tree, kinds = np.repeat(np.arange(len(leaves)), splits), arrays["decision_type"]

    def link(children: np.ndarray) -> np.ndarray:
        return np.where(children < 0, ~(~children + first_leaf[tree]), children + first_split[tree])

    by_category = kinds & CATEGORY_BIT > 0
    thresholds = arrays["threshold"] + np.where(by_category, _compute_starts(n_sets)[tree], 0)
    # Without missing values in training, LightGBM treats NaN as 0.
    missing_left = np.where(kinds & NAN_BIT > 0, kinds & DEFAULT_LEFT_BIT > 0, thresholds >= 0.0)
    # The borders of a tree's sets begin at 0 and end where those of the next tree begin.
    has_sets, starts = n_sets > 0, arrays["cat_boundaries"].astype(np.int64)
    starts = starts + np.repeat(_compute_starts(n_words)[has_sets], (n_sets + 1)[has_sets])
    is_end = np.zeros(len(starts), dtype=bool)
    is_end[np.cumsum((n_sets + 1)[has_sets]) - 1] = True
    features = arrays["split_feature"].astype(np.int64)
    return LinkedTrees(
        roots=np.where(splits > 0, first_split, ~first_leaf),
        columns=features if chosen is None else chosen[features],
        thresholds=thresholds,
        by_category=by_category,
        missing_left=missing_left,
        left=link(arrays["left_child"].astype(np.int64)),
        right=link(arrays["right_child"].astype(np.int64)),
        leaf_values=arrays["leaf_value"].copy(),
        set_starts=np.append(starts[~is_end], n_words.sum()),
        words=arrays["cat_threshold"].copy(),
    )


# Text as arrays -------------------------------------------------------------------------------------------------------


def parse_arrays(text: str) -> dict[str, np.ndarray]:
    """Parse LightGBM's text format into flat arrays by name (`NAMES`), such as the thresholds of all splits.

    Each array concatenates the values of all trees. The text must come from LightGBM itself, not from a file.
    """
    trees = []
    for block in text.split("\nTree=")[1:]:
        lines = block.partition("\n\n")[0].splitlines()[1:]
        trees.append({key: value for key, _, value in (line.partition("=") for line in lines)})
    sizes = [
        (int(tree["num_leaves"]), int(tree["num_cat"]), len(tree.get("cat_threshold", "").split())) for tree in trees
    ]
    arrays = {name: np.array([size[i] for size in sizes], dtype=np.int32) for i, name in enumerate(SIZES)}
    for name, dtype in (PER_SPLIT | PER_LEAF | PER_CATEGORY).items():
        parts = [np.array(tree.get(name, "").split(), dtype=dtype) for tree in trees]
        if name in PER_SPLIT:
            parts = [part[: leaves - 1] for part, (leaves, _, _) in zip(parts, sizes, strict=True)]
        arrays[name] = np.concatenate([np.empty(0, dtype=dtype), *parts])
    return arrays


def slice_trees(arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Split the flat arrays of a booster by tree; return one dictionary of arrays per tree."""
    return [{name: arrays[name][part] for name, part in tree.items()} for tree in _locate_trees(arrays)]


def _locate_trees(arrays: Mapping[str, np.ndarray]) -> list[dict[str, slice]]:
    """Return one dictionary per tree: for each flat array by name, the slice that belongs to this tree."""
    leaves, categories, words = (arrays[name].astype(np.int64) for name in SIZES)
    sizes = dict.fromkeys(PER_SPLIT, leaves - 1) | dict.fromkeys(PER_LEAF, leaves)
    sizes |= {"cat_boundaries": np.where(categories > 0, categories + 1, 0), "cat_threshold": words}
    ends = {name: np.cumsum(size) for name, size in sizes.items()}
    slices = {name: map(slice, (end - sizes[name]).tolist(), end.tolist()) for name, end in ends.items()}
    return [dict(zip(slices, parts, strict=True)) for parts in zip(*slices.values(), strict=True)]


# Files ----------------------------------------------------------------------------------------------------------------


def boosters_to_files(boosters: Sequence[Booster]) -> dict[str, bytes]:
    """Save the trees of boosters as arrays in one file; return its content by file name."""
    named = {f"{k}.{name}": values for k, booster in enumerate(boosters) for name, values in booster.arrays.items()}
    return {_FILE: arrays_to_bytes(**named)}


def boosters_from_files(files: Mapping[str, bytes], chosen: Sequence[Any], columns: Sequence[int]) -> list[Booster]:
    """Load boosters from files that `boosters_to_files` returned.

    `columns[i]` is the number of columns in the matrix of booster i. `chosen[i]` has the positions of those columns
    that it uses, or is None if it uses all. Raise an `InputError` if the files do not contain valid trees.
    """
    if len(chosen) != len(columns):
        problem = f"it lists the columns of {len(chosen)} boosters instead of {len(columns)}"
        raise InputError(f"The saved trees are damaged: {problem}.")
    chosen_columns = [None if part is None else np.array(part, dtype=np.int64) for part in chosen]
    for part, width in zip(chosen_columns, columns, strict=True):
        if part is not None and (part.ndim != 1 or (part < 0).any() or (part >= width).any()):
            raise InputError("The saved trees are damaged: they use columns that the table does not have.")
    sizes = [width if part is None else len(part) for part, width in zip(chosen_columns, columns, strict=True)]
    try:
        flat = arrays_from_bytes(files[_FILE])
        all_arrays = [{key: flat.pop(f"{number}.{key}") for key in NAMES} for number in range(len(sizes))]
    except (SafetensorError, KeyError) as error:
        raise InputError(f"{_FILE} is damaged ({error}). Fit the model again.") from None
    if flat or not all(_is_sum_of_trees(arrays, most) for arrays, most in zip(all_arrays, sizes, strict=True)):
        raise InputError(f"{_FILE} is damaged: its arrays do not describe trees. Fit the model again.")
    return [Booster(arrays, part) for arrays, part in zip(all_arrays, chosen_columns, strict=True)]


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
    return _are_trees(arrays, leaves, columns) and _have_valid_level_sets(arrays, leaves, categories, words)


def _are_trees(arrays: Mapping[str, np.ndarray], n_leaves: np.ndarray, columns: int) -> bool:
    """Return True if the splits in the flat arrays of a booster (`parse_arrays`) form valid trees.

    `n_leaves` has the number of leaves of each tree. Every node but the root must have exactly one parent. Every split
    must use one of the matrix's `columns` columns.
    """
    splits = n_leaves - 1
    start, tree = _compute_starts(splits), np.repeat(np.arange(len(n_leaves)), splits)
    position = np.arange(len(tree)) - start[tree]
    child = np.stack([arrays["left_child"], arrays["right_child"]]).astype(np.int64)
    # Children come after their parents, so there is no circle.
    good = np.where(child < 0, ~child < n_leaves[tree], (child > position) & (child < splits[tree]))
    if not good.all():
        return False
    nodes, ends = (start[tree] + child)[child >= 0], (_compute_starts(n_leaves)[tree] + ~child)[child < 0]
    parents = np.bincount(nodes, minlength=len(tree)) == (position > 0)
    if not (parents.all() and (np.bincount(ends, minlength=n_leaves.sum()) == np.repeat(splits > 0, n_leaves)).all()):
        return False
    kinds, features = arrays["decision_type"], arrays["split_feature"]
    is_kind = (kinds >= 0) & (kinds <= _MAX_DECISION) & (kinds & _ZERO_BIT == 0)
    finite = np.isfinite(arrays["leaf_value"]).all() and not np.isnan(arrays["threshold"]).any()
    is_feature = ((features >= 0) & (features < columns)).all()
    return bool(is_kind.all() and finite and is_feature)


def _have_valid_level_sets(
    arrays: Mapping[str, np.ndarray], n_leaves: np.ndarray, n_sets: np.ndarray, n_words: np.ndarray
) -> bool:
    """Return True if every split on a categorical column refers to a valid set of levels of its own tree.

    `arrays` are the flat arrays of a booster (`parse_arrays`). `n_leaves`, `n_sets` and `n_words` have one number per
    tree: of leaves, of sets of levels, and of the 32-bit words that encode these sets.
    """
    by_category = arrays["decision_type"] & CATEGORY_BIT > 0
    sets_used, sets = arrays["threshold"][by_category], np.repeat(n_sets, n_leaves - 1)[by_category]
    if (
        not ((sets_used >= 0) & (sets_used < sets) & (sets_used == np.floor(sets_used))).all()
        or n_words[n_sets == 0].any()
    ):
        return False
    borders, values, has_sets = arrays["cat_boundaries"].astype(np.int64), arrays["cat_threshold"], n_sets > 0
    sizes = (n_sets + 1)[has_sets]
    first = _compute_starts(sizes)
    is_first = np.zeros(len(borders), dtype=bool)
    is_first[first] = True
    in_order = (borders[first] == 0).all() and (borders[first + sizes - 1] == n_words[has_sets]).all()
    in_order = in_order and (np.diff(borders)[~is_first[1:]] > 0).all()
    return bool(in_order and ((values >= 0) & (values < 2**32)).all())


def _compute_starts(sizes: np.ndarray) -> np.ndarray:
    """Return the start of each slice, where slices of the given sizes follow one another from position 0."""
    return np.cumsum(sizes) - sizes
