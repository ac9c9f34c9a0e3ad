"""Test counts of any size that float64 can hold: predictions are those of small counts, times the scale."""

import warnings

import numpy as np
import pytest
import torch
from scipy import stats

from ddpn.distributions import DoublePoisson, Mixture
from ddpn.estimators import CountGLM, DDPNRegressor
from ddpn.members.constant import Constant
from ddpn.members.glm import GLM
from ddpn.members.trees.member import Trees
from ddpn.networks.heads import make_head
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import InputError

#: The variance of the truth is alpha times the squared mean.
ALPHA = 0.04


def simulate_scaled_counts(rows: int, scale: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate inputs, counts around `scale`, and their true means."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    mean = scale * np.exp(0.5 * X[:, 0] - 0.125)
    return X, np.rint(rng.gamma(1.0 / ALPHA, ALPHA, rows) * mean), mean


def compute_coverage(low, high, y) -> float:
    return float(np.mean((y >= np.asarray(low)) & (y <= np.asarray(high))))


@pytest.mark.parametrize("scale", [1e6, 1e12])
@pytest.mark.parametrize("likelihood", ["double_poisson", "negative_binomial"])
def test_a_glm_recovers_means_and_spread(likelihood, scale):
    X, y, _ = simulate_scaled_counts(500, scale, 0)
    new, counts, mean = simulate_scaled_counts(300, scale, 1)
    model = CountGLM(likelihood=likelihood).fit(X, y)
    assert model.predict(new).sum() == pytest.approx(mean.sum(), rel=0.03)
    assert model.intercept_[0] == pytest.approx(np.log(scale) - 0.125, abs=0.05)
    assert model.coef_[0] == pytest.approx([0.5, 0.0], abs=0.04)
    assert 0.86 < compute_coverage(*model.predict_interval(new).T, counts) < 0.95


def test_a_poisson_glm_recovers_means_beyond_float32():
    X, _, mean = simulate_scaled_counts(300, 1e9, 0)
    y = np.random.default_rng(2).poisson(mean)
    model = CountGLM(likelihood="poisson").fit(X, y)
    np.testing.assert_allclose(model.predict(X), mean, rtol=1e-4)
    assert 0.85 < compute_coverage(*model.predict_interval(X).T, y) < 0.95


@pytest.mark.parametrize("member", [GLM, Trees, Constant])
def test_members_scale_with_the_counts(member):
    """A million times the counts give the same predictions times a million, and the same coverage."""
    X, y, _ = simulate_scaled_counts(400, 1000.0, 0)
    new, counts, _ = simulate_scaled_counts(300, 1000.0, 1)
    results = []
    for scale in (1.0, 1e6):
        fitted = member.fit(CountRows(X, y * scale), None, seed=0)
        dist = Mixture(type(fitted).from_state(fitted.state()).distribution(new))
        low, high = dist.interval(0.9)
        crps = dist.crps(torch.from_numpy(counts * scale)).mean().item()
        results.append((dist.mean.mean().item() / scale, crps / scale, compute_coverage(low, high, counts * scale)))
    small, large = results
    assert large[0] == pytest.approx(small[0], rel=0.01)
    assert large[1] == pytest.approx(small[1], rel=0.02)
    assert large[2] == pytest.approx(small[2], abs=0.03)


def test_networks_recover_means():
    X, y, _ = simulate_scaled_counts(300, 1e10, 0)
    new, _, mean = simulate_scaled_counts(100, 1e10, 1)
    options = {
        "n_networks": 1,
        "hidden": (8,),
        "epochs": 40,
        "validation": None,
        "random_state": 0,
        "preset": "default",
    }
    model = DDPNRegressor(**options).fit(X, y)
    assert model.predict(new).sum() == pytest.approx(mean.sum(), rel=0.1)
    assert np.corrcoef(np.log(model.predict(new)), np.log(mean))[0, 1] > 0.9


def test_an_exposure_scales_large_counts():
    """Predict counts of a billion at an exposure of 1, from rows with exposures of a thousand."""
    X, _, mean = simulate_scaled_counts(400, 1.0, 0)
    rng = np.random.default_rng(3)
    exposure = 1e3 * rng.uniform(0.5, 2.0, len(X))
    y = np.rint(rng.gamma(1.0 / ALPHA, ALPHA, len(X)) * 1e6 * exposure * mean)
    model = CountGLM(likelihood="negative_binomial").fit(X, y, exposure=exposure)
    assert model.predict(X, exposure=1.0).sum() == pytest.approx(1e6 * mean.sum(), rel=0.03)


@pytest.mark.parametrize("mu", [1e6, 1e9, 1e12])
def test_large_negative_binomials_have_quantiles_and_scores_of_a_gamma(mu):
    """With such a mean a Negative Binomial is a gamma distribution."""
    truth, levels = stats.gamma(25.0, scale=mu / 25.0), torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    raw = torch.tensor([[np.log(1e6), np.log(0.04)]], dtype=torch.float64)
    dist = Mixture(make_head("negative_binomial")(raw, torch.tensor([mu / 1e6])).expand((1, 1)))
    np.testing.assert_allclose(dist.icdf(levels.unsqueeze(1)).flatten(), truth.ppf(levels), rtol=1e-4)
    y = np.rint(truth.ppf(0.3))
    grid = np.linspace(0.0, truth.ppf(1 - 1e-9), 200_001)
    expected = np.trapezoid(np.square(truth.cdf(grid) - (grid >= y)), grid)
    assert dist.crps(torch.tensor([y])).item() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("mu", [1e6, 1e9, 1e12])
def test_double_poissons_of_large_counts_are_those_of_smaller_ones_scaled(mu):
    levels = torch.tensor([[0.05], [0.5], [0.95]], dtype=torch.float64)
    small, large = (Mixture(DoublePoisson(torch.tensor([[m]], dtype=torch.float64), 25.0 / m)) for m in (1e5, mu))
    torch.testing.assert_close(large.icdf(levels) / mu, small.icdf(levels) / 1e5, rtol=1e-4, atol=0)
    torch.testing.assert_close(large.mean / mu, small.mean / 1e5, rtol=1e-4, atol=0)
    scores = [dist.crps(torch.tensor([m])) / m for dist, m in ((small, 1e5), (large, mu))]
    torch.testing.assert_close(scores[1], scores[0], rtol=1e-4, atol=0)


def test_integers_that_float64_does_not_have_are_refused():
    X = np.zeros((3, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        CountGLM(likelihood="poisson").fit(X, [1.0, 2.0**53, 2.0**52])
    with pytest.raises(InputError, match=r"2\^53"):
        CountGLM().fit(X, [1.0, 2.0, 2.0**54])
