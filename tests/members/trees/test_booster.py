"""Test sums of trees as arrays: predictions are LightGBM's, and files that are no trees are refused."""

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


def train_lightgbm(columns: np.ndarray, categorical: list[int], rounds: int, **settings) -> lightgbm.Booster:
    rows = lightgbm.Dataset(columns, Y, categorical_feature=categorical)
    fixed = {"objective": "poisson", "num_leaves": 8, "verbosity": -1, "min_data_in_leaf": 5, "deterministic": True}
    return lightgbm.train(fixed | settings, rows, rounds)


def boost(categorical: list[int], rounds: int = 6, chosen: np.ndarray | None = None) -> Booster:
    columns = X if chosen is None else X[:, chosen]
    return Booster.from_lightgbm(train_lightgbm(columns, categorical, rounds), rounds, chosen)


MIXED, NUMBERS, SOME = boost([1]), boost([]), boost([], chosen=np.array([2, 0]))
(FILE,) = boosters_to_files([MIXED])


def build_arrays(booster: Booster) -> dict[str, np.ndarray]:
    return {name: values.copy() for name, values in booster.arrays.items()}


def restore_booster(arrays: dict[str, np.ndarray], chosen=None, columns: int = 3) -> Booster:
    files = {FILE: arrays_to_bytes(**{f"0.{name}": values for name, values in arrays.items()})}
    return boosters_from_files(files, [chosen], [columns])[0]


def make_new_rows() -> np.ndarray:
    """Rows with missing values in every column, codes that no training row had, infinities and tiny numbers."""
    rng = np.random.default_rng(2)
    rows = np.column_stack([rng.normal(size=700), rng.integers(-3, 80, 700), rng.normal(size=700)])
    rows[rng.uniform(size=rows.shape) < 0.1] = np.nan
    rows[:6, 0] = 0.0, -0.0, 1e-40, np.inf, -np.inf, 1e300
    rows[:3, 1] = 1e6, 31.0, 32.0
    return rows


@pytest.mark.parametrize("categorical", [[], [1], [0, 1]])
@pytest.mark.parametrize("has_missing", [False, True])
@pytest.mark.parametrize("leaves", [2, 8, 63])
def test_trees_predict_what_lightgbm_predicts(categorical, has_missing, leaves):
    columns = X.copy() if has_missing else np.nan_to_num(X)
    if 0 in categorical:
        columns[:, 0] = np.floor(2.0 * np.abs(columns[:, 0]))
    original = train_lightgbm(columns, categorical, 30, num_leaves=leaves, max_cat_to_onehot=2)
    rows = make_new_rows()
    rows[:, categorical] = np.floor(rows[:, categorical])
    for rounds in (30, 7):
        booster = Booster.from_lightgbm(original, rounds, None)
        again = boosters_from_files(boosters_to_files([booster]), [None], [3])[0]
        expected = original.predict(rows, raw_score=True, num_iteration=rounds)
        np.testing.assert_array_equal(booster.raw(rows), expected)
        np.testing.assert_array_equal(again.raw(rows), expected)
        np.testing.assert_array_equal(booster.raw(np.asfortranarray(rows)[::-1]), expected[::-1])
    assert len(np.unique(expected)) > 2


def test_a_tree_without_splits_adds_its_constant():
    original = train_lightgbm(np.zeros_like(X), [], 3)
    booster = Booster.from_lightgbm(original, original.num_trees(), None)
    np.testing.assert_array_equal(booster.raw(X[:5]), original.predict(X[:5], raw_score=True))
    assert booster.raw(X[:5]) == pytest.approx(np.log(Y.mean()))


def test_boosters_come_back_from_their_files():
    boosters = [MIXED, SOME, Booster.from_lightgbm(None, 0, None), NUMBERS]
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


def find_category_split(arrays: dict[str, np.ndarray]) -> int:
    return int(np.flatnonzero(arrays["decision_type"] & 1)[0])


def find_number_split(arrays: dict[str, np.ndarray]) -> int:
    return int(np.flatnonzero(~arrays["decision_type"] & 1)[0])


def make_change(name: str, value: float, where=0):
    """Make a function that changes one number of the trees."""

    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[name][where(arrays) if callable(where) else where] = value

    return change


def find_second_set(arrays: dict[str, np.ndarray]) -> int:
    """Return the position of a border between two sets of levels of one tree."""
    boundaries = arrays["cat_boundaries"]
    return int(np.flatnonzero((boundaries[1:-1] > 0) & (boundaries[2:] > 0))[0]) + 1


def swap_children(arrays: dict[str, np.ndarray]) -> None:
    """Give the root the same child twice, so that another node has no parent."""
    arrays["left_child"][0] = arrays["right_child"][0]


