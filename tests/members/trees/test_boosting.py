"""Boosting in folds: the losses that choose leaves and rounds, and what the dispersion is learned from."""

import numpy as np
import pytest

from ddpn.members.trees import boosting
from ddpn.members.trees.boosting import Fold, MeanFit, Settings, TreeRows, folds_of
from ddpn.rows.count_rows import CountRows

QUICK = Settings(leaves=4, rate=0.2, rounds=20, patience=20)


def rows_of(X: np.ndarray, rate: np.ndarray, weight: np.ndarray, folds: list[Fold]) -> TreeRows:
    return TreeRows(X, np.zeros(X.shape[1], dtype=bool), rate, weight, folds)


def two_folds(rows: int, first: int) -> list[Fold]:
    """The first rows and the others, each predicted by a booster of the other."""
    return [Fold(np.arange(first, rows), np.arange(first)), Fold(np.arange(first), np.arange(first, rows))]


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_that_chooses_leaves_is_the_weighted_poisson_loss_of_held_out_rows(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, 2))
    rate, weight = rng.poisson(np.exp(1.0 + X[:, 0])).astype(float), rng.uniform(0.2, 3.0, 120)
    fit = MeanFit(rows_of(X, rate, weight, two_folds(120, 40)), QUICK)
    fit.run(2)
    mu = np.exp(fit.out_of_fold)
    assert fit.loss == pytest.approx(weight @ (mu - rate * np.log(mu)))


@pytest.mark.parametrize("heavy", [0, 1])
def test_the_number_of_rounds_is_that_of_the_fold_with_the_weight(heavy):
    """Held-out rows of one fold follow the input, for which many rounds are good, and those of the other do not."""
    rng = np.random.default_rng(0)
    X, inner, outer = rng.normal(size=(400, 2)), np.arange(200), [np.arange(200, 300), np.arange(300, 400)]
    rate = rng.poisson(np.exp(1.0 + np.where(np.arange(400) < 300, 1.0, -0.1) * X[:, 0])).astype(float)
    folds = [Fold(inner, part) for part in outer]

    def best_round(weight: np.ndarray, folds: list[Fold]) -> int:
        fit = MeanFit(rows_of(X, rate, weight, folds), QUICK)
        fit.run(len(folds))
        return fit._best

    alone = [best_round(np.ones(400), [fold]) for fold in folds]
    assert alone[0] > alone[1] + 5
    assert best_round(np.where(np.isin(np.arange(400), outer[heavy]), 1e4, 1.0), folds) == alone[heavy]


def test_the_dispersion_is_boosted_by_the_log_mean_of_the_count(monkeypatch):
    """It is the input in predictions, where the mean of a count is its rate times its exposure."""
    rng = np.random.default_rng(0)
    X, exposure, log_rate = rng.normal(size=(300, 2)), rng.uniform(0.2, 5.0, 300), rng.normal(size=300)
    y, inputs = rng.poisson(4.0 * exposure).astype(float), []
    monkeypatch.setattr(boosting.DispersionFit, "boost", lambda self, rows, *_: inputs.append(rows.matrix))
    rows = rows_of(X, y / exposure, exposure, folds_of(y, 0))
    boosting.fit_around(rows, log_rate, CountRows(X, y, None, exposure), 0)
    np.testing.assert_allclose(inputs[0], np.column_stack([X, log_rate + np.log(exposure)]))
    boosting.fit_around(rows, log_rate, CountRows(X, y), 0)
    np.testing.assert_allclose(inputs[1][:, -1], log_rate)


def test_a_group_is_never_inside_and_outside_of_a_fold():
    group = np.repeat(np.arange(30), 4)
    for fold in folds_of(np.ones(120), 0, group):
        assert not set(group[fold.inner]) & set(group[fold.outer])
