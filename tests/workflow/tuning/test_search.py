"""The loop around trials, which are not fitted here."""

import time

import numpy as np
import pytest

from ddpn.runtime.errors import TrainingError
from ddpn.workflow.tuning import search as module
from ddpn.workflow.tuning import trials as trials_module
from ddpn.workflow.tuning.result import summarize
from ddpn.workflow.tuning.trials import Scored


def outcome(search):
    return [(trial.settings, trial.means, trial.dropped) for trial in search.trials]


def test_defaults_come_first_and_the_same_seed_makes_the_same_trials(run, no_fits):
    first = [trial.settings for trial in run("a", trials=12).trials]
    assert first[0] == {"lr": 0.01, "hidden": "16"}
    assert len(first) == 12
    assert len({str(each) for each in first}) > 8
    assert [trial.settings for trial in run("b", trials=12).trials] == first
    assert [trial.settings for trial in run("c", trials=12, seed=1).trials] != first


def test_a_search_that_is_continued_makes_the_trials_of_an_uninterrupted_one(run, no_fits, monkeypatch):
    whole, fitted = outcome(run("a", trials=8)), trials_module.score_fold

    def interrupt(*arguments):
        raise KeyboardInterrupt

    run("b", trials=4)
    monkeypatch.setattr(trials_module, "score_fold", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run("b", trials=8)  # in the middle of a trial
    monkeypatch.setattr(trials_module, "score_fold", fitted)
    lines = []
    no_fits.clear()
    found = run("b", trials=8, on_step=lines.append)
    assert outcome(found) == whole
    assert len(no_fits) == sum(len(means) for _, means, _ in whole[4:]), "no fold is scored twice"
    assert lines[0].startswith("Continuing")
    assert "Trial 7: " in lines[-1]
    assert [trial.number for trial in found.trials] == list(range(8))


def test_bad_trials_are_dropped_after_a_fold(run, no_fits):
    found = run(trials=12)
    dropped = [trial for trial in found.trials if trial.dropped]
    assert dropped
    assert all(len(trial.means) < 3 and "after fold" in trial.dropped for trial in dropped)
    assert not found.best.dropped
    assert found.mean(found.best.scores) <= found.mean(found.trials[0].scores)


def test_equal_trials_are_rarely_dropped(run, monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(
        trials_module, "score_fold", lambda fold, settings, clock: Scored(rng.exponential(size=len(fold.test)), 0.01)
    )
    found = run(trials=60)
    # Each of the first two folds drops a trial with probability 0.3 if it is as good as the best; the best is better.
    assert np.mean([bool(trial.dropped) for trial in found.trials]) < 0.8


def test_failed_trials_are_kept_and_those_of_the_defaults_raise(run, no_fits, monkeypatch):
    fitted = trials_module.score_fold

    def fail(fold, settings, clock):
        if settings["lr"] != 0.01:
            raise TrainingError("loss must stay finite")
        return fitted(fold, settings, clock)

    monkeypatch.setattr(trials_module, "score_fold", fail)
    assert any(trial.dropped == "failed: loss must stay finite" for trial in run("a", trials=4).trials)
    monkeypatch.setattr(trials_module, "score_fold", lambda *_: fail(None, {"lr": 1.0}, None))
    with pytest.raises(TrainingError):
        run("b", trials=4)


def test_the_budget_is_kept(run, no_fits, monkeypatch):
    def slow(fold, settings, clock):
        began = time.monotonic()
        while time.monotonic() - began < 0.2:
            sum(range(1000))
        return Scored(np.ones(len(fold.test)), 0.2)

    monkeypatch.setattr(trials_module, "score_fold", slow)
    monkeypatch.setattr(module, "_REFIT_SECONDS", 0.5)
    found = run("a", seconds=3.0)
    assert found.trials[-1].elapsed < 3.0
    assert len(found.folds) == 1  # more would leave no time for trials
    assert 2 <= len(found.trials) <= 12
    assert found.reserved == pytest.approx(0.5 + 2.0 * 96 / 64 * 0.2)
    again = run("a", seconds=3.0)
    assert len(again.trials) - len(found.trials) <= 2, "the time of earlier trials counts"
    assert len(again.folds) == 1


def test_no_time_for_the_defaults(run, no_fits, monkeypatch):
    monkeypatch.setattr(trials_module, "score_fold", lambda *_: time.sleep(9))
    found = run(seconds=0.5)
    assert found.stopped
    assert not found.trials
    result = summarize([], found.defaults, found.weight, {"lr": "x"}, "rows", True)
    assert not result.is_tuned
    assert "time for the default settings only" in result.headline


def test_importances_find_what_matters(run, no_fits):
    found = run(trials=14)
    shares = found.importances([trial.means[0] for trial in found.trials])
    assert max(shares, key=lambda name: shares[name]) == "lr"
    assert sum(shares.values()) == pytest.approx(1.0)
    assert found.importances([None] * 14) == {}


def test_a_damaged_score_is_scored_again(run, no_fits, tmp_path):
    whole = outcome(run(trials=3))
    for file in (tmp_path / "study").glob("*.result"):
        file.write_bytes(file.read_bytes()[:-1])
    assert outcome(run(trials=3)) == whole
