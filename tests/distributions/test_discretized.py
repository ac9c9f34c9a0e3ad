"""Test Normals as distributions of counts against sums of scipy's normal cdf and 60-digit arithmetic."""

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Laplace, Normal

import ddpn
from ddpn.distributions import Discretized, Mixture, Poisson, discretize
from ddpn.runtime.errors import DDPNError, InputError

#: (loc, scale) of components: a needle, small, across 0, below 0, wide, far out, wide and across 0; then mixtures.
NORMALS = {
    "needle": [(7.1, 0.06)],
    "between two": [(4.5, 0.02)],
    "small": [(3.2, 1.4)],
    "across 0": [(0.3, 2.0)],
    "below 0": [(-6.0, 2.5)],
    "near": [(400.3, 3.0)],
    "long": [(2000.2, 60.0)],
    "long across 0": [(90.0, 400.0)],
    "long below 0": [(-300.0, 200.0)],
    "alike": [(10.0, 2.0), (11.0, 2.5), (9.5, 1.7)],
    "apart": [(3.0, 0.1), (900.0, 40.0)],
    "needles": [(5.0, 0.03), (60.0, 0.3), (3000.0, 700.0)],
    "long alike": [(800.0, 90.0), (820.0, 100.0)],
}
each_normal = pytest.mark.parametrize("name", NORMALS)


