"""Groups of rows: who is in them, and what is said of them."""

import numpy as np
import pytest

from ddpn.features.table import Column
from ddpn.report.groups import coded, group_of, groups, tellable

RNG = np.random.default_rng(2)


def test_numbers_are_cut_into_fifths():
    values = RNG.normal(size=500)
    codes, labels = coded(Column("x", "number", values))
    ranks = np.argsort(np.argsort(values))
    assert codes.tolist() == (ranks // 100).tolist()
    assert (labels[0][:6], labels[4][:6], labels[-1]) == ("up to ", "above ", "missing")


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (Column("n", "number", np.array([3.0, 1.0, np.nan, 3.0])), ["3", "1", "missing", "3"]),
        (Column("f", "flag", np.array([1.0, 0.0, np.nan])), ["yes", "no", "missing"]),
        (Column("c", "category", np.array([1, 0, -1, 1]), ("p", "q")), ["q", "p", "missing", "q"]),
        (Column("same", "number", np.array([7.0, 7.0])), ["7", "7"]),
        (Column("none", "number", np.array([np.nan, np.nan])), ["missing", "missing"]),
    ],
)
def test_few_values_are_groups_of_their_own(column, expected):
    codes, labels = coded(column)
    assert [labels[code] for code in codes] == expected


def test_rare_levels_are_put_together():
    values = np.concatenate([np.repeat(np.arange(7), 20), np.arange(7, 30)])
    codes, labels = coded(Column("c", "category", values, tuple(f"l{j}" for j in range(30))))
    assert labels == [*(f"l{j}" for j in range(7)), "others", "missing"]
    assert np.bincount(codes).tolist() == [20] * 7 + [23]


def test_a_column_where_one_value_rules_is_cut_where_it_can_be():
    values = np.concatenate([np.zeros(90), np.arange(1.0, 11.0)])
    codes, labels = coded(Column("x", "number", values))
    assert [labels[code] for code in (codes[0], codes[-1])] == ["up to 0", "above 0"]


def test_a_group_is_the_means_of_its_rows(evidence):
    weighted = evidence._replace(weight=np.arange(1.0, 1.0 + len(evidence.y)))
    column = weighted.columns[3]
    found = groups(column, weighted)
    assert [group.label for group in found] == ["no", "yes"]
    mask = column.values == 1.0
    assert found[1].mae == pytest.approx(
        np.average(np.abs(weighted.model.median - weighted.y)[mask], weights=weighted.weight[mask])
    )
    assert found[1].aleatoric == pytest.approx(np.average(weighted.aleatoric[mask], weights=weighted.weight[mask]))
    assert (found[1].rows, found[0].rows) == (mask.sum(), (~mask).sum())
    assert 0.0 < found[1].share < 1.0


def test_small_groups_are_not_spoken_of(evidence):
    few, many = (group_of("g", evidence, np.arange(300) < rows) for rows in (9, 60))
    assert tellable([few, many], 300) == [many]
