"""Boosting is scikit-learn's own, with categories, exposures and weights; its file executes nothing."""

import pickle
from functools import partial

import numpy as np
import polars as pl
import pytest
import skops.io
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import mean_poisson_deviance

from ddpn.distributions import NegativeBinomial, Poisson
from ddpn.errors import InputError
from ddpn.members import boosted_poisson
from ddpn.members.boosted_poisson import BoostedNegativeBinomial, BoostedPoisson
from ddpn.members.member import NotApplicableError
from ddpn.sample import Sample

RNG = np.random.default_rng(2)
N = 400
WARD = RNG.choice(["A", "B", "C"], N)
X = pl.DataFrame({"x": RNG.normal(size=N), "ward": WARD.tolist(), "yes": RNG.random(N) < 0.5})
EXPOSURE, WEIGHT = RNG.uniform(0.5, 2.0, N), RNG.integers(1, 4, N).astype(float)
RATE = np.exp(X["x"].to_numpy() + 2 * (WARD == "B"))
Y = RNG.poisson(EXPOSURE * RATE).astype(float)


@pytest.fixture(scope="module")
def fitted() -> BoostedPoisson:
    return BoostedPoisson().fit(Sample(X, Y, WEIGHT, EXPOSURE), None, seed=1)


def test_it_is_scikit_learns(fitted):
    order = sorted(set(WARD.tolist()), key=lambda level: (-(level == WARD).sum(), level))
    plain = np.column_stack([X["x"], [order.index(level) for level in WARD], X["yes"]])
    trees = HistGradientBoostingRegressor(loss="poisson", categorical_features=[1], random_state=1)
    trees.fit(plain, Y / EXPOSURE, sample_weight=WEIGHT * EXPOSURE)
    assert isinstance(fitted.distribution(X), Poisson)
    assert fitted.distribution(X, EXPOSURE).mean.numpy()[:, 0] == pytest.approx(trees.predict(plain) * EXPOSURE)
    assert fitted.mean(X) == pytest.approx(trees.predict(plain))


def test_a_new_level_is_a_missing_one(fitted):
    new, missing = (fitted.mean(X.with_columns(ward=pl.lit(v, dtype=pl.String))) for v in ("Z", None))
    assert (new == missing).all()


def test_more_levels_than_bins():
    many = pl.DataFrame({"id": [f"level {row % 300}" for row in range(900)]})
    member = BoostedPoisson().fit(Sample(many, RNG.poisson(3.0, 900).astype(float)), None, seed=0)
    assert len(member.table.levels[0]) == 254
    assert (member.mean(many) > 0).all()


def test_a_file_with_other_types_is_not_even_built(fitted):
    files = fitted.state()
    for content in (skops.io.dumps(partial(print, "run")), pickle.dumps(fitted.trees), b"", files["trees.skops"][:-9]):
        with pytest.raises(InputError, match=r"trees.skops must hold boosted trees"):
            BoostedPoisson.from_state(files | {"trees.skops": content})


# The Negative Binomial -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide() -> Sample:
    """Counts with alpha = 0.5, exposures, text and gaps."""
    rng = np.random.default_rng(7)
    mean = EXPOSURE * RATE * 3.0
    table = X.with_columns(pl.when(pl.int_range(pl.len()) % 7 == 0).then(None).otherwise(pl.col("x")).alias("x"))
    return Sample(table, rng.negative_binomial(2.0, 2.0 / (2.0 + mean)).astype(float), WEIGHT, EXPOSURE)


@pytest.fixture(scope="module")
def out_of_fold() -> dict[str, np.ndarray]:
    """What the overdispersion of `nb` was estimated from."""
    return {}


@pytest.fixture(scope="module")
def nb(wide, out_of_fold) -> BoostedNegativeBinomial:
    search = boosted_poisson._overdispersion

    def watched(y, mean, weight):
        out_of_fold.update(y=y, mean=mean, weight=weight)
        return search(y, mean, weight)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(boosted_poisson, "_overdispersion", watched)
        return BoostedNegativeBinomial().fit(wide, None, seed=0)


@pytest.mark.parametrize("alpha", [0.5, 0.0])
def test_the_overdispersion_of_simulated_counts_is_found(alpha):
    rng = np.random.default_rng(0)
    n = 600 if alpha else 300
    table = rng.normal(size=(n, 1))
    mean = np.exp(1.5 + 0.5 * table[:, 0])
    y = rng.poisson(mean * (rng.gamma(1 / alpha, alpha, n) if alpha else 1.0)).astype(float)
    found = BoostedNegativeBinomial().fit(Sample(table, y), None, seed=0)
    # The standard error is 0.05 at alpha = 0.5; the error of out-of-fold means adds to the variance.
    assert found.alpha == pytest.approx(alpha, abs=0.12 if alpha else 0.05)


