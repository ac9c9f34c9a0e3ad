"""When the best trial replaces the defaults."""

import numpy as np
import pytest

from ddpn.workflow.tuning.result import by_chance, summarize
from ddpn.workflow.tuning.search import Trial

ROWS = 400


def result_of(gains, seed=0):
    """Trials that are better than the defaults by so many standard errors of the paired difference."""
    rng = np.random.default_rng(seed)
    first = 2.0 + rng.random(ROWS)
    trials = [Trial({"lr": 0.0}, 0, first, [2.5])]
    for number, gain in enumerate(gains, start=1):
        noise = rng.normal(size=ROWS)
        noise = (noise - noise.mean()) / noise.std(ddof=1)
        trials.append(Trial({"lr": float(number)}, number, first - 0.1 * (noise + gain / np.sqrt(ROWS)), [2.5]))
    return summarize(trials, {"lr": 0.0}, np.ones(ROWS), {"lr": "all"}, "the validation rows", False)


def test_a_trial_must_be_better_than_the_best_of_as_many_equal_ones():
    alone = result_of([0.8])
    assert (alone.best_number, alone.best) == (1, {"lr": 1.0})
    among_many = result_of([0.8] + [0.0] * 20)
    assert among_many.best_number == 0
    assert "by more than chance: the defaults are used" in among_many.headline
    assert among_many.gain.mean == pytest.approx(0.1 * 0.8 / np.sqrt(ROWS)), "of the best trial, though it is not used"
    assert result_of([1.9] + [0.0] * 20).best_number == 1


def test_a_gain_within_noise_is_used_and_said_so():
    unclear, clear = result_of([1.9] + [0.0] * 20), result_of([5.0] + [0.0] * 20)
    assert unclear.gain.low < 0.0 < unclear.gain.mean
    assert "within noise" in unclear.headline
    assert clear.gain.low > 0.0
    assert "is better than the default settings" in clear.headline


def test_chance_finds_a_winner_among_equal_trials_in_about_half_of_the_searches():
    found = [result_of(np.random.default_rng(seed).normal(size=20), seed).is_tuned for seed in range(60)]
    assert 0.35 < np.mean(found) < 0.85
    assert by_chance(0) == by_chance(1) == 0.5
