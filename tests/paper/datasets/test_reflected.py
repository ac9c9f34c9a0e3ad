"""The reflected distribution against sums of scipy's pmf."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import log_softmax, softmax

from ddpn.distributions import NegativeBinomial, Poisson
from ddpn.metrics import crps, nll
from ddpn.paper.datasets.simulations import Reflected
from ddpn.runtime.errors import InputError

RATES = np.array([1e-9, 0.3, 4.2, 11.3, 20.0 - 1e-6])
TOP = 30
Z = np.arange(TOP, -1, -1)


def table(folds: int) -> np.ndarray:
    """p(y) of each rate on 0..30, from scipy."""
    return softmax(folds * stats.poisson.logpmf(Z, RATES[:, None]), axis=1)


@pytest.fixture(scope="module", params=[1, 5])
def both(request):
    rates = torch.from_numpy(RATES)
    return Reflected(Poisson(rates), TOP, folds=request.param), table(request.param)


def test_probabilities(both):
    dist, p = both
    y = torch.arange(TOP + 1.0, dtype=torch.float64).unsqueeze(1)
    np.testing.assert_allclose(dist.log_prob(y).exp().T, p, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(dist.cdf(y).T, p.cumsum(1), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(dist.survival(y).T[:, :-1], p[:, ::-1].cumsum(1)[:, ::-1][:, 1:], rtol=1e-9, atol=1e-15)


def test_moments(both):
    dist, p = both
    y = np.arange(TOP + 1)
    mean = p @ y
    np.testing.assert_allclose(dist.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(dist.variance[1:], ((y - mean[:, None]) ** 2 * p).sum(1)[1:], rtol=1e-9)
    np.testing.assert_array_equal(dist.mode, p.argmax(1))
    np.testing.assert_allclose(dist.entropy(), stats.entropy(p, axis=1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("y", [0, 12, 26, 30])
def test_scores(both, y):
    dist, p = both
    step = np.arange(TOP + 1) >= y
    expected = ((p.cumsum(1) - step) ** 2).sum(1)
    np.testing.assert_allclose(crps(dist, torch.tensor(y)), expected, rtol=1e-9, atol=1e-15)


def test_log_probabilities_do_not_underflow():
    expected = log_softmax(5 * stats.poisson.logpmf(Z, RATES[:, None]), axis=1)
    dist = Reflected(Poisson(torch.from_numpy(RATES)), TOP, folds=5)
    assert expected.min() < -3000
    for y in (0, 7, 29):
        np.testing.assert_allclose(nll(dist, torch.tensor(y)), -expected[:, y], rtol=1e-9)


def test_of_two_modes_the_smaller():
    assert Reflected(Poisson(11.0), TOP).mode.item() == 19


def test_quantiles_and_intervals(both):
    dist, p = both
    for q in (0.025, 0.4, 0.5, 0.975):
        np.testing.assert_array_equal(dist.icdf(torch.tensor(q)), (p.cumsum(1) < q).sum(1))
    low, high = dist.interval(0.9)
    np.testing.assert_array_equal(low, (p.cumsum(1) < 0.05).sum(1))
    np.testing.assert_array_equal(high, (p.cumsum(1) < 0.95).sum(1))
    short = dist.interval(0.9, kind="highest")
    assert (short[1] - short[0] <= high - low).all()
    assert (dist.cdf(short[1]) - dist.cdf((short[0] - 1).clamp(min=0)) * (short[0] > 0) >= 0.9).all()


def test_folds_are_powers_of_the_pmf():
    rates = torch.from_numpy(RATES[1::2])
    dist = Reflected(Poisson(rates), TOP, folds=2)
    counts = np.arange(TOP + 1)
    product = stats.poisson.pmf(counts[:, None], rates.numpy()) ** 2
    product /= product.sum(0)
    mean = (counts[:, None] * product).sum(0)
    np.testing.assert_allclose(dist.mean, TOP - mean, rtol=1e-6, atol=0)
    np.testing.assert_allclose(dist.variance, ((counts[:, None] - mean) ** 2 * product).sum(0), rtol=1e-4, atol=0)
    np.testing.assert_allclose(dist.log_prob(torch.tensor(25.0)).exp(), product[TOP - 25], rtol=1e-6, atol=0)


def test_above_the_top():
    dist = Reflected(Poisson(torch.tensor([2.0, 9.0]).double()), 12)
    y = torch.tensor(15.0)
    assert dist.log_prob(y).tolist() == [-torch.inf] * 2
    assert dist.cdf(y).tolist() == [1.0, 1.0]
    np.testing.assert_allclose(dist.crps(y), 3 + dist.crps(torch.tensor(12.0)), rtol=1e-7)


def test_shapes_dtypes_and_samples():
    dist = Reflected(NegativeBinomial(torch.tensor([[2.0], [5.0]]), torch.tensor([0.1, 0.5, 1.0])), 60)
    assert dist.batch_shape == dist.mean.shape == dist.crps(torch.tensor(50)).shape == (2, 3)
    assert dist.mean.dtype == dist.crps(torch.tensor(50)).dtype == torch.float32
    wide = dist.expand((4, 2, 3))
    assert wide.batch_shape == wide.variance.shape == (4, 2, 3)
    np.testing.assert_array_equal(wide.variance[3], dist.variance)
    draws = dist.sample((1000,), generator=torch.Generator().manual_seed(0))
    assert draws.shape == (1000, 2, 3)
    error = (dist.variance / 1000).sqrt()
    assert ((draws.mean(0) - dist.mean).abs() < 4.5 * error).all()


@pytest.mark.parametrize("top", [0, 101])
def test_an_invalid_top(top):
    with pytest.raises(InputError, match=f"top must be between 1 and 100, got {top}"):
        Reflected(Poisson(2.0), top)
