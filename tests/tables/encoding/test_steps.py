"""Test cuts against targets that follow thresholds, and the choice of columns of wide tables by the gain of a split."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from ddpn.tables.encoding import FeatureEncoder
from ddpn.tables.encoding.steps import choose_columns, find_best_cuts, split_gains


@pytest.fixture
def codes() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 200, (4000, 3)).astype(np.uint8)


def test_the_cuts_a_count_follows_are_found(codes):
    mean = np.where(codes[:, 1] > 57, 9.0, 2.0) + np.where(codes[:, 1] > 140, 20.0, 0.0)
    y = np.random.default_rng(1).poisson(mean)
    _, cuts, _ = find_best_cuts(codes, y, np.ones(len(y)), 2)
    assert cuts.tolist() == [57, 140]


@pytest.mark.parametrize("y", [0.0, 4.0])
def test_a_constant_target_has_no_cut(codes, y):
    assert [cuts.tolist() for cuts in find_best_cuts(codes, np.full(len(codes), y), np.ones(len(codes)), 5)] == [[]] * 3


def test_rows_whose_weight_vanishes_make_no_cut(codes):
    weights = np.where(codes[:, 1] > 99, 1e-300, 1.0)
    assert [cuts.tolist() for cuts in find_best_cuts(codes, codes[:, 1] > 99, weights, 5)] == [[]] * 3


def test_inputs_follow_the_target_and_few_values_have_all_steps():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=3000), rng.integers(0, 5, 3000) / 2, rng.integers(0, 2, 3000)])
    y = rng.poisson(np.where(X[:, 0] > 0.7, 12.0, 2.0))
    smooth, half, binary = FeatureEncoder(numeric="steps", bins=4).fit(X, y).columns_
    # 254 candidates among 3000 rows: the nearest lies within 1/254 of the ranks.
    ranks = np.sort(X[:, 0])
    nearest = smooth.steps[np.abs(smooth.steps - 0.7).argmin()]
    assert abs(np.searchsorted(ranks, nearest) - np.searchsorted(ranks, 0.7)) <= 3000 / 254
    assert half.steps.tolist() == [0.25, 0.75, 1.25, 1.75]
    assert binary.steps.size == 0


# Columns of a very wide table -----------------------------------------------------------------------------------------


def test_gains_are_those_of_scikit_learns_trees():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 70)).round(1)
    X[:, 1] = 3.0
    y, weight = rng.poisson(np.exp(X[:, 0])).astype(float), rng.integers(1, 4, 200).astype(float)
    result = split_gains(X, y, weight)
    for j in (0, 2, 65, 69):
        tree = DecisionTreeRegressor(max_depth=1, min_samples_leaf=10).fit(X[:, [j]], y, weight).tree_
        total = tree.weighted_n_node_samples * tree.impurity
        assert result[j] == pytest.approx(total[0] - total[1:].sum())
    assert result[1] == 0.0
    assert result.argmax() == 0


def test_missing_values_are_one_side_of_a_split():
    X = np.array([[1.0, np.nan]] * 10 + [[np.nan, np.nan]] * 10)
    assert split_gains(X, np.repeat([1.0, 3.0], 10), np.ones(20)).tolist() == [20.0, 0.0]


def test_columns_with_the_largest_gains_are_kept_in_their_order():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 60))
    y = X[:, 57] + (X[:, 3] > 0)
    gains = split_gains(X, y, np.ones(40))
    kept = choose_columns(X, y, np.ones(40), min_columns=50)
    assert kept.tolist() == sorted(np.argsort(-gains)[:50].tolist())
    assert {3, 57} < set(kept.tolist())
    assert len(choose_columns(X, y, np.ones(40), min_columns=10)) == 40  # as many as rows
    assert choose_columns(X, y, np.ones(40), min_columns=60) is None
