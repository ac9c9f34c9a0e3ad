"""Test intervals, PIT and precision of every distribution against scipy and R, and on counts that come from it."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal

from ddpn.distributions import Mixture, NegativeBinomial, Poisson
from ddpn.metrics import (
    coverage_curve,
    expected_coverage,
    is_covered,
    median_precision,
    pit_bounds,
    pit_distance,
    pit_histogram,
)
from ddpn.runtime.errors import ConfigError

LEVELS = [0.1, 0.9]


def test_poisson_intervals_are_those_of_scipy(draw_counts):
    mu, y = draw_counts(400)
    dist = Poisson(torch.from_numpy(mu))
    low, high = stats.poisson.interval(0.8, mu)
    np.testing.assert_array_equal(is_covered(dist, y, 0.8).numpy(), (low <= y) & (y <= high))
    expected = stats.poisson.cdf(high, mu) - stats.poisson.cdf(low - 1, mu)
    np.testing.assert_allclose(expected_coverage(dist, 0.8).numpy(), expected, rtol=1e-10)


def test_normal_intervals_are_those_of_scipy():
    dist, y = Normal(torch.tensor([1.0, 50.0], dtype=torch.float64), 3.0), torch.tensor([6.0, 45.0])
    low, high = stats.norm.interval(0.9, [1.0, 50.0], 3.0)
    assert ((low <= y.numpy()) & (y.numpy() <= high)).tolist() == is_covered(dist, y, 0.9).tolist() == [False, False]
    assert is_covered(dist, y, 0.91).tolist() == [True, True]
    np.testing.assert_allclose(expected_coverage(dist, 0.9).numpy(), 0.9, rtol=1e-10)


def test_both_ends_of_an_interval_are_covered_and_their_neighbours_are_not(count_dist):
    low, high = count_dist.interval(0.9)
    inside = is_covered(count_dist, torch.stack([low, high, high + 1, low - 1]), 0.9)
    assert inside.tolist() == [[True] * 3, [True] * 3, [False] * 3, [False] * 3]


def test_expected_coverage_is_the_mean_of_covered_under_the_distribution(count_dist):
    z = torch.arange(600.0, dtype=torch.float64).unsqueeze(-1)
    pmf = count_dist.log_prob(z).exp()
    share = (pmf * is_covered(count_dist, z, 0.8)).sum(0)
    torch.testing.assert_close(expected_coverage(count_dist, 0.8), share, rtol=1e-7, atol=1e-9)
    assert (share >= 0.8 - 1e-9).all()


def test_pit_bounds_step_by_the_pmf(count_dist, y):
    lower, upper = pit_bounds(count_dist, y)
    torch.testing.assert_close(upper - lower, count_dist.log_prob(y).exp(), rtol=1e-7, atol=1e-12)
    assert (pit_bounds(count_dist, torch.tensor(0))[0] == 0).all()
    for dtype in (torch.bool, torch.uint8, torch.float32):
        zeros_and_ones = torch.tensor([0, 1, 1]).to(dtype)
        torch.testing.assert_close(pit_bounds(count_dist, zeros_and_ones)[0][1:], count_dist.cdf(torch.tensor(0))[1:])


def test_pit_on_the_line_is_the_cdf():
    loc = torch.tensor([[0.0, 3.0], [5.0, 5.0]], dtype=torch.float64)
    y = torch.tensor([1.0, 9.5], dtype=torch.float64)
    expected = stats.norm.cdf(y.numpy()[:, None], loc.numpy(), 2.0).mean(-1)
    lower, upper = pit_bounds(Mixture(Normal(loc, 2.0)), y)
    np.testing.assert_allclose(lower.numpy(), expected, rtol=1e-12)
    assert torch.equal(lower, upper)


# Whole sets of predictions -------------------------------------------------------------------------------------------


def test_pit_histograms_are_those_of_surveillance(read_reference_rows):
    heights = read_reference_rows("surveillance_pit.csv")
    for name, rows in read_reference_rows("surveillance_scores.csv").items():
        mu, y = (torch.tensor([float(row[key]) for row in rows], dtype=torch.float64) for key in ("mu", "y"))
        dist = Poisson(mu)
        if name == "negative_binomial":
            dist = NegativeBinomial(mu, 1 / torch.tensor([float(row["size"]) for row in rows], dtype=torch.float64))
        for bins in (4, 10, 20):
            expected = [float(row["height"]) for row in heights[name] if row["bins"] == str(bins)]
            np.testing.assert_allclose(pit_histogram(dist, y, bins).numpy(), expected, rtol=1e-8, err_msg=name)


def test_the_pit_histogram_of_a_continuous_distribution_counts_rows():
    loc, y = np.random.default_rng(0).normal(0, 3, (2, 500))
    u = stats.norm.cdf(y, loc, 4.0)
    got = pit_histogram(Normal(torch.from_numpy(loc), 4.0), torch.from_numpy(y), bins=8)
    np.testing.assert_allclose(got.numpy(), np.histogram(u, 8, (0, 1))[0] * 8 / 500, rtol=1e-12)


def search_on_grid(lower: np.ndarray, upper: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Search the largest deviation of the mean PIT cdf on 40,001 points."""
    u = np.linspace(0, 1, 40_001)
    mean = sum(w * stats.uniform.cdf(u, a, b - a) for a, b, w in zip(lower, upper, weight, strict=True))
    gap = mean / weight.sum() - u
    return np.abs(gap).max()


