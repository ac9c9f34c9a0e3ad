"""The loop around trials, which are not fitted here."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from ddpn.networks.training.monitoring import EpochReport
from ddpn.runtime.errors import TrainingError
from ddpn.workflow.tuning import search as module
from ddpn.workflow.tuning.result import summarize
from ddpn.workflow.tuning.space import Choices, Range
from ddpn.workflow.tuning.study import Study

SPACE = {"lr": Range(0.001, 0.1), "hidden": Choices(("8", "16", "32"))}


def test_defaults_come_first_and_the_same_seed_makes_the_same_trials(run, no_fits):
    first = [trial.settings for trial in run("a", trials=12).study.trials]
    assert first[0] == {"lr": 0.01, "hidden": "16"}
    assert len(first) == 12
    assert len({str(each) for each in first}) > 8
    assert [trial.settings for trial in run("b", trials=12).study.trials] == first
    assert [trial.settings for trial in run("c", trials=12, seed=1).study.trials] != first


def test_a_search_that_is_continued_makes_the_trials_of_an_uninterrupted_one(run, no_fits, monkeypatch):
    whole = [(t.settings, t.means, t.dropped) for t in run("a", trials=8).study.trials]
    fitted = module.run_fold

    def interrupt(*arguments):
        raise KeyboardInterrupt

    run("b", trials=4)
    monkeypatch.setattr(module, "run_fold", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run("b", trials=8)  # leaves a trial in progress, as a killed process does
    monkeypatch.setattr(module, "run_fold", fitted)
    lines = []
    found = run("b", trials=8, on_step=lines.append).study.trials
    assert [(t.settings, t.means, t.dropped) for t in found] == whole
    assert lines[0].startswith("Continuing after 4 trials: best ")
    assert "Trial 7: " in lines[-1]
    assert [trial.number for trial in found] == list(range(8))


def test_bad_trials_are_dropped_after_a_fold(run, no_fits):
    found = run(trials=12)
    dropped = [trial for trial in found.study.trials if trial.dropped]
    assert dropped
    assert all(len(trial.means) < 3 and "after fold" in trial.dropped for trial in dropped)
    assert not found.best.dropped
    assert found.mean(found.best.scores) <= found.mean(found.study.trials[0].scores)


def test_failed_trials_are_kept_and_those_of_the_defaults_raise(run, no_fits, monkeypatch):
    fitted = module.run_fold

    def fail(fold, settings, on_epoch):
        if settings["lr"] != 0.01:
            raise TrainingError("loss must stay finite")
        return fitted(fold, settings, on_epoch)

    monkeypatch.setattr(module, "run_fold", fail)
    trials = run("a", trials=4).study.trials
    assert any(trial.dropped == "failed: loss must stay finite" for trial in trials)
    monkeypatch.setattr(module, "run_fold", lambda *_: fail(None, {"lr": 1.0}, None))
    with pytest.raises(TrainingError):
        run("b", trials=4)


def test_networks_that_score_badly_in_the_middle_are_dropped(run, no_fits, monkeypatch):
    fitted = module.run_fold
    epochs = []

    def train(fold, settings, on_epoch):
        bad = 100.0 if len(epochs) > 120 else 0.0
        for epoch in range(1, 7):
            epochs.append(epoch)
            on_epoch(EpochReport("Training", epoch, 6, "nll", [1.0 + bad, 2.0 + bad]))
        return fitted(fold, settings | {"lr": 0.02}, on_epoch)

    monkeypatch.setattr(module, "run_fold", train)
    trials = run(trials=12).study.trials
    assert sum("dropped at epoch 2 of 6" in trial.dropped for trial in trials) >= 3
    assert trials[0].networks == {2: 1.5, 4: 1.5, 8: 1.5, 10: 1.5, 14: 1.5, 16: 1.5}


def test_the_budget_is_kept(run, no_fits, monkeypatch):
    def slow(fold, settings, on_epoch):
        began = time.monotonic()
        while time.monotonic() - began < 0.2:
            sum(range(1000))
        return SimpleNamespace(scores=np.ones(len(fold.test)), seconds=0.2)

    monkeypatch.setattr(module, "run_fold", slow)
    monkeypatch.setattr(module, "_REFIT_SECONDS", 0.5)
    began = time.monotonic()
    found = run("a", seconds=3.0)
    assert time.monotonic() - began < 3.0
    assert len(found.folds) == 1  # more would leave no time for trials
    assert 2 <= len(found.study.trials) <= 12
    assert found.reserved == pytest.approx(0.5 + 2.0 * 96 / 64 * 0.2)
    again = run("a", seconds=3.0)
    assert len(again.study.trials) - len(found.study.trials) <= 2, "the time of earlier trials counts"
    assert len(again.folds) == 1


def test_no_time_for_the_defaults(run, no_fits, monkeypatch):
    monkeypatch.setattr(module, "run_fold", lambda *_: time.sleep(9))
    found = run(seconds=0.5)
    assert found.stopped
    assert not found.study.trials
    result = summarize([], found.defaults, found.weight, {"lr": "x"}, "rows", True)
    assert not result.is_tuned
    assert "time for the default settings only" in result.headline


def test_importances_find_what_matters(run, no_fits):
    found = run(trials=14)
    relative = [trial.means[0] for trial in found.study.trials]
    shares = found.study.importances(relative)
    assert max(shares, key=lambda name: shares[name]) == "lr"
    assert sum(shares.values()) == pytest.approx(1.0)
    assert found.study.importances([None] * 14) == {}


def test_a_half_written_line_is_left_out(run, no_fits, tmp_path):
    known = [trial.settings for trial in run(trials=3).study.trials]
    journal = tmp_path / "study" / "trials.log"
    with journal.open("ab") as file:
        file.write(b'{"op_code": 4, "worker')
    assert [trial.settings for trial in Study(tmp_path / "study", SPACE, 0).trials] == known
