"""Test Normals and their mixtures against scipy's densities, quadrature and scoringrules."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.special import ndtr
from torch.distributions import Normal

from ddpn.distributions import Mixture
from ddpn.distributions.continuous import normal_crps
from ddpn.runtime.errors import InputError

#: Rows of three components, (loc, scale).
ROWS = {
    "alike": ([0.0, 1.0, 2.0], [0.9, 1.2, 0.7]),
    "shoulder": ([0.0, 0.0, 3.0], [1.0, 1.0, 1.0]),
    "three peaks": ([-8.0, 0.5, 9.0], [1.0, 0.8, 1.3]),
    "narrow in wide": ([0.0, 3.0, 1.0], [1.0, 1e-3, 5.0]),
    "narrow far from wide": ([0.0, 1e4, -10.0], [1e3, 1e-2, 1e3]),
    "one place": ([2.0, 2.0, 2.0], [1.0, 0.1, 100.0]),
    "very far apart": ([-1e6, 0.0, 1e6], [1.0, 0.5, 2.0]),
    "identical": ([5.0, 5.0, 5.0], [2.0, 2.0, 2.0]),
}
rows = pytest.mark.parametrize("row", ROWS)


def make_mixture() -> Mixture:
    """Make a batch of mixtures, one per row."""
    loc, scale = torch.tensor(list(ROWS.values()), dtype=torch.float64).unbind(1)
    return Mixture(Normal(loc, scale))


class ScipyMixture:
    """One mixture with scipy's functions."""

    def __init__(self, row: str) -> None:
        self.loc, self.scale = (np.array(x) for x in ROWS[row])

    def _z(self, x: np.ndarray) -> np.ndarray:
        return (np.asarray(x)[..., None] - self.loc) / self.scale

    def pdf(self, x: np.ndarray) -> np.ndarray:
        return (np.exp(-0.5 * self._z(x) ** 2) / (math.sqrt(2 * math.pi) * self.scale)).mean(-1)

    def cdf(self, x: np.ndarray) -> np.ndarray:
        return ndtr(self._z(x)).mean(-1)

    def sf(self, x: np.ndarray) -> np.ndarray:
        return ndtr(-self._z(x)).mean(-1)

    def ppf(self, q: np.ndarray) -> np.ndarray:
        """Find quantiles by halving, with the tail that is the smaller."""
        q = np.asarray(q)
        quantiles = stats.norm.ppf(q[..., None], self.loc, self.scale)
        low, high = quantiles.min(-1), quantiles.max(-1)
        for _ in range(70):
            middle = 0.5 * (low + high)
            enough = np.where(q < 0.5, self.cdf(middle) >= q, self.sf(middle) <= 1 - q)
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high

    def knots(self, reach: np.ndarray) -> np.ndarray:
        return np.unique((self.loc[:, None] + self.scale[:, None] * reach).ravel())

    def integral(self, integrand, *more: float) -> float:
        """Integrate between points at which the integrand changes its pace."""
        knots = np.unique([*self.knots(np.array([-38, -20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20, 38])), *more])
        return sum(integrate.quad(integrand, a, b, epsabs=1e-14, epsrel=1e-11)[0] for a, b in pairwise(knots))

    def crps(self, y: float) -> float:
        """Return the integral of (F(z) - 1[z >= y])^2."""
        return self.integral(lambda z: float((self.cdf(z) if z < y else self.sf(z)) ** 2), y)


