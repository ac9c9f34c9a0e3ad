"""Sums of trees as arrays: predictions are LightGBM's, and files that are no trees are refused."""

import lightgbm
import numpy as np
import pytest

from ddpn.members.trees.booster import Booster, boosters_from_files, boosters_to_files, slice_trees
from ddpn.runtime.errors import InputError
from ddpn.storage.contents import arrays_from_bytes, arrays_to_bytes

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=600), RNG.integers(0, 40, 600), RNG.normal(size=600)])
X[::7, 0] = np.nan
Y = RNG.poisson(np.exp(0.5 * np.nan_to_num(X[:, 0]) + (X[:, 1] % 3) + 0.3 * X[:, 2])).astype(float)


def boost(categorical: list[int], rounds: int = 6, chosen: np.ndarray | None = None) -> Booster:
    columns = X if chosen is None else X[:, chosen]
    rows = lightgbm.Dataset(columns, Y, categorical_feature=categorical)
    settings = {"objective": "poisson", "num_leaves": 8, "verbosity": -1, "min_data_in_leaf": 5, "deterministic": True}
    return Booster(lightgbm.train(settings, rows, rounds).model_to_string(), chosen)


MIXED, NUMBERS, SOME = boost([1]), boost([]), boost([], chosen=np.array([2, 0]))
(FILE,) = boosters_to_files([MIXED])


def build_arrays(booster: Booster) -> dict[str, np.ndarray]:
    return {name: values.copy() for name, values in booster.arrays.items()}


def restore(arrays: dict[str, np.ndarray], chosen=None, columns: int = 3) -> Booster:
    files = {FILE: arrays_to_bytes(**{f"0.{name}": values for name, values in arrays.items()})}
    return boosters_from_files(files, [chosen], [columns])[0]


def test_boosters_come_back_from_their_files_as_lightgbm_predicts():
    boosters = [MIXED, SOME, Booster("", None), NUMBERS]
    chosen = [None, [2, 0], None, None]
    again = boosters_from_files(boosters_to_files(boosters), chosen, [3, 3, 3, 3])
    for one, other in zip(boosters, again, strict=True):
        np.testing.assert_allclose(one.raw(X), other.raw(X), rtol=1e-12)
        assert one.rounds == other.rounds
    assert (again[2].raw(X) == 0.0).all()
    assert MIXED.raw(X).std() > 0.1
    np.testing.assert_allclose(SOME.raw(X), boost([], chosen=np.array([2, 0])).raw(X))
    assert MIXED.raw(X[:0]).shape == (0,)
    assert len(arrays_from_bytes(boosters_to_files(boosters)[FILE])) == 4 * len(MIXED.arrays)


def test_arrays_of_each_tree_are_those_of_its_splits_and_leaves():
    arrays = MIXED.arrays
    trees = slice_trees(arrays)
    assert len(trees) == MIXED.rounds == 6
    assert [len(tree["leaf_value"]) for tree in trees] == arrays["leaves"].tolist()
    assert [len(tree["threshold"]) for tree in trees] == (arrays["leaves"] - 1).tolist()
    np.testing.assert_array_equal(np.concatenate([tree["leaf_value"] for tree in trees]), arrays["leaf_value"])
    categories = [np.count_nonzero(tree["decision_type"] & 1) for tree in trees]
    assert [max(0, len(tree["cat_boundaries"]) - 1) for tree in trees] == categories
    assert sum(categories) > 0


def by_category(arrays: dict[str, np.ndarray]) -> int:
    return int(np.flatnonzero(arrays["decision_type"] & 1)[0])


def by_number(arrays: dict[str, np.ndarray]) -> int:
    return int(np.flatnonzero(~arrays["decision_type"] & 1)[0])


def put(name: str, value: float, where=0):
    """Change one number of the trees."""

    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[name][where(arrays) if callable(where) else where] = value

    return change


def second_set(arrays: dict[str, np.ndarray]) -> int:
    """The position of a border between two sets of levels of one tree."""
    boundaries = arrays["cat_boundaries"]
    return int(np.flatnonzero((boundaries[1:-1] > 0) & (boundaries[2:] > 0))[0]) + 1


def swap_children(arrays: dict[str, np.ndarray]) -> None:
    """The root has the same child twice, and another node has no parent."""
    arrays["left_child"][0] = arrays["right_child"][0]