def point_back(arrays: dict[str, np.ndarray]) -> None:
    """Give a node the root as its child."""
    inner = int(np.flatnonzero(arrays["left_child"][:7] < 0)[-1])
    arrays["left_child"][inner] = 0


def lose_a_leaf(arrays: dict[str, np.ndarray]) -> None:
    """Let two splits end at one leaf."""
    ends = np.flatnonzero(arrays["left_child"][:7] < 0)
    arrays["left_child"][ends[0]] = arrays["left_child"][ends[1]]


def make_drop(name: str):
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = arrays[name][:-1]

    return change


def make_type_change(name: str, dtype):
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = arrays[name].astype(dtype)

    return change


def make_matrix(arrays: dict[str, np.ndarray]) -> None:
    arrays["leaf_value"] = arrays["leaf_value"][:, None]


DAMAGES = {
    **{f"{name} without its last": make_drop(name) for name in MIXED.arrays},
    **{f"{name} of another type": make_type_change(name, np.float32) for name in MIXED.arrays},
    "a matrix": make_matrix,
    "no leaves": make_change("leaves", 0),
    "one leaf more": make_change("leaves", 9),
    "the same child twice": swap_children,
    "a circle": point_back,
    "a leaf without a parent": lose_a_leaf,
    "a leaf that is none": make_change(
        "left_child", -9, lambda arrays: int(np.flatnonzero(arrays["left_child"] < 0)[0])
    ),
    "a child that is none": make_change("right_child", 7),
    "an impossible decision": make_change("decision_type", -1),
    "a decision of 5 bits": make_change("decision_type", 16),
    "zeros that are missing": make_change("decision_type", 4, find_number_split),
    "missing values of two kinds": make_change("decision_type", 12, find_number_split),
    "a negative column": make_change("split_feature", -1),
    "a column too many": make_change("split_feature", 3),
    "an infinite leaf": make_change("leaf_value", np.inf),
    "a leaf without a value": make_change("leaf_value", np.nan, -1),
    "a threshold that is no number": make_change("threshold", np.nan, find_number_split),
    "a negative set of levels": make_change("threshold", -1.0, find_category_split),
    "a set of levels too many": make_change("threshold", 1000.0, find_category_split),
    "half a set of levels": make_change("threshold", 0.5, find_category_split),
    "sets that begin later": make_change("cat_boundaries", 1),
    "an empty set": lambda arrays: make_change(
        "cat_boundaries", arrays["cat_boundaries"][find_second_set(arrays) + 1], find_second_set
    )(arrays),
    "levels of 33 bits": make_change("cat_threshold", 2**32 if MIXED.arrays["cat_threshold"].itemsize > 4 else -1),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_arrays_that_are_no_sum_of_trees_are_refused(damage):
    arrays = build_arrays(MIXED)
    assert restore_booster(arrays).rounds == 6
    DAMAGES[damage](arrays)
    with pytest.raises(InputError, match="is damaged"):
        restore_booster(arrays)


def test_any_number_of_a_booster_may_be_wrong_without_a_crash():
    """Arrays that are accepted predict finite numbers."""
    rng = np.random.default_rng(1)
    accepted = 0
    for _ in range(300):
        arrays = build_arrays(MIXED)
        name = rng.choice(list(arrays))
        position = rng.integers(len(arrays[name]))
        arrays[name][position] = rng.choice([-2, -1, 0, 1, 3, 5, 8, 40])
        try:
            booster = restore_booster(arrays)
        except InputError:
            continue
        accepted += 1
        assert np.isfinite(booster.raw(X)).all()
    assert 30 < accepted < 270


@pytest.mark.parametrize("chosen", [[0, 3], [-1, 0], [[0, 1]]])
def test_columns_that_are_not_there_are_refused(chosen):
    assert restore_booster(build_arrays(SOME), [2, 0]).raw(X) == pytest.approx(SOME.raw(X))
    with pytest.raises(InputError, match="use columns that the table does not have"):
        restore_booster(build_arrays(SOME), chosen)


def test_files_that_are_incomplete_are_refused():
    arrays = build_arrays(MIXED)
    content = {f"0.{name}": values for name, values in arrays.items()}
    with pytest.raises(InputError, match="columns of 2 boosters instead of 1"):
        boosters_from_files({FILE: arrays_to_bytes(**content)}, [None, None], [3])
    for files in (
        {FILE: b"nothing"},
        {FILE: arrays_to_bytes(**{name: values for name, values in content.items() if name != "0.threshold"})},
        {FILE: arrays_to_bytes(**content, more=np.zeros(1))},
    ):
        with pytest.raises(InputError, match=r"trees\.safetensors is damaged|saved trees are damaged"):
            boosters_from_files(files, [None], [3])
