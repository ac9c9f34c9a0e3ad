"""Test that scores of drawn rows are those of all rows, within the standard error that the drawn rows give."""

import numpy as np
import pytest

from ddpn import CountGLM
from ddpn.analysis.gains import mean_gain
from ddpn.tables.row_draw import draw_rows

ROWS, DRAWN, DRAWS = 20_000, 1_000, 300


def simulate_scores(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Simulate counts, scores that depend on them, weights, and groups of rows."""
    rng, group, noise = np.random.default_rng(3), None, 0.3
    mean, weight = np.full(ROWS, 2.0), np.ones(ROWS)
    if kind == "rare events":
        mean, noise = np.full(ROWS, 0.005), 0.01
    elif kind == "time order":
        mean = 0.5 + 5.0 * np.arange(ROWS) / ROWS
    elif kind == "groups":
        group = rng.permutation(np.repeat(np.arange(400), ROWS // 400))
        mean = rng.gamma(2.0, 1.0, 400)[group]
    elif kind == "weights":
        weight = rng.lognormal(0.0, 1.5, ROWS) * (rng.random(ROWS) > 0.2)
    y = rng.poisson(mean)
    # Like the score of a model: the distance to a wrong mean, and noise.
    return y, np.abs(y - 0.8 * mean) + rng.exponential(noise, ROWS), weight, group


@pytest.mark.parametrize("kind", ["plain", "rare events", "time order", "groups", "weights"])
def test_scores_of_draws_are_those_of_all_rows(kind):
    y, score, weight, group = simulate_scores(kind)
    truth, z = np.average(score, weights=weight), []
    for seed in range(DRAWS):
        draw = draw_rows(ROWS, DRAWN, y=y, weight=weight, seed=seed)
        rows = draw.positions
        drawn = mean_gain(score[rows], draw.weight, group=None if group is None else group[rows])
        z.append((drawn.mean - truth) / drawn.error)
        assert draw.weight.sum() == pytest.approx(weight.sum())
    # Unbiased, and never farther away than the standard errors say: the draw is spread over the counts.
    assert abs(np.mean(z)) < 4.0 / np.sqrt(DRAWS)
    assert np.std(z) < 1.1
    if kind == "rare events":
        # Draws without regard to counts would miss the share of events by about the standard error.
        assert np.std(z) < 0.5


def test_a_leaderboard_of_drawn_rows_is_that_of_all_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9_000, 2))
    y = rng.poisson(np.exp(0.5 + 0.5 * X[:, 0]) * rng.gamma(3.0, 1 / 3, 9_000))
    weight = rng.integers(0, 4, 8_000).astype(float)
    model = CountGLM("negative_binomial").fit(X[:1_000], y[:1_000])
    boards = [model.leaderboard(X[1_000:], y[1_000:], sample_weight=weight, max_rows=most) for most in (None, 1_500)]
    every, drawn = (board.entries[0] for board in boards)
    # The standard deviation of the CRPS of a row is about its mean.
    assert abs(drawn["crps"] - every["crps"]) < 3.0 * every["crps"] / np.sqrt(1_500)
    assert abs(drawn["coverage"] - every["coverage"]) < 3.0 * np.sqrt(0.09 / 1_500)
    assert boards[1].title == f"Scores on 1,500 of {np.count_nonzero(weight):,} test rows, drawn at random (seed 0)"
    assert boards[0].to_dict()["draw"] == {"rows": boards[0].total, "of": np.count_nonzero(weight), "seed": None}