def test_density_and_cdf_are_those_of_scipy():
    dist = make_mixture()
    for i, row in enumerate(ROWS):
        truth = ScipyMixture(row)
        y = truth.knots(np.array([-7.0, -1.5, -0.2, 0.0, 0.6, 4.0]))
        at = torch.from_numpy(y).unsqueeze(-1)
        np.testing.assert_allclose(dist.log_prob(at)[:, i].exp().numpy(), truth.pdf(y), rtol=1e-10, atol=1e-300)
        np.testing.assert_allclose(dist.cdf(at)[:, i].numpy(), truth.cdf(y), rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(dist.survival(at)[:, i].numpy(), truth.sf(y), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("q", [1e-9, 0.02, 0.31, 0.5, 0.68, 0.9, 0.9999])
def test_quantiles_are_those_of_scipy(q):
    dist = make_mixture()
    got = dist.icdf(torch.tensor(q, dtype=torch.float64))
    assert got.shape == (len(ROWS),)
    for i, (row, value) in enumerate(zip(ROWS, got.tolist(), strict=True)):
        truth = ScipyMixture(row)
        # No closer than float64 resolves q at the density there, and y.
        rounding, spacing = 4e-16, 4 * np.spacing(abs(value))
        assert abs(dist.cdf(got)[i].item() - q) <= rounding + spacing * truth.pdf(value)
        if not (row == "very far apart" and q == 0.5):
            assert abs(value - truth.ppf(q)) <= rounding / truth.pdf(value) + spacing


def test_quantiles_at_the_ends_are_infinite_and_others_undo_the_cdf():
    dist = make_mixture()
    ends = dist.icdf(torch.tensor([[0.0], [1.0]], dtype=torch.float64))
    assert ends.tolist() == [[-math.inf] * len(ROWS), [math.inf] * len(ROWS)]
    y = dist.mean + 0.3 * dist.stddev
    again = dist.icdf(dist.cdf(y))
    slack = 4e-16 / dist.log_prob(y).exp() + 1e-12 * y.abs()
    assert ((again - y).abs() <= slack).all()


def test_modes_and_entropies_are_those_of_counts():
    for ask in (lambda dist: dist.mode, lambda dist: dist.entropy(), lambda dist: dist.mutual_information):
        with pytest.raises(InputError, match=r"no mode and no entropy.* discretize\(\)"):
            ask(make_mixture())


def test_moments_and_their_split_are_closed_forms():
    dist = make_mixture()
    for i, (loc, scale) in enumerate(ROWS.values()):
        variances = np.array(scale) ** 2
        assert dist.mean[i].item() == pytest.approx(np.mean(loc), rel=1e-12)
        assert dist.aleatoric[i].item() == pytest.approx(variances.mean(), rel=1e-12)
        assert dist.epistemic[i].item() == pytest.approx(np.var(loc), rel=1e-12)
        assert dist.variance[i].item() == pytest.approx(variances.mean() + np.var(loc), rel=1e-12)


@pytest.mark.parametrize("coverage", [0.3, 0.9])
def test_intervals_leave_equal_tails(coverage):
    dist = make_mixture()
    low, high = dist.interval(coverage)
    half = 0.5 * (1 - coverage)
    torch.testing.assert_close(dist.cdf(low), torch.full_like(low, half), rtol=1e-9, atol=0)
    torch.testing.assert_close(dist.survival(high), torch.full_like(low, half), rtol=1e-9, atol=0)


@rows
def test_crps_is_that_of_scoringrules_and_of_quadrature(row, scoringrules):
    i, truth = list(ROWS).index(row), ScipyMixture(row)
    y = [truth.loc[0], 0.37, -7.0, 55.0]
    got = make_mixture().crps(torch.tensor(y, dtype=torch.float64).unsqueeze(1))[:, i].numpy()
    peer = scoringrules.crps_mixnorm(np.array(y), np.array([truth.loc] * 4), np.array([truth.scale] * 4))
    np.testing.assert_allclose(got, peer, rtol=1e-9)
    np.testing.assert_allclose(got, [truth.crps(v) for v in y], rtol=1e-9)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_the_crps_far_from_y_is_a_distance(sign):
    """E|X - y| is |mean - y| once y is beyond every component; other terms do not depend on y."""
    dist = make_mixture()
    loc, scale = dist.components.loc, dist.components.scale
    far = sign * 1e8 * scale.amax(-1)
    gaps, scales = (loc[:, :, None] - loc[:, None]).abs(), torch.hypot(scale[:, :, None], scale[:, None])
    apart = stats.foldnorm.mean((gaps / scales).numpy(), scale=scales.numpy()).mean((1, 2))
    expected = (far - loc.mean(-1)).abs().numpy() - 0.5 * apart
    np.testing.assert_allclose(dist.crps(far).numpy(), expected, rtol=1e-14)


def test_the_crps_of_one_normal_is_that_of_scoringrules(scoringrules):
    rng = np.random.default_rng(0)
    y, loc, scale = rng.normal(0, 5, 200), rng.normal(0, 3, 200), np.exp(rng.normal(0, 1, 200))
    got = normal_crps(*(torch.from_numpy(x) for x in (loc, scale, y)))
    np.testing.assert_allclose(got.numpy(), scoringrules.crps_normal(y, loc, scale), rtol=1e-12)


@pytest.mark.parametrize("z", [1e2, 1e8, -1e8, 1e154, -1e200])
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e3])
def test_the_crps_of_one_normal_far_from_y_is_a_distance(z, scale):
    got = normal_crps(*torch.tensor([0.0, scale, z * scale], dtype=torch.float64)).item()
    assert got == pytest.approx(abs(z) * scale - scale / math.sqrt(math.pi), rel=1e-14)


def test_gradients_of_the_crps_are_finite_far_away_and_right_nearby():
    loc, scale, y = torch.tensor([[0.3, -2.0, 4.0], [1.0, 0.2, 7.0], [0.0, -2.5, 30.0]], dtype=torch.float64)
    loc, scale = loc.requires_grad_(), scale.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: normal_crps(a, b, y), (loc, scale))
    normal_crps(loc, scale, torch.tensor([1e8, -1e8, 1e12], dtype=torch.float64)).sum().backward()
    assert loc.grad.tolist() == [-1.0, 1.0, -1.0]
    torch.testing.assert_close(scale.grad, torch.full((3,), -1 / math.sqrt(math.pi), dtype=torch.float64))


def test_samples_follow_the_mixture():
    draws = make_mixture().sample((4000,), generator=torch.Generator().manual_seed(3))
    assert draws.shape == (4000, len(ROWS))
    for i, row in enumerate(ROWS):
        assert stats.kstest(draws[:, i].numpy(), ScipyMixture(row).cdf).pvalue > 1e-3, row


def test_mixtures_of_mixtures_of_normals_are_flat():
    loc = torch.tensor([[0.0, 1.0], [2.0, 7.0], [-3.0, 0.5]], dtype=torch.float64)
    scale = torch.tensor([[1.0, 0.5], [2.0, 1.0], [0.3, 3.0]], dtype=torch.float64)
    nested = Mixture(Mixture(Normal(loc, scale)))
    flat = Mixture(Normal(loc.flatten(), scale.flatten()))
    y = torch.tensor([-2.0, 0.4, 6.0], dtype=torch.float64)
    for method in ("log_prob", "cdf", "survival", "crps"):
        torch.testing.assert_close(getattr(nested, method)(y), getattr(flat, method)(y), rtol=1e-10, atol=0)
    q = torch.tensor([0.1, 0.45, 0.99], dtype=torch.float64)
    torch.testing.assert_close(nested.icdf(q), flat.icdf(q), rtol=1e-9, atol=1e-12)
    for name in ("mean", "variance"):
        torch.testing.assert_close(getattr(nested, name), getattr(flat, name), rtol=1e-6, atol=0)
