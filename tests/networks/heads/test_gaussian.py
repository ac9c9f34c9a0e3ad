"""Test the Gaussian heads against scipy, Seitzer's derivatives and identities of an exponential family."""

import numpy as np
import pytest
import torch
from scipy import stats

from ddpn.networks.heads import FaithfulGaussianHead, GaussianHead, NaturalGaussianHead

MEAN, LOG_VARIANCE, Y = (torch.tensor(x) for x in np.meshgrid([-3.0, 0.0, 40.0], [-2.0, 0.0, 3.0], [0.0, 5.0, 44.0]))
RAW = torch.stack([MEAN, LOG_VARIANCE], dim=-1)
FAITHFUL = torch.tensor([[0.0, -3.0], [4.0, 0.0], [9.0, 2.0]], dtype=torch.float64)
COUNTS = torch.tensor([2, 4, 1])
#: The same numbers as natural parameters.
ETA1, LOG_PRECISION, NATURAL, PRECISION = MEAN, LOG_VARIANCE, RAW, LOG_VARIANCE.exp()


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_gradients_of_beta_nll_are_seitzers(compute_slopes, beta):
    """Compare the derivatives by mean and variance.

    They are (mean - y) / variance^(1 - beta) and (variance - (y - mean)^2) / (2 variance^(2 - beta)).
    """
    slope, variance = compute_slopes(GaussianHead(beta=beta), RAW, Y), LOG_VARIANCE.exp()
    torch.testing.assert_close(slope[..., 0], (MEAN - Y) / variance ** (1 - beta), rtol=1e-12, atol=1e-12)
    by_variance = (variance - (Y - MEAN) ** 2) / (2 * variance ** (2 - beta))
    torch.testing.assert_close(slope[..., 1], by_variance * variance, rtol=1e-12, atol=1e-12)


def test_exposure_scales_mean_and_deviation():
    exposure = torch.full_like(Y, 2.5)
    dist = GaussianHead()(RAW, exposure)
    torch.testing.assert_close(dist.mean, 2.5 * MEAN)
    torch.testing.assert_close(dist.variance, 2.5**2 * LOG_VARIANCE.exp())
    expected = -stats.norm.logpdf(Y, 2.5 * MEAN, 2.5 * np.exp(LOG_VARIANCE.numpy() / 2))
    np.testing.assert_allclose(GaussianHead().loss(RAW, Y, exposure), expected, rtol=1e-12)


def test_the_mean_gets_squared_error_and_the_variance_its_likelihood(compute_slopes):
    slope = compute_slopes(FaithfulGaussianHead(), FAITHFUL, COUNTS)
    torch.testing.assert_close(slope[:, 0], FAITHFUL[:, 0] - COUNTS, rtol=1e-14, atol=0)
    torch.testing.assert_close(slope[:, 1], compute_slopes(GaussianHead(), FAITHFUL, COUNTS)[:, 1], rtol=1e-14, atol=0)
    squared = ((COUNTS - FAITHFUL[:, 0]) ** 2 / FAITHFUL[:, 1].exp()).double()
    torch.testing.assert_close(slope[:, 1], 0.5 * (1 - squared), rtol=1e-12, atol=1e-12)


def test_gradients_are_expected_minus_seen_statistics(compute_slopes):
    """The gradient by eta1 is E[Y] - y, and that by eta2 = -precision / 2 is E[Y^2] - y^2."""
    slope = compute_slopes(NaturalGaussianHead(), NATURAL, Y)
    mean = ETA1 / PRECISION
    torch.testing.assert_close(slope[..., 0], mean - Y, rtol=1e-12, atol=1e-10)
    by_eta2 = mean**2 + 1 / PRECISION - Y**2
    torch.testing.assert_close(slope[..., 1] / (-PRECISION / 2), by_eta2, rtol=1e-9, atol=1e-9)
