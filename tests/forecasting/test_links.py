"""Test that raw outputs and scales of any size give a right Double Poisson, and finite gradients."""

import pytest
import torch

from ddpn.forecasting.links import double_poisson, exponential_location, inverse_dispersion, location

RAW = torch.tensor([-1e4, -100.0, -15.0, -1.0, 0.0, 3.0, 50.0, 1e4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("link", [location, exponential_location, inverse_dispersion])
def test_links_are_positive_and_increase_with_a_gradient(link, dtype):
    raw = RAW.clone().to(dtype).requires_grad_()
    values = link(raw)
    assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert values.isfinite().all()
    assert (values > 0).all()
    assert (values.diff() >= 0).all()
    values.log().sum().backward()
    assert raw.grad.isfinite().all()
    assert (raw.grad > 0).all()


def test_within_their_bounds_links_are_softplus_and_exponential():
    raw = torch.linspace(-13.0, 9.0, 200, dtype=torch.float64)
    torch.testing.assert_close(location(raw), torch.nn.functional.softplus(raw))
    torch.testing.assert_close(exponential_location(raw), raw.exp())
    small = torch.linspace(-9.0, 9.0, 50, dtype=torch.float64)
    torch.testing.assert_close(inverse_dispersion(small), small.exp())


@pytest.mark.parametrize("scale", [0.2, 1.0, 30.0, 4000.0])
@pytest.mark.parametrize("gamma", [1.0, 1.5, 5.0])
def test_under_dispersion_keeps_variance_by_mean_at_every_scale(scale, gamma):
    mu = torch.tensor(20.0, dtype=torch.float64)
    dist = double_poisson(mu, torch.tensor(gamma), torch.tensor(scale))
    assert dist.mean.item() == pytest.approx(20.0 * scale, rel=0.02)
    assert (dist.variance / dist.mean).item() == pytest.approx(1.0 / gamma, rel=0.06)


@pytest.mark.parametrize("scale", [0.05, 1.0, 30.0, 400.0])
def test_over_dispersion_scales_as_that_of_a_negative_binomial(scale):
    """Adding log(scale) to the logits multiplies the mean m, and leaves the variance at m + m^2 / total_count."""
    negative_binomial = torch.distributions.NegativeBinomial(2.0, logits=torch.tensor(10.0).log())
    index = (negative_binomial.variance / negative_binomial.mean).item()
    scaled = torch.distributions.NegativeBinomial(2.0, logits=torch.tensor(10.0 * scale).log())
    dist = double_poisson(negative_binomial.mean, torch.tensor(1.0 / index), torch.tensor(scale))
    assert dist.mu.item() == pytest.approx(scaled.mean.item(), rel=1e-4)
    assert dist.efron_variance.item() == pytest.approx(scaled.variance.item(), rel=1e-4)


def test_extreme_scales_and_raw_outputs_leave_likelihood_and_gradient_finite():
    raw = torch.cartesian_prod(RAW, RAW).requires_grad_()
    for scale in (0.0, 1e-10, 1.0, 1e8):
        dist = double_poisson(location(raw[:, 0]), inverse_dispersion(raw[:, 1]), torch.tensor(scale))
        loss = -dist.log_prob(torch.tensor([[0.0], [3.0], [500.0]]))
        assert loss.isfinite().all()
        (gradient,) = torch.autograd.grad(loss.sum(), raw)
        assert gradient.isfinite().all()


def test_gamma_is_bounded_by_the_scaled_mean():
    narrow = double_poisson(torch.tensor(1.0), torch.tensor(9000.0), torch.tensor([1.0, 1000.0]))
    assert narrow.gamma[0] < 100.0 * 5.0, "a standard deviation of 0.1 is narrow enough"
    assert narrow.gamma[1] == pytest.approx(9000.0, rel=1e-5)
