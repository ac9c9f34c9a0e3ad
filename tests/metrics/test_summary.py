"""Test the table of all metrics against scipy, numpy or the metric that an entry averages."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import mean_absolute_error, root_mean_squared_error
from torch.distributions import Normal

from ddpn.distributions import Mixture, NegativeBinomial, Poisson, row_statistics
from ddpn.metrics import evaluate

KEYS = {"mae", "rmse", "crps", "nll", "coverage", "expected_coverage", "width", "median_precision", "pit_distance"}


def compute_poisson_table(mu: np.ndarray, y: np.ndarray, w: np.ndarray) -> dict[str, float]:
    """Compute the same by scipy and scikit-learn, without the PIT distance."""
    k = np.arange(1000)[:, None]
    low, high = stats.poisson.interval(0.9, mu)
    average = lambda x: np.average(x, weights=w)
    return {
        "mae": mean_absolute_error(y, stats.poisson.median(mu), sample_weight=w),
        "rmse": root_mean_squared_error(y, mu, sample_weight=w),
        "crps": average(((stats.poisson.cdf(k, mu) - (k >= y)) ** 2).sum(0)),
        "nll": average(-stats.poisson.logpmf(y, mu)),
        "coverage": average((low <= y) & (y <= high)),
        "expected_coverage": average(stats.poisson.cdf(high, mu) - stats.poisson.cdf(low - 1, mu)),
        "width": average(high - low),
    }


@pytest.mark.parametrize("weighted", [False, True])
def test_every_entry_is_that_of_scipy(draw_counts, weighted):
    mu, y = draw_counts(301, seed=6)
    w = np.random.default_rng(0).uniform(0, 4, len(y)) if weighted else np.ones(len(y))
    got = evaluate(Poisson(torch.from_numpy(mu)), y, weight=w if weighted else None)
    assert set(got) == KEYS
    assert all(type(value) is float for value in got.values())
    for key, value in compute_poisson_table(mu, y, w).items():
        assert got[key] == pytest.approx(value, rel=1e-8), key
    if not weighted:
        assert got["median_precision"] == pytest.approx(np.median(1 / mu))


def test_whole_weights_equal_repeated_rows(draw_counts):
    mu, y = draw_counts(40, seed=3, excess=0.4)
    copies = np.random.default_rng(1).integers(0, 4, len(y))
    dist = lambda m: Poisson(torch.from_numpy(m))
    repeated = evaluate(dist(np.repeat(mu, copies)), np.repeat(y, copies))
    assert evaluate(dist(mu), y, weight=copies) == pytest.approx(repeated, rel=1e-9)


def test_statistic_and_coverage_are_honoured():
    dist, y = NegativeBinomial(torch.tensor([10.0, 3.3]), 0.5), torch.tensor([4, 0])
    by_mode = evaluate(dist, y, statistic="mode", coverage=0.5)
    assert (by_mode["mae"], by_mode["rmse"]) == pytest.approx((0.5, math.sqrt(0.5)))
    by_mean = evaluate(dist, y, statistic="mean")
    assert by_mean["mae"] == pytest.approx((6 + 3.3) / 2)
    assert by_mode["width"] < by_mean["width"]
    assert by_mode["crps"] == by_mean["crps"]


def test_every_distribution_has_a_summary_in_any_shape(dist, y):
    single = evaluate(dist, y)
    assert set(single) == KEYS
    assert all(math.isfinite(value) for value in single.values())
    # The same three rows twice, by broadcasting.
    assert evaluate(dist, torch.stack([y, y])) == pytest.approx(single, rel=1e-9)


def test_counts_are_evaluated_by_one_summary_one_cdf_and_one_log_prob(monkeypatch):
    calls = []
    dist = Mixture(NegativeBinomial(torch.tensor([[10.0, 3.3], [2.0, 0.4]]), 0.5))
    statistics = [(row_statistics, "compute_summaries"), (row_statistics, "compute_tails")]
    for owner, name in (*statistics, (type(dist), "log_prob")):
        kept = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, _kept=kept, _name=name: calls.append(_name) or _kept(*args))
    evaluate(dist, torch.tensor([4, 0]))
    assert sorted(calls) == ["compute_summaries", "compute_tails", "log_prob"]


def test_no_gradient_is_kept_by_metrics():
    mu = torch.tensor([2.0, 3.0], requires_grad=True)
    assert math.isfinite(evaluate(Mixture(Poisson(mu)), torch.tensor([1]))["crps"])


def test_normals_are_scored_as_densities():
    got = evaluate(Normal(torch.tensor([1.0, 2.0], dtype=torch.float64), 0.1), torch.tensor([1, 2]))
    assert got["nll"] == pytest.approx(math.log(0.1 * math.sqrt(2 * math.pi)))
    assert got["width"] == pytest.approx(0.2 * stats.norm.ppf(0.95))
