"""Bins of counts: every count falls into one of few bins, and long tails have a log axis."""

import numpy as np
import pytest

from ddpn.analysis.figure_data import count_bins, wants_log

RNG = np.random.default_rng(9)
COUNTS = {
    "0 and 1": RNG.integers(0, 2, 80),
    "one value": np.full(9, 4),
    "small": RNG.poisson(3.0, 500),
    "hundreds": RNG.poisson(300.0, 500),
    "a long tail": RNG.negative_binomial(0.4, 0.002, 800),
    "millions": RNG.poisson(3e6, 400),
    "millions and zeros": np.concatenate([np.zeros(300), RNG.poisson(3e6, 30)]),
}


@pytest.mark.parametrize("values", COUNTS.values(), ids=COUNTS.keys())
def test_every_count_falls_into_one_of_few_bins(values):
    bins = count_bins(values.astype(float))
    assert np.all(np.diff(bins.edges) >= 1)
    assert np.all(bins.edges == np.round(bins.edges))
    assert bins.edges[0] <= values.min()
    assert values.max() < bins.edges[-1]
    assert len(bins.edges) <= 42
    assert np.all((bins.ends[:-1] < bins.middles) & (bins.middles < bins.ends[1:]))
    shares = bins.shares(values.astype(float), np.ones(len(values)))
    assert shares == pytest.approx(np.histogram(values, bins.edges - 0.5)[0] / len(values))


def test_few_counts_have_a_bin_each_and_long_tails_a_log_axis():
    assert count_bins(COUNTS["small"].astype(float)).unit
    assert [name for name, values in COUNTS.items() if wants_log(values)] == ["a long tail", "millions and zeros"]
