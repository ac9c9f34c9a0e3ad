"""Test counts whose means are rates times exposures, over six decades of exposure."""

import numpy as np
import pytest
import torch

from ddpn.estimators import CountGLM, CountRegressor
from ddpn.members.constant import Constant
from ddpn.members.glm import GLM
from ddpn.members.trees.member import Trees
from ddpn.networks.heads import HEADS, make_head
from ddpn.networks.heads.clamps import mean_preserving_log_gamma
from ddpn.rows.count_rows import CountRows

DECADES = range(-3, 3)


def simulate_rates(rows: int, seed: int, alpha: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Simulate inputs, Negative Binomial counts, exposures from 1e-3 to 1e3, and true means."""
    rng = np.random.default_rng(seed)
    X, exposure = rng.normal(size=(rows, 2)), 10.0 ** rng.uniform(-3.0, 3.0, rows)
    mean = np.exp(0.3 + 0.4 * X[:, 0]) * exposure
    return X, rng.negative_binomial(1.0 / alpha, 1.0 / (1.0 + alpha * mean)).astype(float), exposure, mean


def sum_by_decade(predicted: np.ndarray, exposure: np.ndarray, mean: np.ndarray) -> list[float]:
    decade = np.floor(np.log10(exposure))
    return [predicted[decade == k].sum() / mean[decade == k].sum() for k in DECADES]


@pytest.mark.parametrize("likelihood", ["double_poisson", "negative_binomial", "poisson"])
def test_means_of_a_glm_are_proportional_to_exposures(likelihood):
    X, y, exposure, _ = simulate_rates(2000, 0)
    new, _, scale, mean = simulate_rates(2000, 1)
    model = CountGLM(likelihood, covariance="robust").fit(X, y, exposure=exposure)
    predicted = model.predict(new, exposure=scale)
    np.testing.assert_allclose(sum_by_decade(predicted, scale, mean), 1.0, atol=0.1)


@pytest.mark.parametrize("member", [GLM, Trees, Constant])
def test_means_of_members_are_proportional_to_exposures(member):
    X, y, exposure, mean = simulate_rates(2000, 0)
    fitted = member.fit(CountRows(X, y, exposure=exposure), None, seed=0)
    predicted = fitted.distribution(X, exposure).mean.mean(1).numpy()
    np.testing.assert_allclose(sum_by_decade(predicted, exposure, mean), 1.0, atol=0.2 if member is Constant else 0.12)


def test_means_of_the_portfolio_are_proportional_to_exposures():
    X, y, exposure, _ = simulate_rates(600, 0)
    new, _, scale, mean = simulate_rates(1000, 1)
    model = CountRegressor(hidden=(8,), epochs=10, random_state=0).fit(X, y, exposure=exposure)
    np.testing.assert_allclose(sum_by_decade(model.predict(new, exposure=scale), scale, mean), 1.0, atol=0.15)


@pytest.mark.parametrize("unit", [1e-8, 1e8])
def test_the_unit_of_exposures_does_not_matter(unit):
    """Years or nanoseconds give the same model with another intercept."""
    X, y, exposure, _ = simulate_rates(500, 0)
    plain, other = (CountGLM(likelihood="negative_binomial").fit(X, y, exposure=exposure * k) for k in (1.0, unit))
    np.testing.assert_allclose(
        other.predict(X, exposure=exposure * unit), plain.predict(X, exposure=exposure), rtol=1e-4
    )
    assert other.intercept_[0] == pytest.approx(plain.intercept_[0] - np.log(unit), abs=1e-3)


@pytest.mark.parametrize("name", [name for name in HEADS if HEADS[name].is_count and not HEADS[name].exposure_is_total])
def test_the_mean_of_every_likelihood_follows_the_exposure(name):
    """Means are within 6% of proportional for all dispersions; an exposure changes no zeros of their own."""
    if name.startswith(("zero_inflated", "hurdle")):
        pytest.skip("has zeros that do not depend on the exposure")
    head, exposure = make_head(name), torch.logspace(-3.0, 3.0, 13, dtype=torch.float64)
    for dispersion in (-6.0, -1.5, 0.0, 1.0):
        raw = torch.full((13, head.n_raw), dispersion, dtype=torch.float64)
        raw[:, [i for i, output in enumerate(head.parameter_names) if "log mu" in output]] = 0.0
        ratio = head(raw, exposure).mean / exposure
        np.testing.assert_allclose(ratio.numpy(), 1.0, atol=0.06)


def test_an_exposure_leaves_gamma_where_it_keeps_the_mean():
    """Where gamma mu is large, or gamma is 1, gamma is what the network says."""
    log_mu = torch.tensor([9.0, 9.0, -5.0, 9.0], dtype=torch.float64)
    log_gamma = torch.tensor([-2.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(mean_preserving_log_gamma(log_gamma, log_mu), log_gamma, rtol=0, atol=2e-3)


def test_under_dispersed_counts_with_exposures_keep_their_variance():
    """Binomial counts of 80% have a variance of a fifth of the mean, at means from 4 to 40."""
    rng = np.random.default_rng(0)
    exposure = rng.integers(5, 51, 1500).astype(float)
    y = rng.binomial(exposure.astype(int), 0.8).astype(float)
    X = rng.normal(size=(1500, 1))
    dist = CountGLM(dispersion="constant").fit(X, y, exposure=exposure).predict_distribution(X, exposure)
    assert float((dist.variance / dist.mean).mean()) == pytest.approx(0.2, abs=0.03)
    assert float(dist.mean.sum()) == pytest.approx(0.8 * exposure.sum(), rel=0.01)
