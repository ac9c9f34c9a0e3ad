"""Test boosting in folds: the losses that choose leaves and rounds, and what the dispersion is learned from."""

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from ddpn.members.member import NotApplicableError
from ddpn.members.trees import boosting, dispersion
from ddpn.members.trees.boosting import Fold, Settings, TreeRows, divide_rows
from ddpn.members.trees.mean import MeanFit
from ddpn.networks.heads import make_head
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import Clock

QUICK = Settings(leaves=4, learning_rate=0.2, rounds=20, patience=20)


def build_rows(X: np.ndarray, rate: np.ndarray, weight: np.ndarray, folds: list[Fold]) -> TreeRows:
    return TreeRows(X, np.zeros(X.shape[1], dtype=bool), rate, weight, folds)


def make_two_folds(rows: int, first: int) -> list[Fold]:
    """Make folds of the first rows and the others, predicted by boosters of one another."""
    return [Fold(np.arange(first, rows), np.arange(first)), Fold(np.arange(first), np.arange(first, rows))]


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_that_chooses_leaves_is_the_weighted_poisson_loss_of_held_out_rows(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, 2))
    rate, weight = rng.poisson(np.exp(1.0 + X[:, 0])).astype(float), rng.uniform(0.2, 3.0, 120)
    fit = MeanFit(build_rows(X, rate, weight, make_two_folds(120, 40)), QUICK)
    fit.run(2)
    mu = np.exp(fit.out_of_fold)
    assert fit.loss == pytest.approx(weight @ (mu - rate * np.log(mu)))


@pytest.mark.parametrize("heavy", [0, 1])
def test_the_number_of_rounds_is_that_of_the_fold_with_the_weight(heavy):
    """Held-out rows of one fold follow the input, for which many rounds are good, and those of the other do not."""
    rng = np.random.default_rng(0)
    X, train, held_out = rng.normal(size=(400, 2)), np.arange(200), [np.arange(200, 300), np.arange(300, 400)]
    rate = rng.poisson(np.exp(1.0 + np.where(np.arange(400) < 300, 1.0, -0.1) * X[:, 0])).astype(float)
    folds = [Fold(train, part) for part in held_out]

    def best_round(weight: np.ndarray, folds: list[Fold]) -> int:
        fit = MeanFit(build_rows(X, rate, weight, folds), QUICK)
        fit.run(len(folds))
        return fit._best

    alone = [best_round(np.ones(400), [fold]) for fold in folds]
    assert alone[0] > alone[1] + 5
    assert best_round(np.where(np.isin(np.arange(400), held_out[heavy]), 1e4, 1.0), folds) == alone[heavy]


def test_the_dispersion_is_boosted_by_the_log_mean_of_the_count(monkeypatch):
    """The log mean is the input in predictions, where the mean of a count is its rate times its exposure."""
    rng = np.random.default_rng(0)
    X, exposure, log_rate = rng.normal(size=(300, 2)), rng.uniform(0.2, 5.0, 300), rng.normal(size=300)
    y, inputs = rng.poisson(4.0 * exposure).astype(float), []
    monkeypatch.setattr(dispersion.DispersionFit, "boost", lambda self, rows, *_: inputs.append(rows.matrix))
    rows = build_rows(X, y / exposure, exposure, divide_rows(y, 0))
    dispersion.fit_dispersion(rows, log_rate, CountRows(X, y, None, exposure), 0)
    np.testing.assert_allclose(inputs[0], np.column_stack([X, log_rate + np.log(exposure)]))
    dispersion.fit_dispersion(rows, log_rate, CountRows(X, y), 0)
    np.testing.assert_allclose(inputs[1][:, -1], log_rate)


def test_a_group_is_never_inside_and_outside_of_a_fold():
    group = np.repeat(np.arange(30), 4)
    for fold in divide_rows(np.ones(120), 0, group):
        assert not set(group[fold.train_rows]) & set(group[fold.held_out_rows])


# The dispersion -------------------------------------------------------------------------------------------------------


def simulate_dispersed_rows(seed: int = 0, rows: int = 400):
    """Simulate counts whose dispersion follows the second column, known log rates, unequal weights and exposures."""
    rng = np.random.default_rng(seed)
    X, exposure, weight = rng.normal(size=(rows, 2)), rng.uniform(0.5, 4.0, rows), rng.uniform(0.2, 3.0, rows)
    log_rate, size = 1.5 + 0.3 * X[:, 0], np.where(X[:, 1] > 0, 20.0, 0.5)
    y = rng.poisson(exposure * np.exp(log_rate) * rng.gamma(size, 1.0 / size)).astype(float)
    return X, log_rate, CountRows(X, y, weight, exposure)