def test_alpha_maximises_the_likelihood_of_out_of_fold_means(nb, wide, out_of_fold):
    assert (out_of_fold["weight"] == WEIGHT).all()
    assert (out_of_fold["y"] == wide.y).all()
    mean = torch.from_numpy(out_of_fold["mean"])

    def loss(alpha: float) -> float:
        return -(
            WEIGHT @ NegativeBinomial(mean, torch.full_like(mean, alpha)).log_prob(torch.from_numpy(wide.y)).numpy()
        )

    assert loss(nb.alpha) < min(loss(0.97 * nb.alpha), loss(1.03 * nb.alpha))
    # They are worse than the means of the boosters that saw the rows, and better than a constant rate.
    constant = wide.exposure * (WEIGHT @ wide.y) / (WEIGHT @ wide.exposure)
    means = (nb.mean(wide.X, wide.exposure), out_of_fold["mean"], constant)
    deviances = [mean_poisson_deviance(wide.y, each, sample_weight=WEIGHT) for each in means]
    assert deviances == sorted(deviances)


def test_it_is_better_than_a_poisson_of_the_same_mean(nb, wide):
    dist = nb.distribution(wide.X, wide.exposure)
    assert isinstance(dist, NegativeBinomial)
    y = torch.from_numpy(wide.y)[:, None]
    assert dist.log_prob(y).mean() > Poisson(dist.mean).log_prob(y).mean() + 0.05
    assert nb.facts()["alpha"] == nb.alpha
    assert 0.3 < nb.alpha < 0.8


@pytest.fixture
def few_rounds(monkeypatch):
    """One number of leaves and no more than ten rounds."""
    monkeypatch.setattr(boosted_poisson, "_LEAVES", (8,))
    monkeypatch.setattr(boosted_poisson, "_ROUNDS", 10)


@pytest.mark.usefixtures("few_rounds")
def test_a_seed_determines_it(wide):
    some = wide.rows(slice(0, 60))
    one, same, other = (BoostedNegativeBinomial().fit(some, None, seed=s).mean(some.X) for s in (0, 0, 1))
    assert (one == same).all()
    assert (one != other).any()


@pytest.mark.usefixtures("few_rounds")
@pytest.mark.parametrize("rows", [2, 3, 4])
def test_fewer_rows_than_folds(rows):
    member = BoostedNegativeBinomial().fit(Sample(np.eye(rows), np.arange(1.0, rows + 1)), None, seed=0)
    assert len(member.trees) == rows
    assert np.isfinite(member.mean(np.eye(rows))).all()


@pytest.mark.parametrize(
    ("kind", "y", "words"),
    [
        (BoostedPoisson, np.zeros(30), "no count above 0"),
        (BoostedNegativeBinomial, np.zeros(30), "no count above 0"),
        (BoostedNegativeBinomial, np.eye(30)[4], "too few counts above 0"),
        (BoostedNegativeBinomial, np.array([3.0]), "2 rows"),
    ],
)
def test_where_it_cannot_be_fitted(kind, y, words):
    with pytest.raises(NotApplicableError, match=words):
        kind().fit(Sample(np.zeros((len(y), 1)), y), None, seed=0)
    weight = np.r_[np.zeros(len(y)), np.ones(len(y))]
    twice = Sample(np.zeros((2 * len(y), 1)), np.r_[np.full(len(y), 9.0), y], weight)
    with pytest.raises(NotApplicableError, match=words):
        kind().fit(twice, None, seed=0)


@pytest.mark.parametrize("kind", [BoostedPoisson, BoostedNegativeBinomial])
def test_with_more_columns_than_rows_those_that_matter_are_kept(kind, monkeypatch):
    monkeypatch.setattr(boosted_poisson, "_MAX_COLUMNS", 20)
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(60, 80))
    y = rng.poisson(np.exp(1.0 + wide[:, 71])).astype(float)
    member = kind().fit(Sample(wide, y), None, seed=0)
    rows = 60 if kind is BoostedPoisson else 48
    assert all(len(chosen) == rows and 71 in chosen for chosen in member.chosen)
    # Chosen inside each fold, so not the same ones.
    assert len({tuple(chosen) for chosen in member.chosen}) == len(member.trees)
    again = kind.from_state(member.state())
    assert (again.mean(wide) == member.mean(wide)).all()
    changed = wide.copy()
    changed[:, np.setdiff1d(np.arange(80), np.concatenate(member.chosen))] = 9.0
    assert (member.mean(changed) == member.mean(wide)).all()
    assert np.corrcoef(member.mean(wide), wide[:, 71])[0, 1] > 0.5
