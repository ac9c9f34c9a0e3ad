"""Test the Negative Binomial against scipy, mpmath, scoringrules, direct sums and a characteristic function."""

import mpmath
import numpy as np
import pytest
import torch
from scipy import special, stats

from ddpn import NegativeBinomial, Poisson

LEVELS = (1e-9, 1e-4, 0.05, 0.3, 0.5, 0.8, 0.99, 1 - 1e-6)
#: Every mean with every overdispersion that scipy's p = 1 / (1 + alpha mu) can tell from 1.
MU, ALPHA = (x.reshape(-1) for x in np.meshgrid(np.logspace(-2, 7, 28), [1e-3, 1e-2, 0.1, 0.5, 1.0, 3.0, 20.0]))
#: Large means with little overdispersion: the Poisson is far, and so is the Gamma.
NEARLY_POISSON = [(1e7, 1e-6), (9.9e6, 1e-5), (1e7, 1e-4), (7.9e6, 2.1e-4), (9.9e6, 5.8e-4), (3e6, 1e-3), (2e5, 2e-3)]


def make_float64(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


def to_scipy_parameters(mu, alpha) -> tuple[np.ndarray, np.ndarray]:
    r = 1 / np.asarray(alpha)
    return r, r / (r + mu)


@pytest.fixture(scope="module")
def grid_dist() -> NegativeBinomial:
    return NegativeBinomial(make_float64(MU), make_float64(ALPHA))


@pytest.fixture(scope="module")
def nearly_poisson() -> NegativeBinomial:
    return NegativeBinomial(*make_float64(NEARLY_POISSON).unbind(1))


def compute_exact_log_pmf(y: float, mu: float, alpha: float) -> float:
    with mpmath.workdps(40):
        y, mu, r = mpmath.mpf(float(y)), mpmath.mpf(float(mu)), 1 / mpmath.mpf(float(alpha))
        value = mpmath.loggamma(y + r) - mpmath.loggamma(r) - mpmath.loggamma(y + 1)
        return float(value - r * mpmath.log1p(mu / r) - y * mpmath.log1p(r / mu))


def integrate_half_mean_difference(mu: float, alpha: float) -> float:
    """Return E|Z - Z'| / 2 = (1 / 2 pi) * integral over (0, pi) of (1 - |phi(t)|^2) / (1 - cos t).

    |phi(t)|^2 = (1 + 2 alpha mu (1 + alpha mu) (1 - cos t))^(-1 / alpha); Gauss-Legendre on 300 panels in log t.
    """
    sd = np.sqrt(mu + alpha * mu * mu)
    edges = np.linspace(np.log(1e-7 / max(sd, 1.0)), np.log(np.pi), 301)
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = np.diff(edges)[:, None] / 2
    t = np.exp(edges[:-1, None] + half * (1 + nodes))
    versine = 2 * np.sin(t / 2) ** 2
    kernel = -np.expm1(-np.log1p(2 * alpha * mu * (1 + alpha * mu) * versine) / alpha) / versine
    start = 2 * sd**2 * np.exp(edges[0])
    return float((kernel * t * half * weights).sum() + start) / (2 * np.pi)


def compute_exact_crps(y: np.ndarray, mu: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Return E|Z - y| - E|Z - Z'| / 2.

    The sum over z <= y of z p(z) is mu P(Z+ < y), with r + 1 for r = 1 / alpha in Z+.
    """
    r, p = to_scipy_parameters(mu, alpha)
    at, positive = np.maximum(y, 1), y > 0
    cdf, survival = special.betainc(r, y + 1, p), special.betaincc(r, y + 1, p)
    cdf_plus = np.where(positive, special.betainc(r + 1, at, p), 0)
    survival_plus = np.where(positive, special.betaincc(r + 1, at, p), 1)
    lower = mu - y + 2 * (y * cdf - mu * cdf_plus)
    upper = y - mu + 2 * (mu * survival_plus - y * survival)
    spread = np.array([integrate_half_mean_difference(*row) for row in zip(mu, alpha, strict=True)])
    return np.where(cdf < 0.5, lower, upper) - spread


@pytest.mark.parametrize("q", LEVELS)
def test_log_prob_is_that_of_mpmath(grid_dist, assert_within, q):
    y = stats.nbinom.ppf(q, *to_scipy_parameters(MU, ALPHA))
    expected = [compute_exact_log_pmf(*row) for row in zip(y, MU, ALPHA, strict=True)]
    assert_within(grid_dist.log_prob(make_float64(y)), expected, 1e-10, floor=1.0, mu=MU, alpha=ALPHA, y=y)


@pytest.mark.parametrize("y", [0.0, 1.0, 7.0, 1e3, 1e7])
def test_log_prob_far_out_is_that_of_mpmath(assert_within, y):
    mu, alpha = (x.reshape(-1) for x in np.meshgrid([1e-6, 0.1, 30.0, 1e4, 1e7], [1e-9, 1e-5, 1e-2, 1.0, 1e3]))
    expected = [compute_exact_log_pmf(y, *row) for row in zip(mu, alpha, strict=True)]
    assert_within(
        NegativeBinomial(make_float64(mu), make_float64(alpha)).log_prob(make_float64(y)),
        expected,
        1e-9,
        floor=1.0,
        mu=mu,
        alpha=alpha,
    )


def test_log_prob_is_that_of_scipy(assert_within):
    mu, alpha = 4.0, np.array([0.1, 0.5, 2.0])[:, None]
    y = np.arange(60.0)
    expected = stats.nbinom.logpmf(y, *to_scipy_parameters(mu, alpha))
    assert_within(
        NegativeBinomial(make_float64(mu), make_float64(alpha)).log_prob(make_float64(y)), expected, 1e-11, floor=1.0
    )


@pytest.mark.parametrize("q", LEVELS)
def test_quantiles_and_tails_are_those_of_scipy(grid_dist, assert_within, q):
    r, p = to_scipy_parameters(MU, ALPHA)
    y = stats.nbinom.ppf(q, r, p)
    at = {"mu": MU, "alpha": ALPHA, "y": y}
    assert_within(grid_dist.cdf(make_float64(y)), stats.nbinom.cdf(y, r, p), 1e-8, floor=1e-12, **at)
    assert_within(grid_dist.survival(make_float64(y)), stats.nbinom.sf(y, r, p), 1e-8, floor=1e-12, **at)
    # Beyond 1e8 a count holds less probability than float64 tells apart near 1.
    # At mu = 1 / alpha the cdf is 1/2 exactly at mu - 1, which scipy's own rounding misses: no oracle for a tie.
    clear = (y < 1e8) & (np.abs(stats.nbinom.cdf(y - 1, r, p) - q) > 1e-12)
    assert clear.sum() > len(clear) // 2
    assert_within(grid_dist.icdf(make_float64(q))[clear], y[clear], 0.0, mu=MU[clear], alpha=ALPHA[clear])


@pytest.mark.parametrize("q", LEVELS)
def test_large_means_with_little_overdispersion_have_the_tails_of_scipy(nearly_poisson, assert_within, q):
    mu, alpha = np.array(NEARLY_POISSON).T
    r, p = to_scipy_parameters(mu, alpha)
    y = stats.nbinom.ppf(q, r, p)
    at = {"mu": mu, "alpha": alpha, "y": y}
    assert_within(nearly_poisson.cdf(make_float64(y)), special.betainc(r, y + 1, p), 1e-7, floor=1e-12, **at)
    assert_within(nearly_poisson.survival(make_float64(y)), special.betaincc(r, y + 1, p), 1e-7, floor=1e-12, **at)
    assert_within(nearly_poisson.icdf(make_float64(q)), y, 0.0, **at)


@pytest.mark.parametrize("mu", [0.3, 20.0, 3000.0])
def test_alpha_near_0_is_the_poisson(assert_within, mu):
    dist, limit = NegativeBinomial(make_float64(mu), make_float64(1e-12)), Poisson(make_float64(mu))
    y = limit.icdf(make_float64(LEVELS))
    for method in ("log_prob", "cdf", "survival", "crps"):
        assert_within(getattr(dist, method)(y), getattr(limit, method)(y), 2e-6, y=y)
    assert_within(dist.entropy(), limit.entropy(), 1e-8)


def test_moments_are_those_of_scipy(grid_dist, assert_within):
    assert torch.equal(grid_dist.mean, make_float64(MU))
    assert_within(grid_dist.variance, stats.nbinom.var(*to_scipy_parameters(MU, ALPHA)), 1e-10)


def test_the_mode_is_the_most_probable_count():
    """No neighbour is more probable; of two equally probable counts, the smaller one is taken."""
    dist = NegativeBinomial(
        make_float64([0.5, 3.0, 3.0, 40.0, 40.0, 1e6]), make_float64([0.5, 0.1, 4.0, 0.25, 0.1, 1e-3])
    )
    mode = dist.mode
    assert mode.tolist()[:5] == [0.0, 2.0, 0.0, 29.0, 35.0]
    assert (dist.log_prob(mode) >= dist.log_prob(mode + 1) - 1e-12).all()
    assert (dist.log_prob(mode) >= dist.log_prob((mode - 1).clamp(min=0)) - 1e-12).all()


def test_entropy_is_that_of_a_direct_sum(assert_within):
    mu, alpha = (x.reshape(-1) for x in np.meshgrid([0.05, 1.0, 12.0, 150.0, 2000.0], [1e-3, 0.1, 0.7, 2.0]))
    expected = []
    for m, a in zip(mu, alpha, strict=True):
        y = np.arange(0.0, m + 45 * np.sqrt(m + a * m * m) + 60)
        log_p = stats.nbinom.logpmf(y, *to_scipy_parameters(m, a))
        expected.append(-(np.exp(log_p) * log_p).sum())
    assert_within(NegativeBinomial(make_float64(mu), make_float64(alpha)).entropy(), expected, 1e-8, mu=mu, alpha=alpha)


class TestCrps:
    @pytest.mark.parametrize("alpha", [1e-3, 0.1, 0.7, 2.0, 20.0])
    @pytest.mark.parametrize("mu", [0.05, 1.0, 12.0, 150.0, 800.0])
    def test_crps_is_a_direct_sum(self, assert_within, mu, alpha):
        r, p = to_scipy_parameters(mu, alpha)
        z = np.arange(0.0, max(stats.nbinom.isf(1e-14, r, p), 50.0) + 2)
        cdf, survival = stats.nbinom.cdf(z, r, p), stats.nbinom.sf(z, r, p)
        y = np.unique(stats.nbinom.ppf([0.01, 0.3, 0.5, 0.9, 0.9999], r, p))
        expected = [(cdf[z < count] ** 2).sum() + (survival[z >= count] ** 2).sum() for count in y]
        assert_within(
            NegativeBinomial(make_float64(mu), make_float64(alpha)).crps(make_float64(y)), expected, 1e-6, y=y
        )

    @pytest.mark.parametrize("q", [0.001, 0.3, 0.5, 0.8, 0.999])
    def test_crps_of_all_means_is_the_exact_one(self, grid_dist, assert_within, q):
        y = stats.nbinom.ppf(q, *to_scipy_parameters(MU, ALPHA))
        assert_within(
            grid_dist.crps(make_float64(y)), compute_exact_crps(y, MU, ALPHA), 1e-6, floor=1e-5, mu=MU, alpha=ALPHA, y=y
        )

    @pytest.mark.parametrize("q", [0.001, 0.3, 0.5, 0.8, 0.999])
    def test_crps_of_large_means_with_little_overdispersion_is_exact(self, nearly_poisson, assert_within, q):
        mu, alpha = np.array(NEARLY_POISSON).T
        y = stats.nbinom.ppf(q, *to_scipy_parameters(mu, alpha))
        assert_within(
            nearly_poisson.crps(make_float64(y)), compute_exact_crps(y, mu, alpha), 1e-6, mu=mu, alpha=alpha, y=y
        )

    def test_crps_is_that_of_scoringrules(self, assert_within, scoringrules):
        mu, alpha = (x.reshape(-1) for x in np.meshgrid([0.2, 3.0, 25.0, 90.0], [0.1, 0.5, 2.0]))
        r, p = to_scipy_parameters(mu, alpha)
        for q in (0.1, 0.5, 0.95):
            y = stats.nbinom.ppf(q, r, p)
            got = NegativeBinomial(make_float64(mu), make_float64(alpha)).crps(make_float64(y))
            assert_within(got, scoringrules.crps_negbinom(y, r, p), 1e-7, floor=1e-3, mu=mu, alpha=alpha, y=y)


@pytest.mark.parametrize("mu", [1e6, 1e9, 1e12])
def test_small_counts_of_large_means_are_those_of_the_geometric_distribution(mu):
    """With alpha = 1, p(y) = (mu / (1 + mu))^y / (1 + mu)."""
    y = torch.tensor([1.0, 7.0], dtype=torch.float64)
    expected = -np.log1p(mu) - y.numpy() * np.log1p(1.0 / mu)
    dist = NegativeBinomial(torch.tensor(mu, dtype=torch.float64), 1.0)
    assert dist.log_prob(y).numpy() == pytest.approx(expected, rel=1e-14)
    assert NegativeBinomial.torch_log_prob(y, dist.mu, dist.alpha).numpy() == pytest.approx(expected, rel=1e-10)


def test_a_quantile_of_a_huge_mean_with_large_dispersion_is_exact():
    """The expected count is by the incomplete beta function with 50 digits."""
    mu, level = torch.tensor([1e12, 0.3], dtype=torch.float64)
    assert NegativeBinomial(mu, 10.0).icdf(level).item() == 35860860
