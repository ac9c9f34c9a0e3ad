"""Figures of effects: lines, bars, missing values, shared scales, interactions."""

import re

import numpy as np
import pytest

from ddpn.analysis.explanations import Curve, Effect, Effects, Explanation, Interaction
from ddpn.analysis.report.explaining import effects_section, interaction_sentence
from ddpn.analysis.report.figures.effects import effect_figures, interaction_figure, scales


def effect(name, points, levels, kind="number", continuous=True, has_missing=False):
    of_mean = np.log(levels)
    curves = [Curve(q, of_mean, np.full(len(points), 0.1), 0.0, True) for q in ("mean", "variance / mean")]
    share = np.full(len(points), 1 / len(points))
    return Effect(name, kind, points, share, *curves, continuous=continuous, has_missing=has_missing)


LINE = effect("age", [*np.arange(20.0, 60.0, 5.0), "missing"], np.arange(1.0, 10.0), has_missing=True)
BARS = effect("ward", [f"w{i}" for i in range(14)], np.linspace(2, 4, 14), "category", False)
FLAG = effect("flag", [False, True], [2.0, 3.0], "flag", False)


def test_numbers_are_lines_with_a_mark_per_point_and_missing_values_are_beside():
    mean, spread = effect_figures(LINE, 0, scales([LINE]))
    assert mean.words == "From 1.00 where age is 20 to 9.00 where it is missing."
    assert ">missing</text>" in mean.svg
    assert mean.svg.count('class="dot big"') == 1
    assert (mean.title, spread.title) == ("age: mean", "age: spread")
    assert mean.name != spread.name


def test_levels_and_flags_are_bars_of_the_most_frequent_ones():
    found = scales([BARS, FLAG])
    bars, _ = effect_figures(BARS, 1, found)
    assert bars.words.endswith("The 12 most frequent of 14 levels are shown.")
    assert bars.svg.count('class="bar"') == 12
    flags, _ = effect_figures(FLAG, 2, found)
    assert flags.words == "From 2.00 where flag is no to 3.00 where it is yes."


def test_all_means_have_one_scale_and_it_has_the_poisson_where_that_is_near():
    found = scales([LINE, BARS])
    assert found.mean.low == 0.0
    assert found.mean.high >= 9.0
    near = scales([effect("x", [1.0, 2.0], [1.5, 2.5])]).spread
    assert near.low <= 1.0
    far = scales([effect("x", [1.0, 2.0], [50.0, 60.0])]).spread
    assert far.low > 1.0


def test_a_constant_column_has_one_value():
    one = effect("same", [3.0], [2.0], continuous=False)
    assert "these rows have one value only, 3." in effect_figures(one, 0, scales([one]))[0].words


def interaction(points, effects):
    values = np.array(effects)
    share = np.full(values.shape, 1 / values.size)
    return Interaction(("a", "b"), points, values, values, share, 0.2, 0.03, 0.5, True)


def test_an_interaction_has_lines_of_the_two_values_that_differ_most():
    one = interaction(([1.0, 2.0, 3.0], ["p", "q", "r"]), [[0.0, 0.1, 0.5], [0.0, 0.0, 0.0], [0.0, -0.1, -0.5]])
    figure = interaction_figure(one, 0)
    assert [words for _, words in figure.legend] == ["b: p", "b: r"]
    turned = interaction_figure(interaction((["p", "q"], [1.0, 2.0, 3.0]), [[0.0, 0.1, 0.5], [0.5, 0.1, 0.0]]), 0)
    assert turned.title == "b and a"
    assert [words for _, words in turned.legend] == ["a: p", "a: q"]
    assert interaction_sentence(one).startswith("The effect of a depends on b: ")
    assert "20% of the mean" in interaction_sentence(one)


@pytest.mark.parametrize("pairs", [[], [interaction((["p", "q"], ["r", "s"]), [[0.0, 0.5], [0.5, 0.0]])]])
def test_the_section_has_a_table_for_two_categories_and_a_sentence_for_none(pairs):
    html = effects_section(Explanation(Effects([LINE, FLAG], 9), pairs), "visits")
    assert html.count("<figure") == 4
    assert ("none above noise" in html) == (not pairs)
    assert ("Predicted mean by a and b" in html) == bool(pairs)
    assert len(re.findall(r"<td>1\.65</td>", html)) == 2 * len(pairs)
    assert effects_section(Explanation(Effects([], 0), []), "visits") == ""
