"""Test counts recorded as "5 or more": the likelihood tells what lies beyond, which is never assumed."""

import numpy as np
import pytest
import torch

from ddpn.calibration.intervals import IntervalLevels, score_blocks
from ddpn.distributions import Censored, NegativeBinomial
from ddpn.estimators import CountGLM
from ddpn.members.constant import Constant
from ddpn.members.member import MemberSpec, Task
from ddpn.networks.heads import make_head
from ddpn.rows.count_rows import CountRows

LIMIT = 5


def simulate_counts(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate inputs, Negative Binomial counts of which 45% are at least 5, and their true means."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    mean = np.exp(1.8 + 0.4 * X[:, 0])
    return X, rng.negative_binomial(1.0, 1.0 / (1.0 + mean)).astype(float), mean


def censor_rows(X: np.ndarray, y: np.ndarray) -> CountRows:
    return CountRows(X, np.minimum(y, LIMIT), limit=np.full(len(y), float(LIMIT)))


@pytest.mark.parametrize("seed", range(3))
def test_a_negative_binomial_is_recovered_from_censored_counts(seed):
    X, y, mean = simulate_counts(1000, seed)
    model = CountGLM(likelihood="negative_binomial", dispersion="constant", censored_above=LIMIT).fit(X, y)
    assert model.predict(X).sum() == pytest.approx(mean.sum(), rel=0.15)
    assert np.exp(model.intercept_[1]) == pytest.approx(1.0, rel=0.4)


@pytest.mark.parametrize("name", ["negative_binomial", "generalized_poisson", "zero_inflated_negative_binomial"])
def test_the_start_of_censored_counts_is_not_under_dispersed(name):
    """Censored counts vary less than a Poisson; the likelihood of what was recorded knows that the counts do not."""
    y = np.random.default_rng(0).negative_binomial(4.0, 0.4, 2000).astype(float)  # mean 6, variance 15
    sample = CountRows(None, np.minimum(y, 4.0), limit=np.full(len(y), 4.0)).map(torch.from_numpy)
    dist = make_head(name)(make_head(name).sample_start(sample))
    assert dist.mean.item() == pytest.approx(6.0, rel=0.15)
    assert dist.variance.item() == pytest.approx(15.0, rel=0.4)


def test_the_start_of_plain_counts_is_that_of_start():
    y = torch.tensor([0.0, 1.0, 3.0, 7.0])
    for name in ("double_poisson", "mixed", "poisson"):
        head = make_head(name)
        assert torch.equal(head.sample_start(CountRows(None, y)), head.start(y))


def test_a_constant_is_fitted_to_what_was_recorded():
    _, y, _ = simulate_counts(4000, 0)
    member = Constant.fit(censor_rows(np.zeros((len(y), 1)), y), None, seed=0)
    assert member.distribution(np.zeros((1, 1))).mean.item() == pytest.approx(y.mean(), rel=0.15)


def test_the_glm_of_a_mixture_takes_the_family_that_fits():
    X, y, mean = simulate_counts(600, 0)
    member = MemberSpec.from_task("glm", Task(make_head("mixed"))).fit(censor_rows(X, y), None, seed=0)
    assert member.head.name == "negative_binomial"
    assert member.distribution(X).mean.sum().item() == pytest.approx(mean.sum(), rel=0.15)
    plain = MemberSpec.from_task("glm", Task(make_head("mixed"))).fit(CountRows(X, y), None, seed=0)
    assert plain.head.name == "double_poisson"


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.99])
def test_intervals_of_censored_counts_keep_the_level_of_a_right_model(coverage):
    _, y, _ = simulate_counts(400, 0)
    dist = Censored(NegativeBinomial(torch.full((len(y),), 6.6, dtype=torch.float64), 1.0), LIMIT)
    counts = dist.base.sample().clamp(max=LIMIT).double().numpy()
    for prior_rows in (0.0, 50.0):
        level = IntervalLevels.from_scores(score_blocks([(slice(None), dist)], counts), prior_rows=prior_rows).at(
            coverage
        )
        assert coverage <= level < coverage + 3 * np.sqrt(coverage * (1 - coverage) / len(y)) + 3 / len(y)


@pytest.mark.parametrize("likelihood", ["negative_binomial", "double_poisson"])
def test_calibrated_intervals_cover_the_counts_behind_the_limit(likelihood):
    X, y, _ = simulate_counts(500, 0)
    calibration_X, calibration_y, _ = simulate_counts(500, 1)
    new, counts, _ = simulate_counts(2000, 2)
    model = CountGLM(likelihood=likelihood, dispersion="constant", censored_above=LIMIT).fit(X, y)
    low, high = model.fit_intervals(calibration_X, calibration_y).predict_interval(new).T
    assert np.mean((counts >= low) & (counts <= high)) > 0.86
