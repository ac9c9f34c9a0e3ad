"""Calibration of sets: against R's surveillance, scipy's goodness-of-fit statistics and sums on a fine grid."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal

from ddpn.distributions import NegativeBinomial, Poisson
from ddpn.metrics import (
    coverage_curve,
    covered,
    expected_coverage,
    median_precision,
    pit_distance,
    pit_histogram,
)
from ddpn.runtime.errors import ConfigError, InputError

LEVELS = [0.1, 0.9]


def test_pit_histogram_against_surveillance(reference_rows):
    heights = reference_rows("surveillance_pit.csv")
    for name, rows in reference_rows("surveillance_scores.csv").items():
        mu, y = (torch.tensor([float(row[key]) for row in rows], dtype=torch.float64) for key in ("mu", "y"))
        dist = Poisson(mu)
        if name == "negative_binomial":
            dist = NegativeBinomial(mu, 1 / torch.tensor([float(row["size"]) for row in rows], dtype=torch.float64))
        for bins in (4, 10, 20):
            expected = [float(row["height"]) for row in heights[name] if row["bins"] == str(bins)]
            np.testing.assert_allclose(pit_histogram(dist, y, bins).numpy(), expected, rtol=1e-8, err_msg=name)


def test_pit_histogram_of_continuous_distributions_counts():
    loc, y = np.random.default_rng(0).normal(0, 3, (2, 500))
    u = stats.norm.cdf(y, loc, 4.0)
    got = pit_histogram(Normal(torch.from_numpy(loc), 4.0), torch.from_numpy(y), bins=8)
    np.testing.assert_allclose(got.numpy(), np.histogram(u, 8, (0, 1))[0] * 8 / 500, rtol=1e-12)


def on_a_grid(lower: np.ndarray, upper: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Largest deviation of the mean PIT cdf, looked at in 40,001 places."""
    u = np.linspace(0, 1, 40_001)
    mean = sum(w * stats.uniform.cdf(u, a, b - a) for a, b, w in zip(lower, upper, weight, strict=True))
    gap = mean / weight.sum() - u
    return np.abs(gap).max()


@pytest.mark.parametrize(("factor", "weighted"), [(1.0, False), (1.3, True)])
def test_pit_distances_on_a_fine_grid(counts_of_set, poisson_bounds, factor, weighted):
    mu, y = counts_of_set(150, seed=2)
    weight = np.random.default_rng(0).uniform(0, 3, 150) if weighted else np.ones(150)
    largest = on_a_grid(*poisson_bounds(factor * mu, y), weight)
    dist, given = Poisson(torch.from_numpy(factor * mu)), weight if weighted else None
    assert pit_distance(dist, y, given) == pytest.approx(largest, abs=2e-4)


def test_pit_distances_on_the_line_against_scipy():
    """Kolmogorov-Smirnov, jumps and all; ties of PIT values too."""
    rng = np.random.default_rng(1)
    for y in (rng.normal(0.3, 1, 200), rng.normal(0, 1, 200).round(1), np.zeros(5), np.array([8.0, -0.2])):
        dist, u = Normal(torch.tensor(0.0, dtype=torch.float64), 1.2), stats.norm.cdf(y, 0, 1.2)
        assert pit_distance(dist, torch.from_numpy(y)) == pytest.approx(stats.kstest(u, "uniform").statistic, rel=1e-9)


def test_calibrated_sets_are_nearer_to_uniform(counts_of_set):
    mu, y = counts_of_set(1500, seed=4)
    wide_mu, wide_y = counts_of_set(1500, seed=4, excess=0.3)
    right = pit_distance(Poisson(torch.from_numpy(mu)), y)
    alpha = torch.tensor(0.3, dtype=torch.float64)
    also_right = pit_distance(NegativeBinomial(torch.from_numpy(wide_mu), alpha), wide_y)
    too_narrow = pit_distance(Poisson(torch.from_numpy(wide_mu)), wide_y)
    assert max(right, also_right) < 0.3 * too_narrow
    assert right < 1.6 / np.sqrt(1500)


