"""Trials as jobs: those of one at a time are the same as without jobs; several at once continue after a kill."""

import time

import pytest

from ddpn.executors import InProcess
from ddpn.runtime.errors import TrainingError
from ddpn.tuning import search as module
from ddpn.tuning.limits import Limit
from ddpn.tuning.search import Search
from ddpn.tuning.study import Study


class Wide(InProcess):
    """As if three jobs ran at once."""

    slots = 3


@pytest.fixture
def jobs(tmp_path, folds):
    """Runs a search by an executor."""
    from ddpn.tuning.space import Choices, Range

    space = {"lr": Range(0.001, 0.1), "hidden": Choices(("8", "16", "32"))}

    def go(folder, executor, trials=None, seconds=None):
        study = Study(tmp_path / folder, space, 0)
        limit = Limit(seconds, trials)
        found = Search(
            list(folds), study, {"lr": 0.01, "hidden": "16"}, 96, limit, lambda _: None, time.monotonic(), executor
        )
        found.run()
        return found

    return go


def outcome(search):
    return [(t.settings, t.means, t.dropped) for t in search.study.trials]


def test_one_job_at_a_time_is_the_search_without_jobs(run, jobs, no_fits):
    assert outcome(jobs("a", InProcess(), trials=10)) == outcome(run("b", trials=10))


def test_several_at_once_do_not_depend_on_a_kill(jobs, no_fits, monkeypatch):
    whole = outcome(jobs("a", Wide(), trials=9))
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
        jobs("b", Wide(), trials=9)
    monkeypatch.setattr(module, "run_fold", fitted)
    no_fits.clear()
    again = jobs("b", InProcess(), trials=9)  # on fewer machines
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
    found = jobs("a", Wide(), seconds=2.5)
    assert time.monotonic() - began < 2.5
    assert any(trial.dropped == "failed: loss must stay finite" for trial in found.study.trials)
    assert len(found.study.trials) > 3
