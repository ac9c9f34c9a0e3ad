"""The gains of splits are those of a tree with one split."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from ddpn.tables.encoding.steps import screened, split_gains


def test_gains_are_those_of_scikit_learns_trees():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 70)).round(1)
    X[:, 1] = 3.0
    y, weight = rng.poisson(np.exp(X[:, 0])).astype(float), rng.integers(1, 4, 200).astype(float)
    found = split_gains(X, y, weight)
    for j in (0, 2, 65, 69):
        tree = DecisionTreeRegressor(max_depth=1, min_samples_leaf=10).fit(X[:, [j]], y, weight).tree_
        total = tree.weighted_n_node_samples * tree.impurity
        assert found[j] == pytest.approx(total[0] - total[1:].sum())
    assert found[1] == 0.0
    assert found.argmax() == 0


def test_missing_values_are_one_side_of_a_split():
    X = np.array([[1.0, np.nan]] * 10 + [[np.nan, np.nan]] * 10)
    assert split_gains(X, np.repeat([1.0, 3.0], 10), np.ones(20)).tolist() == [20.0, 0.0]


def test_the_best_columns_are_kept_in_their_order():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 60))
    y = X[:, 57] + (X[:, 3] > 0)
    gains = split_gains(X, y, np.ones(40))
    kept = screened(X, y, np.ones(40), least=50)
    assert kept.tolist() == sorted(np.argsort(-gains)[:50].tolist())
    assert {3, 57} < set(kept.tolist())
    assert len(screened(X, y, np.ones(40), least=10)) == 40  # as many as rows
    assert screened(X, y, np.ones(40), least=60) is None
