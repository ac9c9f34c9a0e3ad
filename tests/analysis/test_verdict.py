"""The verdict: numbers and the key words that they must lead to."""

import pytest

from ddpn.analysis.evaluation import Evaluation
from ddpn.analysis.gains import Gain
from ddpn.analysis.verdict import verdict

LABELS = {"boosted_nb": "gradient boosting with a Negative Binomial", "constant": "a constant distribution"}


def evaluation(model=1.0, gain=0.2, reach=0.02, rows=500, coverage=0.91, error_gain=None, **more):
    """The model against gradient boosting, with a gain in CRPS of so much, more or less."""
    error_gain = gain if error_gain is None else error_gain
    crps = {"mixture": model, "boosted_nb": model + gain, "constant": 3.0}
    gains = {"boosted_nb": Gain(gain, gain - reach, gain + reach), "constant": Gain(2.0, 1.9, 2.1)}
    errors = {"mixture": 2.0, "boosted_nb": 2.0 + error_gain, "constant": 4.0}
    error_gains = {
        "boosted_nb": Gain(error_gain, error_gain - 0.05, error_gain + 0.05),
        "constant": Gain(2.0, 1.9, 2.1),
    }
    given = {"crps": crps, "gains": gains, "errors": errors, "error_gains": error_gains, "labels": LABELS}
    return Evaluation(**{"model": "mixture", "rows": rows, "coverage": coverage} | given | more)


def with_gain(**parts):
    """The gain on gradient boosting changed."""
    gain = Gain(0.2, 0.18, 0.22)._replace(**parts)
    return evaluation(gain=gain.mean, gains={"boosted_nb": gain, "constant": Gain(2.0, 1.9, 2.1)})


LARGE = {"rows": 10**6, "reach": 2e-4}
TABLE = [
    (
        evaluation(),
        "better",
        [
            "better than the best alternative, gradient boosting",
            "the model's CRPS is 17% lower, 95% interval 15% to 18%",
            "use it",
        ],
    ),
    (
        evaluation(gain=-0.03),
        "worse",
        ["Gradient boosting with a Negative Binomial is better", "3% lower, 95% interval 1% to 5%", "use it"],
    ),
    (evaluation(gain=-0.03, coverage=0.8), "worse", ["boosting", "intervals cover 80.0%", "too narrow"]),
    (
        evaluation(gain=0.015),
        "unclear",
        ["no clear difference", "1.5% lower, 95% interval 0.49% higher to 3.4% lower", "500 test rows", "chance"],
    ),
    (
        evaluation(gain=-0.01),
        "unclear",
        ["no clear difference", "the model's CRPS is 1% higher, 95% interval 3% higher to 1% lower"],
    ),
    (evaluation(gain=0.0, reach=0.0), "unclear", ["no difference from the best alternative, gradient boosting"]),
    (evaluation(gain=0.004, **LARGE), "unclear", ["too small to matter", "0.4% lower", "simpler"]),
    (evaluation(gain=-0.004, **LARGE), "unclear", ["too small to matter", "0.4% higher"]),
    (evaluation(gain=1e-4, **LARGE), "unclear", ["too small to matter", "under 0.1% lower"]),
    (evaluation(coverage=0.8), "unclear", ["predicts better", "intervals are too narrow", "cover 80.0%"]),
    (evaluation(coverage=0.89, rows=10**6), "better", ["cover 89.0% of the test rows."]),
    (evaluation(coverage=0.85, rows=60), "better", ["cover 85.0% of the test rows."]),
    (evaluation(coverage=0.75, target_coverage=0.8, rows=900), "unclear", ["80% intervals cover 75.0%", "too narrow"]),
    (evaluation(coverage=0.99, interior=0.985), "unclear", ["predicts better", "wider than necessary", "too wide"]),
    (evaluation(coverage=0.99, interior=0.8), "better", ["cover 99.0% of the test rows."]),
    (evaluation(rows=49), "unclear", ["Too few rows", "49 test rows"]),
    (evaluation(effective_rows=12.3), "unclear", ["Too few rows", "500 test rows", "count as 12"]),
    (evaluation(gain=-0.3, rows=1), "unclear", ["Too few rows", "1 test row "]),
    (evaluation(crps={"mixture": 1.0}, gains={}), "unclear", ["not compared"]),
    (evaluation(gains={}), "unclear", ["No other model could be scored"]),
    (evaluation(model=-3.0), "unusable", ["not a finite number of at least 0"]),
    (evaluation(model=float("nan")), "unusable", ["not a finite number"]),
    (evaluation(model=float("inf"), coverage=float("nan")), "unusable", ["not a finite number"]),
    (evaluation(leak="Column 'total' predicts it."), "unusable", ["target leak", "Column 'total' predicts it."]),
    (evaluation(gain=-0.3, leak="Column 'total'."), "unusable", ["cannot be trusted", "Column 'total'."]),
    (evaluation(warnings=("40% of rows are new.",)), "better", ["use it", "40% of rows are new."]),
    (evaluation(only_count=5.0), "unclear", ["All 500 test rows have the count 5"]),
    (
        evaluation(model=6e-44, gain=6e-24, reach=1e-25, mean_count=5.0),
        "unclear",
        ["too small to matter", "100% lower"],
    ),
    (
        evaluation(error_gain=-0.3),
        "unclear",
        ["CRPS and absolute error disagree", "error 18% higher, 95% interval 15% to 21%"],
    ),
    (
        evaluation(gain=-0.2, error_gain=0.3),
        "unclear",
        ["disagree", "the model's CRPS is 25% higher", "error 13% lower"],
    ),
    (evaluation(error_gain=-0.04), "better", ["use it"]),
    (
        with_gain(without_few=-0.1, few=(3, 17)),
        "unclear",
        ["A handful of rows decides", "8.3% higher without 2 of 500 rows", "Check rows 3, 17."],
    ),
    (
        with_gain(mean=-0.2, low=-0.3, high=-0.1, without_few=0.0, few=(3,)),
        "unclear",
        ["A handful of rows decides", "CRPS is 25% higher", "Check row 3."],
    ),
    (with_gain(without_few=0.15, few=(3, 17)), "better", ["use it"]),
]


@pytest.mark.parametrize(("found", "level", "words"), TABLE)
def test_numbers_lead_to_their_words(found, level, words):
    decision = verdict(found)
    assert [word for word in words if word not in str(decision)] == [], str(decision)
    assert decision.level == level
    assert "nan" not in str(decision)
    assert all(sentence.endswith(".") for sentence in decision.sentences)
    assert str(decision).startswith(decision.headline)
    assert (level == "better") <= ("use it" in decision.headline)


def test_a_leak_forbids_every_positive_verdict():
    for found, level, _ in TABLE:
        leaking = verdict(Evaluation(**vars(found) | {"leak": "Column 'total' predicts it."}))
        assert leaking.level == "unusable", level
        assert "use it" not in str(leaking)


def test_rows_are_called_by_their_labels():
    found = with_gain(without_few=-0.1, few=(0, 2))
    named = Evaluation(**vars(found) | {"row_labels": ["p7", "p8", "p9"]})
    assert verdict(named).headline.endswith("Check rows p7, p9.")
