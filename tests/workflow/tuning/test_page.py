"""The page on a search."""

from dataclasses import replace

import pytest

from ddpn.analysis.gains import Gain
from ddpn.runtime.errors import InputError
from ddpn.workflow.tuning.page import relative, scores_figure, write_tuning
from ddpn.workflow.tuning.result import TrialSummary, TuningResult


def trial(number, crps=None, gain=None, dropped=""):
    settings = {"lr": 0.004 * (number + 1), "likelihood": f"<kind {number}>"}
    return TrialSummary(number, settings, crps, gain, None if gain is None else 0.02, 3.0, 3.0 * (number + 1), dropped)


@pytest.fixture
def result():
    trials = (
        trial(0, 2.0, 0.0),
        trial(1, 1.9, 0.1),
        trial(2, 3.1, -1.0, "dropped after fold 1 of 3"),
        trial(3, None, None, "failed: <loss>"),
    )
    return TuningResult(
        defaults=trials[0].settings, best=trials[1].settings, best_number=1, gain=Gain(0.1, 0.02, 0.18), crps=2.0,
        importances={"lr": 0.8, "likelihood": 0.2}, trials=trials, space={"lr": "0.001 to 0.02", "likelihood": "<all>"},
        rows=500, scored_on="the validation rows", seconds=12.0, stopped=True,
    )  # fmt: skip


def test_the_page_has_all_of_it(result, tmp_path):
    test = {"rows": 120, "entries": [{"name": "mixture", "crps": 1.87}], "verdict": {"sentences": ["Use it & rest."]}}
    page = write_tuning(tmp_path / "t.html", result, "visits", test).read_text()
    for words in (
        "Settings for predicting visits", "4 trials", "CRPS lower by 5.0%", "0.02 to 0.18", "stopped at the deadline",
        "0.001 to 0.02", "&lt;kind 1&gt;", "2 (some folds)", "0.1 ± 0.02", "80%", "Use it &amp; rest.", "1.87",
    ):  # fmt: skip
        assert words in page, words
    assert page.count("<svg viewBox") >= 2
    assert "<kind" not in page


def test_a_gain_within_noise_is_said_so(result):
    unclear = replace(result, gain=Gain(0.1, -0.02, 0.22))
    assert (result.level, unclear.level) == ("better", "unclear")
    assert "within noise" in unclear.headline
    kept = replace(result, best=result.defaults, best_number=0, gain=Gain(-0.1, -0.2, 0.1))
    assert "the defaults are used" in kept.headline
    assert "CRPS higher by 0.1 than with the defaults" in dict(kept.details)["Best trial"]


def test_scores_are_relative_to_the_defaults_on_the_same_rows(result):
    assert [round(relative(each), 3) for each in result.trials[:3]] == [0.0, -0.05, round(1.0 / 2.1, 3)]
    figure = scores_figure(result)
    assert "15%" in figure.words, "the worst trial is beyond the axis"
    assert "the best at 5.0% below the defaults" in figure.svg


def test_a_search_without_trials_has_a_page(result, tmp_path):
    alone = replace(result, trials=result.trials[:1], importances={}, best=result.defaults, best_number=0)
    page = write_tuning(tmp_path / "t.html", alone).read_text()
    assert "There was time for the default settings only" in page
    with pytest.raises(InputError, match="Cannot write"):
        write_tuning(tmp_path, alone)
