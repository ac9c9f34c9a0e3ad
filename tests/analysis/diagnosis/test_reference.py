"""Counts of which bounds or limits are known: moments, size and direction of the tests, and what is not looked for."""

import json

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from ddpn.analysis.diagnosis import diagnose
from ddpn.analysis.diagnosis.dispersion import conditional_dispersion
from ddpn.analysis.diagnosis.means import Means, out_of_fold_means
from ddpn.analysis.diagnosis.moments import moment_test, tabulate
from ddpn.analysis.diagnosis.reference import FittedFamily, Reference
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.sample import Sample

ROWS = 600


def reference(y, X=None, **bounds):
    known = {name: np.full(len(y), float(value)) for name, value in bounds.items()}
    return Reference.of(Sample(X, np.asarray(y, dtype=float), **known))


def nothing(words):
    pass


@pytest.mark.parametrize("upper", [None, 12.0])
@pytest.mark.parametrize("least", [0, 1, 3, 12])
def test_moments_beyond_a_limit_are_those_of_scipy(upper, least):
    location, counts = np.array([0.3, 2.0, 7.0]), np.arange(200)
    bounds = {} if upper is None else {"upper": upper}
    known = reference(np.full(3, least), limit=least, **bounds).known(location)
    base = stats.poisson(location[:, None]) if upper is None else stats.binom(12, location[:, None] / 12)
    pmf = np.where(counts >= least, base.pmf(counts), 0.0)
    total = pmf.sum(axis=1)
    np.testing.assert_allclose(known.mean, pmf @ counts / total, rtol=1e-9)
    np.testing.assert_allclose(known.variance, pmf @ counts**2 / total - known.mean**2, rtol=1e-9, atol=1e-9)


def test_a_limit_far_in_the_tail_has_finite_moments():
    found = reference([500.0], limit=500.0).known(np.array([0.01]))
    assert (found.mean[0], found.variance[0]) == pytest.approx((500.0, 0.0), abs=1e-4)


def known(location):
    return Means("glm", location, 0.0, 0.0, 0.0)


def dispersed(draw, of, runs):
    """The dispersion of simulated counts around their true locations."""
    found = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=ROWS)
        y, location = draw(rng, x)
        found.append(conditional_dispersion(of(y), known(location)))
    return found


def binomial(rng, x):
    return rng.binomial(12, expit(0.5 + x)), 12 * expit(0.5 + x)


def censored(rng, x):
    return np.minimum(rng.poisson(np.exp(1.2 + 0.5 * x)), 5), np.exp(1.2 + 0.5 * x)


def positive(rng, x):
    location = np.exp(0.3 + 0.5 * x)
    start = np.exp(-location)
    return stats.poisson.ppf(start + (1 - start) * rng.random(len(x)), location), location


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "of"),
    [
        (binomial, lambda y: reference(y, upper=12)),
        (censored, lambda y: reference(y, limit=5)),
        (positive, lambda y: reference(y, lower=1)),
    ],
    ids=["binomial", "censored", "positive"],
)
def test_size_under_the_reference(draw, of):
    rejected = sum(each.p_value < 0.05 for each in dispersed(draw, of, 40))
    assert stats.binom.sf(rejected - 1, 40, 0.05) > 5e-4


def test_the_dispersion_of_a_beta_binomial():
    def draw(rng, x):
        share = expit(0.5 + x)
        return rng.binomial(12, rng.beta(9 * share, 9 * (1 - share))), 12 * share

    # Variance over that of a Binomial: 1 + 11 / (9 + 1).
    found = dispersed(draw, lambda y: reference(y, upper=12), 10)
    assert np.mean([each.estimate for each in found]) == pytest.approx(2.1, rel=0.05)
    assert all(each.direction == "over" for each in found)


@pytest.mark.parametrize(("dispersion", "direction"), [(1.6, "over"), (0.5, "under")])
def test_the_direction_of_censored_counts(dispersion, direction):
    def draw(rng, x):
        mean = np.exp(1.2 + 0.5 * x)
        if dispersion > 1:
            return np.minimum(rng.poisson(rng.gamma(mean / 0.6, 0.6)), 5), mean
        trials = mean / 0.5
        trials = np.floor(trials) + (rng.random(len(mean)) < trials % 1)
        return np.minimum(rng.binomial(trials.astype(int), 0.5), 5), mean

    found = dispersed(draw, lambda y: reference(y, limit=5), 6)
    assert sum(each.direction == direction for each in found) >= 5


def test_limits_of_censored_rows_alone():
    rng = np.random.default_rng(0)
    x = rng.normal(size=3000)
    mean, limit = np.exp(1.2 + 0.5 * x), rng.integers(2, 12, 3000)
    count = rng.poisson(mean)
    y = np.minimum(count, limit)
    given = Reference.of(Sample(None, y.astype(float), limit=np.where(count >= limit, limit, np.inf)))
    drawn = given.all_limits(rng)
    assert (drawn[count >= limit] == limit[count >= limit]).all()
    assert (drawn[count < limit] > y[count < limit]).all()
    assert np.mean(drawn == 2) == pytest.approx(0.1, abs=0.02)
    assert conditional_dispersion(given, known(mean)).direction == "equi"


