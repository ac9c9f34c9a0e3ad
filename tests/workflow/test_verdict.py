"""The verdict: numbers and the key words that they must lead to."""

import numpy as np
import pytest
from scipy import stats

from ddpn.workflow.verdict import Evaluation, effective_rows, mean_and_error, verdict

LABELS = {"boosted_nb": "gradient boosting with a Negative Binomial", "constant": "a constant distribution"}


def evaluation(model=1.0, gain=0.2, error=0.01, rows=500, coverage=0.91, **more):
    crps = {"mixture": model, "boosted_nb": model + gain, "constant": 3.0}
    numbers = {"model": "mixture", "crps": crps, "gain": gain, "gain_error": error, "labels": LABELS}
    return Evaluation(**numbers | {"rows": rows, "coverage": coverage} | more)


TABLE = [
    (
        evaluation(),
        "better",
        ["better than the best alternative, gradient boosting", "CRPS 17% lower", "use it", "cover 91.0%"],
    ),
    (evaluation(gain=-0.03), "worse", ["Gradient boosting with a Negative Binomial is better", "3% lower", "use it"]),
    (evaluation(gain=-0.03, coverage=0.8), "worse", ["boosting", "intervals cover 80.0%", "too narrow"]),
    (evaluation(gain=0.015, error=0.01), "unclear", ["no clear difference", "1.5% lower", "500 test rows", "chance"]),
    (evaluation(gain=-0.01, error=0.01), "unclear", ["no clear difference", "(CRPS 1% higher)"]),
    (evaluation(gain=0.0, error=0.0), "unclear", ["no difference from the best alternative, gradient boosting"]),
    (evaluation(gain=0.004, error=1e-4, rows=10**6), "unclear", ["too small to matter", "0.4% lower", "simpler"]),
    (evaluation(gain=-0.004, error=1e-4, rows=10**6), "unclear", ["too small to matter", "0.4% higher"]),
    (evaluation(coverage=0.8), "unclear", ["predicts better", "intervals are too narrow", "cover 80.0%"]),
    (evaluation(coverage=0.89, rows=10**6), "better", ["cover 89.0% of the test rows."]),
    (evaluation(coverage=0.85, rows=60), "better", ["cover 85.0% of the test rows."]),
    (evaluation(coverage=0.75, target_coverage=0.8, rows=900), "unclear", ["80% intervals cover 75.0%", "too narrow"]),
    (evaluation(rows=49), "unclear", ["Too few rows", "49 test rows"]),
    (evaluation(gain=-0.3, rows=1), "unclear", ["Too few rows", "1 test row "]),
    (evaluation(crps={"mixture": 1.0}), "unclear", ["not compared"]),
    (evaluation(crps={"mixture": 1.0, "glm": float("nan"), "tree": float("inf")}), "unclear", ["not compared"]),
    (evaluation(model=float("nan")), "unusable", ["not a finite number"]),
    (evaluation(model=float("inf"), coverage=float("nan")), "unusable", ["not a finite number"]),
    (evaluation(leak="Column 'total' predicts it."), "unusable", ["target leak", "Column 'total' predicts it."]),
    (evaluation(gain=-0.3, leak="Column 'total'."), "unusable", ["cannot be trusted", "Column 'total'."]),
    (evaluation(warnings=("40% of rows are new.",)), "better", ["use it", "40% of rows are new."]),
]


@pytest.mark.parametrize(("found", "level", "words"), TABLE)
def test_numbers_lead_to_their_words(found, level, words):
    decision = verdict(found)
    assert decision.level == level
    assert [word for word in words if word not in str(decision)] == []
    assert "nan" not in str(decision)
    assert all(sentence.endswith(".") for sentence in decision.sentences)
    assert str(decision).startswith(decision.headline)


def test_a_leak_forbids_every_positive_verdict():
    for found, level, _ in TABLE:
        leaking = verdict(Evaluation(**vars(found) | {"leak": "Column 'total' predicts it."}))
        assert leaking.level == "unusable", level
        assert "use it" not in str(leaking)


def test_the_threshold_of_coverage_is_wilsons_interval():
    for inside in range(400, 450):
        high = stats.binomtest(inside, 500).proportion_ci(method="wilson").high
        assert evaluation(coverage=inside / 500).too_narrow == (high < 0.9 and inside / 500 < 0.88), inside


@pytest.mark.parametrize("weight", [None, np.random.default_rng(1).integers(1, 4, 200).astype(float)])
def test_rows_give_their_means_and_the_error_of_the_paired_difference(weight):
    rng = np.random.default_rng(0)
    crps = {"mixture": rng.gamma(2.0, size=200), "glm": rng.gamma(3.0, size=200), "constant": rng.gamma(9.0, size=200)}
    inside = rng.random(200) < 0.8
    found = Evaluation.from_rows("mixture", crps, inside, weight, labels=LABELS, target_coverage=0.8)
    assert found.crps["glm"] == pytest.approx(np.average(crps["glm"], weights=weight))
    assert (found.best_other, found.rows, found.target_coverage) == ("glm", 200, 0.8)
    difference = crps["glm"] - crps["mixture"]
    assert found.gain == pytest.approx(np.average(difference, weights=weight))
    assert found.coverage == pytest.approx(np.average(inside, weights=weight))
    if weight is None:
        assert found.gain_error == pytest.approx(stats.sem(difference))
        assert found.effective_rows == pytest.approx(200)


def test_weights_of_zero_and_the_scale_of_weights_change_nothing():
    values, weight = np.array([1.0, 4.0, 2.0, 9.0]), np.array([1.0, 1.0, 1.0, 0.0])
    assert mean_and_error(values, weight) == pytest.approx(mean_and_error(values[:3], np.ones(3)))
    assert mean_and_error(values, 7 * weight) == pytest.approx(mean_and_error(values, weight))
    assert effective_rows(np.array([1.0, 1.0, 0.0, 2.0])) == pytest.approx(16 / 6)


def test_a_model_alone_needs_no_gain():
    found = Evaluation.from_rows("mixture", {"mixture": np.ones(60)}, np.ones(60))
    assert (found.best_other, verdict(found).level) == (None, "unclear")