@pytest.mark.parametrize(("factor", "weighted"), [(1.0, False), (1.3, True)])
def test_pit_distances_are_those_on_a_fine_grid(draw_counts, compute_poisson_bounds, factor, weighted):
    mu, y = draw_counts(150, seed=2)
    weight = np.random.default_rng(0).uniform(0, 3, 150) if weighted else np.ones(150)
    largest = search_on_grid(*compute_poisson_bounds(factor * mu, y), weight)
    dist, weight_or_none = Poisson(torch.from_numpy(factor * mu)), weight if weighted else None
    assert pit_distance(dist, y, weight_or_none) == pytest.approx(largest, abs=2e-4)


def test_pit_distances_on_the_line_are_those_of_scipy():
    """Compare Kolmogorov-Smirnov distances with jumps and ties of PIT values."""
    rng = np.random.default_rng(1)
    for y in (rng.normal(0.3, 1, 200), rng.normal(0, 1, 200).round(1), np.zeros(5), np.array([8.0, -0.2])):
        dist, u = Normal(torch.tensor(0.0, dtype=torch.float64), 1.2), stats.norm.cdf(y, 0, 1.2)
        assert pit_distance(dist, torch.from_numpy(y)) == pytest.approx(stats.kstest(u, "uniform").statistic, rel=1e-9)


def test_the_whole_distribution_as_its_own_set_is_exactly_uniform():
    """Counts have their probabilities as weights."""
    dist, z = NegativeBinomial(torch.tensor(5.0, dtype=torch.float64), 0.7), torch.arange(400)
    weight = stats.nbinom.pmf(z.numpy(), 1 / 0.7, 1 / (1 + 0.7 * 5))
    np.testing.assert_allclose(pit_histogram(dist, z, 7, weight).numpy(), 1.0, rtol=1e-6)
    assert pit_distance(dist, z, weight) < 1e-6


def test_histograms_hold_all_rows(dist, y):
    for counts in (y, torch.tensor([1, 4, 10**6])):  # which has no probability at all
        heights = pit_histogram(dist, counts, 6)
        assert heights.shape == (6,)
        assert heights.mean().item() == pytest.approx(1.0, rel=1e-12)


def test_coverage_curve_is_the_mean_of_covered(dist, y):
    curve = coverage_curve(dist, y, LEVELS, weight=[1.0, 2.0, 5.0])
    w = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64) / 8
    for i, level in enumerate(LEVELS):
        assert curve.observed[i].item() == pytest.approx((w * is_covered(dist, y, level)).sum().item())
        assert curve.expected[i].item() == pytest.approx((w * expected_coverage(dist, level)).sum().item())
    assert curve.level.tolist() == LEVELS


def test_coverage_curve_of_true_distributions_follows_what_is_expected(draw_counts):
    mu, y = draw_counts(4000, seed=8)
    curve = coverage_curve(Poisson(torch.from_numpy(mu)), y, torch.tensor([0.2, 0.5, 0.9]))
    # Four standard errors; the nominal level is further off, as counts over-cover.
    assert ((curve.observed - curve.expected).abs() < 4 * 0.5 / np.sqrt(4000)).all()
    assert (curve.expected - curve.level > 0.03).all()
    narrow = coverage_curve(Normal(torch.from_numpy(mu), 0.1), y, [0.9])
    assert narrow.observed.item() < 0.5
    assert narrow.expected.item() == pytest.approx(0.9)


def test_median_precision_is_that_of_numpy(dist):
    assert median_precision(dist) == pytest.approx(np.median(1 / dist.variance.numpy()), rel=1e-12)
    assert median_precision(dist, [1, 4, 2]) == pytest.approx(
        np.median(np.repeat(1 / dist.variance.numpy(), [1, 4, 2])), rel=1e-12
    )


def test_one_bin_holds_everything():
    assert pit_histogram(Poisson(4.0), torch.tensor([0, 2, 9]), bins=1).tolist() == pytest.approx([1.0])
    with pytest.raises(ConfigError, match="bins"):
        pit_histogram(Poisson(4.0), torch.tensor([0, 2, 9]), bins=0)
