"""Figures of a report: the numbers in them against scipy and numpy, for distributions of any size."""

import re
from html import unescape

import numpy as np
import pytest
import torch
from scipy import stats

from ddpn import Poisson
from ddpn.analysis.explanations import Curve, Effect, Effects, Importance, Importances
from ddpn.analysis.explanations.column_effects import scale_of
from ddpn.analysis.figure_data import Pit, bin_probabilities
from ddpn.analysis.report.figures import (
    counts_figure,
    coverage_figure,
    distribution_svg,
    effect_figures,
    group_coverage_figure,
    importance_figure,
    pit_figure,
    scatter_figure,
    sharpness_figure,
    split_figure,
    spread_rows,
    training_figure,
)
from ddpn.analysis.report.sections import fifths
from ddpn.networks.training import History

RNG = np.random.default_rng(6)
MU = RNG.uniform(1.0, 9.0, 250)
Y = RNG.poisson(MU)


def poisson(mu):
    return Poisson(torch.as_tensor(np.asarray(mu, dtype=float)))


@pytest.fixture(scope="module")
def evidence(made):
    return made(poisson(MU), Y, baselines={"constant": poisson(np.full(250, 5.0))})


def described(html):
    return unescape(re.search(r"<desc[^>]*>(.*?)</desc>", html).group(1))


def caption(html):
    return unescape(re.search(r"<figcaption>(.*?)</figcaption>", html).group(1))


def texts(html):
    return [unescape(words) for words in re.findall(r"<text[^>]*>(.*?)</text>", html)]


def test_the_pit_heights_are_those_of_uniform_pieces(evidence):
    below, upto = stats.poisson.cdf(Y - 1, MU), stats.poisson.cdf(Y, MU)
    edges = np.linspace(0, 1, 11)
    inside = np.clip((edges - below[:, None]) / (upto - below)[:, None], 0, 1)
    pit = Pit.of(evidence.dist, evidence.y, evidence.weight)
    assert pit.heights == pytest.approx(10 * np.diff(inside.mean(0)))
    assert pit.chance == pytest.approx(1.96 * 3 / np.sqrt(250), rel=1e-3)
    assert f"{pit.heights[0]:.2f}, {pit.heights[1]:.2f}" in described(pit_figure(pit, "words"))


def test_the_coverage_curve_has_observed_shares(evidence):
    low, high = stats.poisson.ppf(0.25, MU), stats.poisson.ppf(0.75, MU)
    observed = ((low <= Y) & (high >= Y)).mean()
    figure = coverage_figure(evidence._replace(calibrated=40))
    assert f"50% nominal: {100 * observed:.1f}%" in described(figure)
    assert "before calibration" in caption(figure)


def test_dots_are_mean_probabilities(evidence):
    figure = counts_figure(evidence, "visits")
    assert "averaged over 250 rows" in caption(figure)
    assert "observed visits" in texts(figure)
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
    words = caption(scatter_figure(evidence, "visits"))
    outside = (evidence.scores.coverage[spread_rows(evidence.mean, 160)] == 0).sum()
    assert f"160 of 250 rows, evenly spread over the predictions. {outside} of 160 rows shown are outside" in words
    assert "logarithmic" not in words


def test_long_tails_are_drawn_on_log_axes(made):
    mu = np.geomspace(0.5, 2e6, 120)
    figure = scatter_figure(made(poisson(mu), RNG.poisson(mu)), "sales")
    assert "Both axes are logarithmic" in caption(figure)
    assert {"0", "1M"} <= set(texts(figure))


def test_widths_are_compared_with_those_of_the_best_alternative(evidence, made):
    widths = stats.poisson.ppf(0.95, MU) - stats.poisson.ppf(0.05, MU)
    figure = sharpness_figure(evidence)
    half, most = np.quantile(widths, [0.5, 0.9], method="inverted_cdf")
    assert f"a width of {half:.0f} or less, 90% of {most:.0f} or less" in caption(figure)
    assert {"this model", "constant"} <= set(texts(figure))
    assert "constant" not in texts(sharpness_figure(made(poisson(MU), Y)))


@pytest.mark.parametrize(("mu", "y"), [(1e-9, 0), (4.0, 30), (0.5, 1), (3e6, 3_001_000), (3e6, 0)])
def test_a_distribution_is_drawn_with_the_observed_count(made, mu, y):
    html = distribution_svg(made(poisson([mu, 1.0]), [y, 1]), 0, "best-0")
    assert described(html).endswith(f"; observed {y:,}.")
    *ticks, label = texts(html)
    assert label.startswith("count")
    assert 2 <= len(ticks) <= 7


# Uncertainty and importance ---


