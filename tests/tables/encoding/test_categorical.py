"""Levels: order, pooling, unseen, missing."""

import numpy as np
import pytest

from ddpn.tables.encoding.categorical import CategoricalColumn, fit_category
from ddpn.tables.encoding.column_plan import ColumnPlan
from ddpn.tables.encoding.table import Column

LEVELS = ("d", "c", "b", "a")
CODES = np.array([3, 3, 3, 2, 2, 1, 1, 0])  # a a a b b c c d


def fitted(min_weight: float = 0.0, max_levels: int = 100, codes: np.ndarray = CODES) -> CategoricalColumn:
    return fit_category(codes, LEVELS, np.ones(len(codes)), min_weight, max_levels)


def written(column: CategoricalColumn, *levels: str | None) -> list[list[float]]:
    known = tuple(sorted({level for level in levels if level is not None}))
    codes = np.array([-1 if level is None else known.index(level) for level in levels])
    return ColumnPlan([column]).encode([Column("ward", "category", codes, known)], 10.0).tolist()


def test_levels_come_by_frequency_then_alphabet():
    assert fitted() == CategoricalColumn(("a", "b", "c", "d"), has_other=False, has_missing=False)


@pytest.mark.parametrize(
    ("options", "levels"),
    [({"min_weight": 2.0}, ("a", "b", "c")), ({"max_levels": 1}, ("a",)), ({"min_weight": 9.0}, ())],
)
def test_rare_levels_share_one_input(options, levels):
    column = fitted(**options)
    assert (column.levels, column.has_other, column.width) == (levels, True, len(levels) + 1)
    assert written(column, "d", "never seen", None) == [[0.0] * len(levels) + [1.0]] * 3


def test_unseen_and_missing_levels_get_zeros_where_training_had_none():
    assert written(fitted(), "a", "z", None) == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_missing_is_a_level_of_its_own():
    column = fitted(codes=np.array([3, -1, 2, 3]))
    assert written(column, None, "b", "z") == [[0, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert column.names("ward") == ["ward = a", "ward = b", "ward = <missing>"]


def test_pooled_and_missing_side_by_side():
    column = fitted(min_weight=2.0, codes=np.array([3, -1, 2, 3]))
    assert written(column, None, "b", "z", "a") == [[0, 0, 1], [0, 1, 0], [0, 1, 0], [1, 0, 0]]
    assert column.names("ward") == ["ward = a", "ward = <other>", "ward = <missing>"]


def test_a_column_of_missing_values_only():
    assert written(fitted(codes=np.array([-1, -1])), None, "a") == [[1], [0]]


def test_levels_written_alike_are_one():
    column = fit_category(np.array([0, 1, 2]), ("1", "1", "2"), np.ones(3), 2.0, 9)
    assert column == CategoricalColumn(("1",), has_other=True, has_missing=False)