@pytest.mark.slow
def test_a_glm_recovers_the_location_behind_censored_and_bounded_counts():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    mean = np.exp(1.2 + 0.5 * X[:, 0])
    y = np.minimum(rng.poisson(mean), 4).astype(float)
    found = out_of_fold_means(reference(y, X, limit=4), "glm", 0, nothing)
    # A single row beyond the range of its training rows is cut off.
    assert np.quantile(np.abs(np.log(found.mean / mean)), 0.99) < 0.1
    total = rng.integers(1, 30, 3000).astype(float)
    share = expit(0.3 + X[:, 0])
    y = rng.binomial(total.astype(int), share).astype(float)
    found = out_of_fold_means(Reference.of(Sample(X, y, upper=total)), "glm", 0, nothing)
    np.testing.assert_allclose(found.mean / total, share, atol=0.03)


@pytest.mark.slow
def test_boosted_trees_follow_a_curved_mean_of_bounded_counts():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1500, 2))
    y = rng.binomial(12, expit(1.5 * np.sin(2 * X[:, 0])))
    assert diagnose(X, y, upper=12, mean_model="glm").direction == "over"
    found = diagnose(X, y, upper=12)
    assert found.direction == "equi"
    assert found.mean_model == "logistic GLM with boosted trees on top"


def test_zeros_of_censored_counts_are_calibrated():
    p_values = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        mean = np.exp(rng.normal(0.5, 0.5, 300))
        y = np.minimum(rng.poisson(mean), 3).astype(float)
        table = tabulate(FittedFamily("double_poisson", 1.0, 0.0), reference(y, limit=3), mean)
        p_values.append(moment_test(table, (table.counts == 0).astype(float)[None]).p_more)
    assert stats.kstest(p_values, "uniform").pvalue > 0.001


def test_counts_with_an_upper_bound(simulated):
    simulated = simulated.of(500)
    share = expit(0.5 + simulated.X[:, 0])
    y = simulated.rng.binomial(12, share)
    found = diagnose(simulated.X, y, upper=12, mean_model="glm")
    assert (found.labels, found.direction, found.reference) == ((), "equi", "Binomial")
    assert "consistent with a Binomial" in found.headline
    assert found.recommendation.arguments == "--likelihood double_binomial --upper 12"
    assert [each.name for each in found.findings] == ["dispersion", "zeros", "heaping", "tail"]
    assert diagnose(simulated.X, y, mean_model="glm").direction == "under", "without the bound"
    json.dumps(found.to_dict(), allow_nan=False)


def test_an_upper_bound_per_row(simulated):
    X = simulated.X[:400]
    beds = simulated.rng.integers(1, 40, 400)
    y = simulated.rng.binomial(beds, expit(0.5 + X[:, 0]))
    assert diagnose(X, y, upper=beds, mean_model="glm").labels == ()
    zeros = np.where(simulated.rng.random(400) < 0.25, 0, y)
    found = diagnose(X, zeros, upper=beds, mean_model="glm")
    assert set(found.labels) == {"over-dispersed", "zero-inflated"}
    assert found.recommendation.likelihood.startswith("zero_inflated")


def test_counts_that_are_recorded_up_to_a_limit(simulated):
    y = np.minimum(simulated.rng.poisson(simulated.mean), 5)
    found = diagnose(simulated.X, y, censored_above=5, mean_model="glm")
    assert (found.labels, found.direction) == ((), "equi")
    assert "before censoring" in found.finding("dispersion").words
    assert found.recommendation.arguments == "--likelihood poisson --censored-above 5"
    assert diagnose(simulated.X, y, mean_model="glm").labels, "without the limit"


def test_flags_of_censored_counts_and_a_lower_bound(simulated):
    simulated = simulated.of(500)
    count = 1 + simulated.rng.poisson(simulated.mean)
    limit = simulated.rng.integers(2, 12, len(count))
    found = diagnose(simulated.X, np.minimum(count, limit), lower=1, censored=count >= limit, mean_model="glm")
    assert found.direction == "under", "a shifted Poisson is narrower than a truncated one"
    assert not {"floor", "ceiling", "zeros"} & {each.name for each in found.findings}
    assert found.reference == "truncated Poisson"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"upper": 3}, InputError, "y must be at most `upper=3`"),
        ({"upper": [3]}, InputError, "upper"),
        ({"lower": 1}, InputError, "y must be at least `lower=1`"),
        ({"upper": 90, "exposure": np.ones(1000)}, ConfigError, "either `exposure` or an upper bound"),
        ({"censored": np.ones(1000, dtype=bool)}, InputError, "known exactly"),
        ({"censored_above": 0}, ConfigError, "censored_above must be"),
    ],
)
def test_what_cannot_be(simulated, options, error, words):
    with pytest.raises(error, match=words):
        diagnose(simulated.X, simulated.rng.poisson(simulated.mean), mean_model="glm", **options)