def test_the_whole_distribution_as_its_own_set_is_exactly_uniform():
    """Every count weighted with its probability."""
    dist, z = NegativeBinomial(torch.tensor(5.0, dtype=torch.float64), 0.7), torch.arange(400)
    weight = stats.nbinom.pmf(z.numpy(), 1 / 0.7, 1 / (1 + 0.7 * 5))
    np.testing.assert_allclose(pit_histogram(dist, z, 7, weight).numpy(), 1.0, rtol=1e-6)
    assert pit_distance(dist, z, weight) < 1e-6


def test_a_valley_says_too_narrow_and_a_hill_too_wide(counts_of_set):
    mu, y = counts_of_set(2000, excess=0.5)
    valley = pit_histogram(Poisson(torch.from_numpy(mu)), y, 5)
    assert min(valley[0], valley[-1]) > 1 > valley[2]
    mu, y = counts_of_set(2000)
    hill = pit_histogram(NegativeBinomial(torch.from_numpy(mu), torch.tensor(0.5)), y, 5)
    assert max(hill[0], hill[-1]) < 1 < hill[2]


def test_histograms_hold_all_rows(dist, y):
    heights = pit_histogram(dist, y, 6)
    assert heights.shape == (6,)
    assert heights.mean().item() == pytest.approx(1.0, rel=1e-12)


def test_coverage_curve_is_the_mean_of_covered(dist, y):
    curve = coverage_curve(dist, y, LEVELS, weight=[1.0, 2.0, 5.0])
    w = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64) / 8
    for i, level in enumerate(LEVELS):
        assert curve.observed[i].item() == pytest.approx((w * covered(dist, y, level)).sum().item())
        assert curve.expected[i].item() == pytest.approx((w * expected_coverage(dist, level)).sum().item())
    assert curve.level.tolist() == LEVELS


def test_coverage_curve_of_true_distributions_follows_what_is_expected(counts_of_set):
    mu, y = counts_of_set(4000, seed=8)
    curve = coverage_curve(Poisson(torch.from_numpy(mu)), y, torch.tensor([0.2, 0.5, 0.9]))
    # Four standard errors; the nominal level is further off, as counts over-cover.
    assert ((curve.observed - curve.expected).abs() < 4 * 0.5 / np.sqrt(4000)).all()
    assert (curve.expected - curve.level > 0.03).all()
    narrow = coverage_curve(Normal(torch.from_numpy(mu), 0.1), y, [0.9], kind="highest")
    assert narrow.observed.item() < 0.5
    assert narrow.expected.item() == pytest.approx(0.9)


def test_median_precision_against_numpy(dist):
    assert median_precision(dist) == pytest.approx(np.median(1 / dist.variance.numpy()), rel=1e-12)
    assert median_precision(dist, [1, 4, 2]) == pytest.approx(
        np.median(np.repeat(1 / dist.variance.numpy(), [1, 4, 2])), rel=1e-12
    )


def test_what_is_refused():
    dist, y = Poisson(torch.ones(3)), torch.tensor([1, 2, 3])
    for bins in (0, -3, 2.5):
        with pytest.raises(ConfigError, match="bins must be an integer of at least 1"):
            pit_histogram(dist, y, bins)
    with pytest.raises(InputError, match=r"weight must have one entry per row, got shape \(2,\) for \(3,\)"):
        pit_distance(dist, y, [1.0, 1.0])
    with pytest.raises(InputError, match="weight must be finite, not negative and not all 0, got min -1"):
        coverage_curve(dist, y, [0.5], weight=[1.0, -1.0, 1.0])
    empty = Poisson(torch.ones(0))
    for metric in (pit_distance, pit_histogram):
        with pytest.raises(InputError, match="y must hold at least one row"):
            metric(empty, torch.ones(0))
    with pytest.raises(InputError, match="at least one row"):
        median_precision(empty)
    with pytest.raises(InputError, match="coverage must lie strictly between 0 and 1"):
        coverage_curve(dist, y, [0.5, 1.0])
