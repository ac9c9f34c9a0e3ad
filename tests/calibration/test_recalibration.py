"""Test that a map learnt from the PIT corrects distributions that are wrong, and leaves right ones alone."""

import numpy as np
import pytest
import torch
from scipy import stats

from ddpn import CountGLM, Poisson
from ddpn.calibration.recalibration import KNOTS, Recalibration, divide_pit_intervals, fit_map
from ddpn.distributions import Recalibrated
from ddpn.members.constant import Constant
from ddpn.metrics import pit_distance
from ddpn.predictor import Predictor
from ddpn.rows.count_rows import CountRows


@pytest.fixture(scope="module")
def counts_and_narrow_means():
    """Over-dispersed counts, and Poissons of the same means that are too narrow for them."""
    rng = np.random.default_rng(0)
    mu = rng.gamma(4.0, 2.0, 3000)
    y = rng.negative_binomial(4.0, 4.0 / (4.0 + mu)).astype(float)
    return mu, y


class InputMeans(Constant):
    """A member that predicts Poissons whose means are the inputs."""

    def __init__(self) -> None:
        """Make the member, which needs no fit."""

    def distribution(self, X, exposure=None):
        return Poisson(torch.from_numpy(X[0].values[:, None]))


def fit_recalibration(mu, y, weight=None, **options) -> Recalibration:
    rows = Predictor({"poissons": InputMeans()}).predict_held_out(CountRows(mu[:, None], y, weight))
    return Recalibration.fit(rows, **options)[0]


def test_overlaps_are_shares_of_each_pit_interval():
    before, upto = np.array([0.0, 0.3, 1.0 - 1e-15]), np.array([1.0, 0.3001, 1.0])
    shares = divide_pit_intervals(before, upto)
    assert shares.sum(1) == pytest.approx(1.0)
    assert shares[0] == pytest.approx(np.diff(KNOTS))
    assert shares[2].tolist() == [0.0] * (len(KNOTS) - 2) + [1.0]


def test_the_map_is_the_cdf_of_the_pit():
    """A Normal is shifted and too narrow, which the first two polynomials describe exactly."""
    rng = np.random.default_rng(1)
    u = stats.norm.cdf(rng.normal(0.3, 1.2, 20_000))
    actual = fit_map(divide_pit_intervals(u, u), np.ones(len(u)))
    at = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    expected = stats.norm.cdf(stats.norm.ppf(at), 0.3, 1.2)
    assert actual(torch.from_numpy(at)).numpy() == pytest.approx(expected, abs=0.01)


def test_few_rows_are_shrunk_towards_the_identity():
    u = np.full(10, 0.9)
    few, many = (fit_map(np.repeat(divide_pit_intervals(u, u), times, 0), np.ones(10 * times)) for times in (1, 100))
    identity = torch.from_numpy(KNOTS)
    assert (few.value - identity).abs().max() < 0.15 < (many.value - identity).abs().max()
    assert (many.slope > 0).all()


def test_distributions_that_are_too_narrow_are_corrected(counts_and_narrow_means):
    mu, y = counts_and_narrow_means
    dist = Poisson(torch.from_numpy(mu))
    half = slice(0, 1500)
    result = fit_recalibration(mu[half], y[half])
    assert result.is_used
    assert result.gain > 5 * result.error
    later, counts = dist.rows(torch.arange(1500, 3000)), torch.from_numpy(y[1500:])
    after = Recalibrated(later, result.map)
    assert pit_distance(after, counts) < 0.3 * pit_distance(later, counts)
    assert after.crps(counts).mean() < 0.99 * later.crps(counts).mean()
    # The decision's gain is what new rows gain, up to three standard errors of both.
    gain = (later.crps(counts) - after.crps(counts)).mean().item()
    assert gain == pytest.approx(result.gain, abs=3 * 2**0.5 * result.error)


def test_true_distributions_are_mostly_left_alone():
    """With its rule of two standard errors chance alone would use a map in 2% of samples."""
    rng = np.random.default_rng(3)
    used = []
    for _ in range(20):
        mu = rng.gamma(2.0, 2.0, 150)
        y = rng.poisson(mu).astype(float)
        used.append(fit_recalibration(mu, y).is_used)
    assert sum(used) <= 2


def test_weights_scale_the_loss_and_always_uses_the_map(counts_and_narrow_means):
    mu, y = (part[:300] for part in counts_and_narrow_means)
    plain, doubled = fit_recalibration(mu, y), fit_recalibration(mu, y, np.full(300, 2.0))
    assert doubled.value == pytest.approx(plain.value, abs=1e-9)
    assert (doubled.gain, doubled.error) == pytest.approx((plain.gain, plain.error))
    odd = np.r_[y, np.full(100, 1000.0)]
    without = fit_recalibration(np.r_[mu, mu[:100]], odd, np.r_[np.ones(300), np.zeros(100)])
    assert without.value == pytest.approx(plain.value, abs=1e-6)
    assert without.rows == 300
    assert not fit_recalibration(mu[:30], y[:30]).is_used
    assert fit_recalibration(mu[:30], y[:30], always=True).is_used


def test_an_estimator_uses_saves_and_reports_its_recalibration(counts_and_narrow_means, tmp_path):
    mu, y = counts_and_narrow_means
    X = np.log(mu)[:, None]
    model = CountGLM("poisson", covariance="robust").fit(X[:1000], y[:1000])
    assert model.predictor_.calibration.recalibration is None
    before = model.predict_distribution(X[2000:])
    model.fit_intervals(X[1000:2000], y[1000:2000]).fit_recalibration(X[1000:2000], y[1000:2000])
    assert model.predictor_.calibration.recalibration.is_used
    assert "mixture" not in model.predictor_.calibration.intervals
    result = model.predict_distribution(X[2000:]).distribution
    assert isinstance(result, Recalibrated)
    assert result.base.mean.tolist() == before.mean.tolist()
    assert model.predict(X[2000:], statistic="median").tolist() == result.icdf(torch.tensor(0.5)).tolist()
    assert model.predict_distribution(X[2000:]).variance == pytest.approx(result.variance.numpy())
    model.fit_intervals(X[1000:2000], y[1000:2000])
    low, high = model.predict_interval(X[2000:]).T
    assert ((low <= y[2000:]) & (y[2000:] <= high)).mean() == pytest.approx(0.9, abs=0.04)
    model.save(tmp_path / "model")
    again = CountGLM.load(tmp_path / "model")
    assert again.predictor_.calibration.recalibration[1:] == model.predictor_.calibration.recalibration[1:]
    assert again.crps(X[2000:], y[2000:]) == model.crps(X[2000:], y[2000:])
