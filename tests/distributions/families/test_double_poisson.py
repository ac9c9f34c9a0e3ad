"""Test the Double Poisson against 50-digit sums, direct sums, R's rmutil and scipy."""

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import optimize, special
from torch.distributions import kl_divergence

from ddpn import DoublePoisson, InputError
from ddpn.distributions import variance_limits

COLUMN_NUMBERS = ("1", "2", "3")
QUANTILES = (0.001, 0.05, 0.25, 0.5, 0.75, 0.95, 0.999)


def make_float64(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


@pytest.fixture(scope="module")
def golden_dist(golden) -> DoublePoisson:
    return DoublePoisson(golden["mu"], golden["gamma"])


@pytest.fixture(scope="module")
def random_dist(random_sums) -> DoublePoisson:
    return DoublePoisson(make_float64([o.mu for o in random_sums]), make_float64([o.gamma for o in random_sums]))


@pytest.fixture(scope="module")
def random_counts(random_sums) -> list[list[float]]:
    """Four counts per distribution: two that it draws, two from anywhere in its window, tails included."""
    rng = np.random.default_rng(7)
    drawn = [[o.sums.quantile(rng.uniform()) for o in random_sums] for _ in range(2)]
    return drawn + [[o.count_at(rng.uniform(), depth=60.0) for o in random_sums] for _ in range(2)]


class TestGolden:
    """Compare with every row of the golden tables."""

    def test_the_log_normalizer_agrees(self, golden, golden_dist, assert_within):
        at = {"mu": golden["mu"], "gamma": golden["gamma"]}
        assert_within(golden_dist.log_normalizer(), golden["log_c"], 1e-8, floor=1.0, **at)

    @pytest.mark.parametrize(("name", "column"), [("mean", "mean"), ("variance", "var")])
    def test_moments_agree(self, golden, golden_dist, assert_within, name, column):
        at = {"mu": golden["mu"], "gamma": golden["gamma"]}
        assert_within(getattr(golden_dist, name), golden[column], 1e-7, **at)

    def test_the_entropy_agrees(self, golden, golden_dist, assert_within):
        assert_within(golden_dist.entropy(), golden["entropy"], 1e-7, mu=golden["mu"], gamma=golden["gamma"])

    def test_the_mode_agrees(self, golden, golden_dist):
        assert torch.equal(golden_dist.mode, golden["mode"])

    @pytest.mark.parametrize("q", QUANTILES)
    def test_quantiles_agree(self, golden, golden_dist, q):
        assert torch.equal(golden_dist.icdf(make_float64(q)), golden[f"q{q:g}"])

    @pytest.mark.parametrize("number", COLUMN_NUMBERS)
    def test_log_prob_agrees(self, golden, golden_dist, assert_within, number):
        y = golden[f"y{number}"]
        at = {"mu": golden["mu"], "gamma": golden["gamma"], "y": y}
        assert_within(golden_dist.log_prob(y), golden[f"log_pmf{number}"], 1e-8, floor=1.0, **at)

    @pytest.mark.parametrize("number", COLUMN_NUMBERS)
    @pytest.mark.parametrize(("method", "column"), [("cdf", "cdf"), ("survival", "sf")])
    def test_both_tails_agree(self, golden, golden_dist, assert_within, method, column, number):
        y, expected = golden[f"y{number}"], golden[f"{column}{number}"]
        at = {"mu": golden["mu"], "gamma": golden["gamma"], "y": y}
        # Below 1e-12 the error may grow, but never beyond 1e-7 of 1e-12.
        assert_within(getattr(golden_dist, method)(y), expected, 1e-7, floor=1e-12, **at)

    @pytest.mark.parametrize("number", COLUMN_NUMBERS)
    def test_crps_agrees(self, golden, golden_dist, assert_within, number):
        y = golden[f"y{number}"]
        at = {"mu": golden["mu"], "gamma": golden["gamma"], "y": y}
        assert_within(golden_dist.crps(y), golden[f"crps{number}"], 1e-6, **at)

    def test_crps_far_above_gives_the_half_mean_difference(self, golden, golden_dist, assert_within):
        """Far above the distribution, CRPS is y - E[Z] - E|Z - Z'| / 2."""
        y = (golden["hi"] * 2).clamp(min=1e3)
        assert_within(golden_dist.crps(y), y - golden["mean"] - golden["half_mean_diff"], 1e-8)


class TestDirectSum:
    """Compare with 80 distributions over mu in [1e-6, 3e4] and gamma in [2e-3, 1e4], summed in extended precision."""

    def test_the_log_normalizer_agrees(self, random_sums, random_dist, assert_within):
        expected = [o.log_c for o in random_sums]
        assert_within(
            random_dist.log_normalizer(), expected, 2e-9, floor=1.0, mu=random_dist.mu, gamma=random_dist.gamma
        )

    @pytest.mark.parametrize("name", ["mean", "variance", "mode", "entropy"])
    def test_mean_variance_mode_and_entropy_agree(self, random_sums, random_dist, assert_within, name):
        got = random_dist.entropy() if name == "entropy" else getattr(random_dist, name)
        expected = [getattr(o.sums, name) for o in random_sums]
        tolerance = 0.0 if name == "mode" else 1e-8
        assert_within(got, expected, tolerance, mu=random_dist.mu, gamma=random_dist.gamma)

    def test_log_prob_agrees(self, random_sums, random_dist, random_counts, assert_within):
        for counts in random_counts:
            expected = [o.sums.log_pmf(y) for o, y in zip(random_sums, counts, strict=True)]
            at = {"mu": random_dist.mu, "gamma": random_dist.gamma, "y": counts}
            assert_within(random_dist.log_prob(make_float64(counts)), expected, 2e-9, floor=1.0, **at)

    @pytest.mark.parametrize("method", ["cdf", "survival"])
    def test_both_tails_agree(self, random_sums, random_dist, random_counts, assert_within, method):
        for counts in random_counts:
            expected = [getattr(o.sums, method)(y) for o, y in zip(random_sums, counts, strict=True)]
            at = {"mu": random_dist.mu, "gamma": random_dist.gamma, "y": counts}
            got = getattr(random_dist, method)(make_float64(counts))
            assert_within(got, expected, 1e-7, floor=1e-4, **at)
            assert_within(got, expected, 2e-6, floor=1e-12, **at)

    def test_crps_agrees(self, random_sums, random_dist, random_counts, assert_within):
        for counts in random_counts:
            expected = [o.sums.crps(y) for o, y in zip(random_sums, counts, strict=True)]
            at = {"mu": random_dist.mu, "gamma": random_dist.gamma, "y": counts}
            assert_within(random_dist.crps(make_float64(counts)), expected, 5e-7, **at)

    @pytest.mark.parametrize("q", [1e-9, 0.01, 0.3, 0.6, 0.99, 1 - 1e-9])
    def test_quantiles_agree(self, random_sums, random_dist, q):
        assert random_dist.icdf(make_float64(q)).tolist() == [o.sums.quantile(q) for o in random_sums]

    @pytest.mark.parametrize(
        ("mu", "gamma", "y"), [(5e-5, 0.0675, 29), (0.11, 0.131, 38), (5e-6, 0.0653, 28), (0.26, 0.187, 31)]
    )
    def test_a_steep_upper_tail_agrees(self, sum_double_poisson, assert_within, mu, gamma, y):
        """Tails that fall by nearly a factor e a count are hardest to take for an integral."""
        dist, expected = DoublePoisson(make_float64(mu), make_float64(gamma)), sum_double_poisson(mu, gamma).sums
        assert_within(dist.survival(y), expected.survival(y), 2e-6, floor=1e-12)

    @pytest.mark.parametrize(
        ("mu", "gamma", "y"), [(12900, 180, 12844), (2100, 27.5, 2043), (730, 5.8, 640), (470, 3.4, 385)]
    )
    def test_a_steep_lower_tail_agrees(self, sum_double_poisson, assert_within, mu, gamma, y):
        dist, expected = DoublePoisson(make_float64(mu), make_float64(gamma)), sum_double_poisson(mu, gamma).sums
        assert_within(dist.cdf(y), expected.cdf(y), 2e-6, floor=1e-12)


def test_far_beyond_its_mass_the_distribution_has_its_limits(sum_double_poisson):
    """Where the pmf underflows, cdf, survival and CRPS go to their limits, and log_prob stays finite."""
    dist, exact = DoublePoisson(make_float64(5.0), make_float64(2.0)), sum_double_poisson(5.0, 2.0).sums
    y = make_float64(1e7)
    assert dist.cdf(y) == 1.0
    assert dist.survival(y) == 0.0
    assert dist.crps(y).item() == pytest.approx(1e7 - exact.mean - exact.half_mean_difference, rel=1e-14)
    # log h(y) - gamma D(y) + log(gamma) / 2 - log c, term by term.
    expected = (
        mpmath.log(mpmath.sqrt(2)) - sum_double_poisson(5.0, 2.0).log_c - mpmath.mpf(10**7) - mpmath.loggamma(10**7 + 1)
    )
    expected += 10**7 * mpmath.log(10**7) - 2 * (5 - 10**7 + 10**7 * mpmath.log(mpmath.mpf(10**7) / 5))
    assert dist.log_prob(y).item() == pytest.approx(float(expected), rel=1e-13)


class TestRmutil:
    """Compare with R's rmutil, which is independent code; see tests/reference/README.md."""

    def test_log_prob_agrees(self, reference, assert_within):
        table = reference("rmutil_double_poisson.csv")
        got = DoublePoisson(make_float64(table["mu"]), make_float64(table["gamma"])).log_prob(make_float64(table["y"]))
        assert_within(got, table["log_pmf"], 2e-9, floor=1.0, mu=table["mu"], gamma=table["gamma"], y=table["y"])

    def test_the_cdf_agrees(self, reference, assert_within):
        table = reference("rmutil_double_poisson.csv")
        got = DoublePoisson(make_float64(table["mu"]), make_float64(table["gamma"])).cdf(make_float64(table["y"]))
        assert (table["cdf"] == 0).sum() == 4
        assert_within(got, table["cdf"], 1e-7, floor=1e-300, mu=table["mu"], gamma=table["gamma"], y=table["y"])


def test_of_two_modes_the_smaller_is_taken():
    assert DoublePoisson(make_float64([1.0, 3.0, 64.0, 1e6]), 1.0).mode.tolist() == [0.0, 2.0, 63.0, 999_999.0]


def test_the_higher_of_two_peaks_is_the_mode():
    """With enough over-dispersion there is a peak at 0 beside the interior one."""
    dist = DoublePoisson(make_float64([20.0, 20.5]), make_float64([0.1, 1.0]))
    p = dist.expand((40, 2)).log_prob(torch.arange(40.0, dtype=torch.float64).unsqueeze(1)).T
    interior = p[0, 1:].argmax() + 1
    assert p[0, 0] > p[0, 1] < p[0, interior]
    assert dist.mode.tolist() == p.argmax(1).tolist()


class TestKullbackLeibler:
    PAIRS = [
        ((3.0, 2.0), (4.0, 0.7)),
        ((0.2, 0.1), (50.0, 0.02)),
        ((1e3, 5.0), (1.1e3, 4.0)),
        ((7.0, 300.0), (7.4, 150.0)),
    ]

    @pytest.mark.parametrize(("p", "q"), PAIRS + [(q, p) for p, q in PAIRS])
    def test_the_divergence_is_a_direct_sum(self, sum_double_poisson, p, q):
        exact, other = sum_double_poisson(*p), sum_double_poisson(*q)
        expected = exact.sums.expectation(exact.log_p(exact.sums.y) - other.log_p(exact.sums.y))
        got = kl_divergence(
            DoublePoisson(make_float64(p[0]), make_float64(p[1])), DoublePoisson(make_float64(q[0]), make_float64(q[1]))
        )
        assert got.item() == pytest.approx(expected, rel=1e-8)

    def test_the_divergence_is_zero_for_equal_distributions_only(self, golden, golden_dist):
        assert torch.equal(kl_divergence(golden_dist, golden_dist), torch.zeros(len(golden["mu"]), dtype=torch.float64))
        assert (kl_divergence(golden_dist, DoublePoisson(golden["mu"] * 1.01, golden["gamma"])) >= 0).all()
        assert kl_divergence(DoublePoisson(5.0, 1.0), DoublePoisson(5.0, 1.2)) > 1e-3


class TestEfron:
    def test_efrons_moments_are_mu_and_mu_over_gamma(self):
        dist = DoublePoisson(make_float64([2.0, 30.0]), make_float64([0.5, 4.0]))
        assert dist.efron_mean.tolist() == [2.0, 30.0]
        assert dist.efron_variance.tolist() == [4.0, 7.5]

    @pytest.mark.parametrize(
        ("mean", "variance"), [(0.05, 0.2), (0.5, 0.5), (1.0, 4.0), (6.0, 0.8), (10.0, 25.0), (14.0, 14.0)]
    )
    def test_deviations_are_those_of_proposition_a2(self, mean, variance):
        """Compute the formulas as the paper has them, by partial sums."""
        gamma = mean / variance
        z = np.arange(0.0, 1200.0, dtype=np.longdouble)
        z_log_z = z * np.log(np.maximum(z, 1))
        log_factorial = np.concatenate([[0], np.log(z[1:]).cumsum()])
        s = np.exp(z_log_z - z - log_factorial + gamma * (z - mean + z * np.log(np.longdouble(mean)) - z_log_z))
        first = (s * (z - mean)).sum()
        d = gamma**-0.5 * ((s * (gamma * (z - mean) ** 2 - z)).sum() + first)
        epsilon_1 = abs(first / s.sum())
        epsilon_2 = abs((d * gamma**0.5 * s.sum() - gamma * first**2) / (gamma * s.sum() ** 2))
        dist = DoublePoisson(make_float64(mean), make_float64(gamma))
        assert abs(dist.mean.item() - mean) == pytest.approx(float(epsilon_1), abs=1e-8)
        assert abs(dist.variance.item() - variance) == pytest.approx(float(epsilon_2), abs=1e-7)


class TestFromMoments:
    @pytest.mark.parametrize(
        "mean", [1e-3, 0.1, 0.5, 0.9, 0.95, 0.99, 1.0, 1.01, 1.5, 1.9, 1.99, 2.5, 7.0, 10.3, 50.9, 1e3, 1e5]
    )
    def test_the_distribution_has_the_moments_that_were_asked_for(self, assert_within, mean):
        low, high = (x.item() for x in variance_limits(make_float64(mean)))
        shares = make_float64([0.003, 0.01, 0.02, 0.05, 0.1, 0.3, 0.5, 0.75])
        variance = low + shares * min(mean, high - low)
        dist = DoublePoisson.from_moments(make_float64(mean), variance)
        at = {"mean": torch.full_like(variance, mean), "variance": variance}
        assert_within(dist.mean, at["mean"], 1e-9, **at)
        assert_within(dist.variance, variance, 1e-9, **at)

    def test_moments_close_to_the_least_variance_are_reached(self, assert_within):
        rng = np.random.default_rng(0)
        mean = make_float64(np.exp(rng.uniform(0.0, 10.3, 60)))
        variance = variance_limits(mean)[0] + make_float64(np.exp(rng.uniform(-6.9, 0.0, 60)))
        dist = DoublePoisson.from_moments(mean, variance)
        assert_within(dist.mean, mean, 1e-9, variance=variance)
        assert_within(dist.variance, variance, 1e-8, mean=mean)

    def test_the_moments_are_those_of_an_independent_sum(self, sum_double_poisson):
        dist = DoublePoisson.from_moments(make_float64(4.0), make_float64(9.0))
        exact = sum_double_poisson(dist.mu.item(), dist.gamma.item()).sums
        assert (exact.mean, exact.variance) == pytest.approx((4.0, 9.0), rel=1e-9)

    def test_shape_and_dtype_are_kept(self):
        dist = DoublePoisson.from_moments(torch.tensor([[2.0], [3.0]]), torch.tensor([1.0, 2.0, 4.0]))
        assert dist.batch_shape == (2, 3)
        assert dist.mean.dtype == torch.float32
        torch.testing.assert_close(dist.variance, torch.tensor([1.0, 2.0, 4.0]).expand(2, 3), rtol=1e-5, atol=0)

    @pytest.mark.parametrize("variance", [0.2, 30.0])
    def test_variances_that_cannot_be_reached_are_refused(self, variance):
        low, high = (x.item() for x in variance_limits(make_float64(2.5)))
        message = rf"variance must lie well between {low:.6g} and {high:.6g} .* mean 2.5, got {variance:g} at 1\. \w+"
        with pytest.raises(InputError, match=message):
            DoublePoisson.from_moments(make_float64([2.5, 2.5]), make_float64([3.0, variance]))

    @pytest.mark.parametrize("mean", [0.04, 0.7, 2.5, 31.25])
    def test_variance_limits_have_a_closed_form(self, mean):
        """Below, the two integers next to the mean have all mass; above, weights h(y) x^y with the x of this mean."""
        low, high = (x.item() for x in variance_limits(make_float64(mean)))
        fraction = mean - math.floor(mean)
        assert low == pytest.approx(fraction * (1 - fraction), rel=1e-12)
        y = np.arange(5000.0)
        log_h = y * np.log(np.maximum(y, 1)) - y - special.gammaln(y + 1)

        def moments(log_x: float) -> tuple[float, float]:
            p = np.exp(log_h + y * log_x)
            p /= p.sum()
            mean = (p * y).sum()
            return mean, (p * (y - mean) ** 2).sum()

        log_x = optimize.brentq(lambda log_x: moments(log_x)[0] - mean, -5.0, -0.01, xtol=1e-15)
        assert high == pytest.approx(moments(log_x)[1], rel=1e-9)

    def test_the_variance_limit_is_approached(self):
        """As gamma falls at one mean, the variance rises towards its limit and stays below."""
        high = variance_limits(make_float64(2.5))[1]
        narrowing = DoublePoisson.from_moments(make_float64(2.5), high * make_float64([0.5, 0.8, 0.9, 0.95]))
        assert (narrowing.gamma.diff() < 0).all()
        assert narrowing.gamma[-1] < 0.02
