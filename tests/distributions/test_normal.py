"""CRPS of Normals and of their mixtures in closed form, against its integral and against scoringrules."""

import math
from itertools import pairwise

import numpy as np
import pytest
import scoringrules
import torch
from scipy import integrate, stats
from torch.distributions import Normal

from ddpn.distributions import Mixture
from ddpn.distributions.continuous import normal_crps

#: Members as (loc, scale): alike, apart, a narrow one in a wide one, very unequal, one.
MIXTURES = {
    "alike": ([1.0, 1.4, 0.7], [1.0, 1.3, 0.8]),
    "apart": ([-40.0, 0.0, 1e3], [1.0, 5.0, 30.0]),
    "narrow in wide": ([0.0, 0.3, -5.0, 8.0, 1.0], [10.0, 1e-3, 8.0, 20.0, 0.5]),
    "one": ([3.0], [2.0]),
    "same place": ([0.0, 0.0], [1.0, 100.0]),
}
mixtures = pytest.mark.parametrize("name", MIXTURES)


def mixture_crps(loc: torch.Tensor, scale: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return Mixture(Normal(loc, scale, validate_args=False)).crps(y)


def double(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def integral(loc: list[float], scale: list[float], y: float) -> float:
    """The integral of (F(z) - 1[z >= y])^2, between places where the integrand changes its pace."""
    loc_, scale_ = np.array(loc), np.array(scale)

    def integrand(z: float) -> float:
        tail = stats.norm.cdf if z < y else stats.norm.sf
        return float(tail(z, loc_, scale_).mean() ** 2)

    reach = np.array([-12, -5, -2, -1, 0, 1, 2, 5, 12])
    knots = np.unique([*(loc_[:, None] + scale_[:, None] * reach).ravel(), y])
    return sum(integrate.quad(integrand, a, b, epsabs=1e-14, epsrel=1e-11)[0] for a, b in pairwise(knots))


def test_normal_against_scoringrules():
    rng = np.random.default_rng(0)
    y, loc, scale = rng.normal(0, 5, 200), rng.normal(0, 3, 200), np.exp(rng.normal(0, 1, 200))
    got = normal_crps(*(torch.from_numpy(x) for x in (loc, scale, y)))
    np.testing.assert_allclose(got.numpy(), scoringrules.crps_normal(y, loc, scale), rtol=1e-12)


@pytest.mark.parametrize(
    ("loc", "scale", "y"), [(0.0, 1.0, 0.0), (2.0, 3.0, -1.5), (-4.0, 0.01, -4.02), (0.0, 1e4, 3e4)]
)
def test_normal_against_its_integral(loc, scale, y):
    got = normal_crps(*double(loc, scale, y)).item()
    assert got == pytest.approx(integral([loc], [scale], y), rel=1e-10)


@pytest.mark.parametrize("z", [1e2, 1e8, -1e8, 1e154, -1e200])
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e3])
def test_normal_far_from_y_is_a_distance(z, scale):
    loc = 0.0
    got = normal_crps(*double(loc, scale, z * scale)).item()
    assert got == pytest.approx(abs(z) * scale - scale / math.sqrt(math.pi), rel=1e-14)


def test_normal_gradients_are_finite_far_away_and_right_nearby():
    loc, scale = double(0.3, -2.0, 4.0).requires_grad_(), double(1.0, 0.2, 7.0).requires_grad_()
    y = double(0.0, -2.5, 30.0)
    assert torch.autograd.gradcheck(lambda a, b: normal_crps(a, b, y), (loc, scale))
    normal_crps(loc, scale, double(1e8, -1e8, 1e12)).sum().backward()
    torch.testing.assert_close(loc.grad, double(-1.0, 1.0, -1.0))
    torch.testing.assert_close(scale.grad, torch.full((3,), -1 / math.sqrt(math.pi), dtype=torch.float64))


@mixtures
def test_mixture_against_scoringrules_and_its_integral(name):
    loc, scale = MIXTURES[name]
    y = [loc[0], 0.37, -7.0, 55.0]
    got = Mixture(Normal(double(*loc), double(*scale))).crps(double(*y))
    peer = scoringrules.crps_mixnorm(np.array(y), np.array([loc] * 4), np.array([scale] * 4))
    np.testing.assert_allclose(got.numpy(), peer, rtol=1e-9)
    np.testing.assert_allclose(got.numpy(), [integral(loc, scale, v) for v in y], rtol=1e-9)


@mixtures
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_mixture_far_from_y_is_a_distance(name, sign):
    """E|X - y| is |mean - y| once y is beyond every member; the rest does not depend on y."""
    loc, scale = (double(*x) for x in MIXTURES[name])
    far = sign * 1e8 * scale.max()
    pairs = torch.distributions.Normal(loc[:, None] - loc, torch.hypot(scale[:, None], scale))
    draws = stats.foldnorm.mean((pairs.loc.abs() / pairs.scale).numpy(), scale=pairs.scale.numpy())
    expected = (far - loc.mean()).abs().item() - 0.5 * draws.mean()
    assert mixture_crps(loc, scale, far).item() == pytest.approx(expected, rel=1e-14)
