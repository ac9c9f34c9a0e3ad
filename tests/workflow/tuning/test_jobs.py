"""Trials as jobs: those of one at a time are the same as without jobs; several at once continue after a kill."""

import time

import pytest

from ddpn.runtime.errors import TrainingError
from ddpn.runtime.jobs import run as run_jobs
from ddpn.workflow.tuning import search as module
from ddpn.workflow.tuning.limits import Limit
from ddpn.workflow.tuning.search import Search
from ddpn.workflow.tuning.study import Study


@pytest.fixture
def jobs(tmp_path, folds, monkeypatch):
    """Runs a search as if so many jobs ran at once; they run in this process."""
    from ddpn.workflow.tuning.space import Choices, Range

    space = {"lr": Range(0.001, 0.1), "hidden": Choices(("8", "16", "32"))}

    monkeypatch.setattr(module, "is_here", lambda n_jobs: False)
    monkeypatch.setattr(module, "run", lambda jobs, shared, n_jobs, store: run_jobs(jobs, shared, None, store))

    def go(folder, n_jobs, trials=None, seconds=None):
        study = Study(tmp_path / folder, space, 0)
        limit = Limit(seconds, trials)
        found = Search(
            list(folds), study, {"lr": 0.01, "hidden": "16"}, 96, limit, lambda _: None, time.monotonic(), n_jobs
        )
        found.run()
        return found

    return go


def outcome(search):
    return [(t.settings, t.means, t.dropped) for t in search.study.trials]


def test_one_job_at_a_time_is_the_search_without_jobs(run, jobs, no_fits, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(module, "is_here", lambda n_jobs: True)
        alone = outcome(run("b", trials=10))
    assert outcome(jobs("a", 1, trials=10)) == alone


def test_several_at_once_do_not_depend_on_a_kill(jobs, no_fits, monkeypatch):
    whole = outcome(jobs("a", 3, trials=9))
    assert len(whole) == 9
    assert len({str(settings) for settings, _, _ in whole}) > 6
    assert whole[0][0] == {"lr": 0.01, "hidden": "16"}
    fitted, calls = module.run_fold, []

    def interrupt(*arguments):
        if len(calls) == 8:
            raise KeyboardInterrupt
        calls.append(arguments)
        return fitted(*arguments)

    monkeypatch.setattr(module, "run_fold", interrupt)
    with pytest.raises(KeyboardInterrupt):
        jobs("b", 3, trials=9)
    monkeypatch.setattr(module, "run_fold", fitted)
    no_fits.clear()
    again = jobs("b", 1, trials=9)  # on fewer machines
    assert outcome(again) == whole
    assert len(no_fits) == sum(len(means) for _, means, _ in whole) - 8, "no fold was fitted twice"


def test_a_failing_trial_is_dropped_and_the_budget_is_kept(jobs, no_fits, monkeypatch):
    fitted = module.run_fold

    def fail(fold, settings, on_epoch):
        if settings["hidden"] == "32":
            raise TrainingError("loss must stay finite")
        time.sleep(0.02)
        return fitted(fold, settings, on_epoch)

    monkeypatch.setattr(module, "run_fold", fail)
    monkeypatch.setattr(module, "_REFIT_SECONDS", 0.5)
    began = time.monotonic()
    found = jobs("a", 3, seconds=2.5)
    assert time.monotonic() - began < 2.5
    assert any(trial.dropped == "failed: loss must stay finite" for trial in found.study.trials)
    assert len(found.study.trials) > 3
