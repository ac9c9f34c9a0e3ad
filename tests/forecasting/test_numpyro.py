"""`ddpn.forecasting.numpyro.DoublePoisson`: numbers of the reference tables and JAX's transformations.

Inference by NUTS is in test_page.py.
"""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("numpyro", reason="numpyro is not installed: make test-forecasting")

import jax
import jax.numpy as jnp

import ddpn
from ddpn.forecasting.jax_numerics import log_normalizer, terms
from ddpn.forecasting.numpyro import DoublePoisson

pytestmark = pytest.mark.filterwarnings("ignore")
REFERENCE = Path(__file__).resolve().parents[1] / "reference"
LEVELS = (0.001, 0.05, 0.25, 0.5, 0.75, 0.95, 0.999)


def table(name):
    with (REFERENCE / name).open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {key: np.array([float(row[key]) for row in rows]) for key in rows[0] if key != "how"}


@pytest.fixture(scope="module")
def golden():
    """50-digit sums for mu of 1e-6 to 1e7 and gamma of 1e-4 to 1e4."""
    return table("double_poisson.csv") | table("double_poisson_quantiles.csv")


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def dist(golden, x64):
    return DoublePoisson(golden["mu"], golden["gamma"])


def counts(golden):
    return np.stack([golden[f"y{i}"] for i in (1, 2, 3)])


def test_normaliser_likelihood_and_cdf_are_those_of_the_reference(golden, dist):
    both = jax.jit(lambda mu, gamma: (terms(mu, gamma).log_total + 0.5 * jnp.log(gamma), log_normalizer(mu, gamma)))
    for found in both(dist.mu, dist.gamma):
        np.testing.assert_allclose(found, golden["log_c"], rtol=1e-9, atol=1e-9)
    log_pmf, cdf = (np.stack([golden[f"{name}{i}"] for i in (1, 2, 3)]) for name in ("log_pmf", "cdf"))
    np.testing.assert_allclose(dist.log_prob(counts(golden)), log_pmf, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(dist.cdf(counts(golden)), cdf, atol=1e-9)


def test_moments_and_quantiles_are_those_of_the_reference(golden, dist):
    # XLA flushes numbers below 2e-308 to 0.
    np.testing.assert_allclose(dist.mean, golden["mean"], rtol=1e-8, atol=1e-300)
    np.testing.assert_allclose(dist.variance, golden["var"], rtol=1e-7, atol=1e-300)
    wanted = np.stack([golden[f"q{level}"] for level in LEVELS])
    np.testing.assert_array_equal(dist.icdf(np.array(LEVELS)[:, None]), wanted)


def test_gradients_are_those_in_torch(golden, x64):
    mu, gamma = (torch.from_numpy(golden[name]).requires_grad_() for name in ("mu", "gamma"))
    ddpn.DoublePoisson(mu, gamma).log_prob(torch.from_numpy(golden["y2"])).sum().backward()

    def log_prob(mu, gamma, y):
        return DoublePoisson(mu, gamma).log_prob(y)

    found = jax.jit(jax.vmap(jax.grad(log_prob, (0, 1))))(golden["mu"], golden["gamma"], golden["y2"])
    for theirs, parameter in zip(found, (mu, gamma), strict=True):
        # With respect to log parameters, whose gradients have comparable sizes.
        scale = parameter.detach().numpy()
        np.testing.assert_allclose(theirs * scale, parameter.grad.numpy() * scale, rtol=1e-7, atol=1e-7)


def test_second_derivatives_are_those_in_torch(x64):
    """In each regime: few counts, a window from 0, the expansion."""
    at = [[0.3, 2.0], [8.0, 0.2], [300.0, 4.0]]
    found = jax.jit(jax.vmap(jax.hessian(lambda both: DoublePoisson(*both).log_prob(7))))(np.array(at))
    for point, hessian in zip(at, found, strict=True):
        both = torch.tensor(point, dtype=torch.float64)
        wanted = torch.autograd.functional.hessian(lambda x: ddpn.DoublePoisson(*x).log_prob(torch.tensor(7.0)), both)
        np.testing.assert_allclose(hessian, wanted.numpy(), rtol=1e-6, atol=1e-8)


def test_float32_is_exact_to_1e_4_everywhere_and_to_1e_5_for_gamma_up_to_1000(golden):
    dist = DoublePoisson(*(golden[name].astype(np.float32) for name in ("mu", "gamma")))
    mu, gamma = (torch.from_numpy(np.array(each)).double() for each in (dist.mu, dist.gamma))
    y = counts(golden).astype(np.float32)
    wanted = ddpn.DoublePoisson(mu, gamma).log_prob(torch.from_numpy(y).double()).numpy()
    found = dist.log_prob(y)
    assert found.dtype == jnp.float32
    bound = np.where(golden["gamma"] <= 1000.0, 1e-5, 1e-4)
    np.testing.assert_array_less(np.abs(found - wanted), bound * (1.0 + np.abs(wanted)))


@pytest.fixture
def varied():
    return DoublePoisson(jnp.array([0.4, 6.0, 1e4, 1e6]), jnp.array([3.0, 0.2, 1.0, 0.3]))


def test_draws_follow_the_distribution(varied):
    drawn = varied.sample(jax.random.key(0), (4000,))
    assert jnp.issubdtype(drawn.dtype, jnp.integer)
    # Randomised probability integral transform: uniform if the draws are right (Kolmogorov's bound at 5e-5).
    below, at = varied.cdf(drawn - 1), jnp.exp(varied.log_prob(drawn))
    uniform = np.sort(below + at * jax.random.uniform(jax.random.key(1), drawn.shape), axis=0)
    distance = np.abs(uniform - ((np.arange(4000) + 0.5) / 4000)[:, None]).max(axis=0)
    np.testing.assert_array_less(distance, 2.3 / 4000**0.5)


def test_no_draw_is_at_an_end_of_the_window(varied):
    """In float32 the cdf is 1 up to rounding long before the window ends, 8 standard deviations from the mean."""
    levels = jnp.tile(jnp.array([[2e-6], [1.0 - 2e-6]]), (2000, 4))  # of the shape of the draws, compiled before
    distance = jnp.abs(varied.icdf(levels) - varied.mean) / jnp.sqrt(varied.variance)
    wide = distance[:, 2:]
    assert ((wide > 4.0) & (wide < 5.5)).all()


def test_batches_events_and_values_that_are_no_counts():
    dist = DoublePoisson(jnp.array([2.0, 5.0]), 3.0)
    assert dist.batch_shape == (2,)
    assert dist.expand((3, 2)).to_event(1).log_prob(jnp.array([2, 4])).shape == (3,)
    assert jax.jit(lambda each: each.mean)(dist).shape == (2,)
    checked = DoublePoisson(dist.mu, dist.gamma, validate_args=True)
    assert jnp.isneginf(checked.log_prob(jnp.array([-1, 1]))).tolist() == [True, False]
    with pytest.raises(ValueError, match="invalid gamma parameter"):
        DoublePoisson(2.0, -1.0, validate_args=True)
