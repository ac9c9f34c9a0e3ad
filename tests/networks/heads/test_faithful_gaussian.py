"""The faithful Gaussian head: two gradients that do not meet."""

import torch

from ddpn.networks.heads import FaithfulGaussianHead, GaussianHead

RAW = torch.tensor([[0.0, -3.0], [4.0, 0.0], [9.0, 2.0]], dtype=torch.float64)
Y = torch.tensor([2, 4, 1])


def test_the_mean_gets_squared_error_and_the_variance_its_likelihood(slopes):
    slope = slopes(FaithfulGaussianHead(), RAW, Y)
    torch.testing.assert_close(slope[:, 0], RAW[:, 0] - Y, rtol=1e-14, atol=0)
    torch.testing.assert_close(slope[:, 1], slopes(GaussianHead(), RAW, Y)[:, 1], rtol=1e-14, atol=0)
    squared = ((Y - RAW[:, 0]) ** 2 / RAW[:, 1].exp()).double()
    torch.testing.assert_close(slope[:, 1], 0.5 * (1 - squared), rtol=1e-12, atol=1e-12)


def test_the_mean_does_not_feel_the_variance(slopes):
    wide = RAW + torch.tensor([0.0, 5.0])
    head = FaithfulGaussianHead()
    assert torch.equal(slopes(head, RAW, Y)[:, 0], slopes(head, wide, Y)[:, 0])


def test_exposure_makes_the_error_one_of_rates(slopes):
    exposure = torch.tensor([0.5, 2.0, 4.0], dtype=torch.float64)
    slope = slopes(FaithfulGaussianHead(), RAW, Y, exposure)
    torch.testing.assert_close(slope[:, 0], RAW[:, 0] - Y / exposure, rtol=1e-14, atol=0)
    torch.testing.assert_close(slope[:, 1], slopes(GaussianHead(), RAW, Y, exposure)[:, 1], rtol=1e-14, atol=0)


def test_the_variance_sees_features_without_gradient():
    assert FaithfulGaussianHead().sees == ("features", "detached")
