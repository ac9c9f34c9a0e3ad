"""Test that intervals keep their word in every row, for small and large counts, at every level.

Counts are drawn from known distributions. A right model covers what its intervals' own probabilities say, in bands of
the predicted mean; a wrong one covers what is asked.
"""

import numpy as np
import pytest
import torch

from ddpn import CountGLM, CountRegressor, DoublePoisson, NegativeBinomial, Poisson
from ddpn.calibration.intervals import IntervalLevels, make_interval, score_blocks
from ddpn.distributions import Mixture, MonotoneMap, Recalibrated, ZeroInflated

LEVELS = (0.5, 0.8, 0.9, 0.99)
#: Rows for calibration and for the test, whose means run from 0.1 to 200.
CALIBRATION, TEST = 1500, 24_000


def draw_means(rows, seed):
    return torch.from_numpy(np.exp(np.random.default_rng(seed).uniform(np.log(0.1), np.log(200.0), rows)))


TRUTHS = {
    "Poisson": Poisson,
    "Negative Binomial": lambda mean: NegativeBinomial(mean, torch.full_like(mean, 0.7)),
    "Double Poisson, under-dispersed": lambda mean: DoublePoisson(mean, torch.full_like(mean, 3.0)),
    "Double Poisson, over-dispersed": lambda mean: DoublePoisson(mean, torch.full_like(mean, 0.4)),
    "zero-inflated": lambda mean: ZeroInflated(Poisson(mean), torch.full_like(mean, 0.3)),
}


def check_inside(interval, y):
    low, high, _ = interval
    return ((low <= y) & (y <= high)).double()


@pytest.mark.parametrize("truth", TRUTHS)
def test_a_right_model_covers_what_its_intervals_say_in_every_band_of_means(truth):
    torch.manual_seed(1)
    calibration, new = (TRUTHS[truth](draw_means(rows, seed)) for rows, seed in ((CALIBRATION, 0), (TEST, 1)))
    counts = calibration.sample().double().numpy()
    levels = IntervalLevels.from_scores(score_blocks([(slice(None), calibration)], counts), prior_rows=100.0)
    y, mean = new.sample(), new.mean
    for asked in LEVELS:
        interval = make_interval(new, levels.at(asked))
        inside = check_inside(interval, y)
        assert interval.probability.min() >= asked - 1e-9
        assert levels.at(asked) < asked + 0.025, "a right model keeps its level"
        for band in (mean < 2, (mean >= 2) & (mean <= 20), mean > 20):
            assert inside[band].mean() == pytest.approx(interval.probability[band].mean().item(), abs=0.02)


@pytest.mark.parametrize("wrong", ["too narrow", "too low", "too high"])
def test_a_wrong_model_covers_at_least_what_is_asked(wrong):
    rng = np.random.default_rng(2)
    mean = draw_means(4000, 3)
    y = rng.poisson(mean.numpy()).astype(float)
    if wrong == "too narrow":
        y = rng.negative_binomial(2.0, 2.0 / (2.0 + mean.numpy())).astype(float)
    rate = mean * {"too narrow": 1.0, "too low": 0.6, "too high": 1.5}[wrong]
    levels = IntervalLevels.from_scores(score_blocks([(slice(None), Poisson(rate[:2000]))], y[:2000]))
    for asked in LEVELS[:3]:
        inside = check_inside(make_interval(Poisson(rate[2000:]), levels.at(asked)), torch.from_numpy(y[2000:]))
        # Three deviations of a share of 2,000 rows whose level is from 2,000 rows.
        assert inside.mean() > asked - 3 * np.sqrt(asked * (1 - asked) / 1000)


def test_a_glm_that_is_right_covers_large_counts_as_small_ones():
    """Most inputs have small means: one level for all rows would pay for them with the few large ones."""
    rng = np.random.default_rng(3)

    def draw(rows):
        X = rng.beta(1.0, 3.0, (rows, 1))
        return X, rng.poisson(np.exp(-2 + 7 * X[:, 0]))

    model = CountGLM(likelihood="poisson").fit(*draw(1500)).fit_intervals(*draw(1500))
    X, y = draw(30_000)
    mean = model.predict(X)
    for asked in (0.5, 0.8, 0.9):
        (low, high), probability = (part.T for part in model.predict_interval(X, asked, return_probability=True))
        for band in (mean < 5, (mean >= 5) & (mean < 20), mean >= 20):
            covered = ((low <= y) & (y <= high))[band].mean()
            # The largest band has few rows: four deviations.
            assert abs(covered - probability[band].mean()) < 0.02 + 4 * np.sqrt(
                probability[band].mean() * (1 - probability[band].mean()) / band.sum()
            )
            assert probability[band].min() >= asked - 1e-9


