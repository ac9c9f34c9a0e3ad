"""Which inputs each column gets."""

import numpy as np
import pytest

from ddpn.tables.encoding.categorical import fit_category
from ddpn.tables.encoding.encoder import _tree_codes, add_bins, add_steps, fit_columns
from ddpn.tables.encoding.numeric import fit_number
from ddpn.tables.encoding.table import Column

RNG = np.random.default_rng(0)
N = 3000
TABLE = [
    Column("smooth", "number", RNG.normal(size=N)),
    Column("useless", "number", RNG.normal(size=N)),
    Column("hour", "number", RNG.integers(0, 24, N).astype(float)),
    Column("half", "number", RNG.integers(0, 5, N) / 2),
    Column("binary", "number", RNG.integers(0, 2, N).astype(float)),
    Column("same", "number", np.ones(N)),
    Column("flag", "flag", RNG.integers(0, 2, N).astype(float)),
    Column("text", "category", RNG.integers(-1, 300, N), tuple(f"level {j}" for j in range(300))),
]
WEIGHTS = np.ones(N)


@pytest.fixture
def plain():
    return fit_columns(TABLE, WEIGHTS, 8.0, 40)


def test_plain_encodings_have_one_input_a_number(plain):
    columns, numbers = plain
    assert [column.width for column in columns[:-1]] == [1] * 7
    assert columns[-1].width == 42
    assert list(numbers) == list(range(6))


def test_bins_and_codes(plain):
    columns = add_bins(*plain, 8)
    found = {c.name: (len(e.edges), len(e.codes)) for c, e in zip(TABLE[:7], columns, strict=False)}
    assert found == {
        "smooth": (9, 0),
        "useless": (9, 0),
        "hour": (9, 24),
        "half": (5, 0),
        "binary": (0, 0),
        "same": (0, 0),
        "flag": (0, 0),
    }


def test_steps_follow_the_target_all_where_there_are_few_values(plain):
    y = RNG.poisson(np.where(TABLE[0].values > 0.7, 12.0, 2.0))
    columns = add_steps(*plain, TABLE, y, WEIGHTS, 4)
    steps = {c.name: e.steps for c, e in zip(TABLE[:7], columns, strict=False)}
    # 254 candidates among 3000 rows: the nearest lies within 1/254 of the ranks.
    ranks = np.sort(TABLE[0].values)
    nearest = steps["smooth"][np.abs(steps["smooth"] - 0.7).argmin()]
    assert abs(np.searchsorted(ranks, nearest) - np.searchsorted(ranks, 0.7)) <= N / 254
    assert steps["half"].tolist() == [0.25, 0.75, 1.25, 1.75]
    assert [len(steps[name]) for name in ("hour", "binary", "same", "flag")] == [4, 0, 0, 0]


def test_the_trees_see_levels_by_rank_rare_ones_as_one_and_missing_ones_last():
    column = Column("ward", "category", np.array([2, 2, 2, 0, 0, 1, -1]), ("b", "rare", "a"))
    fitted = fit_category(column.values, column.levels, np.ones(7), 2.0, 9)
    assert _tree_codes(column, fitted, None).tolist() == [0, 0, 0, 1, 1, 2, 3]


def test_the_trees_see_more_levels_than_they_have_bins_as_one():
    column = Column("zip", "category", np.arange(400), tuple(f"{j:03}" for j in range(400)))
    fitted = fit_category(column.values, column.levels, np.ones(400), 0.0, 400)
    assert _tree_codes(column, fitted, None).tolist() == np.minimum(np.arange(400), 254).tolist()


def test_the_trees_see_missing_numbers_at_the_median():
    fitted, _ = fit_number(np.array([1.0, 5.0, 9.0, np.nan]), np.ones(4))
    codes = _tree_codes(Column("n", "number", np.array([np.nan, 9.0, 1.0, 3.0])), fitted, np.array([3.0, 7.0]))
    assert codes.tolist() == [1, 2, 0, 0]