def test_fifths_are_by_predicted_mean(gathered):
    found = fifths(gathered)
    assert [group.rows for group in found] == [60] * 5
    first = np.argsort(gathered.mean)[:60]
    assert found[0].aleatoric == pytest.approx(gathered.aleatoric[first].mean())
    share = gathered.epistemic[first].mean() / (gathered.aleatoric + gathered.epistemic)[first].mean()
    assert f"{100 * share:.1f}% epistemic" in described(split_figure(found))
    coverage = gathered.scores.coverage[first].mean()
    assert f"{100 * coverage:.1f}% of 60 rows" in described(group_coverage_figure(found))


def importance(name, column, crps, mean):
    repeats = np.array([0.5, 1.0, 1.5])
    return Importance(name, crps * repeats, mean * repeats, 2 * crps * repeats, column)


def test_columns_are_drawn_by_importance_and_the_rest_is_counted():
    each = [importance(f"c{j}", j, 0.01 * j, 0.2 - 0.01 * j) for j in range(15)]
    found = Importances(each, 700, 15)
    first, second, third = (importance_figure(found, key, "title", "label") for key in ("crps", "mean", "spread"))
    assert described(first).startswith("c14: +14.0%; c13: +13.0%")
    assert described(second).startswith("c0: 20.0%; c1: 19.0%")
    assert described(third).startswith("c14: 28.0%; c13: 26.0%")
    assert caption(first) == "The 12 largest of 15 columns are shown."


# Effects ---


def effect(name, points, levels, kind="number", continuous=True, has_missing=False):
    of_mean = np.log(levels)
    curves = [Curve(q, of_mean, np.full(len(points), 0.1), 0.0, True) for q in ("mean", "variance / mean")]
    share = np.full(len(points), 1 / len(points))
    return Effect(name, kind, points, share, *curves, continuous=continuous, has_missing=has_missing)


AGE = effect("age", [*np.arange(20.0, 60.0, 5.0), "missing"], np.arange(1.0, 10.0), has_missing=True)
WARD = effect("ward", [f"w{i}" for i in range(14)], np.linspace(2, 4, 14), "category", False)
FLAG = effect("flag", [False, True], [2.0, 3.0], "flag", False)


def test_numbers_are_lines_and_missing_values_are_beside():
    ((mean, spread),) = effect_figures(Effects([AGE], 9))
    assert caption(mean) == "From 1.00 where age is 20 to 9.00 where it is missing."
    assert {"missing", "effect", "90% band", "typical row", "predicted mean"} <= set(texts(mean))
    assert ["age: mean" in mean, "age: spread" in spread] == [True, True]


def test_levels_and_flags_are_bars_of_the_most_frequent_ones():
    (bars, _), (flags, _) = effect_figures(Effects([WARD, FLAG], 9))
    assert caption(bars).endswith("The 12 most frequent of 14 levels are shown.")
    assert [name for name in texts(bars) if name.startswith("w")] == [f"w{i}" for i in range(12)]
    assert caption(flags) == "From 2.00 where flag is no to 3.00 where it is yes."


def test_all_means_have_one_scale_and_it_has_the_poisson_where_that_is_near():
    low, high = scale_of([AGE.mean, WARD.mean])
    assert low == 0.0
    assert high >= 9.0
    assert scale_of([effect("x", [1.0, 2.0], [1.5, 2.5]).spread])[0] <= 1.0
    assert scale_of([effect("x", [1.0, 2.0], [50.0, 60.0]).spread])[0] > 1.0


def test_a_constant_column_has_one_value():
    one = effect("same", [3.0], [2.0], continuous=False)
    assert "these rows have one value only, 3." in caption(effect_figures(Effects([one], 9))[0][0])


def test_a_year_is_written_without_a_comma():
    year = effect("year", np.arange(1950.0, 2020.0, 5.0).tolist(), np.linspace(1, 2, 14))
    ((mean, _),) = effect_figures(Effects([year], 9))
    assert caption(mean) == "From 1.00 where year is 1950 to 2.00 where it is 2015."
    assert "1960" in texts(mean)
    assert "1,9" not in mean


# Training ---


def curves(history):
    found = (training_figure(history, key, "title", f"validation {key}") for key in ("loss", "score"))
    return [figure for figure in found if figure]


def test_loss_and_score_are_drawn_with_the_epochs_kept(fitted):
    loss, score = curves(fitted.history_)
    assert {"a member", "validation loss", "epoch"} <= set(texts(loss))
    assert {"a member", "validation score", "the epoch kept"} <= set(texts(score))


def test_without_validation_rows_there_is_only_a_loss():
    history = History([{"loss": [1.0, None], "seconds": 1.0}, {"loss": [0.5, 0.7], "seconds": 1.0}], [2, 2])
    (loss,) = curves(history)
    assert caption(loss) == "The mean over members went from 1 to 0.600."
    assert curves(History()) == []


def test_epochs_without_a_score_are_left_out():
    epochs = [{"loss": [2.0], "score": None}, {"loss": [1.0], "score": [3.0]}, {"loss": [1.0], "score": [4.0]}]
    _, score = curves(History(epochs, [2]))
    assert caption(score) == "The mean over members went from 3 to 4."
    assert "nan" not in score
