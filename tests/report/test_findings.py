"""Sentences follow the numbers, also where they speak against the model."""

import numpy as np
import pytest
import torch
from scipy import stats

from ddpn import Poisson
from ddpn.report.numbers import mean_interval
from ddpn.report.verdict import Coverage, Rival, coverage_of, coverage_words, headline_of, rival_words, rivals, verdict

RNG = np.random.default_rng(12)
MU = RNG.uniform(3.0, 9.0, 400)
Y = RNG.poisson(MU)


def law(mu):
    return Poisson(torch.as_tensor(np.broadcast_to(mu, MU.shape).copy()).double())


HOLDS = Coverage(0.93, 0.91, 0.95, 0.93)
NARROW = Coverage(0.8, 0.77, 0.83, 0.93)
BEATEN = Rival("glm", 1.2, -0.2, -0.3, -0.1, 2.0, False)
LEVEL = BEATEN._replace(name="boosting", low=-0.3, high=0.1)
BETTER = BEATEN._replace(name="truth", difference=0.2, low=0.1, high=0.3)


@pytest.mark.parametrize(
    ("against", "coverage", "rows", "mood", "fragment"),
    [
        ([BEATEN], HOLDS, 500, "good", "Worth using: it predicts better than every baseline"),
        ([BEATEN._replace(nearer=True)], HOLDS, 500, "good", "for a single number glm comes nearer"),
        ([], HOLDS, 500, "good", "Nothing was given to compare"),
        ([BEATEN, LEVEL], HOLDS, 500, "care", "No clear gain: boosting predicts about as well"),
        ([BEATEN], NARROW, 500, "care", "It predicts better than every baseline, but its intervals are too narrow"),
        ([LEVEL], NARROW, 500, "care", "Use with care. Its intervals are too narrow"),
        ([BETTER, BEATEN], HOLDS, 500, "bad", "Not worth it here: truth predicts better."),
        ([BETTER], NARROW, 500, "bad", "truth predicts better, and its intervals are too narrow"),
        ([BEATEN], HOLDS, 49, "care", "Too few rows to judge: with 49 rows"),
    ],
)
def test_headlines(against, coverage, rows, mood, fragment):
    found = headline_of(against, coverage, rows)
    assert found[0] == mood
    assert fragment in found[1]


def test_a_model_worse_than_a_baseline_is_told_to_be(made):
    evidence = made(law(Y.mean()), Y, baselines={"truth": law(MU), "mad": law(60.0)})
    found = rivals(evidence)
    gap = evidence.model.crps - evidence.baselines["truth"].crps
    assert [rival.name for rival in found] == ["truth", "mad"]
    assert (found[0].low, found[0].high) == pytest.approx(mean_interval(gap, np.ones(400)))
    assert [rival.outcome for rival in found] == ["worse", "better"]
    told = verdict(evidence, "visits", "", [])
    assert told.mood == "bad"
    assert "use truth instead" in dict(told.words)["Against baselines"]


def test_the_same_predictions_are_no_gain(made):
    evidence = made(law(MU), Y, baselines={"twin": law(MU)})
    assert [rival.outcome for rival in rivals(evidence)] == ["no clear difference"]
    assert "cannot tell it from the best baseline, twin" in rival_words(rivals(evidence), 1.0, 1.0)


def test_intervals_of_a_law_too_sure_of_itself_are_told_to_be_narrow(made):
    noisy = RNG.negative_binomial(1.0, 1.0 / (1.0 + MU))
    coverage = coverage_of(made(law(MU), noisy))
    assert coverage.outcome == "too narrow"
    low, high = stats.poisson.ppf([[0.05], [0.95]], MU)
    inside = int(((low <= noisy) & (noisy <= high)).sum())
    words = coverage_words(coverage, made(law(MU), noisy))
    assert f"{inside} of 400 rows ({inside / 4:.1f}%" in words
    assert "take the intervals as too narrow" in words


def test_calibrated_intervals_are_as_expected(made):
    coverage = coverage_of(made(law(MU), Y))
    assert coverage.outcome == "as expected"
    assert 0.9 < coverage.expected < 1.0


def test_who_set_the_ends_is_told(made):
    own, set_by_rows = made(law(MU), Y), made(law(MU), Y, calibrated=120)
    words = coverage_words(coverage_of(own), own)
    assert "as intervals of whole counts hold more than asked" in words
    words = coverage_words(coverage_of(set_by_rows), set_by_rows)
    assert "Its ends were set by 120 validation rows." in words
    assert "whole counts" not in words
    assert "its ends were to hold 90%" in words


def test_calibrated_intervals_are_held_against_the_promise_alone(made):
    mean = np.full(400, 0.3)
    y = np.random.default_rng(5).poisson(mean)
    wide = Poisson(torch.from_numpy(mean))
    # Laws of mostly 0 and 1: 0 to 1 holds 96%, as they expect, which is more than 90%.
    assert coverage_of(made(wide, y)).outcome == "as expected"
    assert coverage_of(made(wide, y, calibrated=99)).outcome == "cautious"


@pytest.mark.parametrize(
    ("coverage", "outcome"),
    [
        (Coverage(0.85, 0.80, 0.899, 0.95), "too narrow"),
        (Coverage(0.91, 0.89, 0.93, 0.95), "a little too sure"),
        (Coverage(0.94, 0.92, 0.96, 0.95), "as expected"),
        (Coverage(0.98, 0.97, 0.99, 0.95), "cautious"),
    ],
)
def test_coverage_is_held_against_the_promise_and_the_claim(coverage, outcome, evidence):
    assert coverage.outcome == outcome
    assert "95% interval" in coverage_words(coverage, evidence)


def test_with_weights_rows_are_not_counted(made):
    evidence = made(law(MU), Y, weight=np.linspace(0.5, 1.5, 400))
    words = coverage_words(coverage_of(evidence), evidence)
    assert words.startswith("It held for ")
    assert "% of rows (95% interval" in words


def test_a_typical_error_is_told_with_its_bias(made):
    words = dict(verdict(made(law(1.3 * MU), Y), "visits", "", []).words)["Typical error"]
    error = np.abs(made(law(1.3 * MU), Y).model.median - Y)
    assert f"off by {np.quantile(error, 0.5, method='inverted_cdf'):.0f} or less" in words
    assert f"mean absolute error is {error.mean():.2f}, where visits is {Y.mean():.2f} on average" in words
    assert f"{100 * abs((1.3 * MU - Y).mean()) / Y.mean():.1f}% above the observed ones" in words
    unbiased = dict(verdict(made(law(MU), Y), "visits", "", []).words)["Typical error"]
    assert "bias" not in unbiased


def test_a_baseline_that_comes_nearer_is_named():
    words = rival_words([BEATEN, BETTER._replace(nearer=True)], 1.0, 2.5)
    assert "Nor does it clearly beat truth" in words
    assert "The mean absolute error of truth (2) is smaller than its 2.50" in words
