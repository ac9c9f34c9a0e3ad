"""Figures of predictions: the numbers in them against scipy and numpy, for distributions of any size."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from scipy import stats

from ddpn import Poisson
from ddpn.analysis.report.figures.predictions import (
    _range,
    bin_probabilities,
    counts_figure,
    coverage_figure,
    distribution_svg,
    pit_figure,
    pit_of,
    scatter_figure,
    sharpness_figure,
    spread_rows,
)

RNG = np.random.default_rng(6)
MU = RNG.uniform(1.0, 9.0, 250)
Y = RNG.poisson(MU)


def poisson(mu):
    return Poisson(torch.as_tensor(np.asarray(mu, dtype=float)))


@pytest.fixture(scope="module")
def evidence(made):
    return made(poisson(MU), Y, baselines={"constant": poisson(np.full(250, 5.0))})


def described(figure):
    return re.search(r"<desc[^>]*>(.*?)</desc>", figure.svg).group(1)


def test_the_pit_heights_are_those_of_uniform_pieces(evidence):
    below, upto = stats.poisson.cdf(Y - 1, MU), stats.poisson.cdf(Y, MU)
    edges = np.linspace(0, 1, 11)
    inside = np.clip((edges - below[:, None]) / (upto - below)[:, None], 0, 1)
    pit = pit_of(evidence)
    assert pit.heights == pytest.approx(10 * np.diff(inside.mean(0)))
    assert pit.chance == pytest.approx(1.96 * 3 / np.sqrt(250), rel=1e-3)
    assert f"{pit.heights[0]:.2f}, {pit.heights[1]:.2f}" in described(pit_figure(pit, "words"))


def test_the_coverage_curve_has_observed_shares(evidence):
    low, high = stats.poisson.ppf(0.25, MU), stats.poisson.ppf(0.75, MU)
    observed = ((low <= Y) & (high >= Y)).mean()
    figure = coverage_figure(evidence._replace(calibrated=40))
    assert f"50% nominal: {100 * observed:.1f}%" in described(figure)
    assert "before calibration" in figure.words


def test_dots_are_mean_probabilities(evidence):
    figure = counts_figure(evidence, "visits")
    assert "averaged over 250 rows" in figure.words
    assert "observed visits" in figure.svg
    commonest = np.bincount(Y).argmax()
    assert f"starts at {commonest}, with {100 * (commonest == Y).mean():.1f}%" in described(figure)


def test_the_probabilities_of_bins_are_those_of_their_counts():
    found = bin_probabilities(poisson([1.0, 5.0]), np.array([0.0, 1.0, 4.0]))
    expected = [[stats.poisson.pmf(0, mu), stats.poisson.pmf([1, 2, 3], mu).sum()] for mu in (1.0, 5.0)]
    assert pytest.approx(np.array(expected)) == found.T


def test_rows_are_spread_over_the_order_of_values():
    values = RNG.permutation(1000).astype(float)
    assert values[spread_rows(values, 5)].tolist() == [0.0, 250.0, 500.0, 749.0, 999.0]
    assert sorted(spread_rows(values[:4], 5)) == [0, 1, 2, 3]


def test_the_scatter_shows_some_rows_and_those_outside(evidence):
    figure = scatter_figure(evidence, "visits")
    assert "160 of 250 rows" in figure.words
    assert "logarithmic" not in figure.words
    crosses = re.search(r'<path d="([^"]*)" class="cross"', figure.svg).group(1).count("M")
    assert f"{crosses} of 160 rows shown are outside" in figure.words


def test_long_tails_are_drawn_on_log_axes(made):
    mu = np.geomspace(0.5, 2e6, 120)
    figure = scatter_figure(made(poisson(mu), RNG.poisson(mu)), "sales")
    assert "Both axes are logarithmic" in figure.words
    assert {"0", "1M"} <= {text.text for text in ElementTree.fromstring(figure.svg).iter("text")}


@pytest.mark.parametrize(
    ("least", "top", "log", "floor"),
    [(0.0, 50.0, False, 0.0), (30.0, 50.0, False, 28.9), (5.0, 9e5, True, 0.0), (1e3, 9e5, True, 800.0)],
)
def test_axes_start_at_0_unless_that_leaves_them_empty(least, top, log, floor):
    assert _range(np.array([least, top]), log) == (pytest.approx(floor), 1.04 * top)


def test_widths_are_compared_with_those_of_the_best_alternative(evidence, made):
    widths = stats.poisson.ppf(0.95, MU) - stats.poisson.ppf(0.05, MU)
    figure = sharpness_figure(evidence)
    half, most = np.quantile(widths, [0.5, 0.9], method="inverted_cdf")
    assert f"a width of {half:.0f} or less, 90% of {most:.0f} or less" in figure.words
    assert ("line-2", "constant") in figure.legend
    path = re.search(r'<path d="([^"]*)" class="line-2"', figure.svg).group(1)
    heights = [float(y) for y in re.findall(r" (-?[\d.]+)", path)]
    assert heights[0] == heights[-1] == max(heights), "the outline starts and ends at 0"
    assert len(sharpness_figure(made(poisson(MU), Y)).legend) == 1


@pytest.mark.parametrize(("mu", "y"), [(1e-9, 0), (4.0, 4), (4.0, 30), (0.5, 1), (3e6, 3_001_000), (3e6, 0)])
def test_a_distribution_is_drawn_with_the_observed_count(made, mu, y):
    tree = ElementTree.fromstring(distribution_svg(made(poisson([mu, 1.0]), [y, 1]), 0, "best-0"))
    heights = [float(box.get("height")) for box in tree.iter("rect")]
    ticks = [text.text for text in tree.iter("text")][:-1]
    (seen,) = [path for path in tree.iter("path") if path.get("class") == "seen"]
    assert 1 <= len(heights) <= 61
    assert len(ticks) >= 2
    assert 0 < float(seen.get("d")[1:].split()[0]) < 300
    if (mu, y) == (4.0, 4):
        assert heights[3] / heights[1] == pytest.approx(stats.poisson.pmf(3, 4) / stats.poisson.pmf(1, 4), rel=0.02)
