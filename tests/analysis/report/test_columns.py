"""Columns of any table: grouped, described, fingerprinted."""

import numpy as np
import pytest

from ddpn.analysis.report.columns import coded, description, fingerprint, value_text
from ddpn.tables.encoding.table import Column

RNG = np.random.default_rng(2)

NUMBER = Column("n", "number", np.array([0.1 + 0.2, np.nan, 9.0, 9.0]))
FLAG = Column("f", "flag", np.array([1.0, np.nan, 0.0, 0.0]))
LEVEL = Column("c", "category", np.array([1, -1, 0, 1]), ("p", "q"))
BINARY = Column("b", "number", np.array([0.0, 1.0, 1.0, 1.0]))
EMPTY = Column("e", "number", np.full(4, np.nan))


@pytest.mark.parametrize(
    ("column", "cells", "words"),
    [
        (NUMBER, ["0.3", "missing", "9", "9"], "0.3 to 9, median 9"),
        (FLAG, ["yes", "missing", "no", "no"], "33.3% yes"),
        (LEVEL, ["q", "missing", "p", "q"], "q, p"),
        (BINARY, ["0", "1", "1", "1"], "0 or 1, 75.0% are 1"),
        (EMPTY, ["missing"] * 4, "none"),
    ],
)
def test_cells_descriptions_and_groups_of_few_values(column, cells, words):
    assert [value_text(column, row) for row in range(4)] == cells
    assert description(column) == words
    codes, labels = coded(column)
    assert [labels[code] for code in codes] == cells, "few values are groups of their own"


def test_numbers_are_grouped_into_fifths():
    values = RNG.normal(size=500)
    codes, labels = coded(Column("x", "number", values))
    ranks = np.argsort(np.argsort(values))
    assert codes.tolist() == (ranks // 100).tolist()
    assert (labels[0][:6], labels[4][:6], labels[-1]) == ("up to ", "above ", "missing")


def test_rare_levels_are_grouped_together():
    values = np.concatenate([np.repeat(np.arange(7), 20), np.arange(7, 30)])
    column = Column("c", "category", values, tuple(f"l{j}" for j in range(30)))
    codes, labels = coded(column)
    assert labels == [*(f"l{j}" for j in range(7)), "others", "missing"]
    assert np.bincount(codes).tolist() == [20] * 7 + [23]
    assert description(column) == "l0, l1, l2, l3, … (30 levels)"


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (np.concatenate([np.zeros(90), np.arange(1.0, 11.0)]), ["up to 0", "above 0"]),
        (np.concatenate([np.arange(10.0), np.full(90, 10.0)]), ["up to 9", "above 9"]),
    ],
)
def test_a_column_dominated_by_one_value_has_two_groups(values, labels):
    codes, names = coded(Column("x", "number", values))
    assert [names[code] for code in (codes[0], codes[-1])] == labels


def test_a_fingerprint_depends_on_the_data_and_not_on_its_coding():
    y = np.array([1.0, 2.0])
    one = Column("c", "category", np.array([0, 1]), ("p", "q"))
    same = Column("c", "category", np.array([1, 0]), ("q", "p"))
    assert fingerprint([one], y) == fingerprint([same], y)
    assert fingerprint([one], y) != fingerprint([one._replace(values=np.array([1, 1]))], y)
    assert fingerprint([one], y) != fingerprint([one], y + 1)
