"""Figures of uncertainty."""

import re

import numpy as np
import pytest

from ddpn.analysis.explanations import Importance, Importances
from ddpn.analysis.report.figures.uncertainty import (
    fifths,
    group_coverage_figure,
    importance_figures,
    importance_notes,
    split_figure,
)


def described(figure):
    return re.search(r"<desc[^>]*>(.*?)</desc>", figure.svg).group(1)


def test_fifths_are_by_predicted_mean(evidence):
    found = fifths(evidence)
    assert [group.rows for group in found] == [60] * 5
    first = np.argsort(evidence.model.mean)[:60]
    assert found[0].aleatoric == pytest.approx(evidence.aleatoric[first].mean())
    share = evidence.epistemic[first].mean() / evidence.model.variance[first].mean()
    assert f"{100 * share:.1f}% epistemic" in described(split_figure(found))
    coverage = evidence.model.inside[first].mean()
    assert f"{100 * coverage:.1f}% of 60 rows" in described(group_coverage_figure(found))


def importance(name, column, crps, mean):
    repeats = np.array([0.5, 1.0, 1.5])
    return Importance(name, crps * repeats, mean * repeats, 2 * crps * repeats, np.zeros(3), np.zeros(3), column)


def test_columns_are_drawn_by_importance_and_the_rest_is_counted():
    each = [importance(f"c{j}", j, 0.01 * j, 0.2 - 0.01 * j) for j in range(15)]
    found = Importances(each, 700, 15)
    first, second, third = importance_figures(found)
    assert described(first).startswith("c14: +14.0%; c13: +13.0%")
    assert described(second).startswith("c0: 20.0%; c1: 19.0%")
    assert described(third).startswith("c14: 28.0%; c13: 26.0%")
    assert "shuffled 3 times on 700 rows" in importance_notes(found)[0][1]
    assert "The 12 largest of 15 columns are shown" in first.words


def test_large_means_have_short_labels(evidence):
    large = evidence.model._replace(mean=evidence.model.mean * 1e5)
    assert all(re.fullmatch(r"[\d.,]+[kM] to [\d.,]+[kM]", g.label) for g in fifths(evidence._replace(model=large)))


def test_a_single_column_without_effect_can_be_drawn():
    assert "x: 0.0%" in described(importance_figures(Importances([importance("x", 0, 0.0, 0.0)], 5, 1))[0])