def test_the_constant_of_a_dispersion_is_its_maximum_likelihood():
    """Compare with scipy's Negative Binomial of known means; weights and exposures count."""
    _, log_rate, sample = simulate_dispersed_rows()
    fit = dispersion.DispersionFit(make_head("negative_binomial"), sample, 0, log_rate)
    mean = sample.exposure * np.exp(log_rate)

    def loss(log_alpha: float) -> np.ndarray:
        size = np.exp(-log_alpha)
        return -stats.nbinom.logpmf(sample.y, size, size / (size + mean))

    share = sample.weight / sample.weight.mean()
    best = optimize.minimize_scalar(lambda value: share @ loss(value), bounds=(-5.0, 5.0), method="bounded")
    assert share @ loss(fit.constant) == pytest.approx(best.fun, rel=1e-6)
    np.testing.assert_allclose(fit.losses(), share * loss(fit.constant), rtol=1e-6)
    np.testing.assert_allclose(fit.raw, np.column_stack([log_rate, np.full(400, fit.constant)]))
    offset = 0.7 * sample.X[:, 1]
    around = dispersion.DispersionFit(make_head("negative_binomial"), sample, 0, log_rate, offset)
    np.testing.assert_allclose(around.raw[:, 1] - around.constant, offset)
    assert share @ loss(around.raw[:, 1]) == pytest.approx(around.losses().sum(), rel=1e-6)


@pytest.mark.parametrize("has_exposure", [True, False])
def test_trees_of_a_dispersion_follow_the_derivatives_of_the_weighted_loss(monkeypatch, has_exposure):
    """Trees get gradients before every tree, and curvatures before the first, second, fourth and eighth."""
    X, log_rate, sample = simulate_dispersed_rows()
    sample = sample if has_exposure else sample.replace(exposure=None)
    rows = build_rows(X, sample.y, sample.weight, make_two_folds(400, 150))
    head, steps = make_head("negative_binomial"), []
    fit = dispersion.DispersionFit(head, sample, 0, log_rate)
    grow = boosting.BoostedTrees.grow

    def watch(growing, derivatives):
        raw = np.column_stack([log_rate[growing.train_rows], fit.constant + growing.train_scores])
        steps.append((growing.train_rows, raw, *derivatives))
        grow(growing, derivatives)

    monkeypatch.setattr(boosting.BoostedTrees, "grow", watch)
    fit.boost(rows, Settings(leaves=4, learning_rate=0.1, rounds=8, patience=20))
    assert len(steps) == 16
    share = sample.weight / sample.weight.mean()
    for number, (fitted, raw, gradient, curvature) in enumerate(steps):
        some = sample.replace(X=None, weight=None).rows(fitted).map(torch.from_numpy)
        at = torch.from_numpy(raw).requires_grad_()
        (expected,) = torch.autograd.grad(head.sample_loss(at, some).sum(), at)
        np.testing.assert_allclose(gradient, share[fitted] * expected[:, 1].numpy(), rtol=1e-5, atol=1e-8)
        if number // 2 + 1 in (1, 2, 4, 8):
            expected = share[fitted] * head.curvature(torch.from_numpy(raw), some)[:, 1].numpy()
            np.testing.assert_allclose(curvature, np.maximum(expected, 0.0), rtol=0.3, atol=0.02)
            if has_exposure:
                np.testing.assert_allclose(curvature, expected, rtol=1e-5, atol=2e-3)


def test_the_dispersion_is_boosted_where_it_follows_a_column_and_predicted_out_of_fold():
    X, log_rate, sample = simulate_dispersed_rows(rows=1200)
    folds = divide_rows(sample.y, 0)
    rows = build_rows(X, sample.y / sample.exposure, sample.weight * sample.exposure, folds)
    fit = dispersion.fit_dispersion(rows, log_rate, sample, 0)
    boosters = fit.to_boosters()
    assert len(boosters) == 5
    assert fit.head.name == "negative_binomial"
    inputs = np.column_stack([X, log_rate + np.log(sample.exposure)])
    for fold, booster in zip(folds, boosters, strict=True):
        rows = fold.held_out_rows
        np.testing.assert_allclose(fit.raw[rows, 1], fit.constant + booster.raw(inputs[rows]), atol=1e-6)
    wide, narrow = fit.raw[X[:, 1] < -0.2, 1].mean(), fit.raw[X[:, 1] > 0.2, 1].mean()
    assert wide > narrow + 1.5, "log dispersions of 0.7 and -3"
    constant = dispersion.DispersionFit(make_head("negative_binomial"), sample, 0, log_rate)
    gain = constant.losses() - fit.losses()
    assert gain.sum() > 2.0 * np.sqrt(len(gain)) * gain.std()
    np.testing.assert_allclose(fit.raw[:, 0], log_rate)


@pytest.mark.parametrize(("rows", "is_tried"), [(199, False), (200, True)])
def test_the_dispersion_of_few_rows_is_a_constant(monkeypatch, rows, is_tried):
    X, log_rate, sample = simulate_dispersed_rows(rows=rows)
    tried = []
    monkeypatch.setattr(dispersion.DispersionFit, "boost", lambda self, *arguments: tried.append(arguments))
    dispersion.fit_dispersion(build_rows(X, sample.y, sample.weight, divide_rows(sample.y, 0)), log_rate, sample, 0)
    assert bool(tried) == is_tried


