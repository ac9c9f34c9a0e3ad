"""Trials as jobs: those of one at a time are the same as without jobs; several at once continue after a kill."""

import time

import pytest

from ddpn.runtime.errors import TrainingError
from ddpn.runtime.jobs import run as run_jobs
from ddpn.workflow.tuning import search as module
from ddpn.workflow.tuning import trials as trials_module


@pytest.fixture
def jobs(run, monkeypatch):
    """Runs a search as if so many jobs ran at once; they run in this process."""
    monkeypatch.setattr(module, "run", lambda jobs, shared, n_jobs, store: run_jobs(jobs, shared, None, store))
    return lambda folder, n_jobs, **limits: run(folder, n_jobs=n_jobs, **limits)


def outcome(search):
    return [(trial.settings, trial.means, trial.dropped) for trial in search.trials]


def test_several_at_once_do_not_depend_on_a_kill(jobs, no_fits, monkeypatch):
    whole = outcome(jobs("a", 3, trials=9))
    assert len(whole) == 9
    assert len({str(settings) for settings, _, _ in whole}) > 6
    assert whole[0][0] == {"lr": 0.01, "hidden": "16"}
    fitted, calls = trials_module.score_fold, []

    def interrupt(*arguments):
        if len(calls) == 8:
            raise KeyboardInterrupt
        calls.append(arguments)
        return fitted(*arguments)

    monkeypatch.setattr(trials_module, "score_fold", interrupt)
    with pytest.raises(KeyboardInterrupt):
        jobs("b", 3, trials=9)
    monkeypatch.setattr(trials_module, "score_fold", fitted)
    no_fits.clear()
    again = jobs("b", 1, trials=9)  # on fewer machines
    assert outcome(again) == whole
    assert len(no_fits) == sum(len(means) for _, means, _ in whole) - 8, "no fold was fitted twice"


def test_a_failing_trial_is_dropped_and_the_budget_is_kept(jobs, no_fits, monkeypatch):
    fitted = trials_module.score_fold

    def fail(fold, settings, clock):
        if settings["hidden"] == "32":
            raise TrainingError("loss must stay finite")
        time.sleep(0.02)
        return fitted(fold, settings, clock)

    monkeypatch.setattr(trials_module, "score_fold", fail)
    monkeypatch.setattr(module, "_REFIT_SECONDS", 0.5)
    found = jobs("a", 3, seconds=2.5)
    assert found.trials[-1].elapsed < 2.5
    assert any(trial.dropped == "failed: loss must stay finite" for trial in found.trials)
    assert len(found.trials) > 3
