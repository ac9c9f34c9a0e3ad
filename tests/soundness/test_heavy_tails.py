"""Test heavy tails: a warning where one row decides the mean, and none where counts are ordinary."""

import warnings

import numpy as np
import pytest

from ddpn import CountRegressor
from ddpn.members.folds import Folds
from ddpn.members.glm import PoissonGLM
from ddpn.members.member import MemberSpec
from ddpn.pipeline import find_heavy_tail
from ddpn.predictor import Predictor
from ddpn.rows.count_rows import CountRows

ROWS = 1000
SEEDS = 6


def draw_counts(rng: np.random.Generator, kind: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Draw counts whose log mean is a line in x, with exposures or None."""
    n, mean, exposure = len(x), np.exp(1.0 + 0.5 * x[:, 0]), None
    if kind == "sparse":
        mean = 0.1 * mean
    if kind == "wide means":
        mean = np.exp(1.0 + 2.0 * x[:, 0])
    if kind == "exposure":
        exposure = rng.lognormal(5.0, 1.5, n)
        mean = 0.01 * exposure * mean
    if kind == "negative binomial":
        mean = mean * rng.gamma(0.5, 2.0, n)
    if kind == "log-normal":
        mean = mean * np.exp(2.0 * rng.normal(size=n))
    if kind == "power law":
        mean = 3.0 * mean * rng.pareto(1.0, n)
    y = rng.poisson(mean)
    if kind == "outliers":
        y = np.where(rng.uniform(size=n) < 0.005, 1000 * y, y)
    return y.astype(float), exposure


def find_warning(kind: str, seed: int, weighted: bool = False) -> str:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, 2))
    y, exposure = draw_counts(rng, kind, x)
    sample = CountRows(x, y, rng.uniform(0.5, 2.0, ROWS) if weighted else None, exposure)
    folds = Folds.from_rows(sample, None, seed)
    predictor = Predictor(
        {"poisson_glm": folds.fit(MemberSpec("poisson_glm", PoissonGLM), seed)}, needs_exposure=exposure is not None
    )
    return find_heavy_tail(predictor, folds, predictor.predict_held_out(folds))


@pytest.mark.parametrize("kind", ["poisson", "sparse", "wide means", "exposure", "negative binomial"])
def test_ordinary_counts_give_no_warning(kind):
    assert [find_warning(kind, seed, weighted=seed % 2 == 1) for seed in range(SEEDS)] == [""] * SEEDS


@pytest.mark.parametrize("kind", ["log-normal", "power law", "outliers"])
def test_counts_whose_mean_is_not_determined_give_a_warning(kind):
    assert sum(bool(find_warning(kind, seed, weighted=seed % 2 == 1)) for seed in range(SEEDS)) >= SEEDS / 2


def test_a_fit_warns_once_of_a_heavy_tail_and_names_the_count():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    y = rng.poisson(np.exp(1.0 + 0.5 * x[:, 0]))
    y[7] = 5000
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        CountRegressor(members=["poisson_glm"], random_state=0).fit(x, y)
    (sentence,) = [str(warning.message) for warning in caught if "depend on such rare rows" in str(warning.message)]
    assert "One of 400 training rows has a count of 5,000" in sentence
    assert f"{5000 / y.sum():.0%} of the sum" in sentence
