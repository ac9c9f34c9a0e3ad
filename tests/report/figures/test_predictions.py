"""Predictions drawn: what is told of them against numpy, and laws of any size."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from scipy import stats

from ddpn import Poisson
from ddpn.report.figures.predictions import _floor, pmf_svg, scatter_figure, sharpness_figure

RNG = np.random.default_rng(6)


def poisson(mu):
    return Poisson(torch.as_tensor(np.asarray(mu, dtype=float)))


@pytest.fixture(scope="module")
def evidence(made):
    mu = RNG.uniform(1.0, 9.0, 250)
    return made(poisson(mu), RNG.poisson(mu), baselines={"constant": poisson(np.full(250, 5.0))})


def test_the_scatter_is_thinned_and_says_so(evidence):
    figure = scatter_figure(evidence, "visits")
    assert "160 rows of 250" in figure.words
    assert "logarithmic" not in figure.words
    crosses = re.search(r'<path d="([^"]*)" class="cross"', figure.svg).group(1).count("M")
    assert f"{crosses} of 160 drawn rows lie outside" in figure.words


def test_long_tails_are_drawn_on_log_axes(made):
    mu = np.geomspace(0.5, 2e6, 120)
    figure = scatter_figure(made(poisson(mu), RNG.poisson(mu)), "sales")
    assert "Both axes are logarithmic" in figure.words
    assert {"0", "1M"} <= {text.text for text in ElementTree.fromstring(figure.svg).iter("text")}


@pytest.mark.parametrize(
    ("least", "top", "log", "floor"),
    [(0.0, 50.0, False, 0.0), (30.0, 50.0, False, 29.0), (5.0, 9e5, True, 0.0), (1e3, 9e5, True, 800.0)],
)
def test_axes_start_at_0_unless_that_leaves_them_empty(least, top, log, floor):
    assert _floor(least, top, log) == floor


def test_widths_are_told(evidence):
    mu = evidence.model.mean
    widths = stats.poisson.ppf(0.95, mu) - stats.poisson.ppf(0.05, mu)
    figure = sharpness_figure(evidence, "constant")
    half, most = np.quantile(widths, [0.5, 0.9], method="inverted_cdf")
    assert f"a width of {half:.0f} or less, nine in ten {most:.0f} or less" in figure.words
    assert ("line-2", "constant") in figure.legend
    assert len(sharpness_figure(evidence, None).legend) == 1


@pytest.mark.parametrize(("mu", "y"), [(1e-9, 0), (4.0, 4), (4.0, 30), (0.5, 1), (3e6, 3_001_000), (3e6, 0)])
def test_a_law_is_drawn_with_what_was_seen(made, mu, y):
    tree = ElementTree.fromstring(pmf_svg(made(poisson([mu, 1.0]), [y, 1]), 0, "best-0"))
    heights = [float(box.get("height")) for box in tree.iter("rect")]
    ticks = [text.text for text in tree.iter("text")][:-1]
    (seen,) = [path for path in tree.iter("path") if path.get("class") == "seen"]
    assert 1 <= len(heights) <= 61
    assert len(ticks) >= 2
    assert 0 < float(seen.get("d")[1:].split()[0]) < 300


def test_bars_of_a_law_are_its_probabilities(made):
    tree = ElementTree.fromstring(pmf_svg(made(poisson([4.0]), [4]), 0, "best-0"))
    heights = np.array([float(box.get("height")) for box in tree.iter("rect")])
    assert heights[3] / heights[1] == pytest.approx(stats.poisson.pmf(3, 4) / stats.poisson.pmf(1, 4), rel=0.02)
