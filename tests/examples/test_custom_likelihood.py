"""Test the example's head against the contract of every head, and its distribution against scipy."""

import inspect
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from ddpn.networks.heads import SHIPPED

_HEADS = Path(__file__).parents[1] / "networks" / "heads"
_shared = runpy.run_path(str(_HEADS / "conftest.py"))
compute_slopes, counts_of_variance_18 = _shared["compute_slopes"], _shared["counts_of_variance_18"]
# The tests of the contract that take a head run with this one.
globals().update(
    {
        name: check
        for name, check in runpy.run_path(str(_HEADS / "test_head.py")).items()
        if name.startswith("test_") and {"head", "starting_head"} & set(inspect.signature(check).parameters)
    }
)


@pytest.fixture
def custom(load_example):
    return load_example("custom_likelihood")


@pytest.fixture
def head(custom):
    return custom.OneInflatedHead()


@pytest.fixture
def starting_head(head):
    return head


@pytest.mark.parametrize(("mu", "once"), [(0.3, 0.9), (4.0, 0.2), (90.0, 0.5), (2e4, 0.1)])
def test_the_distribution_is_that_of_scipy(custom, mu, once):
    dist = custom.OneInflatedPoisson(torch.tensor(mu, dtype=torch.float64), torch.tensor(once, dtype=torch.float64))
    z = np.arange(0, int(mu + 15 * np.sqrt(mu) + 40))
    pmf = (1 - once) * stats.poisson.pmf(z, mu) + once * (z == 1)
    cdf = pmf.cumsum()
    y = torch.tensor([0, 1, int(mu), int(mu + 2 * np.sqrt(mu))])
    np.testing.assert_allclose(dist.log_prob(y).exp(), pmf[y], rtol=1e-9)
    np.testing.assert_allclose(dist.cdf(y), cdf[y], rtol=1e-9)
    np.testing.assert_allclose(dist.mean, pmf @ z, rtol=1e-9)
    np.testing.assert_allclose(dist.variance, pmf @ z**2 - (pmf @ z) ** 2, rtol=1e-8)
    brute = [((cdf - (z >= count)) ** 2).sum() for count in y.tolist()]
    np.testing.assert_allclose(dist.crps(y), brute, rtol=1e-7)
    np.testing.assert_allclose(dist.entropy(), stats.entropy(pmf), rtol=1e-7)
    low, high = dist.interval(0.9)
    assert (low, high) == (z[cdf >= 0.05][0], z[cdf >= 0.95][0])


def test_a_tiny_mean_keeps_the_ones(custom):
    dist = custom.OneInflatedPoisson(torch.tensor(1e-12, dtype=torch.float64), torch.tensor(0.6, dtype=torch.float64))
    assert dist.interval(0.9) == (0, 1)
    assert dist.cdf(torch.tensor(0)).item() == pytest.approx(0.4)


def test_the_example_is_not_built_in(custom):
    assert custom.OneInflatedHead.name not in SHIPPED


def test_ones_of_two_kinds_are_told_apart(custom, capsys):
    scores = custom.run(rows=800, hidden=(16,), epochs=20)
    assert scores["one_inflated_poisson"] < min(scores["double_poisson"], scores["poisson"])
    assert scores["once"] < 0.12
    assert "one_inflated_poisson" in capsys.readouterr().out
