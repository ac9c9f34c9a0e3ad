"""The Gaussian head in natural parameters against scipy and the exponential family's identities."""

import numpy as np
import torch
from scipy import stats

from ddpn.networks.heads import NaturalGaussianHead

ETA1, LOG_PRECISION, Y = (
    torch.tensor(x) for x in np.meshgrid([-2.0, 0.0, 3.0, 30.0], [-4.0, 0.0, 2.0], [0.0, 1.0, 25.0])
)
RAW = torch.stack([ETA1, LOG_PRECISION], dim=-1)
PRECISION = LOG_PRECISION.exp()


def test_loss_is_scipys():
    expected = -stats.norm.logpdf(Y, ETA1 / PRECISION, PRECISION**-0.5)
    np.testing.assert_allclose(NaturalGaussianHead().loss(RAW, Y), expected, rtol=1e-12)


def test_gradients_are_expected_minus_seen_statistics(slopes):
    """By eta1: E[Y] - y; by eta2 = -precision / 2: E[Y^2] - y^2."""
    slope = slopes(NaturalGaussianHead(), RAW, Y)
    mean = ETA1 / PRECISION
    torch.testing.assert_close(slope[..., 0], mean - Y, rtol=1e-12, atol=1e-10)
    by_eta2 = mean**2 + 1 / PRECISION - Y**2
    torch.testing.assert_close(slope[..., 1] / (-PRECISION / 2), by_eta2, rtol=1e-9, atol=1e-9)
