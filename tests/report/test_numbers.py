"""Intervals and quantiles against statsmodels, numpy and theory; numbers as words."""

import math

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import DescrStatsW

from ddpn.report.numbers import (
    bootstrap_ratio,
    effective_rows,
    fmt,
    mean_interval,
    percent,
    plural,
    quantile,
    wilson,
)

RNG = np.random.default_rng(3)


@pytest.mark.parametrize(("held", "rows"), [(0, 5), (5, 5), (90, 100), (4321, 5000)])
def test_wilson_is_that_of_statsmodels(held, rows):
    assert wilson(held / rows, rows) == pytest.approx(proportion_confint(held, rows, method="wilson"), abs=1e-12)


@pytest.mark.parametrize("q", [0.05, 0.5, 0.9])
def test_a_quantile_with_weights_is_that_of_repeated_values(q):
    values, weight = RNG.integers(0, 30, 50).astype(float), RNG.integers(1, 4, 50)
    expected = np.quantile(np.repeat(values, weight), q, method="inverted_cdf")
    assert quantile(values, weight.astype(float), q) == expected
    assert quantile(values, 0.1 * weight, q) == expected


def test_the_interval_of_a_mean_is_that_of_a_normal_law():
    values = RNG.normal(size=80)
    expected = DescrStatsW(values).zconfint_mean()
    assert mean_interval(values, np.ones(80)) == pytest.approx(expected, rel=1e-9)


def test_equal_weights_are_that_many_rows_and_uneven_ones_fewer():
    assert effective_rows(np.full(40, 3.0)) == pytest.approx(40)
    assert effective_rows(np.array([1.0, 1.0, 0.0, 2.0])) == pytest.approx(16 / 6)


def test_a_bootstrap_interval_is_as_wide_as_theory_has_it():
    values = RNG.exponential(size=2000)
    low, high = bootstrap_ratio(values, np.ones(2000), np.ones(2000), seed=0)
    half = 1.96 * values.std() / math.sqrt(2000)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), rel=0.02)


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0, "0"), (-3.0, "-3"), (0.00123, "0.00123"), (0.0567, "0.057"), (2.345, "2.35"), (12.34, "12.3"),
     (1e6, "1,000,000"), (2.487e11, "2.49e11"), (math.nan, "–"), (math.inf, "∞")],
)  # fmt: skip
def test_numbers_are_short(value, words):
    assert fmt(value) == words


def test_a_share_is_never_rounded_to_none_or_all():
    assert [percent(share) for share in (0.0, 1e-6, 0.5, 1 - 1e-6, 1.0)] == ["0%", "<0.1%", "50.0%", ">99.9%", "100%"]
    assert [percent(share, 0) for share in (0.004, 0.94, 0.999)] == ["<1%", "94%", ">99%"]
    assert plural(2, "category", "categories") == "2 categories"