def point_back(arrays: dict[str, np.ndarray]) -> None:
    """A node whose child is the root."""
    inner = int(np.flatnonzero(arrays["left_child"][:7] < 0)[-1])
    arrays["left_child"][inner] = 0


def lose_a_leaf(arrays: dict[str, np.ndarray]) -> None:
    """Two splits that end at one leaf."""
    ends = np.flatnonzero(arrays["left_child"][:7] < 0)
    arrays["left_child"][ends[0]] = arrays["left_child"][ends[1]]


def drop_last(name: str):
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = arrays[name][:-1]

    return change


def as_type(name: str, dtype):
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = arrays[name].astype(dtype)

    return change


def as_matrix(arrays: dict[str, np.ndarray]) -> None:
    arrays["leaf_value"] = arrays["leaf_value"][:, None]


DAMAGES = {
    **{f"{name} without its last": drop_last(name) for name in MIXED.arrays},
    **{f"{name} of another type": as_type(name, np.float32) for name in MIXED.arrays},
    "a matrix": as_matrix,
    "no leaves": put("leaves", 0),
    "one leaf more": put("leaves", 9),
    "the same child twice": swap_children,
    "a circle": point_back,
    "a leaf without a parent": lose_a_leaf,
    "a leaf that is none": put("left_child", -9, lambda arrays: int(np.flatnonzero(arrays["left_child"] < 0)[0])),
    "a child that is none": put("right_child", 7),
    "an impossible decision": put("decision_type", -1),
    "a decision of 5 bits": put("decision_type", 16),
    "missing values of no kind": put("decision_type", 12, by_number),
    "a negative column": put("split_feature", -1),
    "a column too many": put("split_feature", 3),
    "an infinite leaf": put("leaf_value", np.inf),
    "a leaf without a value": put("leaf_value", np.nan, -1),
    "a threshold that is no number": put("threshold", np.nan, by_number),
    "a negative set of levels": put("threshold", -1.0, by_category),
    "a set of levels too many": put("threshold", 1000.0, by_category),
    "half a set of levels": put("threshold", 0.5, by_category),
    "sets that begin later": put("cat_boundaries", 1),
    "an empty set": lambda arrays: put("cat_boundaries", arrays["cat_boundaries"][second_set(arrays) + 1], second_set)(
        arrays
    ),
    "levels of 33 bits": put("cat_threshold", 2**32 if MIXED.arrays["cat_threshold"].itemsize > 4 else -1),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_no_sum_of_trees_is_refused(damage):
    arrays = build_arrays(MIXED)
    assert restore(arrays).rounds == 6
    DAMAGES[damage](arrays)
    with pytest.raises(InputError, match="boosted trees as they were saved"):
        restore(arrays)


def test_any_number_of_a_booster_may_be_wrong_without_a_crash():
    """Whatever is accepted predicts finite numbers."""
    rng = np.random.default_rng(1)
    accepted = 0
    for _ in range(300):
        arrays = build_arrays(MIXED)
        name = rng.choice(list(arrays))
        place = rng.integers(len(arrays[name]))
        arrays[name][place] = rng.choice([-2, -1, 0, 1, 3, 5, 8, 40])
        try:
            booster = restore(arrays)
        except InputError:
            continue
        accepted += 1
        assert np.isfinite(booster.raw(X)).all()
    assert 30 < accepted < 270


@pytest.mark.parametrize("chosen", [[0, 3], [-1, 0], [[0, 1]]])
def test_columns_that_are_not_there_are_refused(chosen):
    assert restore(build_arrays(SOME), [2, 0]).raw(X) == pytest.approx(SOME.raw(X))
    with pytest.raises(InputError, match="choose columns of its table"):
        restore(build_arrays(SOME), chosen)


def test_files_that_are_incomplete_are_refused():
    arrays = build_arrays(MIXED)
    content = {f"0.{name}": values for name, values in arrays.items()}
    with pytest.raises(InputError, match="columns of 1 boosters, got 2"):
        boosters_from_files({FILE: arrays_to_bytes(**content)}, [None, None], [3])
    for files in (
        {FILE: b"nothing"},
        {FILE: arrays_to_bytes(**{name: values for name, values in content.items() if name != "0.threshold"})},
        {FILE: arrays_to_bytes(**content, more=np.zeros(1))},
    ):
        with pytest.raises(InputError, match="must hold boosted trees"):
            boosters_from_files(files, [None], [3])