def test_neighbouring_rows_have_intervals_of_like_probability():
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, (1500, 1))
    y = rng.poisson(np.exp(0.9 + 0.3 * X[:, 0]))
    model = CountRegressor(members=["glm"], random_state=0).fit(X, y)
    intervals, probability = model.predict_interval(np.linspace(-1, 1, 200)[:, None], return_probability=True)
    assert probability.min() >= 0.9
    assert probability.max() < 0.975
    assert (np.abs(np.diff(intervals, axis=0)) <= 2).all()


def test_long_exposures_are_covered_by_a_model_of_short_ones():
    rng = np.random.default_rng(5)

    def draw(rows, low, high):
        X, exposure = rng.normal(size=(rows, 1)), rng.uniform(low, high, rows)
        return X, rng.poisson(exposure * np.exp(0.3 * X[:, 0])), exposure

    X, y, exposure = draw(1200, 0.5, 5.0)
    model = CountRegressor(members=["glm"], random_state=0).fit(X, y, exposure=exposure)
    X, y, exposure = draw(6000, 20.0, 200.0)
    for asked in (0.5, 0.9):
        (low, high), probability = (
            part.T for part in model.predict_interval(X, asked, exposure=exposure, return_probability=True)
        )
        assert ((low <= y) & (y <= high)).mean() == pytest.approx(probability.mean(), abs=0.03)


def test_censored_counts_are_covered_as_expected():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(3000, 1))
    y = rng.poisson(np.exp(1.2 + 0.5 * X[:, 0]))
    model = CountRegressor(members=["glm"], censored_above=6, random_state=0)
    model.fit(X[:1000], np.minimum(y[:1000], 6))
    (low, high), probability = (part.T for part in model.predict_interval(X[1000:], return_probability=True))
    assert ((low <= y[1000:]) & (y[1000:] <= high)).mean() == pytest.approx(probability.mean(), abs=0.025)
    assert probability.min() >= 0.9


def test_recalibration_reaches_every_row():
    """Rows that span many counts, or have a component of almost no weight, are recalibrated as all others are."""
    change = MonotoneMap.from_knots([0.0, 0.1, 0.9, 1.0], [0.0, 0.2, 0.8, 1.0])
    mean = torch.tensor([2000.0, 1e5, 8.6e6, 9.0e6]).double()
    for base in (Poisson(mean), NegativeBinomial(mean, torch.full_like(mean, 0.6))):
        low, high = Recalibrated(base, change).interval(0.7)
        # G maps 0.1 to 0.2 and is linear with slope 2 before: tails of 0.15 are those of 0.075 before.
        expected = base.interval(0.85)
        assert [low.tolist(), high.tolist()] == [end.tolist() for end in expected]
    ends = []
    for weight in (0.0, 1e-12):
        parts = [Poisson(torch.tensor([50.0]).double()), NegativeBinomial(*torch.tensor([[1e4], [2.0]]).double())]
        mixed = Recalibrated(Mixture(parts, torch.tensor([1.0 - weight, weight]).double()), change)
        ends.append([end.item() for end in mixed.interval(0.7)])
    assert ends[0] == ends[1]


@pytest.mark.parametrize("mean", [2000.0, 1e4])
def test_moments_and_scores_of_recalibrated_rows_with_many_counts_are_sums(mean):
    change = MonotoneMap.from_knots([0.0, 0.05, 0.5, 0.9, 1.0], [0.0, 0.1, 0.4, 0.85, 1.0])
    dist = Recalibrated(NegativeBinomial(torch.tensor([mean]).double(), torch.tensor([0.6]).double()), change)
    z = np.arange(0.0, 40 * mean)
    p = dist.log_prob(torch.from_numpy(z).unsqueeze(1))[:, 0].exp().numpy()
    cdf = np.cumsum(p)
    assert dist.mean.item() == pytest.approx(p @ z, rel=1e-9)
    assert dist.variance.item() == pytest.approx(p @ z**2 - (p @ z) ** 2, rel=1e-9)
    assert dist.entropy().item() == pytest.approx(-(p @ np.log(np.maximum(p, 1e-300))), rel=1e-8)
    assert dist.mode.item() == p.argmax()
    for y in (0, int(0.3 * mean), int(2 * mean)):
        score = np.square(cdf[:y]).sum() + np.square(1.0 - cdf[y:]).sum()
        assert dist.crps(torch.tensor([float(y)])).item() == pytest.approx(score, rel=1e-8)