def make_float64(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def round_normals(name: str):
    loc, scale = (make_float64(*column) for column in zip(*NORMALS[name], strict=True))
    dist = Normal(loc[0], scale[0]) if len(loc) == 1 else Mixture(Normal(loc, scale))
    return discretize(dist)


class Sums:
    """Sums over every count up to 12 standard deviations, from scipy's normal cdf and survival function."""

    def __init__(self, name: str) -> None:
        members = NORMALS[name]
        self.k = k = np.arange(int(max(loc + 12 * scale for loc, scale in members)) + 40, dtype=float)
        self.cdf = np.mean([stats.norm.cdf(k + 0.5, *m) for m in members], axis=0)
        self.survival = np.mean([stats.norm.sf(k + 0.5, *m) for m in members], axis=0)
        self.pmf = np.mean([self.masses(*m) for m in members], axis=0)

    def masses(self, loc: float, scale: float) -> np.ndarray:
        low, high = self.k - 0.5, self.k + 0.5
        lower = stats.norm.cdf(high, loc, scale) - stats.norm.cdf(low, loc, scale)
        upper = stats.norm.sf(low, loc, scale) - stats.norm.sf(high, loc, scale)
        return np.where(self.k == 0, stats.norm.cdf(0.5, loc, scale), np.where(self.k > loc, upper, lower))

    def crps(self, y: int) -> float:
        return (self.cdf[:y] ** 2).sum() + (self.survival[y:] ** 2).sum()


@each_normal
@pytest.mark.parametrize("q", [1e-6, 0.05, 0.3, 0.5, 0.92, 0.9999])
def test_results_at_counts_are_sums(name, q):
    dist, sums = round_normals(name), Sums(name)
    y = int(np.searchsorted(sums.cdf, q))
    at = torch.tensor(y)
    assert dist.icdf(make_float64(q)).item() == y
    assert dist.cdf(at).item() == pytest.approx(sums.cdf[y], rel=1e-12)
    assert dist.survival(at).item() == pytest.approx(sums.survival[y], rel=1e-11, abs=1e-300)
    assert dist.crps(at).item() == pytest.approx(sums.crps(y), rel=2e-9, abs=1e-14)
    assert dist.log_prob(at).item() == pytest.approx(math.log(sums.pmf[y]), rel=1e-9, abs=1e-12)


def compute_exact_log_mass(loc: float, scale: float, y: int) -> float:
    """Compute with 60 digits beyond those that the difference of two cdfs cancels."""
    depth = ((abs(y - loc) + 1) / scale) ** 2
    with mpmath.workdps(60 + int(depth / 4)):
        scaled = [(mpmath.mpf(y) + half - mpmath.mpf(loc)) / mpmath.mpf(scale) for half in (-0.5, 0.5)]
        low, high = (mpmath.erfc(-z / mpmath.sqrt(2)) / 2 for z in scaled)
        return float(mpmath.log(high - low if y else high))


@pytest.mark.parametrize(
    ("loc", "scale", "y"),
    [
        (3.0, 1.0, 40),
        (40.0, 1.0, 3),
        (40.0, 1.0, 0),
        (847.16, 0.0511, 847),
        (847.16, 0.0511, 848),
        (5.0, 1e6, 17_000_000),
        (1e6, 1e6, 999_999),
        (3558.8, 1338.2, 21985),
        (-30.0, 0.9, 1),
        (100.0, 0.5, 99),
    ],
)
def test_log_prob_far_into_both_tails_is_exact(loc, scale, y):
    got = Discretized(Normal(*make_float64(loc, scale))).log_prob(torch.tensor(y)).item()
    assert got == pytest.approx(compute_exact_log_mass(loc, scale, y), rel=1e-13)


def test_tails_of_a_normal_below_zero_keep_their_digits():
    """All mass except 5e-24 is on 0."""
    dist = Discretized(Normal(*make_float64(-53.0, 5.3)))
    k = np.arange(200)
    survival = stats.norm.sf(k + 0.5, -53.0, 5.3)
    assert dist.survival(0).item() == pytest.approx(survival[0], rel=1e-12)
    assert dist.mean.item() == pytest.approx(survival.sum(), rel=1e-10)
    assert dist.crps(0).item() == pytest.approx((survival**2).sum(), rel=1e-9)
    assert dist.mode.item() == 0.0


def test_log_prob_is_finite_where_the_normal_density_has_nothing_left():
    dist = Discretized(Normal(torch.tensor([3.0, -1e5]), torch.tensor([1e-4, 1e-3])))
    assert torch.isfinite(dist.log_prob(torch.tensor([10**7, 10**7]))).all()


def test_rounding_adds_sheppards_correction_to_the_variance():
    """Far from 0, rounding keeps the mean and adds 1/12 to the variance."""
    dist = Discretized(Normal(*make_float64(60.3, 4.0)))
    assert dist.mean.item() == pytest.approx(60.3, rel=1e-13)
    assert dist.variance.item() == pytest.approx(16.0 + 1 / 12, rel=1e-11)


def test_discretized_takes_what_can_be_counts():
    count = Poisson(3.0)
    assert discretize(count) is count
    mixture = Mixture(count.expand((2,)))
    assert discretize(mixture) is mixture
    nested = discretize(Mixture(Mixture(Normal(torch.tensor([[1.0, 4.0], [2.0, 9.0]]), 1.0))))
    flat = discretize(Mixture(Normal(torch.tensor([1.0, 4.0, 2.0, 9.0]), 1.0)))
    y = torch.arange(12)
    torch.testing.assert_close(nested.cdf(y), flat.cdf(y))
    torch.testing.assert_close(nested.crps(y), flat.crps(y))
    with pytest.raises(InputError, match=r"a Normal, a mixture of Normals or a count distribution, got Laplace"):
        discretize(Laplace(0.0, 1.0))
    assert ddpn.discretize is discretize


def test_other_bases_and_fractions_are_refused():
    with pytest.raises(InputError, match="base must be a Normal, got Laplace"):
        Discretized(Laplace(0.0, 1.0))
    with pytest.raises(InputError, match="loc must be finite, got nan"):
        Discretized(Normal(torch.tensor(math.nan), 1.0, validate_args=False))
    with pytest.raises(InputError, match="scale must be finite and positive, got 0"):
        Discretized(Normal(0.0, 0.0, validate_args=False))
    with pytest.raises(InputError, match="y must hold non-negative integers"):
        Discretized(Normal(0.0, 1.0)).log_prob(torch.tensor(0.5))


def test_gradients_are_refused():
    dist = Discretized(Normal(torch.tensor(2.0, requires_grad=True), 1.0))
    for value in (dist.log_prob(torch.tensor(1)), dist.mean, dist.crps(torch.tensor(1))):
        with pytest.raises(DDPNError, match="no gradient"):
            value.backward()


def test_a_normal_far_below_zero_is_a_count_of_zero():
    dist = discretize(Mixture(Normal(torch.full((1, 2), -1e10).double(), torch.tensor([[1e6, 2e6]]).double())))
    assert dist.icdf(torch.tensor([0.001, 0.5, 0.999]).double().unsqueeze(1)).tolist() == [[0.0]] * 3
    assert [end.item() for end in dist.interval(0.9)] == [0.0, 0.0]
    assert dist.mode.item() == 0.0
