"""Places, ticks and bins."""

import numpy as np
import pytest

from ddpn.analysis.report.figures.scales import Axis, count_bins, short, wants_log

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
    shares = bins.shares(values.astype(float), np.ones(len(values)))
    assert shares == pytest.approx(np.histogram(values, bins.edges - 0.5)[0] / len(values))


def test_few_counts_have_a_bin_each_and_long_tails_a_log_axis():
    assert count_bins(COUNTS["small"].astype(float)).unit
    assert [name for name, values in COUNTS.items() if wants_log(values)] == ["a long tail", "millions and zeros"]


@pytest.mark.parametrize(
    "axis",
    [Axis("", 0.0, 1.0), Axis("", -0.5, 13.5, integers=True), Axis("", 0.0, 3.2e6, integers=True), Axis("", 0.0, 0.003),
     Axis("", -0.5, 3e6, log=True, integers=True), Axis("", 0.0, 70.0, log=True), Axis("", 2.9e6, 3.1e6, integers=True),
     Axis("", -0.5, 1.5, integers=True), Axis("", -1.3, -0.2)],
)  # fmt: skip
def test_ticks_are_few_round_and_in_range(axis):
    ticks = axis.ticks
    assert 2 <= len(ticks) <= 9
    assert all(axis.low <= tick <= axis.high for tick in ticks)
    assert np.all(np.diff(ticks) > 0)
    assert len({axis.tick_label(tick) for tick in ticks}) == len(ticks)
    if axis.integers:
        assert all(tick == round(tick) for tick in ticks)


def test_places_are_even_or_logarithmic_and_stay_inside():
    assert Axis("", 10.0, 20.0).share(np.array([10.0, 15.0, 20.0, 99.0, -9.0])).tolist() == [0.0, 0.5, 1.0, 1.0, 0.0]
    assert Axis("", 0.0, 99.0, log=True).share(np.array([0.0, 9.0, 99.0])).tolist() == pytest.approx([0.0, 0.5, 1.0])


def test_the_bar_of_0_has_a_width_on_a_log_axis():
    shares = Axis("", -0.5, 1000.0, log=True).share(np.array([-0.5, 0.0, 0.5]))
    assert shares[0] == 0.0
    assert shares[1] - shares[0] > 0.05


def test_labels_are_short():
    assert [short(value) for value in (0.1, 9999.0, 12_500.0, 2e9)] == ["0.1", "9,999", "12.5k", "2G"]
    assert Axis("", 0, 1, percent=True).tick_label(0.3) == "30%"
