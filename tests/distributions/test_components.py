"""Test that a family is a named tuple with five methods and one formula in torch: everything else follows."""

from math import inf, log, log1p
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import DoublePoisson, Mixture, NegativeBinomial, Truncated, ZeroInflated, log_mass
from ddpn.distributions.parametric import ParametricDistribution


class GeometricFamily(NamedTuple):
    mean: float
    log_share: float
    log_rest: float

    @classmethod
    def prepare(cls, a, b, c):
        return GeometricFamily(a, log(a) - log1p(a), log1p(a))

    def is_normalised(self):
        return True

    def log_weight(self, y):
        return y * self.log_share - self.log_rest

    def score(self, y):
        return y / self.mean - (y + 1.0) / (1.0 + self.mean), 0.0, 0.0

    def estimate_shape(self):
        return 0.0, self.mean + 1.0, inf


class Geometric(ParametricDistribution):
    """p(y) = mean^y / (1 + mean)^(y + 1)."""

    arg_constraints = {"mu": constraints.positive}
    family = GeometricFamily
    _names = ("mu",)

    def __init__(self, mu: Tensor, validate_args: bool | None = None) -> None:
        self.mu = mu
        super().__init__(mu.shape, validate_args)

    @staticmethod
    def torch_log_prob(y: Tensor, mu: Tensor) -> Tensor:
        return y * mu.log() - (y + 1.0) * torch.log1p(mu)


MEANS = torch.tensor([0.3, 4.0, 60.0, 3e4], dtype=torch.float64)


def make_truth(row: int):
    return stats.geom(1.0 / (1.0 + MEANS[row].item()), loc=-1)


def test_every_method_is_that_of_scipy():
    dist, y = Geometric(MEANS), torch.tensor([0.0, 7.0, 40.0, 5e4], dtype=torch.float64)
    for name, of in (("log_prob", "logpmf"), ("cdf", "cdf"), ("survival", "sf")):
        expected = [getattr(make_truth(i), of)(y[i].item()) for i in range(4)]
        np.testing.assert_allclose(getattr(dist, name)(y), expected, rtol=1e-9)
    for q in (0.01, 0.5, 0.999):
        assert dist.icdf(torch.tensor(q)).tolist() == [make_truth(i).ppf(q) for i in range(4)]
    np.testing.assert_allclose(dist.mean, MEANS, rtol=1e-9)
    np.testing.assert_allclose(dist.variance, MEANS * (1.0 + MEANS), rtol=1e-9)
    # E|Z - y| - E|Z - Z'| / 2 of a Geometric, with E|Z - Z'| = 2 mu (1 + mu) / (1 + 2 mu).
    mu, share = MEANS, MEANS / (1.0 + MEANS)
    distance = y - mu + 2.0 * mu * share**y
    np.testing.assert_allclose(dist.crps(y), distance - mu * (1.0 + mu) / (1.0 + 2.0 * mu), rtol=1e-9)


def test_first_and_second_derivatives_follow_the_formula():
    mu = MEANS.clone().requires_grad_()
    y = torch.tensor([2.0, 3.0, 100.0, 1e4], dtype=torch.float64)
    (slope,) = torch.autograd.grad(Geometric(mu).log_prob(y).sum(), mu, create_graph=True)
    torch.testing.assert_close(slope, y / mu - (y + 1.0) / (1.0 + mu))
    (curve,) = torch.autograd.grad(slope.sum(), mu)
    torch.testing.assert_close(curve, -y / mu**2 + (y + 1.0) / (1.0 + mu) ** 2)
    (beyond,) = torch.autograd.grad(log_mass(Geometric(mu), low=5).sum(), mu)
    torch.testing.assert_close(beyond, 5.0 / mu - 5.0 / (1.0 + mu))
    torch.testing.assert_close(Geometric(MEANS).information()["mu"], 1.0 / (MEANS * (1.0 + MEANS)))


@pytest.mark.parametrize("scale", [3.0, 400.0])
def test_a_family_works_in_mixtures_and_modifiers(scale):
    family = Geometric(torch.tensor([scale, 2.0 * scale], dtype=torch.float64))
    same = NegativeBinomial(family.mu, torch.ones_like(family.mu))  # the same distribution
    other, weights = DoublePoisson(torch.tensor([scale], dtype=torch.float64), 0.7), [0.2, 0.3, 0.5]
    y, levels = torch.tensor(scale, dtype=torch.float64).floor(), torch.tensor([0.1, 0.5, 0.9])
    mixture, expected = (Mixture.concatenate([first, other], weights) for first in (family, same))
    for dist, reference in (
        (mixture, expected),
        (Truncated(mixture, 1, 3 * int(scale)), Truncated(expected, 1, 3 * int(scale))),
        (ZeroInflated(mixture, pi=0.2), ZeroInflated(expected, pi=0.2)),
    ):
        got, want = dist._reshape((1,)).summary(levels, y), reference._reshape((1,)).summary(levels, y)
        assert torch.equal(got.quantiles, want.quantiles)
        torch.testing.assert_close(got.mean, want.mean, rtol=1e-9, atol=0.0)
        torch.testing.assert_close(got.crps, want.crps, rtol=1e-8, atol=0.0)
        torch.testing.assert_close(dist.log_prob(y), reference.log_prob(y), rtol=1e-9, atol=0.0)
