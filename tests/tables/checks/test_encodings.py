"""Test columns of means of the target: within their own values, and over neighbouring rows."""

import numpy as np
import polars as pl
import pytest

from ddpn.tables.checks.encodings import choose_levels, find_rolling_means, is_group_mean

ROWS = 1200


def draw_levels(seed: int, levels: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Draw levels of different sizes, and counts whose means differ between them."""
    rng = np.random.default_rng(seed)
    level = rng.choice(levels, ROWS, p=rng.dirichlet(np.full(levels, 3.0)))
    return level, rng.poisson(4.0 * rng.gamma(5.0, 0.2, levels)[level]).astype(float)


def average_levels(level: np.ndarray, y: np.ndarray, prior: float = 0.0) -> np.ndarray:
    total, size = np.bincount(level, y), np.bincount(level)
    return ((total + prior * y.mean()) / np.maximum(size + prior, 1))[level]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("prior", [0.0, 0.5])
def test_a_target_encoding_is_recognised_plain_and_shrunk(seed, prior):
    level, y = draw_levels(seed)
    assert is_group_mean(average_levels(level, y, prior), y)
    assert is_group_mean(100.0 - 3.0 * average_levels(level, y), y)


@pytest.mark.parametrize("seed", range(5))
def test_true_means_and_encodings_of_other_rows_are_no_target_encodings(seed):
    rng = np.random.default_rng(seed)
    level, _ = draw_levels(seed)
    true = rng.gamma(5.0, 0.8, 60)[level]
    y = rng.poisson(true).astype(float)
    assert not is_group_mean(true, y)
    assert not is_group_mean(average_levels(level, rng.poisson(true).astype(float)), y)
    assert not is_group_mean(rng.normal(size=60)[level], y)
    assert not is_group_mean(rng.normal(size=ROWS), y)


def test_few_levels_and_levels_without_noise_show_nothing():
    level, y = draw_levels(0, levels=8)
    assert not is_group_mean(average_levels(level, y), y)
    level, _ = draw_levels(0)
    assert not is_group_mean(level.astype(float), 2.0 * level)


def test_rows_of_levels_are_chosen_together():
    assert choose_levels(pl.Series(np.arange(100)), 5).all()
    level = np.repeat(np.arange(20_000), 4)
    chosen = choose_levels(pl.Series(level), 5)
    shares = np.bincount(level, chosen) / 4
    assert set(shares.tolist()) == {0.0, 1.0}
    assert 0.0 < shares.mean() < 0.9


def average_neighbours(y: np.ndarray, offsets: range, weights: np.ndarray | None = None) -> np.ndarray:
    """Return weighted means of the counts at these distances from a row."""
    weights = np.ones(len(offsets)) if weights is None else weights
    padded = np.pad(y, 40, mode="edge")
    return sum(w * padded[40 + k : 40 + k + len(y)] for k, w in zip(offsets, weights, strict=True)) / weights.sum()


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_means_of_neighbouring_rows_are_found_if_they_include_the_row_or_later_ones(gaps):
    rng = np.random.default_rng(0)
    y = rng.poisson(20.0, 600).astype(float)
    weights = 0.7 ** np.arange(8)
    X = pl.DataFrame(
        {
            "centred": average_neighbours(y, range(-3, 4)),
            "trailing": average_neighbours(y, range(-6, 1)),
            "smooth": average_neighbours(y, range(0, -8, -1), weights),
            "leading": average_neighbours(y, range(1, 5)),
            "edges": average_neighbours(y, range(-15, 16)),
            "before": average_neighbours(y, range(-7, 0)),
            "copy": y,
            "next": average_neighbours(y, range(1, 2)),
            "noisy": average_neighbours(y, range(-3, 4)) + rng.normal(0.0, 1.0, 600),
            "other": rng.normal(size=600),
            "constant": np.full(600, 3.0),
        }
    ).with_columns(text=pl.lit("a"))
    if gaps:
        holes = pl.Series(rng.random(600) < gaps)
        X = X.with_columns(pl.when(holes).then(None).otherwise(pl.col(X.columns[:-1])).name.keep())
    assert find_rolling_means(X, y) == ["centred", "trailing", "smooth", "leading", "edges"]


def test_rolling_means_of_few_rows_or_one_count_show_nothing():
    rng = np.random.default_rng(0)
    y = rng.poisson(20.0, 200).astype(float)
    X = pl.DataFrame({"centred": average_neighbours(y, range(-3, 4))})
    assert find_rolling_means(X, y) == ["centred"]
    assert find_rolling_means(X.head(199), y[:199]) == []
    assert find_rolling_means(X, np.full(200, 3.0)) == []
    mostly = X.with_columns(pl.when(pl.int_range(200) < 40).then(None).otherwise("centred").alias("centred"))
    assert find_rolling_means(mostly, y) == []
