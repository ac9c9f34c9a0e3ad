"""The constant member is the most likely distribution without inputs."""

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from ddpn.distributions import NegativeBinomial
from ddpn.distributions.limits import as_recorded
from ddpn.members.constant import Constant
from ddpn.sample import Sample

RNG = np.random.default_rng(4)


def fit(y: np.ndarray, weight=None, exposure=None) -> Constant:
    return Constant().fit(Sample(np.zeros((len(y), 1)), y, weight, exposure), None, seed=0)


def test_it_is_the_most_likely_negative_binomial_of_overdispersed_counts():
    y = RNG.negative_binomial(2.0, 2.0 / 7.0, 2000).astype(float)
    found = fit(y)
    assert found.likelihood == "negative_binomial"

    def loss(theta: np.ndarray) -> float:
        size = np.exp(theta[1])
        return -stats.nbinom.logpmf(y, size, size / (size + np.exp(theta[0]))).sum()

    best = optimize.minimize(loss, [np.log(y.mean()), 0.0], method="BFGS").fun
    dist = found.distribution(np.zeros((2000, 1)))
    assert isinstance(dist, NegativeBinomial)
    assert dist.batch_shape == (2000, 1)
    assert -dist.log_prob(torch.from_numpy(y)[:, None]).sum().item() == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("y", [np.zeros(5), np.array([3.0]), np.full(9, 1e6)], ids=["zeros", "one row", "equal"])
def test_hard_cases_are_finite(y):
    assert np.isfinite(fit(y).distribution(np.zeros((1, 1))).mean.item())


def test_it_has_the_rate_of_all_rows():
    exposure, weight = RNG.uniform(50.0, 400.0, 400), RNG.integers(1, 4, 400).astype(float)
    y = RNG.poisson(exposure * 0.05).astype(float)
    found = fit(y, weight, exposure)
    rate = (weight @ y) / (weight @ exposure)
    mean = found.distribution(np.zeros((400, 1)), exposure).mean.numpy()[:, 0]
    assert (weight @ mean) / (weight @ exposure) == pytest.approx(rate, rel=0.02)
    assert mean / exposure == pytest.approx(np.full(400, mean[0] / exposure[0]), rel=0.02)


def test_bounded_and_censored_counts_have_their_own_maximum():
    """Positive Poisson counts, and Poisson counts up to 4, whose rates are known: by the closed forms of scipy."""
    y = RNG.poisson(2.0, 4000).astype(float)
    positive, cut = y[y > 0], np.minimum(y, 4.0)
    n = len(positive)
    samples = {
        "truncated": Sample(np.zeros((n, 1)), positive, lower=np.ones(n)),
        "censored": Sample(np.zeros((4000, 1)), cut, limit=np.full(4000, 4.0)),
    }
    losses = {
        "truncated": lambda mu: -(stats.poisson.logpmf(positive, mu) - stats.poisson.logsf(0, mu)).sum(),
        "censored": lambda mu: -np.where(cut < 4, stats.poisson.logpmf(cut, mu), stats.poisson.logsf(3, mu)).sum(),
    }
    for name, sample in samples.items():
        found = Constant().fit(sample, None, seed=0)
        best = optimize.minimize_scalar(losses[name], bounds=(1.0, 3.0), method="bounded")
        assert found.distribution(np.zeros((1, 1))).mean.item() == pytest.approx(best.x, rel=0.06)
        dist = as_recorded(found.distribution(sample.X), sample)
        value = -dist.log_prob(torch.from_numpy(sample.y)[:, None]).sum().item()
        assert best.fun - 10 < value <= best.fun + 0.01  # families of more parameters fit a little better
