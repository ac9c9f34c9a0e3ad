"""Weights for covariate shift: near the true ratio of densities, and intervals that cover new rows with them."""

import numpy as np
import pytest
from scipy import stats

from ddpn import ConfigError, CountGLM
from ddpn.calibration.intervals import IntervalLevels
from ddpn.calibration.shift import density_ratio


def test_weights_follow_the_ratio_of_densities():
    rng = np.random.default_rng(0)
    x, new = rng.normal(0.0, 1.0, 3000), rng.normal(1.0, 1.0, 2000)
    truth = stats.norm.pdf(x, 1.0) / stats.norm.pdf(x, 0.0)
    found = density_ratio(x[:, None], new[:, None])
    assert found.mean() == pytest.approx(1.0)
    inner = np.abs(x) < 1.5
    assert np.log(found[inner]) == pytest.approx(np.log(truth[inner]), abs=0.4)


def test_the_weight_of_a_new_row_is_what_one_has_on_average():
    rng = np.random.default_rng(1)
    needed, weight = rng.random(50), rng.gamma(0.5, 1.0, 50)
    levels = IntervalLevels.of(needed, weight)
    share = np.sort(needed), weight[np.argsort(needed)] / weight.sum()
    extra = np.square(weight).sum() / weight.sum() ** 2
    place = np.searchsorted(np.cumsum(share[1]), 0.8 * (1.0 + extra) - 1e-10)
    assert levels.at(0.8) == pytest.approx(share[0][place], abs=2e-9)
    assert IntervalLevels.of(needed, np.full(50, 3.0)).at(0.8) == IntervalLevels.of(needed).at(0.8)


def test_intervals_cover_rows_of_another_distribution_of_features():
    """Counts are noisier where x is large, and new rows have larger x."""
    rng = np.random.default_rng(2)

    def draw(low, high, n):
        x = rng.uniform(low, high, n)
        mu = np.full(n, 8.0)
        size = np.exp(2.0 - 3.0 * x)
        return x[:, None], rng.negative_binomial(size, size / (size + mu)).astype(float)

    model = CountGLM(likelihood="poisson").fit(*draw(0.0, 1.0, 500))
    (X, y), (X_new, y_new) = draw(0.0, 1.0, 3000), draw(0.6, 1.0, 3000)
    share = {}
    for name, weight in (("plain", None), ("weighted", density_ratio(X, X_new))):
        low, high = model.fit_intervals(X, y, weight).predict_interval(X_new).T
        share[name] = ((low <= y_new) & (y_new <= high)).mean()
    assert share["plain"] < 0.87
    assert share["weighted"] == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("limit", [1.0, float("inf"), "x"])
def test_a_bad_limit_is_reported(limit):
    with pytest.raises(ConfigError, match="limit must be a finite number above 1"):
        density_ratio(np.zeros((5, 1)), np.zeros((5, 1)), limit)
