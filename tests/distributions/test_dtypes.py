"""Test precision in and out: float32 answers are rounded float64 answers, and half precision is promoted."""

from functools import cache

import pytest
import torch

from ddpn import DoublePoisson, NegativeBinomial, Poisson

TOLERANCE = 1e-5
MU = torch.logspace(-5, 6.5, 47)
SHAPE = torch.logspace(-3.5, 3.5, 15).unsqueeze(1)
MAKERS = {
    "DoublePoisson": DoublePoisson,
    "Poisson": lambda mu, shape: Poisson(mu + 0 * shape),
    "NegativeBinomial": lambda mu, shape: NegativeBinomial(mu, shape.clamp(max=50.0)),
}
each_family = pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in MAKERS.items()])


@cache
def make_pair(make, dtype: torch.dtype = torch.float32):
    """Make one family of distributions in `dtype` and, with the same parameters, in float64."""
    mu, shape = MU.to(dtype), SHAPE.to(dtype)
    return make(mu, shape), make(mu.double(), shape.double())


@each_family
class TestFloat32:
    def test_quantile_of_cdf_is_the_count(self, make):
        """The cdf is rounded down to float32, so the round trip holds where float32 tells neighbours apart."""
        dist, exact = make_pair(make)
        y = exact.icdf(torch.tensor(0.3, dtype=torch.float64))
        told = (exact.log_prob(y) > -12) & (y < 2**24) & (dist.cdf(y.float()) < 1)
        assert told.any()
        assert torch.equal(dist.icdf(dist.cdf(y.float()))[told], y.float()[told])


def test_gradients_in_float32_are_those_of_float64_rounded():
    """Errors are relative to the larger of the terms whose difference a score is."""
    mu, gamma = MU.expand(15, 47).clone(), SHAPE.expand(15, 47).clone()
    y = DoublePoisson(mu, gamma).icdf(torch.tensor(0.8))
    leaves = {
        d: (mu.to(d).log().requires_grad_(), gamma.to(d).log().requires_grad_()) for d in (torch.float32, torch.float64)
    }
    grads = {
        d: torch.autograd.grad(DoublePoisson(*(x.exp() for x in xs)).log_prob(y).sum(), xs) for d, xs in leaves.items()
    }
    # The logarithms of the float32 parameters are rounded, which moves mu by 1e-6 and a score by gamma mu times that.
    slack = 2e-6 * (gamma * (y + mu)).double()
    for got, expected in zip(grads[torch.float32], grads[torch.float64], strict=True):
        assert got.dtype == torch.float32
        assert ((got.double() - expected).abs() <= TOLERANCE * expected.abs().clamp(min=1.0) + slack).all()


def test_mixed_parameters_take_the_finer():
    half, single, double = (torch.tensor(2.0, dtype=d) for d in (torch.bfloat16, torch.float32, torch.float64))
    assert DoublePoisson(half, double).mean.dtype == torch.float64
    assert DoublePoisson(double, single).mean.dtype == torch.float64
    assert DoublePoisson(half, 0.5).mean.dtype == torch.float32
    assert NegativeBinomial(3, half).mean.dtype == torch.float32
