"""Calibration figures: the numbers in them against scipy."""

import re

import numpy as np
import pytest
import torch
from scipy import stats

from ddpn import Poisson
from ddpn.report.figures.calibration import counts_figure, coverage_figure, pit_figure, pit_of, spread_rows

RNG = np.random.default_rng(6)
MU = RNG.uniform(1.0, 9.0, 250)
Y = RNG.poisson(MU)


@pytest.fixture(scope="module")
def evidence(made):
    return made(Poisson(torch.from_numpy(MU)), Y)


def described(figure):
    return re.search(r"<desc[^>]*>(.*?)</desc>", figure.svg).group(1)


def test_heights_are_those_of_uniform_pieces(evidence):
    below, upto = stats.poisson.cdf(Y - 1, MU), stats.poisson.cdf(Y, MU)
    edges = np.linspace(0, 1, 11)
    inside = np.clip((edges - below[:, None]) / (upto - below)[:, None], 0, 1)
    pit = pit_of(evidence)
    assert pit.heights == pytest.approx(10 * np.diff(inside.mean(0)))
    assert pit.chance == pytest.approx(1.96 * 3 / np.sqrt(250), rel=1e-3)
    assert f"{pit.heights[0]:.2f}, {pit.heights[1]:.2f}" in described(pit_figure(pit, "words"))


def test_the_coverage_curve_tells_observed_shares(evidence):
    low, high = stats.poisson.ppf(0.25, MU), stats.poisson.ppf(0.75, MU)
    observed = ((low <= Y) & (high >= Y)).mean()
    assert f"50% nominal: {100 * observed:.1f}%" in described(coverage_figure(evidence))


def test_dots_are_mean_probabilities(evidence):
    figure = counts_figure(evidence, "visits")
    assert "averaged over 250 rows" in figure.words
    assert "observed visits" in figure.svg
    commonest = np.bincount(Y).argmax()
    assert f"starts at {commonest}, with {100 * (commonest == Y).mean():.1f}%" in described(figure)


def test_rows_are_spread_over_the_order_of_values():
    values = RNG.permutation(1000).astype(float)
    assert values[spread_rows(values, 5)].tolist() == [0.0, 250.0, 500.0, 749.0, 999.0]
    assert sorted(spread_rows(values[:4], 5)) == [0, 1, 2, 3]