def test_the_likelihood_is_that_of_the_smaller_loss_and_negative_binomial_with_exposures_or_a_direction():
    rng = np.random.default_rng(0)
    X, log_rate = rng.normal(size=(150, 1)), np.full(150, np.log(20.0))
    narrow = np.rint(20.0 + 1.5 * rng.normal(size=150))
    rows = build_rows(X, narrow, np.ones(150), divide_rows(narrow, 0))
    assert dispersion.fit_dispersion(rows, log_rate, CountRows(X, narrow), 0).head.name == "double_poisson"
    exposed = CountRows(X, narrow, None, np.ones(150))
    assert dispersion.fit_dispersion(rows, log_rate, exposed, 0).head.name == "negative_binomial"
    directed = rows._replace(directions=np.array([1]))
    assert dispersion.fit_dispersion(directed, log_rate, CountRows(X, narrow), 0).head.name == "negative_binomial"
    wide = rng.poisson(20.0 * rng.gamma(1.0, 1.0, 150)).astype(float)
    assert dispersion.fit_dispersion(rows, log_rate, CountRows(X, wide), 0).head.name == "negative_binomial"


# Rounds and folds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "patience", "best", "steps"),
    [
        ([3.0, 2.0, 1.0, 1.5, 1.5, 1.5, 0.5], 3, 3, 6),
        ([3.0, 2.0, 1.0, 1.5, 1.5, 0.5, 0.7], 3, 6, 7),
        ([5.0, 5.0, 5.0], 2, 0, 2),
        ([3.0, np.inf, 1.0], 9, 1, 2),
        ([3.0, np.nan, 1.0], 9, 1, 2),
        ([4.0, 3.0, 3.0], 9, 2, 3),
    ],
)
def test_boosting_ends_when_the_loss_falls_no_more(losses, patience, best, steps):
    seen, kept = [], []

    def step(number: int) -> float:
        seen.append(number)
        return losses[number - 1]

    settings = Settings(rounds=len(losses), patience=patience)
    assert (
        boosting.boost_until_best(step, settings, initial_loss=4.5, on_improvement=lambda: kept.append(len(seen)))
        == best
    )
    assert seen == list(range(1, steps + 1))
    assert kept[-1:] == ([best] if best else [])


def test_a_clock_that_has_ended_ends_the_boosting_after_a_round():
    assert boosting.boost_until_best(lambda number: 1.0 / number, Settings(rounds=9), Clock(0.0)) == 1


def test_rates_have_the_likelihood_of_counts_with_exposures():
    """Weight times exposure times (rate of the model - rate log rate) is the loss of the count, up to a constant."""
    _, _, sample = simulate_dispersed_rows()
    rate, weight = boosting.compute_rates(sample)
    differences = [
        -sample.weight * stats.poisson.logpmf(sample.y, scale * sample.exposure)
        - weight * (scale - rate * np.log(scale))
        for scale in (0.5, 3.0)
    ]
    np.testing.assert_allclose(*differences, rtol=1e-9, atol=1e-9)
    plain = boosting.compute_rates(CountRows(None, sample.y))
    assert (plain[0] == sample.y).all()
    assert (plain[1] == 1.0).all()


def test_out_of_fold_means_are_those_of_boosters_without_the_fold_and_the_whole_one_has_their_rounds():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    rate = rng.poisson(np.exp(1.0 + X[:, 0])).astype(float)
    folds = divide_rows(rate, 3)
    fit = MeanFit(build_rows(X, rate, np.ones(300), folds), QUICK)
    fit.run(3)
    assert np.isnan(fit.out_of_fold).sum() == sum(len(fold.held_out_rows) for fold in folds[3:])
    fit.run(5)
    boosters = fit.to_boosters()
    for fold, booster in zip(folds, boosters, strict=True):
        np.testing.assert_allclose(fit.out_of_fold[fold.held_out_rows], booster.raw(X[fold.held_out_rows]), rtol=1e-9)
    whole = fit.fit_all_rows()
    assert {booster.rounds for booster in (whole, *boosters)} == {fit._best}
    assert np.corrcoef(whole.raw(X), np.mean([booster.raw(X) for booster in boosters], axis=0))[0, 1] > 0.97
    # Boosters of folds are not alike: each draws its columns and rows by a seed of its own.
    assert len({booster.arrays["threshold"].tobytes() for booster in boosters}) == 5


@pytest.mark.parametrize(("rows", "least"), [(5, 1), (39, 1), (40, 2), (200, 10), (400, 20), (9000, 20)])
def test_leaves_have_a_twentieth_of_the_rows_and_twenty_at_most(rows, least):
    assert boosting.min_rows_per_leaf(rows) == least


def test_folds_need_counts_and_two_rows():
    with pytest.raises(NotApplicableError, match="two rows"):
        divide_rows(np.ones(4), 0, np.zeros(4))
    with pytest.raises(NotApplicableError, match="above 0"):
        divide_rows(np.r_[1.0, np.zeros(9)], 0)
    assert len(divide_rows(np.ones(9), 0, folds=3)) == 3
    held_out = np.concatenate([fold.held_out_rows for fold in divide_rows(np.ones(9), 0)])
    assert sorted(held_out.tolist()) == list(range(9))
