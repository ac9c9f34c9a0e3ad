"""Intervals, PIT and precision of every dist: against scipy, and by what they must be if y comes from the dist."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal

from ddpn.distributions import Mixture, Poisson
from ddpn.metrics import covered, expected_coverage, pit, pit_bounds, pit_cdf, precision, width
from ddpn.runtime.errors import ConfigError, InputError

KINDS = ("central", "highest")


def test_poisson_intervals_against_scipy(counts_of_set):
    mu, y = counts_of_set(400)
    dist = Poisson(torch.from_numpy(mu))
    low, high = stats.poisson.interval(0.8, mu)
    np.testing.assert_array_equal(width(dist, 0.8).numpy(), high - low)
    np.testing.assert_array_equal(covered(dist, y, 0.8).numpy(), (low <= y) & (y <= high))
    expected = stats.poisson.cdf(high, mu) - stats.poisson.cdf(low - 1, mu)
    np.testing.assert_allclose(expected_coverage(dist, 0.8).numpy(), expected, rtol=1e-10)


def test_normal_intervals_against_scipy():
    dist, y = Normal(torch.tensor([1.0, 50.0], dtype=torch.float64), 3.0), torch.tensor([6.0, 45.0])
    low, high = stats.norm.interval(0.9, [1.0, 50.0], 3.0)
    for kind in KINDS:
        np.testing.assert_allclose(width(dist, 0.9, kind).numpy(), high - low, rtol=1e-10)
        assert covered(dist, y, 0.9, kind).tolist() == [False, False]
        assert covered(dist, y, 0.91, kind).tolist() == [True, True]
        np.testing.assert_allclose(expected_coverage(dist, 0.9, kind).numpy(), 0.9, rtol=1e-10)


@pytest.mark.parametrize(("coverage", "kind"), [(0.3, "highest"), (0.9, "central")])
def test_both_ends_are_inside_and_their_neighbours_are_not(count_dist, coverage, kind):
    low, high = count_dist.interval(coverage, kind)
    inside = covered(count_dist, torch.stack([low, high, high + 1, low - 1]), coverage, kind)
    assert inside.tolist() == [[True] * 3, [True] * 3, [False] * 3, [False] * 3]
    assert torch.equal(width(count_dist, coverage, kind), high - low)


@pytest.mark.parametrize("kind", KINDS)
def test_expected_coverage_is_the_mean_of_covered_under_the_distribution(count_dist, kind):
    z = torch.arange(600.0, dtype=torch.float64).unsqueeze(-1)
    pmf = count_dist.log_prob(z).exp()
    share = (pmf * covered(count_dist, z, 0.8, kind)).sum(0)
    torch.testing.assert_close(expected_coverage(count_dist, 0.8, kind), share, rtol=1e-7, atol=1e-9)
    assert (share >= 0.8 - 1e-9).all()


def test_intervals_on_the_line_hold_their_level():
    mixture = Mixture(Normal(torch.tensor([0.0, 6.0], dtype=torch.float64), 1.0))
    assert expected_coverage(mixture, 0.7).item() == pytest.approx(0.7, abs=1e-9)
    # Two far peaks of mass 1/2: 15% are left out below the lower one's 0.3-quantile, as much above.
    expected = 6.0 - 2 * stats.norm.ppf(0.3)
    assert width(mixture, 0.7).item() == pytest.approx(expected, rel=1e-3)


def test_pit_bounds_against_scipy(counts_of_set, poisson_bounds):
    mu, y = counts_of_set(500)
    for got, expected in zip(pit_bounds(Poisson(torch.from_numpy(mu)), y), poisson_bounds(mu, y), strict=True):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-9)


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
    mixture = Mixture(Normal(loc, 2.0))
    np.testing.assert_allclose(pit(mixture, y).numpy(), expected, rtol=1e-12)
    assert torch.equal(*pit_bounds(mixture, y))
    np.testing.assert_allclose(pit(Normal(0.0, 1.0), torch.tensor([-1.0])).numpy(), stats.norm.cdf(-1), rtol=1e-6)


def test_randomised_pit_is_uniform_for_the_true_distribution_and_not_for_another(counts_of_set):
    mu, y = counts_of_set(4000, seed=5)
    u = pit(Poisson(torch.from_numpy(mu)), y, torch.Generator().manual_seed(1)).numpy()
    assert stats.kstest(u, "uniform").pvalue > 0.01
    wrong = pit(Poisson(torch.from_numpy(1.1 * mu)), y, torch.Generator().manual_seed(1)).numpy()
    assert stats.kstest(wrong, "uniform").pvalue < 1e-6


def test_randomised_pit_comes_from_its_generator_and_lies_within_its_bounds(count_dist, y):
    draw = lambda seed: pit(count_dist, y, torch.Generator().manual_seed(seed))
    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    lower, upper = pit_bounds(count_dist, y)
    many = pit(count_dist, y.expand(200, 3), torch.Generator().manual_seed(0))
    assert ((many >= lower) & (many <= upper)).all()
    torch.testing.assert_close(many.mean(0), (lower + upper) / 2, rtol=0, atol=0.1)


def test_pit_cdf_is_that_of_the_randomised_pit(count_dist, y):
    u = torch.linspace(0, 1, 21, dtype=torch.float64)
    got = pit_cdf(count_dist, y, u)
    assert got.shape == (3, 21)
    lower, upper = (x.numpy()[:, None] for x in pit_bounds(count_dist, y))
    np.testing.assert_allclose(got.numpy(), stats.uniform.cdf(u.numpy(), lower, upper - lower), rtol=1e-9, atol=1e-12)


def test_pit_cdf_is_a_step_on_the_line():
    got = pit_cdf(Normal(0.0, 1.0), torch.tensor([0.0]), torch.tensor([0.0, 0.49, 0.5, 0.51, 1.0]))
    assert got.tolist() == [[0, 0, 1, 1, 1]]


def test_pit_cdf_has_no_nan_where_y_has_no_probability():
    dist = Poisson(torch.tensor(5.0, dtype=torch.float64))
    got = pit_cdf(dist, torch.tensor(10**6), torch.tensor([0.0, 0.5, 1.0]))
    assert got.tolist() == [0.0, 0.0, 1.0]


def test_precision(dist):
    np.testing.assert_allclose(precision(dist).numpy(), 1 / dist.stddev.numpy() ** 2, rtol=1e-12)


def test_precision_of_an_ensemble_counts_its_disagreement():
    mixture = Mixture(Poisson(torch.tensor([3.0, 5.0], dtype=torch.float64)))
    assert precision(mixture).item() == pytest.approx(1 / (4.0 + 1.0))


@pytest.mark.parametrize("dist", [Poisson(3.0), Normal(3.0, 1.0), Mixture(Normal(torch.zeros(2), 1.0))])
def test_bad_intervals_are_refused(dist):
    for metric in (width, expected_coverage, lambda d, *a: covered(d, torch.tensor(1), *a)):
        with pytest.raises(InputError, match="coverage must lie strictly between 0 and 1, got 90"):
            metric(dist, 90)
        with pytest.raises(ConfigError, match="kind must be"):
            metric(dist, 0.9, "equal")
