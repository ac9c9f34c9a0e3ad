"""Test that a draw of rows has the shares of counts, parts and weights of all rows."""

import numpy as np
import pytest

from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError
from ddpn.tables.row_draw import draw_rows, draw_sample, parse_max_rows

ROWS, DRAWN = 50_000, 5_000


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_few_rows_are_all_used_except_those_without_weight():
    draw = draw_rows(100, 100)
    assert draw.positions.tolist() == list(range(100))
    assert draw.weight is None
    weight = np.arange(100) % 4.0
    draw = draw_rows(100, 80, weight=weight)
    assert draw.positions.tolist() == np.flatnonzero(weight).tolist()
    assert draw.weight.tolist() == weight[weight > 0].tolist()
    assert draw.total == 75
    assert len(draw_rows(ROWS, None)) == ROWS


def test_the_seed_decides_which_rows_are_drawn(rng):
    y = rng.poisson(3.0, ROWS)
    draws = [draw_rows(ROWS, DRAWN, y=y, seed=seed).positions for seed in (0, 0, 1)]
    assert draws[0].tolist() == draws[1].tolist()
    assert draws[0].tolist() != draws[2].tolist()
    assert (np.diff(draws[0]) > 0).all()
    assert len(draws[0]) == DRAWN


@pytest.mark.parametrize("mean", [0.002, 0.5, 20.0])
def test_every_count_has_its_share(rng, mean):
    y = rng.poisson(mean, ROWS)
    drawn = np.bincount(y[draw_rows(ROWS, DRAWN, y=y).positions], minlength=y.max() + 1)
    assert np.abs(drawn - np.bincount(y) * DRAWN / ROWS).max() <= 1.0 + 1e-9


def test_every_part_of_the_table_has_its_share_and_a_pattern_of_rows_does_not_matter(rng):
    # Counts follow time; every tenth row is of another kind, and a tenth of the rows is drawn.
    y = rng.poisson(1.0 + np.arange(ROWS) / ROWS)
    drawn = draw_rows(ROWS, DRAWN, y=y).positions
    parts = np.bincount(drawn * 20 // ROWS, minlength=20)
    # Each count has its share of each twentieth, up to one row.
    assert np.abs(parts - DRAWN / 20).max() <= np.unique(y).size
    kind = drawn % 10 == 0
    assert abs(kind.mean() - 0.1) < 4 * np.sqrt(0.09 / DRAWN)


def test_weights_keep_their_sum_and_decide_how_often_rows_are_drawn(rng):
    weight = rng.lognormal(0.0, 1.0, 400)
    weight[:3], weight[3:10] = 200.0, 0.0
    y = rng.poisson(2.0, 400)
    times = np.zeros(400)
    for seed in range(2_000):
        draw = draw_rows(400, 60, y=y, weight=weight, seed=seed)
        times[draw.positions] += 1
        assert len(draw) == 60
        assert draw.weight.sum() == pytest.approx(weight.sum(), rel=1e-12)
        assert draw.weight[:3].tolist() == [200.0] * 3
    assert (times[:3] == 2_000).all()
    assert (times[3:10] == 0).all()
    # Horvitz and Thompson: a row stands for its weight over the probability that it is drawn.
    others = weight[10:]
    is_certain = others >= draw.weight[3:].min() * (1 + 1e-9)
    expected = np.where(is_certain, 1.0, others / draw.weight[3:].min())
    error = np.sqrt(expected * (1 - expected) / 2_000)
    assert (np.abs(times[10:] / 2_000 - expected) <= 4.5 * error + 1e-9).all()


def test_equal_weights_stay_equal_and_tiny_ones_do_not_disturb(rng):
    assert np.ptp(draw_rows(ROWS, DRAWN, weight=np.full(ROWS, 0.3)).weight) == 0.0
    weight = np.where(np.arange(1_000) < 100, 1.0, 1e-30)
    draw = draw_rows(1_000, 100, weight=weight)
    assert draw.positions.tolist() == list(range(100))
    assert draw.weight.sum() == pytest.approx(100.0)


def test_a_sample_keeps_what_belongs_to_its_rows(rng):
    y = rng.poisson(2.0, 300).astype(float)
    sample = CountRows(np.arange(300.0)[:, None], y, weight=np.full(300, 2.0), group=np.arange(300) // 3)
    draw = draw_sample(sample, 60)
    taken = draw.take(sample)
    assert taken.X[:, 0].astype(int).tolist() == draw.positions.tolist()
    assert taken.y.tolist() == y[draw.positions].tolist()
    assert taken.group.tolist() == (draw.positions // 3).tolist()
    assert taken.weight.sum() == pytest.approx(600.0)


@pytest.mark.parametrize("text", ["0", "49", "-3", "1e4", "every"])
def test_other_numbers_of_rows_are_refused(text):
    with pytest.raises(ConfigError, match="max_rows must be an integer of at least 50"):
        parse_max_rows(text)
